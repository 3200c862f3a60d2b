"""The shards of a dataset of WebDataset tars that are still to be written.

Covers: writing them, what describes each of them: a hidden file, `.tar_shard_00000.json`. Does not
cover: the driver of the threads (emlio.prepare.targets.shard_set), records
(emlio.prepare.targets.tar_record).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from emlio.prepare.disk import disk_error
from emlio.prepare.targets.shard_file import ShardFile
from emlio.prepare.targets.shard_set import Recipe, write_missing
from emlio.prepare.targets.tally import Tally
from emlio.prepare.targets.tar_shard import TarShard
from emlio.prepare.targets.target import TARS
from emlio.store.atomic_file import write_atomically

__all__ = ["TarSummary", "finished_tar", "write_tars"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TarSummary:
    """The content of one tar.

    Attributes:
        file: its name.
        size_bytes: its size.
        records: how many it holds.
        label_counts: records by label; None if there are no labels.
    """

    file: str
    size_bytes: int
    records: int
    label_counts: dict[str, int] | None


def write_tars(
    out: Path, recipe: Recipe, *, workers: int, verify: bool, force: bool, progress: bool
) -> tuple[list[TarSummary], int]:
    """Write the tars of a recipe that do not exist yet.

    Args:
        out: the directory, held by `sole_writer`.
        recipe: the shards to write; their records are whole members.
        workers: how many shards are written at once.
        verify: read every shard back from the disk and compare.
        force: replace a dataset that another recipe made, or all shards of this one.
        progress: show a line of progress.

    Returns:
        What describes all shards, and how many shards existed already.

    Raises:
        ConfigError: the directory holds something else.
        DatasetError: a disk is full or broken, or an error of the recipe's records.
    """

    def write_one(shard: int, advance: Callable[[int], None]) -> TarSummary:
        return _write_tar(out, recipe, shard, verify=verify, advance=advance)

    return write_missing(
        out, TARS, recipe, finished_tar, write_one, workers=workers, verify=verify, force=force, progress=progress
    )


def finished_tar(out: Path, shard: int, shards: int) -> TarSummary | None:
    """Return what describes a complete tar, whose file has the right size."""
    path = out / TARS.shard_name(shard, shards)
    try:
        summary = msgspec.json.decode((out / TARS.summary_name(shard)).read_bytes(), type=TarSummary)
        size = path.stat().st_size
    except (msgspec.MsgspecError, OSError):
        return None
    return summary if (summary.file, summary.size_bytes) == (path.name, size) else None


def _write_tar(out: Path, recipe: Recipe, shard: int, *, verify: bool, advance: Callable[[int], None]) -> TarSummary:
    path, described = out / TARS.shard_name(shard, recipe.shards), out / TARS.summary_name(shard)
    labels = Tally(features={})
    with ShardFile(path, int(recipe.shard_bytes[shard])) as file:
        tar = TarShard(file)
        for record in recipe.records(shard):
            labels.add(record)
            advance(tar.append(record))
        # Otherwise the old description would be that of the new file until its own is written.
        described.unlink(missing_ok=True)
        tar.commit(verify=verify, advance=advance)
    summary = TarSummary(
        file=path.name, size_bytes=file.size_bytes, records=tar.records, label_counts=labels.label_counts
    )
    try:
        write_atomically(described, (msgspec.json.encode(summary), b"\n"))
    except OSError as error:
        raise disk_error(described, 0, error) from error
    return summary
