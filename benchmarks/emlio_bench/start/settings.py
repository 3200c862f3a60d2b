"""The settings of `emlio-bench start`.

Covers: its options with their texts and defaults, some of which depend on whether there is a link.
Does not cover: running.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from emlio.errors import ConfigError
from emlio.settings import option
from emlio_bench.harness.parsers import durations_ns, path, switch, whole_number, words_of
from emlio_bench.harness.settings import CommonSettings

__all__ = ["FIRST", "MODES", "REMEMBERED", "StartSettings"]

FIRST: Final = "first"
REMEMBERED: Final = "remembered"
MODES: Final = (FIRST, REMEMBERED)


def _modes(value: Any) -> tuple[str, ...]:
    return words_of(value, MODES)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSettings(CommonSettings):
    """`emlio-bench start`. Zero means a default that depends on whether there is a link."""

    rtt: tuple[int, ...] = option(
        (),
        "start over links of these round trips, records of 100 kB (default: on loopback, records of 1 kB)",
        parse=durations_ns,
        metavar="TIME,...",
    )
    modes: tuple[str, ...] = option(
        MODES,
        "what the rank's host knows of the daemon: nothing (first), or what an earlier run has kept in its cache folder "
        f"(remembered); with --rtt (default {','.join(MODES)})",
        parse=_modes,
        metavar="NAME,...",
    )
    keys: bool = option(
        False, "keys on both sides: control with CURVE, payloads sealed; with --rtt", parse=switch, switch=True
    )
    other: Path | None = option(
        None,
        "another checkout of emlio: start it in turns with this one, and tell the ratio; with --rtt",
        parse=path,
        metavar="DIR",
    )
    records: int = option(
        0, "records in the dataset (default 1000000, over a link 6000)", parse=whole_number, metavar="N"
    )
    batch: int = option(0, "records in a batch (default 256, over a link 64)", parse=whole_number, metavar="N")
    repeats: int = option(
        0,
        "samples of each kind, each in a fresh process (default 10, over a link 6 in turns)",
        parse=whole_number,
        metavar="N",
    )

    def __post_init__(self) -> None:
        CommonSettings.__post_init__(self)
        if not self.rtt and (self.keys or self.other is not None or self.modes != MODES):
            raise ConfigError("--keys, --modes and --other need a link: --rtt TIME")

    @property
    def record_count(self) -> int:
        """Number of records in the dataset."""
        return self.records or (6_000 if self.rtt else 1_000_000)

    @property
    def batch_records(self) -> int:
        """Number of records in a batch."""
        return self.batch or (64 if self.rtt else 256)

    @property
    def rounds(self) -> int:
        """Number of samples of each kind."""
        return self.repeats or (6 if self.rtt else 10)
