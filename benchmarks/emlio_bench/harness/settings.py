"""The settings of the benchmarks.

Flags are made from these values. Covers: the settings of all commands; one frozen value for each
command, with the texts and defaults of its options. Does not cover: commands about links
(emlio_bench.link_accuracy.settings), the race (emlio_bench.race.run.settings), running.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emlio.errors import ConfigError
from emlio.planner.order import ShuffleMode
from emlio.settings import option
from emlio.units import parse_duration_ns, parse_size
from emlio_bench.harness.parsers import durations_ns, path, switch, whole_number, whole_numbers, words_of
from emlio_bench.harness.scenario import parse_sizes

__all__ = [
    "ATTACKS_NAMED",
    "DECODE_SUBJECTS",
    "AttacksSettings",
    "CommonSettings",
    "ConvergenceSettings",
    "DecodeSettings",
    "DeliverySettings",
    "EnergySettings",
    "ExamplesSettings",
    "PaddingSettings",
    "PlanSettings",
    "PlottedSettings",
    "RecoverySettings",
]

ATTACKS_NAMED = ("nothing", "crowd", "loris", "garbage", "oversized", "handshakes", "pings", "lanes")
DECODE_SUBJECTS = (
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
SUBJECTS = ("limit", "bare", "emlio", "rows", "sealed", "paper", "views", "keyed")
OWN_SUBJECTS = ("emlio", "rows", "views", "sealed", "keyed")
_USUAL_SUBJECTS = SUBJECTS[:-2]
_MOST_LIFE_S = 720
WAYS = ("memory", "loopback", "link", "reordered")


def _orders(value: Any) -> tuple[str, ...]:
    return words_of(value, tuple(mode.value for mode in ShuffleMode))


def _subjects(value: Any) -> tuple[str, ...]:
    return words_of(value, SUBJECTS)


def _decoders(value: Any) -> tuple[str, ...]:
    return words_of(value, DECODE_SUBJECTS)


def _device(value: Any) -> str:
    if value not in ("cpu", "gpu"):
        raise ConfigError(f"must be cpu or gpu, got {value!r}")
    return str(value)


def _attacks(value: Any) -> tuple[str, ...]:
    return words_of(value, ATTACKS_NAMED)


def _ways(value: Any) -> tuple[str, ...]:
    words = words_of(value, WAYS)
    if "memory" not in words:
        raise ConfigError(f"must have memory among them, which the others are compared with, got {value!r}")
    return words


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonSettings:
    """The settings that all commands share."""

    json: Path | None = option(None, "write raw samples and their environment here", parse=path, metavar="FILE")
    append: bool = option(
        False, "add to the samples in the --json file, if they are of a like run", parse=switch, switch=True
    )
    into: Path | None = option(
        None,
        "put the tables into this Markdown file, in the place of its first ```text block",
        parse=path,
        metavar="FILE.md",
    )
    data: Path | None = option(
        None,
        "keep datasets in this folder and use what is there (default: a temporary one)",
        parse=path,
        metavar="DIR",
    )
    quick: bool = option(
        False, "small data and short samples: shows that all works, measures nothing", parse=switch, switch=True
    )

    def __post_init__(self) -> None:
        if self.append and self.json is None:
            raise ConfigError("--append needs --json FILE to append to")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlottedSettings(CommonSettings):
    """The settings of commands whose results can be plotted."""

    plot: Path | None = option(None, "draw the result", parse=path, metavar="FILE.png")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttacksSettings(PlottedSettings):
    """`emlio-bench attacks`."""

    attacks: tuple[str, ...] = option(
        ATTACKS_NAMED, f"what is tried (default {','.join(ATTACKS_NAMED)})", parse=_attacks, metavar="NAME,..."
    )
    repeats: int = option(5, "spans of each attack, between quiet ones (default 5)", parse=whole_number, metavar="N")
    span: int = option(
        5_000_000_000, "how long each span is, quiet or not (default 5s)", parse=parse_duration_ns, metavar="TIME"
    )
    unpaced: bool = option(
        False,
        "the rank reads as fast as it can: it then also feels that the attacker takes processor time of the same machine",
        parse=switch,
        switch=True,
    )

    def __post_init__(self) -> None:
        CommonSettings.__post_init__(self)
        # The duration counts each span and the time to settle before it. A process of a benchmark
        # lives for at most a quarter of an hour.
        life_s = (2 * self.repeats + 1) * (self.span / 1e9 + 4)
        if life_s > _MOST_LIFE_S:
            raise ConfigError(
                f"--repeats and --span must be so small that an attack is over within {_MOST_LIFE_S:g} s, got {life_s:g} s"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvergenceSettings(PlottedSettings):
    """`emlio-bench convergence`."""

    epochs: int = option(20, "epochs of each training (default 20)", parse=whole_number, metavar="N")
    batch: int = option(32, "digits in a step (default 32)", parse=whole_number, metavar="N")
    seed: int = option(1, "draws the weights and the order of the records (default 1)", parse=whole_number, metavar="N")
    rtt: int = option(
        30_000_000, "round trip of the emulated link (default 30ms)", parse=parse_duration_ns, metavar="TIME"
    )
    ways: tuple[str, ...] | None = option(
        None,
        f"where the batches come from (default {','.join(WAYS)}, without link where there can be none)",
        parse=_ways,
        metavar="NAME,...",
    )

    def __post_init__(self) -> None:
        CommonSettings.__post_init__(self)
        if self.append:
            raise ConfigError("--append cannot be: two trainings' curves are not one")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings(PlottedSettings):
    """`emlio-bench delivery`."""

    sizes: tuple[int, ...] = option(
        (1_000, 10_000, 100_000, 2_000_000),
        "sizes of records (default 1kB,10kB,100kB,2MB)",
        parse=parse_sizes,
        metavar="SIZE,...",
    )
    orders: tuple[str, ...] = option(
        ("global", "shard"), "the loader's orders (default global,shard)", parse=_orders, metavar="ORDER,..."
    )
    subjects: tuple[str, ...] = option(
        _USUAL_SUBJECTS,
        "who is measured: emlio, rows and views are without keys: records as slices, as one array a batch, as slices that are "
        "all asked for; sealed and keyed are with keys, keyed without encryption "
        f"(default {','.join(_USUAL_SUBJECTS)})",
        parse=_subjects,
        metavar="NAME,...",
    )
    repeats: int = option(5, "rounds; one sample of each subject in each (default 5)", parse=whole_number, metavar="N")
    bytes: int = option(
        2_000_000_000,
        "payload of a sample, but at most 4 s of it, over a link 60 s (default 2GB)",
        parse=parse_size,
        metavar="SIZE",
    )
    rtts: tuple[int, ...] = option(
        (),
        f"deliver over links of these round trips; --subjects of {','.join(OWN_SUBJECTS)} only (default: on loopback)",
        parse=durations_ns,
        metavar="TIME,...",
    )
    other: Path | None = option(
        None,
        "another checkout of emlio: deliver with it in turns with this one, and tell the ratios",
        parse=path,
        metavar="DIR",
    )

    def __post_init__(self) -> None:
        CommonSettings.__post_init__(self)
        if self.rtts and not set(self.subjects) <= set(OWN_SUBJECTS):
            raise ConfigError(f"--rtts needs --subjects of {','.join(OWN_SUBJECTS)}, got {','.join(self.subjects)}")
        if self.rtts and self.plot is not None:
            raise ConfigError("--plot draws deliveries over loopback, not those with --rtts")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings(PlottedSettings):
    """`emlio-bench decode`."""

    images: int = option(
        2000,
        "pictures in the dataset, and in a sample after its warm-up (default 2000)",
        parse=whole_number,
        metavar="N",
    )
    batch: int = option(64, "pictures in a batch (default 64)", parse=whole_number, metavar="N")
    threads: int = option(2, "threads, or worker processes, that decode (default 2)", parse=whole_number, metavar="N")
    repeats: int = option(5, "rounds; one sample of each subject in each (default 5)", parse=whole_number, metavar="N")
    subjects: tuple[str, ...] = option(
        DECODE_SUBJECTS,
        f"who is measured (default {','.join(DECODE_SUBJECTS)})",
        parse=_decoders,
        metavar="NAME,...",
    )
    device: str = option(
        "cpu",
        "where pictures are decoded: cpu, or gpu for the subjects with DALI alone (default cpu)",
        parse=_device,
        metavar="DEVICE",
    )
    epochs: int = option(
        1,
        "passes over the pictures in a sample, for devices that are fast (default 1)",
        parse=whole_number,
        metavar="N",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamplesSettings(CommonSettings):
    """`emlio-bench examples`."""

    orders: tuple[str, ...] = option(
        ("global", "shard"), "the loader's orders (default global,shard)", parse=_orders, metavar="ORDER,..."
    )
    repeats: int = option(5, "samples of each order (default 5)", parse=whole_number, metavar="N")
    batch: int = option(256, "records in a batch (default 256)", parse=whole_number, metavar="N")


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddingSettings(CommonSettings):
    """`emlio-bench padding`."""

    records: int = option(200_000, "records of the imagined dataset (default 200000)", parse=whole_number, metavar="N")
    max_tokens: int = option(
        16_384, "tokens in a batch, padding counted (default 16384)", parse=whole_number, metavar="N"
    )
    pack: int = option(4096, "tokens in a row of packed batches (default 4096)", parse=whole_number, metavar="N")
    worlds: tuple[int, ...] = option((1, 8), "numbers of ranks (default 1,8)", parse=whole_numbers, metavar="N,...")
    pools: tuple[int, ...] = option(
        (1024, 2048, 4096), "records of a rank in a pool (default 1024,2048,4096)", parse=whole_numbers, metavar="N,..."
    )
    repeats: int = option(3, "epochs of each (default 3)", parse=whole_number, metavar="N")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings(CommonSettings):
    """`emlio-bench plan`."""

    records: int = option(
        1_000_000_000, "records of the imagined dataset (default 10^9)", parse=whole_number, metavar="N"
    )
    shards: int = option(10_000, "its shards (default 10000)", parse=whole_number, metavar="N")
    walk: int = option(4_000_000, "records walked for one sample (default 4000000)", parse=whole_number, metavar="N")
    batch: int = option(256, "records in a batch (default 256)", parse=whole_number, metavar="N")
    repeats: int = option(5, "samples (default 5)", parse=whole_number, metavar="N")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySettings(PlottedSettings):
    """`emlio-bench recovery`."""

    repeats: int = option(10, "times each thing happens (default 10)", parse=whole_number, metavar="N")
    seed: int = option(1, "draws for how long a daemon is away (default 1)", parse=whole_number, metavar="N")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergySettings(CommonSettings):
    """`emlio-bench energy`."""

    rtt: int = option(
        30_000_000, "round trip between the hosts (default 30ms)", parse=parse_duration_ns, metavar="TIME"
    )
    images: int = option(1024, "pictures in an epoch (default 1024)", parse=whole_number, metavar="N")
    batch: int = option(32, "pictures in a batch (default 32)", parse=whole_number, metavar="N")
    epochs: int = option(2, "epochs (default 2)", parse=whole_number, metavar="N")
    step: int = option(
        400_000_000,
        "how long a step takes the imagined device (default 400ms)",
        parse=parse_duration_ns,
        metavar="TIME",
    )
    cpu_watts: str = option(
        "", "for estimates, such as 60:180 (default: constants for each core)", parse=str, metavar="IDLE:MAX"
    )
    out: Path | None = option(None, "leave the job's folder here, which must be new", parse=path, metavar="FOLDER")
