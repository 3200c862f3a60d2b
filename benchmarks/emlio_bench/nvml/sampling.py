"""NVML sampled by this benchmark itself, and the joules that follow.

It shares no code with the recorder that it checks.

Covers: samples of power and of the energy counter of all GPUs together, their integral and their
rise between two moments. Does not cover: the recorder (emlio.energy).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from emlio.clock import Clock
from emlio.errors import ConfigError

__all__ = ["NvmlSample", "NvmlSampler", "counted_joules", "integrated_joules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlSample:
    """One sample of all GPUs.

    Attributes:
        at_ns: time of CLOCK_MONOTONIC.
        watts: sum of their powers.
        counter_joules: sum of their counters; None if one of them has none.
    """

    at_ns: int
    watts: float
    counter_joules: float | None


class NvmlSampler:
    """Reads GPUs by their UUIDs. Used by one thread.

    The caller initializes the library and shuts it down.
    """

    def __init__(self, library: Any, uuids: Sequence[str], clock: Clock) -> None:
        """Find the GPUs.

        Args:
            library: the module pynvml, or a compatible one.
            uuids: the GPUs.
            clock: time of the samples.
        """
        self._library = library
        self._clock = clock
        self._handles = [library.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]

    def read(self) -> NvmlSample:
        """Return a sample. Its time is in the middle of the reading."""
        begun_ns = self._clock.monotonic_ns()
        watts = sum(self._library.nvmlDeviceGetPowerUsage(one) for one in self._handles) / 1e3
        counter = self._counter()
        return NvmlSample(at_ns=(begun_ns + self._clock.monotonic_ns()) // 2, watts=watts, counter_joules=counter)

    def _counter(self) -> float | None:
        try:
            return sum(float(self._library.nvmlDeviceGetTotalEnergyConsumption(one)) for one in self._handles) / 1e3
        except self._library.NVMLError:
            return None

    def read_for(self, span_ns: int, every_ns: int, wait: Callable[[int], None]) -> tuple[NvmlSample, ...]:
        """Return samples of a span, one at its begin and one at its end.

        Args:
            span_ns: length of the span.
            every_ns: time from one sample to the next.
            wait: waits for so many nanoseconds.
        """
        begun_ns = self._clock.monotonic_ns()
        samples = [self.read()]
        while (passed_ns := self._clock.monotonic_ns() - begun_ns) < span_ns:
            # The next moment of the schedule: a late sample does not make all later ones late.
            next_ns = min((passed_ns // every_ns + 1) * every_ns, span_ns)
            wait(next_ns - passed_ns)
            samples.append(self.read())
        return tuple(samples)


def integrated_joules(samples: Sequence[NvmlSample], from_ns: int, to_ns: int) -> float:
    """Return the integral of power between two moments, with straight lines between samples."""
    return sum(
        (_at(begin, end, left_ns, "watts") + _at(begin, end, right_ns, "watts")) / 2 * (right_ns - left_ns) / 1e9
        for begin, end in pairwise(samples)
        if (left_ns := max(begin.at_ns, from_ns)) < (right_ns := min(end.at_ns, to_ns))
    )


def counted_joules(samples: Sequence[NvmlSample], from_ns: int, to_ns: int) -> float | None:
    """Return the rise of the counter between two moments; None without a counter.

    Raises:
        ConfigError: the samples do not reach from the first moment to the second.
    """
    if any(one.counter_joules is None for one in samples):
        return None
    return _counter_at(samples, to_ns) - _counter_at(samples, from_ns)


def _counter_at(samples: Sequence[NvmlSample], at_ns: int) -> float:
    for begin, end in pairwise(samples):
        if begin.at_ns <= at_ns <= end.at_ns:
            return _at(begin, end, at_ns, "counter_joules")
    raise ConfigError(f"samples must reach to {at_ns} ns, they end before")


def _at(begin: NvmlSample, end: NvmlSample, at_ns: int, quantity: str) -> float:
    """Return a quantity at a moment between two samples, on a straight line."""
    first, second = float(getattr(begin, quantity)), float(getattr(end, quantity))
    if end.at_ns == begin.at_ns:
        return second
    return first + (second - first) * (at_ns - begin.at_ns) / (end.at_ns - begin.at_ns)
