"""The energy monitor's access to the machine it runs on, and a test whether counters work.

File systems, clock, system call, library and load are one value, so that a test can substitute
another machine.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emlio.clock import Clock, SystemClock
from emlio.energy.sources.finding import EnergyCounter
from emlio.energy.sources.nvml import load_nvml
from emlio.energy.sources.perf import OpenEvent, open_event

__all__ = ["Burner", "Machine", "burn", "which_live"]


Burner = Callable[[int], None]
"""A function that keeps a core busy for a number of nanoseconds, then returns."""

_SLICE_NS = 50_000_000


def burn(duration_ns: int) -> None:
    """Keep this thread's core busy."""
    end_ns = time.monotonic_ns() + duration_ns
    number = 1
    while time.monotonic_ns() < end_ns:
        for _ in range(1000):
            number = number * 1_103_515_245 % 2_147_483_648


def which_live(sources: Sequence[EnergyCounter], *, patience_ns: int, burner: Burner = burn) -> tuple[bool, ...]:
    """Return for each source whether it moved while a core was busy.

    The call ends as soon as all of them have.

    Args:
        sources: open sources.
        patience_ns: how long to watch counters that do not move.
        burner: keeps a core busy.
    """
    first = [source.read() for source in sources]
    lives = [False] * len(sources)
    left_ns = patience_ns
    while left_ns > 0 and not all(lives):
        slice_ns = min(_SLICE_NS, left_ns)
        burner(slice_ns)
        left_ns -= slice_ns
        for place, source in enumerate(sources):
            if not lives[place]:
                before, now = first[place], source.read()
                lives[place] = None not in (before, now) and before != now
                first[place] = now if before is None else before
    return tuple(lives)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Access to a machine; the real one by default.

    Attributes:
        sysfs: where sysfs is mounted.
        proc: where proc is mounted.
        clock: the monotonic clock.
        open_event: makes the kernel count an event.
        load_nvml: returns NVIDIA's library, or raises ImportError.
        burner: keeps a core busy.
    """

    sysfs: Path = Path("/sys")
    proc: Path = Path("/proc")
    clock: Clock = field(default_factory=SystemClock)
    open_event: OpenEvent = open_event
    load_nvml: Callable[[], Any] = load_nvml
    burner: Burner = burn
