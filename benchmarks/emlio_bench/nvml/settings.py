"""The settings of `emlio-bench nvml`.

Covers: its options with their texts and defaults. Does not cover: running.
"""

from dataclasses import dataclass

from emlio_bench.experiment.options import count, duration
from emlio_bench.harness.settings import CommonSettings

__all__ = ["NvmlSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlSettings(CommonSettings):
    """`emlio-bench nvml`."""

    repeats: int = count(3, "rounds; one measurement of each load in each")
    span: int = duration("6s", "length of a measurement")
    settle: int = duration("2s", "time before each measurement: the sensor's power is a mean of the last second")
    every: int = duration("100ms", "time from one sample of NVML to the next")
