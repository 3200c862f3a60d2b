"""A rank process with several loaders: each takes a few batches, closes in mid-flow, and begins again.

Covers: what runs in the process; its source is handed to a fresh interpreter. Does not cover: when it ends or is killed
(tests.e2e.closings.course).
"""

import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio import EmlioLoader
from emlio_testing.loader_arguments import loader_arguments

__all__ = ["main"]

_MOST_PAUSE_S = 0.005
_PAUSES = 0.5
_LOOK_EVERY_S = 0.1
_SHUFFLES = ("global", "shard", "block")


def _check(batch: dict[str, Any], right: "npt.NDArray[np.uint8]", seen: "npt.NDArray[np.bool_]") -> None:
    """Each record is the one its number says, and none comes twice in an epoch."""
    ids = batch["__id__"]
    got = np.frombuffer(b"".join(batch["record"]), np.uint8).reshape(len(ids), -1)
    if not np.array_equal(got, right[ids]):
        raise AssertionError(f"records {ids[:8].tolist()} ... have another content")
    if seen[ids].any() or len(np.unique(ids)) != len(ids):
        raise AssertionError(f"records {ids[seen[ids]][:8].tolist()} ... come twice in an epoch")
    seen[ids] = True


class _Taking:
    """What one loader gave, over all its streams."""

    def __init__(self, loader: EmlioLoader, right: "npt.NDArray[np.uint8]", count: Any, ended: threading.Event) -> None:
        self._loader = loader
        self._right = right
        self._count = count
        self._ended = ended
        self._seen = np.zeros(len(right), bool)

    def take(self, most: int | None) -> None:
        """Take so many batches, or all of epoch after epoch until the end."""
        taken = 0
        while not self._ended.is_set():
            for batch in self._loader:
                _check(batch, self._right, self._seen)
                self._count[1] += len(batch["__id__"])
                taken += 1
                if taken == most or self._ended.is_set():
                    return
            if not self._seen.all():
                raise AssertionError(f"{np.count_nonzero(~self._seen)} records did not come in an epoch")
            self._seen[:] = False

    def go_on(self) -> None:
        """Go on from the loader's own state, with another stream."""
        self._loader.load_state_dict(self._loader.state_dict())
        self._count[2] += 1


def _loop(told: dict[str, Any], number: int, right: Any, count: Any, ended: threading.Event) -> None:
    draw = random.Random(f"{told['seed']} {number}")
    while not ended.is_set():
        options = {
            **loader_arguments(**told["options"]),
            "shuffle": draw.choice(_SHUFFLES),
            "seed": draw.randrange(1 << 30),
        }
        with EmlioLoader(told["address"], rank=0, world_size=1, raw=True, ids=True, to="numpy", **options) as loader:
            taking = _Taking(loader, right, count, ended)
            for stream in range(told["streams"]):
                if ended.is_set():
                    break
                if stream:
                    taking.go_on()
                taking.take(draw.randint(1, told["most_batches"]) if told["closes"] else None)
            if draw.random() < _PAUSES:
                time.sleep(draw.uniform(0.0, _MOST_PAUSE_S))
        count[0] += 1


def main(told: dict[str, Any]) -> int:
    """Run all loaders until SIGTERM; 1 if one of them failed."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    ended = threading.Event()
    told_to_end: list[int] = []
    # Libraries have threads already, and one of them may be given the signal: so the main thread looks rather than waits.
    signal.signal(signal.SIGTERM, lambda number, _: told_to_end.append(number))
    right = np.load(told["records"], mmap_mode="r")
    # Counts lie in a file of their own: they are there also when this process is killed.
    counts = np.memmap(told["counts"], np.uint64, "r+", shape=(told["loaders"], 3))
    failures: list[str] = []

    def run(number: int) -> None:
        try:
            _loop(told, number, right, counts[number], ended)
        except Exception as error:  # noqa: BLE001  # whatever it is, the process must end with it
            failures.append(f"{type(error).__name__}: {error}")
            ended.set()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(told["loaders"])]
    for thread in threads:
        thread.start()
    print(json.dumps(os.getpid()), flush=True)
    while not (ended.is_set() or told_to_end):
        time.sleep(_LOOK_EVERY_S)
    ended.set()
    for thread in threads:
        thread.join()
    print("\n".join(failures), file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
