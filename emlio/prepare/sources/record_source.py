"""The interface of a conversion's sources."""

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, Self

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.prepare.sample import Sample
from emlio.store.folder import Folder
from emlio.store.folder_store import FolderStore

__all__ = [
    "Fingerprint",
    "Ignored",
    "Listing",
    "RecordSource",
    "SourceChangedError",
    "check_listed",
    "read_listed",
    "source_folder",
]


_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """The files of a source that are not of its format.

    Attributes:
        count: the number of them.
        names: the first ones, relative to the source.
    """

    count: int = 0
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: Iterable[str]) -> Self:
        """Count these files, of which there may be millions, and keep the first names."""
        count, first = 0, list[str]()
        for count, name in enumerate(names, start=1):
            if count <= _NAMED:
                first.append(name)
        return cls(count=count, names=tuple(first))

    def __str__(self) -> str:
        more = f" and {self.count - len(self.names):,} more" if self.count > len(self.names) else ""
        return f"{', '.join(self.names)}{more}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Listing:
    """The content of a source, found without reading the items.

    Attributes:
        sizes_bytes: the size of each item, precise enough for cutting shards of equal size.
        fingerprint: differs when the items, their order or their labels differ.
        label_names: the plain name of each label; empty where there are none.
        ignored: files that were passed over because they are not of this format.
        tokens: the type of the tokens that items are; empty if they are none.
    """

    sizes_bytes: npt.NDArray[np.int64]
    fingerprint: str
    label_names: Mapping[int, str]
    ignored: Ignored = field(default_factory=Ignored)
    tokens: str = ""


class RecordSource(Protocol):
    """Items by index, from 0 to len(listing.sizes_bytes) - 1.

    A source is listed by its constructor and does not change afterwards. `key` and `record` are
    called from many threads at once, in any order. The caller owns what `record` returns. The code
    that created the source closes it.
    """

    @property
    def listing(self) -> Listing:
        """The content of the source."""
        ...

    def key(self, place: int) -> str:
        """Return a name by which the user can find this item."""
        ...

    def record(self, place: int) -> Sample:
        """Read one item.

        Raises:
            DatasetError: it cannot be read, or changed since it was listed; the message names it.
        """
        ...

    def close(self) -> None:
        """Release the source's resources. Closing again does nothing."""
        ...


class SourceChangedError(DatasetError):
    """A file is not the one that was listed: no item can be blamed, so none is skipped."""


class Fingerprint:
    """A digest over length-prefixed entries, so that no two lists of entries hash the same bytes."""

    def __init__(self, kind: str) -> None:
        self._hash = hashlib.blake2b(digest_size=16, person=b"emlio-source")
        self.add(kind)

    def add_file(self, files: FolderStore, number: int, *entry: str | int) -> None:
        """Add an entry that ends with a file's size and time."""
        self.add(*entry, files.size_bytes(number), int(files.table.mtimes_ns[number]))

    def add(self, *entry: str | int) -> None:
        """Add one entry."""
        for item in entry:
            content = str(item).encode("utf-8", "surrogateescape")
            self._hash.update(struct.pack("<Q", len(content)) + content)

    def hexdigest(self) -> str:
        """Return the digest of the entries so far."""
        return self._hash.hexdigest()


def source_folder(path: Path) -> Folder:
    """Open a folder whose links may lead anywhere: data that are converted need not be safe to serve.

    Raises:
        DatasetError: it cannot be opened.
    """
    try:
        return Folder(path, served=False)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be listed: {error.strerror or error}") from error


def check_listed(files: FolderStore, number: int) -> None:
    """Check that a file has not changed since it was listed.

    Raises:
        SourceChangedError: it has.
        DatasetError: it cannot be looked at.
    """
    try:
        files.check(number)
    except DatasetError as error:
        if isinstance(error.__cause__, OSError):
            raise  # it cannot be looked at
        raise SourceChangedError(
            f"{files.path(number)}: changed during the conversion: had {files.size_bytes(number)} bytes at the start. Run "
            "the same command again when the file is complete"
        ) from error


def read_listed(files: FolderStore, number: int, offset: int = 0, size_bytes: int | None = None) -> bytes:
    """Read a file, or a part of it, that must not have changed since it was listed.

    Args:
        files: the files of the source.
        number: that of the file.
        offset: where to begin.
        size_bytes: how much to read; None for all up to the listed end.

    Raises:
        DatasetError: it cannot be read, or has changed since.
    """
    content = files.read(number, offset, files.size_bytes(number) - offset if size_bytes is None else size_bytes)
    check_listed(files, number)
    return content
