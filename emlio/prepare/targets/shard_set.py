"""The shards of a dataset that are still to be written.

Threads are used instead of processes: for records of more than a few kilobytes, reading, writing
and checksums happen outside the interpreter's lock, and two threads on two cores already reach the
disk's limit.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.formats.tfrecord.mapping import (
    Feature,
    ShardMapping,
    content_digest,
    mapping_name,
    read_mapping,
)
from emlio.index.parallel import ForEachShard, for_each_shard
from emlio.prepare.disk import disk_error, refuse_full_disk
from emlio.prepare.mappings import write_mapping
from emlio.prepare.targets.shard_file import ShardFile
from emlio.prepare.targets.tally import Record, Tally
from emlio.prepare.targets.target import TFRECORDS, TargetFiles, settle
from emlio.prepare.targets.tfrecord_shard import TfrecordShard
from emlio.units import format_size

__all__ = [
    "LEAST_SHARD_BYTES",
    "MOST_SHARDS",
    "Recipe",
    "cut",
    "finished_shard",
    "write_missing",
    "write_shard",
    "write_shards",
]

MOST_SHARDS = 99_999
"""Shard numbers have five digits in file names."""

LEAST_SHARD_BYTES = 1024
"""Smaller shards would be mostly names and descriptions."""


def cut(sizes_bytes: npt.NDArray[np.int64], *, shard_bytes: int | None, shards: int | None) -> npt.NDArray[np.int64]:
    """Return the index at which each shard begins, and finally the number of records.

    Every shard gets at least one record.

    Args:
        sizes_bytes: the size of each record, in the order of writing.
        shard_bytes: the approximate size of a shard; not given together with `shards`.
        shards: how many shards to make.

    Raises:
        ConfigError: both or neither are given, or the number of shards is impossible.
    """
    records = len(sizes_bytes)
    ends = np.cumsum(sizes_bytes, dtype=np.int64)
    total = int(ends[-1]) if records else 0
    if (shard_bytes is None) == (shards is None):
        raise ConfigError("give either the size of a shard or the number of shards")
    if shard_bytes is not None:
        if shard_bytes < LEAST_SHARD_BYTES:
            raise ConfigError(f"the size of a shard must be at least {LEAST_SHARD_BYTES} bytes, got {shard_bytes}")
        shards = min(max(-(-total // shard_bytes), 1), max(records, 1))
    assert shards is not None
    if not 1 <= shards <= MOST_SHARDS:
        advice = f" for {format_size(total)}; choose larger shards" if shards > MOST_SHARDS else ""
        raise ConfigError(f"the number of shards must be in [1, {MOST_SHARDS}], got {shards}{advice}")
    if shards > records:
        raise ConfigError(f"the number of shards must be at most {records}, the number of records, got {shards}")
    # A shard ends at the record in whose middle the shard's share of the bytes ends.
    shares = (np.arange(1, shards, dtype=np.float64) / shards) * total
    inner = np.searchsorted(ends - sizes_bytes // 2, shares, side="left").astype(np.int64)
    # One huge record may span several shares; each shard must still have a record of its own.
    steps = np.arange(1, shards, dtype=np.int64)
    inner = np.maximum.accumulate(np.maximum(inner - steps, 0)) + steps
    inner = np.minimum(inner, records - shards + steps)
    return np.concatenate((np.zeros(1, dtype=np.int64), inner, np.array([records], dtype=np.int64)))


_Summary = TypeVar("_Summary")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recipe:
    """Everything that determines the bytes of a dataset.

    Attributes:
        digest: of everything that determines the bytes; recipes with equal digests make equal
            datasets.
        description: the same for people, stored beside the shards.
        bounds: the index of the first record of each shard, and finally the number of records.
        shard_bytes: the approximate size of each shard.
        records: makes the records of one shard; runs in one thread, several shards at once.
        label_names: plain names of labels.
        features: of every record; None where each record must be parsed.
        tokens: the type of the tokens that records are; empty if they are none.
        sampled: what was learned from some of the records. It determines bytes too, and follows from what `digest` is of,
            unless a record could not be read.
    """

    digest: str
    description: Mapping[str, str | int | bool | None]
    bounds: npt.NDArray[np.int64]
    shard_bytes: npt.NDArray[np.int64]
    records: Callable[[int], Iterator[Record]]
    label_names: Mapping[int, str] = field(default_factory=dict[int, str])
    features: dict[str, Feature] | None = None
    tokens: str = ""
    sampled: str = ""

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self.bounds) - 1


def write_shards(
    out: Path,
    recipe: Recipe,
    each: ForEachShard[int, ShardMapping] = for_each_shard,
    *,
    workers: int,
    verify: bool,
    force: bool,
    progress: bool,
) -> tuple[list[ShardMapping], int]:
    """Write the shards of a recipe that do not exist yet.

    Args:
        out: the directory, held by `sole_writer`.
        recipe: the shards to write.
        each: makes the work for each shard be done.
        workers: how many shards are written at once.
        verify: read every shard back from the disk and compare.
        force: replace a dataset that another recipe made, or all shards of this one.
        progress: show a line of progress.

    Returns:
        The mappings of all shards, and how many shards existed already.

    Raises:
        ConfigError: the directory holds something else.
        DatasetError: a disk is full or broken, or an error of the recipe's records.
    """

    def write_one(shard: int, advance: Callable[[int], None]) -> ShardMapping:
        return write_shard(out, recipe, shard, verify=verify, advance=advance)

    return write_missing(
        out,
        TFRECORDS,
        recipe,
        finished_shard,
        write_one,
        each,
        workers=workers,
        verify=verify,
        force=force,
        progress=progress,
    )


def write_missing(
    out: Path,
    files: TargetFiles,
    recipe: Recipe,
    finished: Callable[[Path, int, int], _Summary | None],
    write_one: Callable[[int, Callable[[int], None]], _Summary],
    each: ForEachShard[int, _Summary] = for_each_shard,
    *,
    workers: int,
    verify: bool,
    force: bool,
    progress: bool,
) -> tuple[list[_Summary], int]:
    """Write the shards of a recipe that do not exist yet, in any form.

    Args:
        out: the directory, held by `sole_writer`.
        files: the names of its files.
        recipe: the shards to write.
        finished: returns what describes a shard of the directory, given its number and that of all
            shards; None if it is not complete.
        write_one: writes a shard; see `for_each_shard`.
        each: see `write_shards`.
        workers: see `write_shards`.
        verify: whether `write_one` reads shards back.
        force: see `write_shards`.
        progress: see `write_shards`.

    Returns:
        What describes all shards, and how many shards existed already.
    """
    description = {**recipe.description, "shards": recipe.shards}
    settle(out, files, recipe.digest, description, recipe.label_names, force=force)
    done: dict[int, _Summary] = {}
    for shard in range(recipe.shards):
        summary = finished(out, shard, recipe.shards)
        if summary is not None:
            done[shard] = summary
    found = len(done)
    missing = [shard for shard in range(recipe.shards) if shard not in done]
    needed = int(recipe.shard_bytes[missing].sum())
    refuse_full_disk(out, needed)
    written = each(
        missing,
        write_one,
        label=f"writing {out.name}",
        total_bytes=2 * needed if verify else needed,
        progress=progress,
        threads=workers,
    )
    done.update(zip(missing, written, strict=True))
    return [done[shard] for shard in range(recipe.shards)], found


def finished_shard(out: Path, shard: int, shards: int) -> ShardMapping | None:
    """Return the mapping of a complete shard, which has a file of the right size."""
    path = out / TFRECORDS.shard_name(shard, shards)
    try:
        mapping = read_mapping(out / mapping_name(shard))
        size = path.stat().st_size
    except (DatasetError, OSError):
        return None
    described = (mapping.shard_index, mapping.shard_count, mapping.file, mapping.size_bytes)
    return mapping if described == (shard, shards, path.name, size) else None


def write_shard(out: Path, recipe: Recipe, shard: int, *, verify: bool, advance: Callable[[int], None]) -> ShardMapping:
    """Write one shard and its mapping; see `write_shards`."""
    path = out / TFRECORDS.shard_name(shard, recipe.shards)
    tally = Tally({} if recipe.tokens else recipe.features)
    with ShardFile(path, int(recipe.shard_bytes[shard])) as file:
        records = TfrecordShard(file)
        for record in recipe.records(shard):
            tally.add(record)
            advance(records.append(record))
        # Otherwise the old mapping would describe the new file until its own is written.
        (out / mapping_name(shard)).unlink(missing_ok=True)
        framing = records.commit(verify=verify, advance=advance)
    counts = tally.label_counts
    names = {label: recipe.label_names[int(label)] for label in counts or () if int(label) in recipe.label_names}
    mapping = ShardMapping(
        shard_index=shard,
        shard_count=recipe.shards,
        file=path.name,
        size_bytes=int(framing.offsets[-1]),
        records=framing.records,
        digest=content_digest(framing),
        features=tally.features,
        label_counts=counts,
        label_names=names or None,
        tokens=recipe.tokens or None,
    )
    try:
        write_mapping(out, mapping)
    except OSError as error:
        raise disk_error(out / mapping_name(shard), framing.offsets.nbytes, error) from error
    return mapping
