"""The settings of `emlio-bench ranks`.

Covers: its options with their texts and defaults. Does not cover: running.
"""

from dataclasses import dataclass

from emlio.errors import ConfigError
from emlio.settings import option
from emlio.units import parse_size
from emlio_bench.harness.parsers import whole_number
from emlio_bench.harness.settings import CommonSettings

__all__ = ["RanksSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksSettings(CommonSettings):
    """`emlio-bench ranks`."""

    ranks: int = option(1024, "ranks of one job (default 1024)", parse=whole_number, metavar="N")
    lanes: int = option(11, "connections for data of each (default 11)", parse=whole_number, metavar="N")
    processes: int = option(
        4, "processes they are in, which must divide them (default 4)", parse=whole_number, metavar="N"
    )
    rate: int = option(
        100_000, "bytes that each rank reads in a second (default 100kB)", parse=parse_size, metavar="SIZE"
    )
    memory: int = option(512 << 20, "the daemon's, for records (default 512MiB)", parse=parse_size, metavar="SIZE")
    seconds: int = option(20, "how long they are counted (default 20)", parse=whole_number, metavar="N")

    def __post_init__(self) -> None:
        CommonSettings.__post_init__(self)
        if self.ranks % self.processes:
            raise ConfigError(f"--processes must divide --ranks, got {self.processes} and {self.ranks}")
