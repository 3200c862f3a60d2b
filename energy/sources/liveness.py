"""A test whether a counter works: it moves while a core is kept busy.

The existence of a counter proves nothing: in a virtual machine the kernel may offer one that always
stays at 0. The function that keeps the core busy is an argument.
"""

import time
from collections.abc import Callable, Sequence

from emlio.energy.sources.energy_counter import EnergyCounter

__all__ = ["Burner", "burn", "which_live"]

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
    """Return for each source whether one of its counters moved while a core was busy.

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
                now = source.read()
                lives[place] = any(_moved(before, after) for before, after in zip(first[place], now, strict=True))
                # A counter that could not be read at first is compared with its first value.
                first[place] = tuple(
                    after if before is None else before for before, after in zip(first[place], now, strict=True)
                )
    return tuple(lives)


def _moved(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and before != after
