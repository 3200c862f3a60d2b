"""Whether a counter lives: it moves while a core is kept busy.

Covers: the test. Does not cover: which counters are tested (emlio.energy.probe). That a counter is there says nothing:
in a virtual machine the kernel may offer one that stays at 0 for ever. What keeps the core busy is an argument.
"""

import time
from collections.abc import Callable, Sequence

from emlio.energy.source import Source

__all__ = ["Burner", "burn", "which_live"]

Burner = Callable[[int], None]
"""Keeps a core busy for so many nanoseconds, then returns."""

_SLICE_NS = 50_000_000


def burn(duration_ns: int) -> None:
    """Keep this thread's core busy."""
    end_ns = time.monotonic_ns() + duration_ns
    number = 1
    while time.monotonic_ns() < end_ns:
        for _ in range(1000):
            number = number * 1_103_515_245 % 2_147_483_648


def which_live(sources: Sequence[Source], *, patience_ns: int, burner: Burner = burn) -> tuple[bool, ...]:
    """For each source whether one of its counters moved while a core was busy.

    Returns as soon as all of them have.

    Args:
        sources: open ones.
        patience_ns: for how long to watch those that do not move.
        burner: what keeps a core busy.
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
                # One that could not be read at first is compared with its first value.
                first[place] = tuple(
                    after if before is None else before for before, after in zip(first[place], now, strict=True)
                )
    return tuple(lives)


def _moved(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and before != after
