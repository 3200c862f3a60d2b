"""The settings of `emlio-bench memory`.

Covers: its options with their texts and defaults, for a pause over loopback and for a slow user
over a link. Does not cover: running.
"""

from dataclasses import dataclass
from pathlib import Path

from emlio.errors import ConfigError
from emlio.settings import option
from emlio_bench.experiment.options import byte_size, count, counts, duration, durations, folder
from emlio_bench.harness.parsers import whole_number
from emlio_bench.harness.settings import CommonSettings

__all__ = ["MemorySettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings(CommonSettings):
    """`emlio-bench memory`."""

    size: int = byte_size("10GB", "payload of the epoch")
    pause: int = duration("60s", "how long the consumer stops, half way")
    batch: int = option(
        0, "records of 100 kB in a batch (default 256, over a link 64)", parse=whole_number, metavar="N"
    )
    rtt: tuple[int, ...] = durations(
        "", "a rank with a slow user, over links of these round trips (default: one that pauses, on loopback)"
    )
    lanes: tuple[int, ...] = counts("11,38", "connections of the rank; with --rtt")
    rate: int = byte_size("200MB", "bytes of payload that the rank's user takes in a second; with --rtt")
    seconds: int = count(10, "how long it reads; with --rtt")
    repeats: int = count(3, "rounds, in turns; with --rtt")
    other: Path | None = folder("another checkout of emlio, in turns with this one; with --rtt")

    def __post_init__(self) -> None:
        CommonSettings.__post_init__(self)
        if self.other is not None and not self.rtt:
            raise ConfigError("--other needs a link: --rtt TIME")

    @property
    def batch_records(self) -> int:
        """Number of records in a batch."""
        return self.batch or (64 if self.rtt else 256)
