"""Comparison of a counter with another measurement of the same energy.

Covers: reading two sources for a while, their ratio. Does not cover: the use of the ratio: it is
published, but never used for correction. An idle GPU's counter may be far from its power, a busy
one's near.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from emlio.clock import Clock
from emlio.energy.sources.energy_counter import EnergyCounter
from emlio.energy.values.counter import Counter
from emlio.errors import ConfigError

__all__ = ["Crosscheck", "Pair", "crosscheck"]

_EVERY_NS = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two sources of one device each that should agree.

    Attributes:
        counter: the recorded source.
        other: the source it is compared with.
    """

    counter: EnergyCounter
    other: EnergyCounter

    def __post_init__(self) -> None:
        for source in (self.counter, self.other):
            if len(source.devices) != 1:
                raise ConfigError(f"a source to be checked must have one device, got {len(source.devices)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Crosscheck:
    """The result of a comparison.

    Attributes:
        device: the name of the recorded device.
        against: the source it was compared with.
        duration_ns: of the comparison.
        counter_uj: the rise of the counter.
        other_uj: the rise of the other source.
    """

    device: str
    against: str
    duration_ns: int
    counter_uj: int
    other_uj: int

    @property
    def ratio(self) -> float | None:
        """The counter's rise divided by the other's; None where the other did not rise."""
        return self.counter_uj / self.other_uj if self.other_uj else None


def crosscheck(
    pairs: Sequence[Pair], *, clock: Clock, wait: Callable[[int], None], duration_ns: int, every_ns: int = _EVERY_NS
) -> tuple[Crosscheck, ...]:
    """Read all pairs for a while.

    Args:
        pairs: open sources; they stay open.
        clock: for time stamps.
        wait: waits a number of nanoseconds.
        duration_ns: of the comparison.
        every_ns: interval of the readings; power is integrated from reading to reading.
    """
    if duration_ns <= 0 or every_ns <= 0:
        raise ConfigError(f"a check must be longer than 0, got {duration_ns} ns read every {every_ns} ns")
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


def _sum_of(source: EnergyCounter) -> Counter:
    (device,) = source.devices
    return Counter(range_uj=device.range_uj, most_watts=device.most_watts)


def _read(pairs: Sequence[Pair], sums: Sequence[tuple[Counter, Counter]], clock: Clock) -> list[tuple[int, int]]:
    totals: list[tuple[int, int]] = []
    for pair, (counter, other) in zip(pairs, sums, strict=True):
        ((one,), (two,)) = pair.counter.read(), pair.other.read()
        at_ns = clock.monotonic_ns()
        totals.append((counter.step(one, at_ns).total_uj, other.step(two, at_ns).total_uj))
    return totals
