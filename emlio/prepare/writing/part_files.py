"""The files of a dataset that is being written: all of them hidden, so that no daemon serves a part.

.writing.json                           what is written here: how many parts, what it is appended to
.part-00003-00007.tfrecord              shard 7 of part 3
.part-00003-00007.json                  its description, written last: without it the shard does not count
.part-00003.closed.json                 part 3 is complete
.base-00000.tfrecord                    a shard of the dataset that is appended to, and its description
.finishing.json                         all parts are complete, files are getting their final names
.part-00003.lock, .writing.lock         locks
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from emlio.errors import DatasetError
from emlio.formats.tfrecord.mapping import Feature
from emlio.prepare.disk import disk_error
from emlio.prepare.targets.target import is_target_file
from emlio.store.atomic_file import write_atomically
from emlio.store.folder import FINISHING, WRITING

__all__ = [
    "BASE",
    "FINISHING",
    "LOCK",
    "WRITING",
    "Appended",
    "Finishing",
    "PartFiles",
    "PartShard",
    "Writing",
    "is_part_file",
    "read_document",
    "remove_files",
    "sync_folder",
    "write_document",
]

LOCK: Final = ".writing.lock"

_NAME = re.compile(
    r"\.(?:part-\d{5}-|base-)\d{5}\.(?:tfrecord|json)|\.part-\d{5}\.(?:closed\.json|lock)"
    r"|\.writing\.(?:json|lock)|\.finishing\.json"
)
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{12}\.tmp")

_Document = TypeVar("_Document")


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The dataset that another one begins with.

    Attributes:
        path: its folder.
        digest: of its shards.
        shards: how many it has.
    """

    path: str
    digest: str
    shards: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """The dataset that is written in a folder.

    Attributes:
        parts: in how many parts.
        base: what it begins with, or None.
        labels: names by the number of the label.
        version: of the files here.
    """

    parts: int
    base: Appended | None = None
    labels: dict[str, str] = field(default_factory=dict[str, str])
    version: int = 1

    @property
    def base_path(self) -> str:
        """The folder of the dataset that it begins with; empty if there is none."""
        return "" if self.base is None else self.base.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Finishing:
    """A dataset whose files are getting their final names.

    Attributes:
        records: of each part.
        base: what it begins with, or None.
        labels: names by the number of the label.
    """

    records: tuple[int, ...]
    base: Appended | None = None
    labels: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class PartShard:
    """A finished shard.

    Attributes:
        size_bytes: of its file.
        records: how many it holds.
        digest: of its content, see `emlio.formats.tfrecord.mapping`.
        columns: the kinds of its columns; empty for raw records, and for shards that were appended to.
        features: of its records.
        label_counts: records by label, or None.
        label_names: names of labels, or None.
        tokens: the type of the tokens that records are; None if it is unknown.
    """

    size_bytes: int
    records: int
    digest: str
    columns: dict[str, str] = field(default_factory=dict[str, str])
    features: dict[str, Feature] = field(default_factory=dict[str, Feature])
    label_counts: dict[str, int] | None = None
    label_names: dict[str, str] | None = None
    tokens: str | None = None


@dataclass(frozen=True, slots=True)
class PartFiles:
    """The files of one part in a folder.

    Attributes:
        out: the folder.
        prefix: what their names begin with.
    """

    out: Path
    prefix: str

    @staticmethod
    def of(out: Path, part: int) -> "PartFiles":
        """Return the files of a part by its number."""
        return PartFiles(out, f".part-{part:05d}")

    @property
    def lock(self) -> Path:
        """The file that the part's writer locks."""
        return self.out / f"{self.prefix}.lock"

    @property
    def closed(self) -> Path:
        """The file that says that the part is complete."""
        return self.out / f"{self.prefix}.closed.json"

    def shard(self, number: int) -> Path:
        """Return the path of a shard."""
        return self.out / f"{self.prefix}-{number:05d}.tfrecord"

    def description(self, number: int) -> Path:
        """Return the path of a shard's description."""
        return self.out / f"{self.prefix}-{number:05d}.json"

    def described(self) -> list[PartShard]:
        """Return the descriptions of the part's shards, which may have their final names already."""
        found: list[PartShard] = []
        while (shard := read_document(self.description(len(found)), PartShard)) is not None:
            found.append(shard)
        return found

    def finished(self) -> list[PartShard]:
        """Return the shards that are here, up to the first one that is not complete."""
        described = self.described()
        for number, shard in enumerate(described):
            try:
                whole = self.shard(number).stat().st_size == shard.size_bytes
            except OSError:
                whole = False
            if not whole:
                return described[:number]
        return described

    def remove_from(self, first: int) -> None:
        """Remove the shards from this number on, and what a killed process left.

        Raises:
            DatasetError: a file cannot be removed.
        """
        own = re.compile(rf"{re.escape(self.prefix)}-(\d{{5}})\..+")
        names: list[str] = []
        for name in os.listdir(self.out):
            temporary = _TEMPORARY.fullmatch(name)
            match = own.fullmatch(temporary["name"] if temporary is not None else name)
            if match is not None and (temporary is not None or int(match[1]) >= first):
                names.append(name)
        remove_files(self.out, names)


BASE: Final = ".base"
"""The begin of the names of shards that are appended to."""


def is_part_file(name: str) -> bool:
    """Return whether a file of a dataset that is being written may have this name.

    A temporary file may be on the way to a final name, too.
    """
    temporary = _TEMPORARY.fullmatch(name)
    if temporary is not None:
        return _NAME.fullmatch(temporary["name"]) is not None or is_target_file(temporary["name"])
    return _NAME.fullmatch(name) is not None


def remove_files(out: Path, names: Iterable[str]) -> None:
    """Remove files of a folder, descriptions first: without them a shard does not count.

    Raises:
        DatasetError: one cannot be removed.
    """
    for name in sorted(names, key=lambda name: not name.endswith(".json")):
        try:
            (out / name).unlink(missing_ok=True)
        except OSError as error:
            raise DatasetError(f"{out / name}: cannot be removed: {error.strerror or error}") from error


def read_document(path: Path, kind: type[_Document]) -> _Document | None:
    """Return what a file describes; None if there is no such file.

    Raises:
        DatasetError: it cannot be read, or holds something else.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise DatasetError(f"{path}: cannot be read: {error}. Remove the file, or the folder") from error


def write_document(path: Path, document: Any) -> None:
    """Write a value as JSON, so that it stays after a power cut.

    Raises:
        DatasetError: the disk is full or broken.
    """
    text = msgspec.json.format(msgspec.json.encode(document, order="deterministic"), indent=1) + b"\n"
    try:
        write_atomically(path, (text,))
        sync_folder(path.parent)
    except OSError as error:
        raise disk_error(path, len(text), error) from error


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk.

    Raises:
        OSError: the disk is broken.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
