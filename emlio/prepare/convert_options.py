"""The options of a conversion."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from emlio.errors import ConfigError
from emlio.extras import how_to_install
from emlio.images.decoding import can_decode
from emlio.prepare.sources.choice import source_kinds
from emlio.prepare.sources.settings import SourceSettings
from emlio.prepare.targets.target import TARGETS

__all__ = ["DEFAULT_SHARD_BYTES", "ConvertOptions", "default_workers"]

DEFAULT_SHARD_BYTES = 256 << 20
"""Large enough that opening a shard costs little, small enough to balance a few hundred of them
over daemons.
"""

_LEAST_WORKERS: Final = 4
"""With a source on another machine, workers mostly wait."""


def default_workers() -> int:
    """Return the number of cores, but at least 4."""
    return max(_LEAST_WORKERS, len(os.sched_getaffinity(0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertOptions:
    """The options of a conversion.

    Attributes:
        source: a directory or a file.
        out: the directory of the new dataset.
        source_kind: one of `source_kinds`, or None to guess it.
        to: the form of the new dataset: TFRecord files, or WebDataset tars.
        keys: the keys of the samples of a WebDataset: "source" takes paths, or the keys of tars,
            where the source has any; "numbers" takes the numbers of the items.
        source_options: those of a format that is served in place.
        settings: what else is said of the source, such as a tokenizer.
        shard_bytes: the approximate size of a shard; None where `shards` is given.
        shards: how many shards to make, or None.
        workers: how many shards are written at once; None for `default_workers()`.
        seed: of the order of the records.
        shuffle: whether to change the source's order. A source is often sorted by class, and a
            reader of the dataset in order, for example to validate on its first part, should see
            all classes.
        force: replace an earlier dataset of these commands in `out`.
        labels: a file that lists the classes in the order of their numbers, or None.
        on_error: handling of an unreadable item: "raise" ends the conversion, "skip" leaves the
            item out and lists it.
        check: "decode" decodes each picture, if Pillow is installed, so that none is packed that
            training cannot read, also in the records of TFRecord files; "header" reads headers only.
        transcode: whether pictures of kinds that decoders of training do not read, such as GIF,
            become PNG; otherwise they are unreadable items.
    """

    source: Path
    out: Path
    source_kind: str | None = None
    to: Literal["tfrecord", "wds"] = "tfrecord"
    keys: Literal["source", "numbers"] = "source"
    source_options: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    settings: SourceSettings = field(default_factory=SourceSettings)
    shard_bytes: int | None = None
    shards: int | None = None
    workers: int | None = None
    seed: int = 0
    shuffle: bool = True
    force: bool = False
    labels: Path | None = None
    on_error: Literal["raise", "skip"] = "raise"
    check: Literal["decode", "header"] = "decode"
    transcode: bool = False

    def __post_init__(self) -> None:
        if self.source_kind is not None and self.source_kind not in source_kinds():
            raise ConfigError(f"source_kind must be one of {', '.join(source_kinds())}, got {self.source_kind!r}")
        if self.to not in TARGETS:
            raise ConfigError(f"--to must be one of {', '.join(TARGETS)}, got {self.to!r}")
        if self.keys != "source" and self.to != "wds":
            raise ConfigError(f"--keys {self.keys} must be given with --to wds: only samples of a WebDataset have keys")
        if self.shard_bytes is not None and self.shards is not None:
            raise ConfigError("give either the size of a shard or the number of shards, not both")
        if self.check not in ("decode", "header"):
            raise ConfigError(f"--check must be decode or header, got {self.check!r}")
        if self.transcode and not can_decode():
            raise ConfigError(f"--transcode requires Pillow: {how_to_install('images')}")
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"--workers must be at least 1, got {self.workers}")
        source, out = self.source.resolve(), self.out.resolve()
        if source == out or out in source.parents:
            raise ConfigError(
                f"out must not be the source or a folder that contains it, got {self.out} for {self.source}"
            )
        if source in out.parents and source.is_dir():
            raise ConfigError(f"out must not be inside the source, got {self.out} in {self.source}")
