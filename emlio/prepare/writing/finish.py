"""Final names for the files of a dataset whose parts are all complete.

The mappings come first: a daemon that opens the folder meanwhile learns from any of them how many
shards there are, and that others are missing. `prepared.json` comes last.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError, DatasetError
from emlio.formats.tfrecord.mapping import ShardMapping
from emlio.prepare.disk import disk_error
from emlio.prepare.mappings import write_mapping
from emlio.prepare.targets.shard_set import MOST_SHARDS
from emlio.prepare.targets.target import LABELS_NAME, TFRECORDS, recipe_in
from emlio.prepare.writing.label_names import as_lines
from emlio.prepare.writing.part_files import (
    BASE,
    FINISHING,
    LOCK,
    WRITING,
    Finishing,
    PartFiles,
    PartShard,
    Writing,
    is_part_file,
    read_document,
    remove_files,
    sync_folder,
    write_document,
)
from emlio.store.atomic_file import write_atomically

__all__ = ["MADE_BY", "finish_if_complete", "go_on_finishing"]

MADE_BY: Final = "emlio.Writer"

_VERSION = 1


def finish_if_complete(out: Path, writing: Writing) -> bool:
    """Finish the dataset if all parts are complete; return whether they are.

    Args:
        out: the folder, whose state is locked.
        writing: what is written there.

    Raises:
        ConfigError: there are no records, too many shards, or parts with different columns.
        DatasetError: a file is missing, or the disk is full or broken.
    """
    parts = [PartFiles.of(out, part) for part in range(writing.parts)]
    if not all(part.closed.exists() for part in parts):
        return False
    shards = [part.finished() for part in parts]
    for number, (part, found) in enumerate(zip(parts, shards, strict=True)):
        if read_document(part.closed, int) != len(found):
            raise DatasetError(f"{out}: shards of part {number} are missing. Write it again with overwrite=True")
    base = PartFiles(out, BASE).finished() if writing.base is not None else []
    total = len(base) + sum(map(len, shards))
    if not total:
        for part in parts:
            part.closed.unlink(missing_ok=True)
        raise ConfigError(f"{out}: a dataset must have at least one record, none was written")
    if total > MOST_SHARDS:
        raise ConfigError(
            f"{out}: must have at most {MOST_SHARDS} shards, has {total}. Write it again with larger ones"
        )
    _check_columns(out, shards)
    records = tuple(sum(shard.records for shard in found) for found in shards)
    finishing = Finishing(records=records, base=writing.base, labels=writing.labels)
    write_document(out / FINISHING, finishing)
    go_on_finishing(out, finishing)
    return True


def go_on_finishing(out: Path, finishing: Finishing) -> None:
    """Give the files their final names, those that an earlier call did not.

    Args:
        out: the folder, whose state is locked.
        finishing: the dataset.

    Raises:
        DatasetError: the disk is full or broken.
    """
    try:
        if recipe_in(out)[1].get("made_by") != MADE_BY:  # it is written last
            _rename(out, finishing)
        left = [name for name in os.listdir(out) if is_part_file(name)]
        # The lock goes with its owner: a writer that begins now must wait until all of this is done.
        remove_files(out, [name for name in left if name not in (FINISHING, WRITING, LOCK)])
        remove_files(out, [WRITING])
        sync_folder(out)
        remove_files(out, [FINISHING])
        sync_folder(out)
    except OSError as error:
        raise disk_error(out / TFRECORDS.recipe, 0, error) from error


def _rename(out: Path, finishing: Finishing) -> None:
    shards = list(_all_shards(out, finishing))
    digest = hashlib.blake2b(digest_size=16)
    for number, (_, _, shard) in enumerate(shards):
        digest.update(f"{shard.records} {shard.size_bytes} {shard.digest}\n".encode())
        mapping = ShardMapping(
            shard_index=number,
            shard_count=len(shards),
            file=TFRECORDS.shard_name(number, len(shards)),
            size_bytes=shard.size_bytes,
            records=shard.records,
            digest=shard.digest,
            features=shard.features,
            label_counts=shard.label_counts,
            label_names=_names_in(shard, finishing.labels),
            tokens=shard.tokens,
        )
        write_mapping(out, mapping)
    for number, (part, place, _) in enumerate(shards):
        name = TFRECORDS.shard_name(number, len(shards))
        _move(part.shard(place), out / name)
    if finishing.labels:
        names = {int(number): name for number, name in finishing.labels.items()}
        write_atomically(out / LABELS_NAME, (as_lines(names),))
    sync_folder(out)
    description = {
        "digest": digest.hexdigest(),
        "made_by": MADE_BY,
        "version": _VERSION,
        "records": sum(shard.records for _, _, shard in shards),
        "parts": len(finishing.records),
        "shards": len(shards),
        "appended_to": finishing.base.path if finishing.base is not None else None,
    }
    write_document(out / TFRECORDS.recipe, description)


def _all_shards(out: Path, finishing: Finishing) -> Iterator[tuple[PartFiles, int, PartShard]]:
    """Yield the shards in their final order: their files, their numbers there, their descriptions."""
    parts = [PartFiles.of(out, part) for part in range(len(finishing.records))]
    for part in [PartFiles(out, BASE), *parts]:
        for place, shard in enumerate(part.described()):
            yield part, place, shard


def _names_in(shard: PartShard, names: dict[str, str]) -> dict[str, str] | None:
    """Return the names of the labels that occur in a shard, as `emlio convert` keeps them."""
    known = {**(shard.label_names or {}), **names}
    return {label: known[label] for label in shard.label_counts or () if label in known} or None


def _move(source: Path, target: Path) -> None:
    try:
        source.replace(target)
    except FileNotFoundError:  # an interrupted run has moved it
        if not target.exists():
            raise


def _check_columns(out: Path, shards: list[list[PartShard]]) -> None:
    first: tuple[int, dict[str, str]] | None = None
    for part, found in enumerate(shards):
        for shard in found:
            if first is None:
                first = part, shard.columns
            elif shard.columns != first[1]:
                raise ConfigError(
                    f"{out}: all parts must have the same columns, part {first[0]} has {first[1]}, part {part} has "
                    f"{shard.columns}. Write one of them again with overwrite=True"
                )
