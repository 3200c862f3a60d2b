"""The settings of `emlio-bench ranks`.

Covers: its options with their texts and defaults. Does not cover: running.
"""

from dataclasses import dataclass

from emlio.errors import ConfigError
from emlio_bench.experiment.options import byte_size, count
from emlio_bench.harness.settings import CommonSettings

__all__ = ["RanksSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksSettings(CommonSettings):
    """`emlio-bench ranks`."""

    ranks: int = count(1024, "ranks of one job")
    lanes: int = count(11, "connections for data of each")
    processes: int = count(4, "processes they are in, which must divide them")
    rate: int = byte_size("100kB", "bytes that each rank reads in a second")
    memory: int = byte_size("512MiB", "the daemon's, for records")
    seconds: int = count(20, "how long they are counted")

    def __post_init__(self) -> None:
        CommonSettings.__post_init__(self)
        if self.ranks % self.processes:
            raise ConfigError(f"--processes must divide --ranks, got {self.processes} and {self.ranks}")
