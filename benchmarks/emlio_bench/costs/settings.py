"""The settings of `emlio-bench costs`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError
from emlio.settings import option
from emlio_bench.harness.command import CommonSettings
from emlio_bench.harness.options import count, duration, folder, names

__all__ = ["SCENARIO_NAMES", "CostsSettings"]

SCENARIO_NAMES: Final = (
    "start",
    "pause",
    "slow",
    "examples",
    "plan",
    "padding",
    "ranks",
    "daemons",
    "link",
    "energy",
    "nvml",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostsSettings(CommonSettings):
    """`emlio-bench costs`."""

    only: tuple[str, ...] = names(SCENARIO_NAMES, "scenarios; energy needs a link and nvml a GPU")
    repeats: int = count(5, "samples of each scenario that repeats")
    rtt: int = duration("30ms", "round trip of the links")
    cpu_watts: str = option(
        "", "energy: for estimates, such as 60:180 (default: constants for each core)", parse=str, metavar="IDLE:MAX"
    )
    out: Path | None = folder("energy: leave the job's folder here, which must be new")

    def __post_init__(self) -> None:
        CommonSettings.__post_init__(self)
        if self.out is not None and self.out.exists() and any(self.out.iterdir()):
            raise ConfigError(f"--out must be a new folder, {self.out} is not empty")
