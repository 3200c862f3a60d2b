"""Conversion from any source to shuffled, verified shards.

Covers: order, cutting, handling unreadable items, the report. Does not cover: formats of sources
(emlio.prepare.sources.choice), the directory and the files (emlio.prepare.targets.shard_set).
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.planner.permutation import Permutation
from emlio.prepare.disk import disk_error
from emlio.prepare.sources.choice import SOURCE_KINDS, guess_kind, open_source, usual_name
from emlio.prepare.sources.record_source import RecordSource
from emlio.prepare.targets.cut import cut
from emlio.prepare.targets.example_form import example_record
from emlio.prepare.targets.record import Record
from emlio.prepare.targets.shard_set import Recipe, write_shards
from emlio.prepare.targets.target import TFRECORDS, UNPACKED_NAME, sole_writer
from emlio.shards.files.atomic_file import write_atomically

__all__ = ["DEFAULT_SHARD_BYTES", "ConvertOptions", "ConvertReport", "convert", "default_workers"]

DEFAULT_SHARD_BYTES = 256 << 20
"""Large enough that opening a shard costs little, small enough to balance a few hundred of them
over daemons.
"""

_VERSION = 1
"""Incremented when the same options would make other bytes."""

_LEAST_WORKERS = 4
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
        source_kind: one of SOURCE_KINDS, or None to guess it.
        source_options: those of a format that is served as it lies.
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
    """

    source: Path
    out: Path
    source_kind: str | None = None
    source_options: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    shard_bytes: int | None = None
    shards: int | None = None
    workers: int | None = None
    seed: int = 0
    shuffle: bool = True
    force: bool = False
    labels: Path | None = None
    on_error: Literal["raise", "skip"] = "raise"

    def __post_init__(self) -> None:
        if self.source_kind is not None and self.source_kind not in SOURCE_KINDS:
            raise ConfigError(f"source_kind must be one of {', '.join(SOURCE_KINDS)}, got {self.source_kind!r}")
        if self.shard_bytes is not None and self.shards is not None:
            raise ConfigError("give either the size of a shard or the number of shards, not both")
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"--workers must be at least 1, got {self.workers}")
        source, out = self.source.resolve(), self.out.resolve()
        if source == out or out in source.parents:
            raise ConfigError(
                f"out must not be the source or a folder that contains it, got {self.out} for {self.source}"
            )
        if source in out.parents and source.is_dir():
            raise ConfigError(f"out must not be inside the source, got {self.out} in {self.source}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport:
    """The result of a conversion.

    Attributes:
        source_kind: the source's given or guessed format.
        records: in the dataset.
        size_bytes: of its shards.
        shards: how many there are.
        shards_found: how many of them an earlier run had finished.
        classes: how many different labels occur.
        ignored: files of the source that are not of its format.
        skipped: items that were left out, each with the reason.
    """

    source_kind: str
    records: int
    size_bytes: int
    shards: int
    shards_found: int
    classes: int
    ignored: int
    skipped: tuple[str, ...]


def convert(options: ConvertOptions, progress: bool = False) -> ConvertReport:
    """Make a dataset; shards that an earlier run of the same conversion finished are kept.

    An interrupt takes effect within one record and leaves only complete shards.

    Raises:
        ConfigError: the options contradict each other or the target's content.
        DatasetError: the source cannot be read, or the target cannot be written.
    """
    kind = usual_name(options.source_kind) if options.source_kind is not None else guess_kind(options.source)
    with (
        sole_writer(options.out),
        closing(
            open_source(options.source, kind, options.labels, options.out / UNPACKED_NAME, options.source_options)
        ) as source,
    ):
        listing = source.listing
        mappings, found = write_shards(
            options.out,
            _recipe(options, kind, source),
            workers=options.workers if options.workers is not None else default_workers(),
            verify=True,
            force=options.force,
            progress=progress,
        )
    labels = {label for mapping in mappings for label in mapping.label_counts or ()}
    return ConvertReport(
        source_kind=kind,
        records=sum(mapping.records for mapping in mappings),
        size_bytes=sum(mapping.size_bytes for mapping in mappings),
        shards=len(mappings),
        shards_found=found,
        classes=len(labels),
        ignored=listing.ignored,
        skipped=_skipped(options.out, len(mappings)),
    )


def _recipe(options: ConvertOptions, kind: str, source: RecordSource) -> Recipe:
    sizes = source.listing.sizes_bytes
    if len(sizes) == 0:
        raise DatasetError(f"source {options.source}: must hold at least one item, holds none")
    order = _order(len(sizes), options.seed, shuffle=options.shuffle)
    shard_bytes = options.shard_bytes
    if shard_bytes is None and options.shards is None:
        shard_bytes = DEFAULT_SHARD_BYTES
    bounds = cut(sizes[order], shard_bytes=shard_bytes, shards=options.shards)
    description: dict[str, str | int | bool | None] = {
        "made_by": "emlio convert",
        "version": _VERSION,
        "source_kind": kind,
        "source": source.listing.fingerprint,
        "records": len(sizes),
        "shuffle": options.shuffle,
        "seed": options.seed if options.shuffle else None,
    }
    digest = hashlib.blake2b(repr(sorted(description.items())).encode(), digest_size=16)
    digest.update(bounds.astype("<i8").tobytes())

    def records(shard: int) -> Iterator[Record]:
        places = order[int(bounds[shard]) : int(bounds[shard + 1])].tolist()
        return _records(options, source, shard, places)

    return Recipe(
        digest=digest.hexdigest(),
        description={**description, "source_path": str(options.source)},
        bounds=bounds,
        shard_bytes=np.add.reduceat(sizes[order], bounds[:-1]),
        records=records,
        label_names=source.listing.label_names,
    )


def _order(records: int, seed: int, *, shuffle: bool) -> npt.NDArray[np.int64]:
    places = np.arange(records, dtype=np.int64)
    if not shuffle:
        return places
    key = hashlib.blake2b(f"emlio.convert/{_VERSION}/{seed}".encode(), digest_size=32).digest()
    return Permutation(records, key).forward(places)


def _records(options: ConvertOptions, source: RecordSource, shard: int, places: list[int]) -> Iterator[Record]:
    """Yield the records of one shard; list skipped items before the shard is finished."""
    skips: list[str] = []
    for place in places:
        try:
            record = example_record(source.record(place))
        except (DatasetError, ConfigError) as error:
            key = source.key(place)
            reason = str(error) if str(error).startswith(key) else f"{key}: {error}"
            if options.on_error == "raise":
                raise DatasetError(
                    f"{reason}. To skip such items, run the same command again with --on-error skip"
                ) from error
            skips.append(reason)
            continue
        yield record
    path = options.out / TFRECORDS.skips_name(shard)
    try:
        if skips:
            write_atomically(
                path, ("\n".join(" ".join(skip.split()) for skip in skips).encode(errors="replace"), b"\n")
            )
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise disk_error(path, 0, error) from error


def _skipped(out: Path, shards: int) -> tuple[str, ...]:
    lines: list[str] = []
    for shard in range(shards):
        path = out / TFRECORDS.skips_name(shard)
        if path.is_file():
            lines += path.read_text(encoding="utf-8", errors="replace").splitlines()
    return tuple(lines)
