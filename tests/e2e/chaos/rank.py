"""A training process of a run: takes batches at its pace and writes what it took and its state in one line each. Asked by SIGUSR1 it
closes its loader in mid-flow and goes on with another, from its state.

Covers: what runs in the process; its source is handed to a fresh interpreter. Does not cover: starting and ending it
(tests.e2e.chaos.job).
"""

import json
import os
import signal
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

    asked_to_close: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: asked_to_close.append(number))
    asked_ns = time.monotonic_ns()
    say(what="began", at=asked_ns, pid=os.getpid())
    state, is_done = told["state"], False
    while not is_done:
        with EmlioLoader(
            told["address"],
            rank=told["rank"],
            world_size=told["world_size"],
            raw=True,
            ids=True,
            to="numpy",
            **told["options"],
        ) as loader:
            if state is not None:
                loader.load_state_dict(state)
            asked_to_close.clear()
            while loader.epoch < told["epochs"] and not asked_to_close:
                epoch, batches = loader.epoch, iter(loader)
                while not asked_to_close and (batch := next(batches, None)) is not None:
                    now_ns = time.monotonic_ns()
                    state = loader.state_dict()
                    say(
                        what="batch",
                        at=now_ns,
                        waited=now_ns - asked_ns,
                        epoch=epoch,
                        ids=batch["__id__"].tolist(),
                        checksums=[zlib.crc32(record) for record in batch["record"]],
                        state=state,
                    )
                    del batch
                    time.sleep(told["pace_s"])
                    asked_ns = time.monotonic_ns()
            is_done = not asked_to_close
        if not is_done:
            say(what="closed", at=time.monotonic_ns())
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("emlio-")]
    say(what="done", at=time.monotonic_ns(), left=left)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
