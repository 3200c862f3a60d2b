"""A training process of a run: takes batches at its pace and writes what it took and its state in one line each.

Covers: what runs in the process; its source is handed to a fresh interpreter. Does not cover: starting and ending it
(tests.e2e.chaos.job).
"""

import json
import os
import sys
import threading
import time
import zlib
from typing import Any

from emlio import EmlioLoader

__all__ = ["main"]


def main(told: dict[str, Any]) -> None:
    """Take what is left of the epochs."""
    log = os.open(told["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def say(**words: Any) -> None:
        """One write: a line is there or it is not; one that a kill tore has no end and does not count."""
        os.write(log, json.dumps(words, separators=(",", ":")).encode() + b"\n")

    asked_ns = time.monotonic_ns()
    say(what="began", at=asked_ns, pid=os.getpid())
    with EmlioLoader(
        told["address"],
        rank=told["rank"],
        world_size=told["world_size"],
        raw=True,
        ids=True,
        to="numpy",
        **told["options"],
    ) as loader:
        if told["state"] is not None:
            loader.load_state_dict(told["state"])
        while loader.epoch < told["epochs"]:
            epoch, batches = loader.epoch, iter(loader)
            while (batch := next(batches, None)) is not None:
                now_ns = time.monotonic_ns()
                say(
                    what="batch",
                    at=now_ns,
                    waited=now_ns - asked_ns,
                    epoch=epoch,
                    ids=batch["__id__"].tolist(),
                    checksums=[zlib.crc32(record) for record in batch["record"]],
                    state=loader.state_dict(),
                )
                del batch
                time.sleep(told["pace_s"])
                asked_ns = time.monotonic_ns()
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("emlio-")]
    say(what="done", at=time.monotonic_ns(), left=left)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
