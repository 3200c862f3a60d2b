"""A training process of a run: takes batches at its pace and writes what it took and its state in one line each. It looks at a
batch for validation first, as all ranks do. Asked by SIGUSR1 it closes its loader in mid-flow, rank 0 looks at batches of none to
two loaders that no other rank makes, and it goes on with another, from its state; by SIGUSR2 it takes nothing more until the next
one. Where it is told to, it changes all settings of its loader at random each second.

Covers: what runs in the process; its source is handed to a fresh interpreter. Does not cover: starting and ending it
(tests.e2e.chaos.job).
"""

import json
import os
import random
import signal
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from types import FrameType
from typing import Any

from emlio import EmlioLoader
from emlio.receiver.tuning.tuning import Tuning
from emlio_testing.loader_arguments import loader_arguments

__all__ = ["main"]


_PUT_OFF_S = (0.000_01, 0.000_3)
_LOOK_EVERY_S = 0.01
_MOST_OWN = 2
_TUNE_EVERY_S = 1.0
_VALIDATION = {"shuffle": False, "seed": 0, "batch_size": 8}


class _Interrupts:
    """SIGINT as KeyboardInterrupt, while a batch is waited for and the loader's own code runs; one that comes at another time is
    put off to a moment in the next wait.

    Behind the return of that code Python has one place more where it raises, and drops what `next` returned, as of any iterator.
    """

    def __init__(self) -> None:
        self.count = 0
        self._waits = self._is_put_off = False
        self._draw = random.Random(os.getpid())
        for number in (signal.SIGINT, signal.SIGALRM):
            signal.signal(number, self._raise)

    def _raise(self, _: int, frame: FrameType | None) -> None:
        while self._waits and frame is not None:
            if frame.f_globals.get("__name__", "").startswith("emlio."):
                self._waits = False
                raise KeyboardInterrupt
            frame = frame.f_back
        self._is_put_off = True

    def next(self, batches: Iterator[Any]) -> Any:
        """The next batch, however often that is interrupted; None where there is none."""
        while True:
            if self._is_put_off:
                self._is_put_off = False
                signal.setitimer(signal.ITIMER_REAL, self._draw.uniform(*_PUT_OFF_S))
            self._waits = True
            try:
                return next(batches, None)
            except KeyboardInterrupt:
                self.count += 1
            finally:
                self._waits = False


class _RandomTuner:
    """Changes all settings of a loader at random, once a second."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._due_s = time.monotonic() + _TUNE_EVERY_S

    def turn(self, loader: EmlioLoader) -> None:
        """Change them, if it is time."""
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + _TUNE_EVERY_S
        draw = self._draw
        loader._shell.engine.tune(
            Tuning(
                window_bytes=draw.choice((1, 2, 4)) << 20,
                credit_parts=draw.choice((2, 4, 16, 64)),
                lanes=draw.randrange(6),
                message_bytes=draw.choice((0, 64 << 10, 256 << 10, 8 << 20)),
                ready_bytes=draw.choice((0, 1, 1 << 20)),
                readers=draw.randrange(3),
                threads=draw.randrange(3),
                ahead=draw.randrange(4),
            )
        )


def main(told: dict[str, Any]) -> None:
    """Take what is left of the epochs."""
    log = os.open(told["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def say(**words: Any) -> None:
        """One write: a line is there or it is not; one that a kill tore has no end and does not count."""
        os.write(log, json.dumps(words, separators=(",", ":")).encode() + b"\n")

    def made(**options: Any) -> EmlioLoader:
        arguments = loader_arguments(**{**told["options"], **options})
        world = {"rank": told["rank"], "world_size": told["world_size"]}
        return EmlioLoader(told["address"], **world, raw=True, ids=True, to="numpy", **arguments)

    def look(**options: Any) -> None:
        with made(**options) as loader:
            next(iter(loader))

    draw = random.Random(os.getpid())
    tuner = _RandomTuner(draw) if told["tunes"] else None
    interrupts = _Interrupts()
    asked_to_close: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: asked_to_close.append(number))
    asked_to_hold: list[int] = []
    signal.signal(signal.SIGUSR2, lambda number, _: asked_to_hold.append(number))
    look(**_VALIDATION)
    asked_ns = time.monotonic_ns()
    say(what="began", at=asked_ns, pid=os.getpid())
    state, is_done = told["state"], False
    while not is_done:
        with made() as loader:
            if state is not None:
                loader.load_state_dict(state)
            asked_to_close.clear()
            while loader.epoch < told["epochs"] and not asked_to_close:
                epoch, batches = loader.epoch, iter(loader)
                while not asked_to_close and (batch := interrupts.next(batches)) is not None:
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
                        interrupts=interrupts.count,
                    )
                    del batch
                    if tuner is not None:
                        tuner.turn(loader)
                    time.sleep(told["pace_s"])
                    if len(asked_to_hold) % 2:
                        say(what="holds", at=time.monotonic_ns())
                    while len(asked_to_hold) % 2:
                        time.sleep(_LOOK_EVERY_S)
                    asked_ns = time.monotonic_ns()
            is_done = not asked_to_close
        if not is_done:
            for _ in range(draw.randrange(_MOST_OWN + 1) if told["rank"] == 0 else 0):
                look(seed=draw.randrange(1 << 40))
            say(what="closed", at=time.monotonic_ns())
    for number in (signal.SIGINT, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # those that come too late
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("emlio-")]
    say(what="done", at=time.monotonic_ns(), left=left)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
