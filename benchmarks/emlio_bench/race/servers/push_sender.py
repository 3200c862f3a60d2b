"""The storage side of bare sockets.

Usage: python -m emlio_bench.race.servers.push_sender DIRECTORY LISTEN ADDRESS PORT SOCKETS BYTES.

A reader sends BEGIN to PORT of LISTEN, and receives the addresses of SOCKETS PUSH sockets, at
ADDRESS as readers see it. The sockets send the files in messages of BYTES, over and over, until the
reader sends another message.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Final

import zmq

from emlio_bench.harness.data import shard_paths
from emlio_bench.race.servers.served import DATA_PORTS
from emlio_bench.subjects.bare import map_files, slices

__all__ = ["BEGIN", "main"]

BEGIN: Final = b"begin"

_HIGH_WATER_MARK: Final = 4


def main(directory: str, listen: str, address: str, port: str, sockets: str, message_bytes: str) -> None:
    """Serve readers until this process is ended."""
    views = map_files([str(path) for path in shard_paths(Path(directory))])
    with zmq.Context() as context, context.socket(zmq.REP) as asked:
        asked.bind(f"tcp://{listen}:{port}")
        while True:
            if asked.recv() != BEGIN:
                asked.send_json([])
                continue
            with ExitStack() as stack:
                pushed = [stack.enter_context(_bound(context, listen)) for _ in range(int(sockets))]
                ports = [socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2] for socket in pushed]
                asked.send_json([f"tcp://{address}:{own}" for own in ports])
                _send(pushed, chain.from_iterable(slices(views, int(message_bytes)) for _ in repeat(None)), asked)


def _bound(context: "zmq.Context[zmq.Socket[bytes]]", listen: str) -> "zmq.Socket[bytes]":
    first, last = DATA_PORTS
    socket = context.socket(zmq.PUSH)
    socket.setsockopt(zmq.SNDHWM, _HIGH_WATER_MARK)
    socket.setsockopt(zmq.LINGER, 0)
    socket.bind_to_random_port(f"tcp://{listen}", first, last + 1)
    return socket


def _send(pushed: list["zmq.Socket[bytes]"], pieces: Iterator[memoryview], asked: "zmq.Socket[bytes]") -> None:
    """Send pieces to any socket that accepts one, until a message arrives."""
    poller = zmq.Poller()
    poller.register(asked, zmq.POLLIN)
    for socket in pushed:
        poller.register(socket, zmq.POLLOUT)
    while True:
        for socket, _ in poller.poll():
            if socket is asked:
                return
            with suppress(zmq.Again):  # the reader has gone, and its message arrives in a moment
                socket.send(next(pieces), zmq.DONTWAIT, copy=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
