"""Published figures that were not measured here, shown beside measured ones and marked as quoted.

Covers: the figures, their circumstances and sources. Does not cover: anything measured.
"""

from dataclasses import dataclass
from typing import Final

from emlio.errors import ConfigError

__all__ = ["PAPERS_TABLES", "QUOTES", "PublishedEpochs", "Quote"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A published throughput.

    Attributes:
        system: name of the system.
        bits_per_s: published throughput in bits per second; None if unknown.
        records_per_s: published throughput in records per second.
        rtt_ns: round trip of the link; None if unknown.
        circumstances: machines, decoding and data, in words.
        source: project and page.
    """

    system: str
    bits_per_s: float | None
    records_per_s: float
    rtt_ns: int | None
    circumstances: str
    source: str

    def __post_init__(self) -> None:
        if not self.system or not self.source or not self.circumstances:
            raise ConfigError(f"a quotation must name its system, circumstances and source, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedEpochs:
    """A row of one of the paper's tables: epochs of one system at several round trips.

    Attributes:
        system: name of the system in the paper.
        workload: name of the training.
        seconds: duration of an epoch, by the round trip in nanoseconds.
    """

    system: str
    workload: str
    seconds: tuple[tuple[int, float], ...]

    @property
    def round_trips(self) -> float:
        """Number of sequential round trips that explains the longest epoch beside the shortest."""
        (short_ns, short_s), (long_ns, long_s) = min(self.seconds), max(self.seconds)
        return (long_s - short_s) / ((long_ns - short_ns) / 1e9)


QUOTES: Final = (
    Quote(
        system="Cassandra-DALI",
        bits_per_s=20e9,
        records_per_s=20_000,
        rtt_ns=100_000_000,
        circumstances="ImageNet, pictures not decoded, one process, 25 Gbit/s, a latency of 100 ms by netem, no loss",
        source='cassandra-dali-plugin, page "Long fat networks"',
    ),
    Quote(
        system="LitData, raw files",
        bits_per_s=None,
        records_per_s=6_400,
        rtt_ns=None,
        circumstances="ImageNet's 1.2 million files from AWS S3, pictures not transformed",
        source="LitData, notes of release 0.2.51",
    ),
)
"""Figures of systems that are not measured here, or not under these circumstances."""

_MS: Final = 1_000_000

PAPERS_TABLES: Final = (
    PublishedEpochs(
        system="DALI over NFSv4",
        workload="ResNet-50",
        seconds=((100_000, 165.4), (10 * _MS, 552.5), (30 * _MS, 1699.3)),
    ),
    PublishedEpochs(
        system="DALI over NFSv4",
        workload="VGG-19",
        seconds=((100_000, 142.6), (10 * _MS, 660.9), (30 * _MS, 2096.8)),
    ),
    PublishedEpochs(
        system="DALI over NFSv4",
        workload="ResNet-50, half of the data local",
        seconds=((100_000, 230.9), (10 * _MS, 1422.5), (30 * _MS, 4154.7)),
    ),
)
"""The paper's measurements of its baseline on its own machines."""
