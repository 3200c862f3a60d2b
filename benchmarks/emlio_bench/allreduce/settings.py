"""The settings of `emlio-bench allreduce`.

Covers: its options with their texts and defaults. Does not cover: running.
"""

from dataclasses import dataclass
from typing import Any

from emlio.errors import ConfigError
from emlio.settings import option
from emlio_bench.experiment.options import byte_size, count, duration
from emlio_bench.harness.settings import CommonSettings

__all__ = ["AllReduceSettings"]


def _device(value: Any) -> str:
    if value not in ("cpu", "cuda"):
        raise ConfigError(f"must be cpu or cuda, got {value!r}")
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceSettings(CommonSettings):
    """`emlio-bench allreduce`."""

    device: str = option(
        "cuda",
        "cuda for NCCL on all GPUs, cpu for Gloo in one process, which only shows that it works (default cuda)",
        parse=_device,
        metavar="DEVICE",
    )
    repeats: int = count(3, "rounds: the loader alone, the all-reduce alone, both together")
    span: int = duration("4s", "length of a measurement")
    buffer: int = byte_size("256MiB", "bytes that an all-reduce works on")
