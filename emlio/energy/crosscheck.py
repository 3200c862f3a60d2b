"""Trust, as a figure: what a counter says against what another way of reading the same says.

Covers: reading two sources for a while, their ratio. Does not cover: what becomes of it: it is published, never used to
correct. An idle GPU's counter may be far from its power, a busy one's near.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from emlio.clock import Clock
from emlio.energy.counter import Counter
from emlio.energy.source import Source
from emlio.errors import ConfigError

__all__ = ["Crosscheck", "Pair", "crosscheck"]

_EVERY_NS = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two sources of one device each that should agree.

    Attributes:
        counter: what is recorded.
        other: what it is held against.
    """

    counter: Source
    other: Source

    def __post_init__(self) -> None:
        for source in (self.counter, self.other):
            if len(source.devices) != 1:
                raise ConfigError(f"a source to be checked must have one device, got {len(source.devices)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Crosscheck:
    """What came of it.

    Attributes:
        device: the name of what is recorded.
        against: what it was held against.
        duration_ns: for how long.
        counter_uj: what the counter rose by.
        other_uj: what the other did.
    """

    device: str
    against: str
    duration_ns: int
    counter_uj: int
    other_uj: int

    @property
    def ratio(self) -> float | None:
        """Of the counter to the other; None where the other saw nothing."""
        return self.counter_uj / self.other_uj if self.other_uj else None


def crosscheck(
    pairs: Sequence[Pair], *, clock: Clock, wait: Callable[[int], None], duration_ns: int, every_ns: int = _EVERY_NS
) -> tuple[Crosscheck, ...]:
    """Read all pairs for a while.

    Args:
        pairs: open sources; they stay open.
        clock: to note when.
        wait: lets so many nanoseconds pass.
        duration_ns: for how long.
        every_ns: how often to read: power is integrated from reading to reading.
    """
    if duration_ns <= 0 or every_ns <= 0:
        raise ConfigError(f"a check must last, got {duration_ns} ns read every {every_ns} ns")
    sums = [(_sum_of(pair.counter), _sum_of(pair.other)) for pair in pairs]
    begun_ns = clock.monotonic_ns()
    totals = _read(pairs, sums, clock)
    while (left_ns := begun_ns + duration_ns - clock.monotonic_ns()) > 0:
        wait(min(every_ns, left_ns))
        totals = _read(pairs, sums, clock)
    passed_ns = clock.monotonic_ns() - begun_ns
    return tuple(
        Crosscheck(
            device=pair.counter.devices[0].name,
            against=f"{pair.other.devices[0].source}, {pair.other.devices[0].method}",
            duration_ns=passed_ns,
            counter_uj=counter_uj,
            other_uj=other_uj,
        )
        for pair, (counter_uj, other_uj) in zip(pairs, totals, strict=True)
    )


def _sum_of(source: Source) -> Counter:
    (device,) = source.devices
    return Counter(range_uj=device.range_uj, most_watts=device.most_watts)


def _read(pairs: Sequence[Pair], sums: Sequence[tuple[Counter, Counter]], clock: Clock) -> list[tuple[int, int]]:
    totals: list[tuple[int, int]] = []
    for pair, (counter, other) in zip(pairs, sums, strict=True):
        ((one,), (two,)) = pair.counter.read(), pair.other.read()
        at_ns = clock.monotonic_ns()
        totals.append((counter.step(one, at_ns).total_uj, other.step(two, at_ns).total_uj))
    return totals
