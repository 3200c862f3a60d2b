"""What is measured: records of which size, how many bytes of them, and for how long.

Covers: the frozen values and their text forms. Does not cover: making data (emlio.benchmarks.data), measuring.
"""

from dataclasses import dataclass
from typing import Final

from emlio.errors import ConfigError
from emlio.units import format_size, parse_size

__all__ = [
    "MESSAGE_BYTES",
    "QUICK_WINDOW",
    "DataSpec",
    "Scenario",
    "Window",
    "delivery_scenario",
    "parse_sizes",
]

MESSAGE_BYTES: Final = 4 << 20
"""What the bare socket pair sends at once, or one whole record where that is longer: costs per message are small by then."""

_TFRECORD_FRAME = 16
_BATCH_BYTES = 6_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSpec:
    """A synthetic dataset.

    Attributes:
        kind: "opaque" or "example", as `emlio synth` knows them.
        record_bytes: of each record's payload; all are equal, so that payload is records times this.
        records: how many.
        shards: in how many files opaque records lie, those of examples in about so many; fewer where they would be too small.
            By default enough that an order of shards is one, few enough that each is read for a while.
    """

    kind: str
    record_bytes: int
    records: int
    shards: int = 16

    def __post_init__(self) -> None:
        if self.kind not in ("opaque", "example"):
            raise ConfigError(f"kind must be opaque or example, got {self.kind!r}")
        if self.record_bytes < 16 or self.records < 1:
            raise ConfigError(
                "a dataset must have at least one record of at least 16 bytes, "
                f"got {self.records} of {self.record_bytes} bytes"
            )
        if self.shards < 1:
            raise ConfigError(f"a dataset must have at least one shard, got {self.shards}")

    @property
    def payload_bytes(self) -> int:
        """Of all records."""
        return self.record_bytes * self.records

    @property
    def folder(self) -> str:
        """The name of its directory: other data, another name."""
        return f"{self.kind}-{self.record_bytes}-x{self.records}-in{self.shards}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """When a sample begins and ends, as its receiver sees it.

    Attributes:
        warm_up_bytes: payload that is not counted: connections, slow start, cold branches.
        sample_bytes: payload to count at least,
        least_ns: for at least this long,
        most_ns: but no longer than this.
    """

    warm_up_bytes: int = 100_000_000
    sample_bytes: int = 2_000_000_000
    least_ns: int = 1_500_000_000
    most_ns: int = 4_000_000_000

    def __post_init__(self) -> None:
        if self.warm_up_bytes < 0 or self.sample_bytes < 1:
            raise ConfigError(
                "warm_up_bytes must be at least 0 and sample_bytes at least 1, "
                f"got {self.warm_up_bytes} and {self.sample_bytes}"
            )
        if not 0 < self.least_ns <= self.most_ns:
            raise ConfigError(f"least_ns must be in [1, most_ns], got {self.least_ns} with most_ns {self.most_ns}")


QUICK_WINDOW: Final = Window(
    warm_up_bytes=10_000_000, sample_bytes=20_000_000, least_ns=200_000_000, most_ns=2_000_000_000
)
"""Shows that all works; its figures mean nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One row of a delivery benchmark.

    Attributes:
        data: what is delivered.
        batch_records: of the loader.
        paper_records: in one message of the paper's way.
        message_bytes: of the bare socket pair.
    """

    data: DataSpec
    batch_records: int
    paper_records: int
    message_bytes: int

    @property
    def name(self) -> str:
        """How it is called in results."""
        return format_size(self.data.record_bytes)


def delivery_scenario(record_bytes: int, payload_bytes: int) -> Scenario:
    """The scenario of records of one size, about `payload_bytes` of them.

    Batches are what one would train with: 64 photographs of 100 kB, more of what is smaller, fewer of what is larger.
    """
    records = max(payload_bytes // record_bytes, 1)
    return Scenario(
        data=DataSpec(kind="opaque", record_bytes=record_bytes, records=records),
        batch_records=min(max(min(_BATCH_BYTES // record_bytes, 1024), 16), records),
        paper_records=min(max(min(_BATCH_BYTES // record_bytes, 64), 1), records),
        message_bytes=max(MESSAGE_BYTES, record_bytes + _TFRECORD_FRAME),
    )


def parse_sizes(text: str) -> tuple[int, ...]:
    """Sizes of records, as "1kB,100kB,2MB"; each once."""
    sizes = tuple(parse_size(part) for part in text.split(","))
    if len(set(sizes)) != len(sizes) or not all(16 <= size <= 1 << 28 for size in sizes):
        raise ConfigError(f"sizes must differ and lie in [16, 256 MiB], got {text!r}")
    return sizes
