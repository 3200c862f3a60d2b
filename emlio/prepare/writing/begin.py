"""The state of a folder when a writer is made."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from emlio.errors import ConfigError
from emlio.prepare.locks import is_locked
from emlio.prepare.targets.target import MAKERS, TFRECORDS, UNPACKED_NAME, is_target_file, recipe_in
from emlio.prepare.writing.appended import appended_dataset, link_base
from emlio.prepare.writing.finish import MADE_BY, go_on_finishing
from emlio.prepare.writing.label_names import LabelNames, joined_names
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
    write_document,
)

__all__ = ["Begun", "begin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The part of a dataset that a writer found, or began.

    Attributes:
        writing: what is written in the folder.
        shards: those of the part that are finished, in order.
        base: shards of the dataset that is appended to.
        finished: records of the part, if an interrupted run had closed all parts; then the dataset is
            complete now.
    """

    writing: Writing
    shards: tuple[PartShard, ...] = ()
    base: tuple[PartShard, ...] = ()
    finished: int | None = None


def begin(
    out: Path,
    part: int,
    parts: int,
    *,
    append_to: Path | None,
    labels: LabelNames,
    overwrite: bool,
    verify: bool = False,
) -> Begun:
    """Prepare a folder for writing a part.

    Args:
        out: the folder, whose state and whose part are locked.
        part: the number of the part.
        parts: how many there are.
        append_to: the folder of the dataset to begin with.
        labels: names of labels.
        overwrite: drop what is there of this part, and a complete dataset.
        verify: read copies of shards back.

    Raises:
        ConfigError: the folder holds something else, or a complete dataset.
        DatasetError: a file there is invalid, or the disk is full.
    """
    files = PartFiles.of(out, part)
    names = [name for name in os.listdir(out) if name not in (LOCK, UNPACKED_NAME, files.lock.name)]
    finishing = read_document(out / FINISHING, Finishing)
    if finishing is not None and not overwrite:
        go_on_finishing(out, finishing)
        if len(finishing.records) != parts:
            raise _complete(out)
        return Begun(writing=Writing(parts=parts), finished=finishing.records[part])
    writing = None if finishing is not None else read_document(out / WRITING, Writing)
    if writing is not None and not _is_wanted(out, files, writing, parts, append_to, labels, overwrite=overwrite):
        writing = None
    if writing is None:
        _clear(out, names, files, overwrite=overwrite)
        shutil.rmtree(out / UNPACKED_NAME, ignore_errors=True)
        base = None
        if append_to is not None:
            base, known = appended_dataset(out, append_to)
            labels = joined_names(known, labels, base.path)
        writing = Writing(parts=parts, base=base, labels={str(number): name for number, name in labels.items()})
        write_document(out / WRITING, writing)
    if overwrite:
        remove_files(out, [files.closed.name])
    finished = [] if overwrite else files.finished()
    files.remove_from(len(finished))
    # Who writes more than was there is not complete any more.
    remove_files(out, [files.closed.name])
    base_shards: list[PartShard] = []
    if writing.base is not None:
        link_base(out, writing.base, verify=verify)
        base_shards = PartFiles(out, BASE).finished()
    return Begun(writing=writing, shards=tuple(finished), base=tuple(base_shards))


def _is_wanted(
    out: Path,
    own: PartFiles,
    writing: Writing,
    parts: int,
    append_to: Path | None,
    labels: LabelNames,
    *,
    overwrite: bool,
) -> bool:
    """Return whether the unfinished dataset of a folder is the one that the writer is made for.

    Raises:
        ConfigError: it is not, and must not be dropped.
    """
    wanted = None if append_to is None else str(append_to.resolve())
    found = None if writing.base is None else writing.base.path
    same = (writing.parts, found) == (parts, wanted)
    renamed = next((number for number, name in labels.items() if writing.labels.get(str(number)) != name), None)
    if same and renamed is None:
        return True
    all_parts = [PartFiles.of(out, part) for part in range(writing.parts)]
    live = any(part.lock.exists() and is_locked(part.lock) for part in all_parts if part.lock != own.lock)
    if not live and (overwrite or not any(part.finished() for part in all_parts)):
        return False
    if same and renamed is not None:
        there = writing.labels.get(str(renamed))
        raise ConfigError(
            f"{out}: holds an unfinished dataset in which label {renamed} is {'unnamed' if there is None else repr(there)}, "
            f"not {labels[renamed]!r}. Give the same labels, or drop it with overwrite=True when no process writes to it"
        )
    raise ConfigError(
        f"{out}: holds an unfinished dataset in {_described(writing.parts, found)}, not in {_described(parts, wanted)}. "
        "Continue it with these arguments, or drop it with overwrite=True when no process writes to it"
    )


def _clear(out: Path, names: list[str], own: PartFiles, *, overwrite: bool) -> None:
    """Make the folder empty, apart from the locks of living writers.

    Raises:
        ConfigError: it holds files that must stay.
    """
    ours = [name for name in names if is_part_file(name)]
    others = [name for name in names if not is_part_file(name)]
    made_here = recipe_in(out)[1].get("made_by") in (*MAKERS, MADE_BY)
    foreign = sorted(name for name in others if not (is_target_file(name) and (made_here or FINISHING in names)))
    if foreign:
        raise ConfigError(
            f"{out}: must be empty, or hold only a dataset that EMLIO made, holds {foreign[0]!r}. Choose another folder"
        )
    if others and not overwrite:
        raise _complete(out)
    # Nothing is being written here: a part that is locked belongs to a writer that has just finished the dataset.
    kept = {name for name in ours if name.endswith(".lock") and is_locked(out / name)} | {own.lock.name, FINISHING}
    remove_files(out, [name for name in ours if name not in kept])
    # The mappings first: without them nothing is complete. The recipe last: without it the others are foreign.
    recipes = (TFRECORDS.recipe, f".{TFRECORDS.recipe}")
    remove_files(out, [name for name in others if name not in recipes])
    remove_files(out, recipes)
    remove_files(out, [FINISHING])


def _complete(out: Path) -> ConfigError:
    return ConfigError(
        f"{out}: holds a complete dataset. Replace it with overwrite=True, or write the next version into another folder "
        f"with append_to={str(out)!r} and publish that: emlio publish FOLDER NAME@2"
    )


def _described(parts: int, base: str | None) -> str:
    return f"{parts} part{'s' if parts != 1 else ''}{f' after {base}' if base is not None else ''}"
