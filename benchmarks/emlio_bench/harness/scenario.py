"""Scenarios: the size of records, the amount of payload, and the length of a measurement."""

from dataclasses import dataclass
from typing import Final

from emlio.errors import ConfigError
from emlio.units import format_duration, format_size, parse_size

__all__ = [
    "BARE",
    "LIMITS",
    "MESSAGE_BYTES",
    "QUICK_WINDOW",
    "DataSpec",
    "Scenario",
    "Window",
    "delivery_scenario",
    "parse_sizes",
]

MESSAGE_BYTES: Final = 4 << 20
"""Bytes that the bare socket pair sends at once, or one whole record if that is longer.

With messages of this size the cost per message is small.
"""

_TFRECORD_FRAME = 16
_BATCH_BYTES = 6_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSpec:
    """A synthetic dataset.

    Attributes:
        kind: "opaque" or "example", as `emlio synth` defines them.
        record_bytes: payload of each record. All records have the same size, so the whole payload
            is `records` times this.
        records: number of records.
        shards: number of files of opaque records, approximate for examples; fewer if files would be
            too small. The default is large enough for a meaningful order of shards, and small
            enough that each shard is read for a while.
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
        """Payload of all records."""
        return self.record_bytes * self.records

    @property
    def folder(self) -> str:
        """Name of the dataset's directory, different for each specification."""
        return f"{self.kind}-{self.record_bytes}-x{self.records}-in{self.shards}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The beginning and the end of a sample, as the receiver counts them.

    Attributes:
        warm_up_bytes: payload before the window, not counted: connection setup, slow start, cold
            caches.
        sample_bytes: least payload in the window.
        least_ns: least length of the window.
        most_ns: greatest length of the window, even if `sample_bytes` has not arrived.
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
"""A window for a smoke test. Its figures mean nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One row of a delivery benchmark.

    Attributes:
        data: the dataset to deliver.
        batch_records: records in a batch of the loader.
        paper_records: records in a message of the paper's method.
        message_bytes: bytes in a message of the bare socket pair.
        rtt_ns: round trip of the link between both sides; None for loopback.
    """

    data: DataSpec
    batch_records: int
    paper_records: int
    message_bytes: int
    rtt_ns: int | None = None

    @property
    def name(self) -> str:
        """Name of the scenario in results."""
        size = format_size(self.data.record_bytes)
        if self.rtt_ns is None:
            return size
        return f"{format_duration(self.rtt_ns) if self.rtt_ns else '0 ms'}, {size}"


def delivery_scenario(record_bytes: int, payload_bytes: int) -> Scenario:
    """Return the scenario for one record size, with about `payload_bytes` of payload.

    Batches have sizes that are usual in training: 64 images of 100 kB, more records if they are
    smaller, fewer if they are larger.
    """
    records = max(payload_bytes // record_bytes, 1)
    return Scenario(
        data=DataSpec(kind="opaque", record_bytes=record_bytes, records=records),
        batch_records=min(max(min(_BATCH_BYTES // record_bytes, 1024), 16), records),
        paper_records=min(max(min(_BATCH_BYTES // record_bytes, 64), 1), records),
        message_bytes=max(MESSAGE_BYTES, record_bytes + _TFRECORD_FRAME),
    )


def parse_sizes(text: str) -> tuple[int, ...]:
    """Parse distinct sizes of records, such as "1kB,100kB,2MB"."""
    sizes = tuple(parse_size(part) for part in text.split(","))
    if len(set(sizes)) != len(sizes) or not all(16 <= size <= 1 << 28 for size in sizes):
        raise ConfigError(f"sizes must differ and lie in [16, 256 MiB], got {text!r}")
    return sizes


LIMITS = ("iperf3",)
"""Subjects that measure what one TCP stream of this machine carries; a run uses one of them."""

BARE = "bare"
"""The subject that measures the highest throughput of ZeroMQ in a Python process."""
