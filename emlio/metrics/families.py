"""Metrics as values: families of samples, before a library writes them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from emlio.errors import ConfigError

__all__ = ["Family", "RisingCounters", "counter", "gauge", "histogram"]

Sample = tuple[tuple[str, ...], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric.

    Attributes:
        name: its name; that of a counter is without "_total", which the library adds.
        kind: its kind.
        text: the help text.
        labels: the names of its labels.
        samples: the values of the labels, and the figure; of a histogram, the sum.
        buckets: of each sample of a histogram, the bounds as text, and how many were not above them.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()
    samples: Sequence[Sample]
    buckets: Sequence[tuple[tuple[str, float], ...]] = ()

    def __post_init__(self) -> None:
        for values, _ in self.samples:
            if len(values) != len(self.labels):
                raise ConfigError(f"a sample of {self.name} must have {len(self.labels)} labels, got {len(values)}")


def counter(name: str, text: str, samples: Iterable[Sample], *labels: str) -> Family:
    """Return a family of counters."""
    return Family(name=name, kind="counter", text=text, labels=labels, samples=tuple(samples))


def gauge(name: str, text: str, samples: Iterable[Sample], *labels: str) -> Family:
    """Return a family of gauges."""
    return Family(name=name, kind="gauge", text=text, labels=labels, samples=tuple(samples))


def histogram(
    name: str,
    text: str,
    bounds: Sequence[float],
    samples: Iterable[tuple[tuple[str, ...], Sequence[int], float]],
    *labels: str,
) -> Family:
    """Return a family of histograms.

    Args:
        name: its name.
        text: the help text.
        bounds: of the buckets; one more is for what is above all of them.
        samples: the values of the labels, the count in each bucket, and the sum.
        labels: their names.
    """
    found = list(samples)
    ends = [*(f"{bound:g}" for bound in bounds), "+Inf"]
    return Family(
        name=name,
        kind="histogram",
        text=text,
        labels=labels,
        samples=tuple((values, total) for values, _, total in found),
        buckets=tuple(tuple(zip(ends, accumulate(counts), strict=True)) for _, counts, _ in found),
    )


class RisingCounters:
    """Keeps counters from falling: a fall looks like a restart, after which all counts once more.

    A total that is read while another thread changes it may be a little too small the next time.
    """

    def __init__(self) -> None:
        self._highest: dict[tuple[str, tuple[str, ...]], float] = {}

    def apply(self, families: Iterable[Family]) -> list[Family]:
        """Return the families with each counter at least as high as before."""
        return [self._risen(family) if family.kind == "counter" else family for family in families]

    def _risen(self, family: Family) -> Family:
        samples: list[Sample] = []
        for values, figure in family.samples:
            key = family.name, values
            self._highest[key] = max(figure, self._highest.get(key, figure))
            samples.append((values, self._highest[key]))
        return replace(family, samples=tuple(samples))
