"""A daemon that stands still at random, as a storage host does under the load of others, and what theory says of that."""

import os
import random
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Event, Thread

__all__ = ["stalled", "utilisation_without_reading_ahead"]


@contextmanager
def stalled(pid: int, part: float, pause_s: float, seed: int) -> Generator[Callable[[], float]]:
    """Stop a process in each `pause_s` with a probability, while the block lasts; yield what returns for how long in all.

    Args:
        pid: the process.
        part: the probability; 0 for never.
        pause_s: for how long it is stopped, or runs on.
        seed: of the chances.
    """
    ended, chances, total_s = Event(), random.Random(seed), 0.0

    def stall() -> None:
        nonlocal total_s
        going = True
        while going:
            if chances.random() >= part:
                going = not ended.wait(pause_s)
                continue
            begun = time.monotonic()
            os.kill(pid, signal.SIGSTOP)
            try:
                going = not ended.wait(pause_s)
            finally:
                os.kill(pid, signal.SIGCONT)
            total_s += time.monotonic() - begun

    thread = Thread(target=stall, name="stall") if part else None
    if thread is not None:
        thread.start()
    try:
        yield lambda: total_s
    finally:
        ended.set()
        if thread is not None:
            thread.join()


def utilisation_without_reading_ahead(part: float, ranks: int, period: int) -> float:
    """Return the AU, in percent, of ranks of which one waits for a step's length before a step with this probability.

    Where ranks meet within an epoch all wait for that one; where they do not, it alone is late.
    """
    late = 1 / (1 + part)
    return 100 * (late if period else (late + ranks - 1) / ranks)
