"""The shards of a dataset that are still to be written.

Covers: the recipe that determines their bytes, finding shards that an earlier run finished, writing
the others in several threads, each with its index and finally its mapping. Does not cover: the
source of records, the directory (emlio.prepare.targets.target).

Threads are used instead of processes: for records of more than a few kilobytes, reading, writing
and checksums happen outside the interpreter's lock, and two threads on two cores already reach the
disk's limit.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.prepare.sources.record_source import Record
from emlio.prepare.targets.shard_file import ShardFile, disk_error
from emlio.prepare.targets.tally import Tally
from emlio.prepare.targets.target import refuse_full_disk, settle, shard_name
from emlio.shards.files.parallel import for_each_shard
from emlio.shards.tfrecord.index import index_name, write_index
from emlio.shards.tfrecord.mapping import (
    Feature,
    ShardMapping,
    content_digest,
    mapping_name,
    read_mapping,
    write_mapping,
)

__all__ = ["Recipe", "finished_shards", "write_shards"]


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
    """

    digest: str
    description: Mapping[str, str | int | bool | None]
    bounds: npt.NDArray[np.int64]
    shard_bytes: npt.NDArray[np.int64]
    records: Callable[[int], Iterator[Record]]
    label_names: Mapping[int, str] = field(default_factory=dict[int, str])
    features: dict[str, Feature] | None = None

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self.bounds) - 1


def finished_shards(out: Path, shards: int) -> dict[int, ShardMapping]:
    """Return the complete shards of a directory.

    A complete shard has a mapping, an index and a file of the right size.
    """
    finished: dict[int, ShardMapping] = {}
    for shard in range(shards):
        path = out / shard_name(shard, shards)
        try:
            mapping = read_mapping(out / mapping_name(shard))
            size = path.stat().st_size
        except (DatasetError, OSError):
            continue
        described = (mapping.shard_index, mapping.shard_count, mapping.file, mapping.size_bytes)
        if described == (shard, shards, path.name, size) and (out / index_name(path.name)).is_file():
            finished[shard] = mapping
    return finished


def write_shards(
    out: Path, recipe: Recipe, *, workers: int, verify: bool, force: bool, progress: bool
) -> tuple[list[ShardMapping], int]:
    """Write the shards of a recipe that do not exist yet.

    Args:
        out: the directory, held by `sole_writer`.
        recipe: the shards to write.
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
    settle(out, recipe.digest, {**recipe.description, "shards": recipe.shards}, recipe.label_names, force=force)
    finished = finished_shards(out, recipe.shards)
    missing = [shard for shard in range(recipe.shards) if shard not in finished]
    needed = int(recipe.shard_bytes[missing].sum())
    refuse_full_disk(out, needed)

    def write_one(shard: int, advance: Callable[[int], None]) -> ShardMapping:
        return _write_shard(out, recipe, shard, verify=verify, advance=advance)

    written = for_each_shard(
        missing,
        write_one,
        label=f"writing {out.name}",
        total_bytes=2 * needed if verify else needed,
        progress=progress,
        threads=workers,
    )
    mappings = sorted([*finished.values(), *written], key=lambda mapping: mapping.shard_index)
    return mappings, len(finished)


def _write_shard(
    out: Path, recipe: Recipe, shard: int, *, verify: bool, advance: Callable[[int], None]
) -> ShardMapping:
    path = out / shard_name(shard, recipe.shards)
    tally = Tally(recipe.features)
    with ShardFile(path, int(recipe.shard_bytes[shard])) as file:
        for record in recipe.records(shard):
            tally.add(record)
            advance(file.append(record))
        # Otherwise the old mapping would describe the new file until its own is written.
        (out / mapping_name(shard)).unlink(missing_ok=True)
        framing = file.commit(verify=verify, advance=advance)
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
    )
    try:
        write_index(out / index_name(path.name), framing.offsets)
        write_mapping(out, mapping)
    except OSError as error:
        raise disk_error(out / mapping_name(shard), framing.offsets.nbytes, error) from error
    return mapping
