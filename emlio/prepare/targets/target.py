"""The target directory of a new dataset, before its shards are written."""

import re
import shutil
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from emlio.errors import ConfigError
from emlio.prepare.disk import disk_error
from emlio.prepare.locks import FolderLock
from emlio.store.atomic_file import write_atomically

__all__ = [
    "LABELS_NAME",
    "MAKERS",
    "TARGETS",
    "TARS",
    "TFRECORDS",
    "UNPACKED_NAME",
    "TargetFiles",
    "clear_unfinished",
    "is_target_file",
    "recipe_in",
    "remove_shards",
    "settle",
    "sole_writer",
]

_RECIPE = "prepared.json"
"""The description of how the dataset was made. It is written first: a directory that holds it may be continued."""

LABELS_NAME = "labels.txt"
"""One class per line, in the order of their numbers."""

UNPACKED_NAME = ".emlio-convert-unpacked"
"""A folder for what a source must unpack; removed when the dataset is made, or at the next start. No one else has a
folder of this name."""

_OURS = re.compile(
    r"shard-\d{5}-of-\d{5}\.(?:tfrecord|idx|tar)|mapping_shard_\d{5}\.json|\.tar_shard_\d{5}\.json"
    r"|\.?skipped_shard_\d{5}\.txt|\.?prepared\.json|labels\.txt"
)
MAKERS: Final = ("emlio convert", "emlio synth")
"""The commands that make datasets, as they name themselves in a recipe."""

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{12}\.tmp")


def is_target_file(name: str) -> bool:
    """Return whether a file of a dataset may have this name."""
    return _OURS.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFiles:
    """The names of the files in a target directory.

    Attributes:
        extension: of shards.
        summary: the beginning of the name of what describes a shard; it is written after the shard.
        hidden: whether files besides shards and labels are hidden. Visible ones would be records, or
            keep a folder of tars from being recognised.
    """

    extension: str
    summary: str
    hidden: bool

    @property
    def recipe(self) -> str:
        """The name of the description of how the dataset was made."""
        return self._name(_RECIPE)

    def shard_name(self, shard: int, shards: int) -> str:
        """Return the name of a shard."""
        return f"shard-{shard:05d}-of-{shards:05d}{self.extension}"

    def summary_name(self, shard: int) -> str:
        """Return the name of what describes a finished shard."""
        return f"{self.summary}{shard:05d}.json"

    def skips_name(self, shard: int | str) -> str:
        """Return the name of the file that lists the items left out of a shard, or a pattern of such names."""
        return self._name(f"skipped_shard_{shard:05d}.txt" if isinstance(shard, int) else f"skipped_shard_{shard}.txt")

    def _name(self, name: str) -> str:
        return f".{name}" if self.hidden else name


TFRECORDS: Final = TargetFiles(extension=".tfrecord", summary="mapping_shard_", hidden=False)
TARS: Final = TargetFiles(extension=".tar", summary=".tar_shard_", hidden=True)

TARGETS: Final = {"tfrecord": TFRECORDS, "wds": TARS}
"""The names of files by the form of a dataset."""

_SUMMARIES: Final = (TFRECORDS.summary, TARS.summary)


@contextmanager
def sole_writer(out: Path) -> Generator[None]:
    """Create the directory, lock it against other processes, and clean up after a killed one.

    The lock ends with the process, so a killed process leaves none.

    Raises:
        ConfigError: it cannot be written, or another process holds it.
    """
    lock = FolderLock(out, alone=True)
    try:
        _clear(out)
        yield
    finally:
        if lock.made:
            with suppress(OSError):  # kept if it is not empty
                out.rmdir()  # while it is locked: afterwards it may be another's
        lock.close()


def settle(
    out: Path,
    files: TargetFiles,
    digest: str,
    description: Mapping[str, str | int | bool | None],
    names: Mapping[int, str],
    *,
    force: bool,
) -> None:
    """Check that the directory holds no other dataset, and write the recipe into it.

    Args:
        out: the directory, held by `sole_writer`.
        files: the names of its files.
        digest: of the recipe.
        description: the recipe for people.
        names: of the labels.
        force: remove an earlier dataset of these commands. A directory that holds anything else is
            never written to: the new dataset would hide files that these commands did not make.

    Raises:
        ConfigError: it holds something else.
        DatasetError: it cannot be written.
    """
    there = sorted(path.name for path in out.iterdir() if path.name != UNPACKED_NAME)
    found, recipe = recipe_in(out)
    same, ours = recipe.get("digest") == digest, recipe.get("made_by") in MAKERS
    foreign = [name for name in there if not (ours and _OURS.fullmatch(name))]
    if foreign and (force or not same):
        raise ConfigError(
            f"{out}: must be empty, or hold only a dataset made by emlio convert or emlio synth, holds {foreign[0]!r}. "
            "Choose another directory"
        )
    # A command that failed before its first shard was complete left nothing that another one could spoil.
    empty = ours and set(there) <= {found, LABELS_NAME}
    if there and not force and not same and not empty:
        raise ConfigError(
            f"{out}: holds a dataset made from other data or with other options, see its {found}. Choose another "
            "directory, or replace the dataset with --force"
        )
    try:
        if force or (empty and not same):
            # What describes shards first: without it, a shard counts as not written if this is interrupted.
            _remove(out, there)
        text = msgspec.json.format(msgspec.json.encode({"digest": digest, **description}), indent=1)
        write_atomically(out / files.recipe, (text, b"\n"))
        if names:
            lines = "".join(f"{names.get(label, '')}\n" for label in range(max(names) + 1))
            write_atomically(out / LABELS_NAME, (lines.encode("utf-8", "surrogateescape"),))
    except OSError as error:
        raise disk_error(out / files.recipe, 0, error) from error


def remove_shards(out: Path) -> None:
    """Remove all but the description of how they were made, so that another conversion may take its place."""
    _remove(out, {path.name for path in out.iterdir()} - {TFRECORDS.recipe, TARS.recipe})


def _remove(out: Path, names: Iterable[str]) -> None:
    for name in sorted(filter(_OURS.fullmatch, names), key=lambda name: not name.startswith(_SUMMARIES)):
        (out / name).unlink(missing_ok=True)


def _clear(out: Path) -> None:
    shutil.rmtree(out / UNPACKED_NAME, ignore_errors=True)
    clear_unfinished(out)


def clear_unfinished(out: Path) -> None:
    """Remove files of shards that were not finished. No one may be writing one."""
    for path in out.iterdir():
        match = _TEMPORARY.fullmatch(path.name)
        if match is not None and _OURS.fullmatch(match["name"]):
            path.unlink(missing_ok=True)


def recipe_in(out: Path) -> tuple[str, dict[str, object]]:
    """Return the name of the recipe in a directory, and the recipe; an empty one if there is none."""
    for files in (TFRECORDS, TARS):
        with suppress(OSError, msgspec.MsgspecError):
            return files.recipe, msgspec.json.decode((out / files.recipe).read_bytes(), type=dict[str, object])
    return "", {}
