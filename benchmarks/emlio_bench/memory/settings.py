"""The settings of `emlio-bench memory`.

Covers: its options with their texts and defaults, for a pause over loopback and for a slow user
over a link. Does not cover: running.
"""

from dataclasses import dataclass
from pathlib import Path

from emlio.errors import ConfigError
from emlio.settings import option
from emlio.units import parse_duration_ns, parse_size
from emlio_bench.harness.parsers import durations_ns, path, whole_number, whole_numbers
from emlio_bench.harness.settings import CommonSettings

__all__ = ["MemorySettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings(CommonSettings):
    """`emlio-bench memory`."""

    size: int = option(10_000_000_000, "payload of the epoch (default 10GB)", parse=parse_size, metavar="SIZE")
    pause: int = option(
        60_000_000_000, "how long the consumer stops, half way (default 60s)", parse=parse_duration_ns, metavar="TIME"
    )
    batch: int = option(
        0, "records of 100 kB in a batch (default 256, over a link 64)", parse=whole_number, metavar="N"
    )
    rtt: tuple[int, ...] = option(
        (),
        "a rank with a slow user, over links of these round trips (default: one that pauses, on loopback)",
        parse=durations_ns,
        metavar="TIME,...",
    )
    lanes: tuple[int, ...] = option(
        (11, 38), "connections of the rank; with --rtt (default 11,38)", parse=whole_numbers, metavar="N,..."
    )
    rate: int = option(
        200_000_000,
        "bytes of payload that the rank's user takes in a second; with --rtt (default 200MB)",
        parse=parse_size,
        metavar="SIZE",
    )
    seconds: int = option(10, "how long it reads; with --rtt (default 10)", parse=whole_number, metavar="N")
    repeats: int = option(3, "rounds, in turns; with --rtt (default 3)", parse=whole_number, metavar="N")
    other: Path | None = option(
        None, "another checkout of emlio, in turns with this one; with --rtt", parse=path, metavar="DIR"
    )

    def __post_init__(self) -> None:
        CommonSettings.__post_init__(self)
        if self.other is not None and not self.rtt:
            raise ConfigError("--other needs a link: --rtt TIME")

    @property
    def batch_records(self) -> int:
        """Number of records in a batch."""
        return self.batch or (64 if self.rtt else 256)
