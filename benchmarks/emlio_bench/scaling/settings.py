"""The settings of `emlio-bench scaling`.

Covers: a frozen value, with the texts and defaults of its options. Does not cover: the settings of
all commands (emlio_bench.harness.settings), running.
"""

from dataclasses import dataclass

from emlio.errors import ConfigError
from emlio.settings import option
from emlio.units import parse_size
from emlio_bench.harness.options import count, counts, duration, durations
from emlio_bench.harness.parsers import bits_per_s, lanes
from emlio_bench.harness.settings import CommonSettings, PlottedSettings
from emlio_bench.scaling.rank import USUAL_WINDOW_BYTES

__all__ = ["ScalingSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSettings(PlottedSettings):
    """`emlio-bench scaling`."""

    daemons: tuple[int, ...] = counts("1,2,4", "numbers of daemons, each with its part of the shards")
    rate: int = option(
        400_000_000, "of the line that each daemon is behind (default 400Mbit)", parse=bits_per_s, metavar="RATE"
    )
    rtts: tuple[int, ...] = durations("0.1ms,30ms", "round trips")
    queue: int = duration(
        "100ms", "the longest that packets wait in front of a line; what comes when it is full is dropped"
    )
    ranks: int = count(3, "training processes; the last one is slow")
    slow: int = count(60, "percent of a fair share of the lines that the slow rank can use")
    lanes: int = option(
        0,
        "each daemon's --lanes: connections for a rank, auto for as many as the rank derives from the round trip (default auto)",
        parse=lanes,
        metavar="auto|N",
    )
    window: int = option(
        USUAL_WINDOW_BYTES,
        "what the quick ranks may take off the wire ahead, the loader's prefetch (default 128MiB, as a loader has)",
        parse=parse_size,
        metavar="SIZE",
    )
    batch: int = count(32, "records of 100 kB in a batch")
    seconds: int = count(5, "whole seconds of a sample")
    repeats: int = count(5, "rounds; one sample of each in each")

    def __post_init__(self) -> None:
        CommonSettings.__post_init__(self)
        if self.daemons[:1] != (1,) or list(self.daemons) != sorted(set(self.daemons)):
            raise ConfigError(f"--daemons must rise from 1, which the others are compared with, got {self.daemons}")
        if self.ranks < 2:
            raise ConfigError(f"--ranks must be at least 2, a slow one and one that is not, got {self.ranks}")
        if self.slow > 100:
            raise ConfigError(f"--slow must be at most 100 percent, got {self.slow}")
