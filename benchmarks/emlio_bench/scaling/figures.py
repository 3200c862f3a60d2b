"""The figures of several daemons' joint throughput, with bounds.

Covers: samples, names of figures, ratios within rounds, bounds. Pure. Does not cover: measuring
(emlio_bench.scaling.run), the plot (emlio_bench.scaling.plot).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from emlio.errors import ConfigError
from emlio_bench.harness.figures import figure, ratio_values, rtt_text
from emlio_bench.harness.results import Figure

__all__ = ["LEAST_SHARE", "ScalingSample", "Way", "aggregate_name", "ratio_name", "scaling_figures"]

LEAST_SHARE: Final = 0.95
"""The least throughput of N daemons, as a share of N times the throughput of one."""

_GBIT: Final = 8 / 1e9


class Way(StrEnum):
    """The behaviour of the last rank."""

    SLOW = "slow"
    """The last rank uses a part of its fair share of the lines, however many there are."""

    EVEN = "even"
    """The last rank is as fast as the others."""

    ASLEEP = "asleep"
    """The last rank sleeps for whole seconds with each batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSample:
    """The data received by each rank in a span of time in which all ranks read.

    Attributes:
        rtt_ns: round trip of each line.
        daemons: number of daemons, each behind a line of its own.
        way: behaviour of the last rank.
        rates_bytes_per_s: bytes that each rank received from the network per second.
        used_bytes_per_s: payload handed to the loops of all ranks per second.
        lost_packets: packets that the emulated lines lost because this machine was too busy.
        latest_ns: greatest delay of a packet beyond its due time.
    """

    rtt_ns: int
    daemons: int
    way: Way
    rates_bytes_per_s: tuple[float, ...]
    used_bytes_per_s: float
    lost_packets: int
    latest_ns: int

    def __post_init__(self) -> None:
        if self.daemons < 1 or len(self.rates_bytes_per_s) < 2:
            raise ConfigError(
                f"a sample must be of a daemon and two ranks at least, got {self.daemons} and {len(self.rates_bytes_per_s)}"
            )

    @property
    def gbit_per_s(self) -> float:
        """Throughput of all ranks."""
        return sum(self.rates_bytes_per_s) * _GBIT

    @property
    def quick_gbit_per_s(self) -> float:
        """Throughput of all ranks but the last."""
        return sum(self.rates_bytes_per_s[:-1]) * _GBIT


def aggregate_name(rtt_ns: int, daemons: int) -> str:
    """Return the name of the figure of all ranks' throughput from this many daemons, in Gbit/s."""
    return f"{rtt_text(rtt_ns)}: {_daemons(daemons)}"


def ratio_name(rtt_ns: int, daemons: int) -> str:
    """Return the name of the ratio of several daemons to as many times one, within rounds."""
    return f"{rtt_text(rtt_ns)}: {_daemons(daemons)} over {daemons} x one"


def scaling_figures(samples: Sequence[ScalingSample], *, note: str, bounded: bool) -> tuple[Figure, ...]:
    """Return all figures of a run.

    Args:
        samples: samples in the order of measurement; each round has one of each kind.
        note: note for all figures.
        bounded: whether the figures have bounds.
    """
    figures: list[Figure] = []
    for rtt_ns in dict.fromkeys(sample.rtt_ns for sample in samples):
        chosen = [sample for sample in samples if sample.rtt_ns == rtt_ns]
        counts = sorted({sample.daemons for sample in chosen})
        sums = {count: _sums(_of(chosen, count, Way.SLOW)) for count in counts}
        least = LEAST_SHARE if bounded else None
        figures += [figure(aggregate_name(rtt_ns, count), "Gbit/s", sums[count], note) for count in counts]
        for count in counts[1:]:
            ratios = ratio_values(sums[count], (count * alone for alone in sums[1]))
            figures.append(figure(ratio_name(rtt_ns, count), "", ratios, note, at_least=least))
        figures += _others(rtt_ns, counts[-1], chosen, note, bounded=bounded)
        figures += [
            figure(
                f"{rtt_text(rtt_ns)}: packets this machine was too busy for",
                "packets",
                (float(sample.lost_packets) for sample in chosen),
                note,
                at_most=0 if bounded else None,
                every=True,
            ),
            figure(
                f"{rtt_text(rtt_ns)}: packets late by at most",
                "ms",
                (sample.latest_ns / 1e6 for sample in chosen),
                note,
            ),
        ]
    return tuple(figures)


def _others(rtt_ns: int, most: int, chosen: Sequence[ScalingSample], note: str, *, bounded: bool) -> list[Figure]:
    """Return the throughput of the fast ranks while the last one is slow, and while it sleeps."""
    slow, even, asleep = (_of(chosen, most, way) for way in (Way.SLOW, Way.EVEN, Way.ASLEEP))
    at = f"{rtt_text(rtt_ns)}, {_daemons(most)}"
    used = (sample.used_bytes_per_s * _GBIT for sample in slow)
    part = (sample.gbit_per_s - sample.quick_gbit_per_s for sample in slow)
    quick = [sample.quick_gbit_per_s for sample in asleep]
    kept = ratio_values(quick, (sample.quick_gbit_per_s for sample in even))
    least = 1.0 if bounded else None
    return [
        figure(f"{at}: handed to the ranks' loops", "Gbit/s", used, note),
        figure(f"{at}: the slow rank's part", "Gbit/s", part, note),
        figure(f"{at}: all ranks quick", "Gbit/s", _sums(even), note),
        figure(f"{at}: the quick ranks while one sleeps", "Gbit/s", quick, note),
        figure(f"{at}: the same over what they have while none is slow", "", kept, note, at_least=least),
    ]


def _of(samples: Sequence[ScalingSample], daemons: int, way: Way) -> list[ScalingSample]:
    return [sample for sample in samples if sample.daemons == daemons and sample.way is way]


def _sums(samples: Sequence[ScalingSample]) -> tuple[float, ...]:
    return tuple(sample.gbit_per_s for sample in samples)


def _daemons(count: int) -> str:
    return "one daemon" if count == 1 else f"{count} daemons"
