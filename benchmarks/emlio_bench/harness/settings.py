"""The settings of the benchmarks: one frozen value for each command, from which its flags are made."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from emlio.errors import ConfigError
from emlio.planner.order import ShuffleMode
from emlio.settings import option
from emlio.units import parse_size
from emlio_bench.harness.options import count, durations, flag, names
from emlio_bench.harness.parsers import path, words_of
from emlio_bench.harness.scenario import parse_sizes

__all__ = [
    "DECODE_SUBJECTS",
    "CommonSettings",
    "DecodeSettings",
    "DeliverySettings",
    "RecoverySettings",
]

DECODE_SUBJECTS: Final = (
    "dali-tfrecord",
    "emlio-daemon",
    "emlio-local",
    "pillow-floor",
    "dataloader",
    "threads-daemon",
    "threads-local",
    "carry-dataloader",
    "carry-daemon",
    "carry-local",
)
_SUBJECTS: Final = ("limit", "bare", "emlio", "rows", "sealed", "paper", "views", "keyed")
_OWN_SUBJECTS: Final = ("emlio", "rows", "views", "sealed", "keyed")
_USUAL_SUBJECTS: Final = _SUBJECTS[:-2]


def _subjects(value: Any) -> tuple[str, ...]:
    return words_of(value, _SUBJECTS)


def orders(default: str) -> tuple[str, ...]:
    """Return an option for orders of a loader."""

    def parse(value: Any) -> tuple[str, ...]:
        return words_of(value, tuple(mode.value for mode in ShuffleMode))

    return option(parse(default), f"the loader's orders (default {default})", parse=parse, metavar="ORDER,...")


def _device(value: Any) -> str:
    if value not in ("cpu", "gpu"):
        raise ConfigError(f"must be cpu or gpu, got {value!r}")
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonSettings:
    """The options of each benchmark that prints tables."""

    json: Path | None = option(
        None, "write raw values and their environment here; compressed as .gz", parse=path, metavar="FILE"
    )
    append: bool = flag("add to the values in the --json file, if they are of a like run")
    data: Path | None = option(
        None,
        "keep datasets in this folder and use what is there (default: a temporary one)",
        parse=path,
        metavar="DIR",
    )
    quick: bool = flag("small data and short samples: shows that all works, measures nothing")

    def __post_init__(self) -> None:
        if self.append and self.json is None:
            raise ConfigError("--append needs --json FILE to append to")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings(CommonSettings):
    """`emlio-bench delivery`."""

    sizes: tuple[int, ...] = option(
        (1_000, 10_000, 100_000, 2_000_000),
        "sizes of records (default 1kB,10kB,100kB,2MB)",
        parse=parse_sizes,
        metavar="SIZE,...",
    )
    orders: tuple[str, ...] = orders("global,shard")
    subjects: tuple[str, ...] = option(
        _USUAL_SUBJECTS,
        "who is measured: emlio, rows and views are without keys: records as slices, as one array a batch, as slices that are "
        "all asked for; sealed and keyed are with keys, keyed without encryption "
        f"(default {','.join(_USUAL_SUBJECTS)})",
        parse=_subjects,
        metavar="NAME,...",
    )
    repeats: int = count(5, "rounds; one sample of each subject in each")
    bytes: int = option(
        2_000_000_000,
        "payload of a sample, but at most 4 s of it, over a link 60 s (default 2GB)",
        parse=parse_size,
        metavar="SIZE",
    )
    rtts: tuple[int, ...] = durations(
        "",
        f"deliver over links of these round trips; --subjects of {','.join(_OWN_SUBJECTS)} only (default: on loopback)",
    )

    def __post_init__(self) -> None:
        CommonSettings.__post_init__(self)
        if self.rtts and not set(self.subjects) <= set(_OWN_SUBJECTS):
            raise ConfigError(f"--rtts needs --subjects of {','.join(_OWN_SUBJECTS)}, got {','.join(self.subjects)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings(CommonSettings):
    """`emlio-bench decode`."""

    images: int = count(2000, "pictures in the dataset, and in a sample after its warm-up")
    batch: int = count(64, "pictures in a batch")
    threads: int = count(2, "threads, or worker processes, that decode")
    repeats: int = count(5, "rounds; one sample of each subject in each")
    subjects: tuple[str, ...] = names(DECODE_SUBJECTS, "who is measured")
    device: str = option(
        "cpu",
        "where pictures are decoded: cpu, or gpu for the subjects with DALI alone (default cpu)",
        parse=_device,
        metavar="DEVICE",
    )
    epochs: int = count(1, "passes over the pictures in a sample, for devices that are fast")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySettings(CommonSettings):
    """`emlio-bench recovery`."""

    repeats: int = count(10, "times each thing happens")
    seed: int = count(1, "draws for how long a daemon is away")
