"""The target directory of a new dataset, before its shards are written.

Covers: exclusive access, clean-up after a killed process, distinguishing an interrupted preparation
from another one, free space. Does not cover: the shards (emlio.prepare.targets.shard_set).
"""

import fcntl
import os
import re
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from emlio.errors import ConfigError, DatasetError
from emlio.prepare.targets.shard_file import disk_error
from emlio.shards.files.atomic_file import write_atomically
from emlio.units import format_size

__all__ = [
    "LABELS_NAME",
    "RECIPE_NAME",
    "UNPACKED_NAME",
    "refuse_full_disk",
    "settle",
    "shard_name",
    "skips_name",
    "sole_writer",
]

RECIPE_NAME = "prepared.json"
"""The description of how the dataset was made. It is written first: a directory that holds it may be continued."""

LABELS_NAME = "labels.txt"
"""One class per line, in the order of their numbers."""

UNPACKED_NAME = ".unpacked"
"""A folder for what a source must unpack; removed when the dataset is made."""

_OURS = re.compile(
    r"shard-\d{5}-of-\d{5}(?:\.tfrecord(?:\.index\.npy)?|\.idx)|(?:mapping_shard|skipped_shard)_\d{5}\.(?:json|txt)"
    r"|prepared\.json|labels\.txt"
)
_MAKERS = ("emlio convert", "emlio synth")
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{12}\.tmp")


def shard_name(shard: int, shards: int) -> str:
    """Return the file name of a shard."""
    return f"shard-{shard:05d}-of-{shards:05d}.tfrecord"


def skips_name(shard: int) -> str:
    """Return the name of the file that lists the items left out of a shard."""
    return f"skipped_shard_{shard:05d}.txt"


@contextmanager
def sole_writer(out: Path) -> Generator[None]:
    """Create the directory, lock it against other processes, and clean up after a killed one.

    The lock ends with the process, so a killed process leaves none.

    Raises:
        ConfigError: it cannot be written, or another process holds it.
    """
    made = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        fd = os.open(out, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"{out}: must be a writable directory: {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"{out}: another process is writing a dataset here. Wait, or choose another directory"
            ) from error
        except OSError:  # no locks on this file system: the user must start only one process
            pass
        _clear(out)
        yield
    finally:
        os.close(fd)
        if made:
            with suppress(OSError):  # kept if it is not empty
                out.rmdir()


def settle(
    out: Path, digest: str, description: Mapping[str, str | int | bool | None], names: Mapping[int, str], *, force: bool
) -> None:
    """Check that the directory holds no other dataset, and write the recipe into it.

    Args:
        out: the directory, held by `sole_writer`.
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
    recipe = _recipe_in(out)
    same, ours = recipe.get("digest") == digest, recipe.get("made_by") in _MAKERS
    foreign = [name for name in there if not (ours and _OURS.fullmatch(name))]
    if foreign and (force or not same):
        raise ConfigError(
            f"{out}: must be empty, or hold only a dataset made by emlio convert or emlio synth, holds {foreign[0]!r}. "
            "Choose another directory"
        )
    if there and not force and not same:
        raise ConfigError(
            f"{out}: holds a dataset made from other data or with other options, see its {RECIPE_NAME}. Choose another "
            "directory, or replace the dataset with --force"
        )
    try:
        if force:
            # Mappings first: without one, a shard counts as not written if this is interrupted.
            for name in sorted(filter(_OURS.fullmatch, there), key=lambda name: not name.startswith("mapping")):
                (out / name).unlink(missing_ok=True)
        text = msgspec.json.format(msgspec.json.encode({"digest": digest, **description}), indent=1)
        write_atomically(out / RECIPE_NAME, (text, b"\n"))
        if names:
            lines = "".join(f"{names.get(label, '')}\n" for label in range(max(names) + 1))
            write_atomically(out / LABELS_NAME, (lines.encode(),))
    except OSError as error:
        raise disk_error(out / RECIPE_NAME, 0, error) from error


def refuse_full_disk(out: Path, needed_bytes: int) -> None:
    """Fail early if the disk is too small, instead of after hours of writing.

    Raises:
        DatasetError: the directory's file system has less free space.
    """
    room = os.statvfs(out)
    free = room.f_bavail * room.f_frsize
    if needed_bytes > free:
        raise DatasetError(
            f"{out}: needs about {needed_bytes} bytes ({format_size(needed_bytes)}) more, its file system has "
            f"{free} ({format_size(free)}) free"
        )


def _clear(out: Path) -> None:
    shutil.rmtree(out / UNPACKED_NAME, ignore_errors=True)
    for path in out.iterdir():
        match = _TEMPORARY.fullmatch(path.name)
        if match is not None and _OURS.fullmatch(match["name"]):
            path.unlink(missing_ok=True)


def _recipe_in(out: Path) -> dict[str, object]:
    """Return the recipe of the dataset in a directory; an empty one if there is none."""
    try:
        return msgspec.json.decode((out / RECIPE_NAME).read_bytes(), type=dict[str, object])
    except (OSError, msgspec.MsgspecError):
        return {}
