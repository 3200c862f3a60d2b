"""The storage side of tf.data service: python serve_tfdata.py LISTEN REACHED SERVICE...

A SERVICE is a list of ports, separated by commas: its dispatcher's port, then one port for each
worker. LISTEN is the local address, REACHED the address for clients.
"""

import os
import sys
from importlib import import_module
from typing import Any

__all__ = ["main"]


def main(listen: str, reached: str, *services: str) -> None:
    """Serve until this process is ended."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    service: Any = import_module("tensorflow").data.experimental.service
    kept: list[Any] = []
    for ports in services:
        port, *workers = ports.split(",")
        kept.append(service.DispatchServer(service.DispatcherConfig(port=int(port))))
        for own in workers:
            config = service.WorkerConfig(
                dispatcher_address=f"{listen}:{port}", worker_address=f"{reached}:{own}", port=int(own)
            )
            kept.append(service.WorkerServer(config))
    kept[-1].join()


if __name__ == "__main__":
    main(*sys.argv[1:])
