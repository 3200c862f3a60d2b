"""The files of a dataset, as they were when it was indexed."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.native.files import IndexedFiles
from emlio.store.folder import HOW_TO_RENEW, Folder

__all__ = ["FILE_COLUMNS", "FileTable", "NameTable", "inode_number"]


FILE_COLUMNS = ("sizes", "mtimes_ns", "ctimes_ns", "inodes")
"""The attributes of `FileTable` that identify a file's content."""


@dataclass(frozen=True, slots=True, eq=False)
class NameTable(Sequence[str]):
    """Names one after the other in one run of bytes.

    A million names as Python's strings would take 100 MB.

    Attributes:
        text: the names' bytes, as the file system has them.
        bounds: (n + 1,) the begin of each name, and the end of the last one.
    """

    text: npt.NDArray[np.uint8]
    bounds: npt.NDArray[np.int64]
    _views: tuple[memoryview, memoryview] = field(init=False, repr=False)
    """Both without NumPy, which takes ten times as long for one name: each file that is read needs its name."""

    def __post_init__(self) -> None:
        text, bounds = np.ascontiguousarray(self.text), np.ascontiguousarray(self.bounds, np.int64)
        object.__setattr__(self, "_views", (text.data, bounds.data))

    @staticmethod
    def of(names: Iterable[str]) -> "NameTable":
        """Return a table of these names."""
        encoded = [os.fsencode(name) for name in names]
        bounds = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(name) for name in encoded], out=bounds[1:])
        return NameTable(np.frombuffer(b"".join(encoded), np.uint8), bounds)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        return os.fsdecode(self.raw(number))

    def raw(self, number: int) -> bytes:
        """Return a name's bytes."""
        text, bounds = self._views
        if not 0 <= number < len(bounds) - 1:
            raise IndexError(number)
        return bytes(text[bounds[number] : bounds[number + 1]])


def _no_note() -> None:
    """Note nothing."""


def _no_look(_: int, __: Folder) -> None:
    """Accept a file of which only the ctime changed: its records' checksums find another content."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileTable:
    """The files that hold a dataset's records, by number.

    Attributes:
        folder: the path of the dataset's folder, for people.
        names: relative to it.
        sizes: (n,) in bytes.
        mtimes_ns: (n,) times of the last change of the content.
        ctimes_ns: (n,) times of the last change of content or metadata, which no program can set.
        inodes: (n,) the files' numbers in their file system.
        check_content: raises `DatasetError` if a file has other content, after its ctime changed.
        on_change: called when a file is found not to be the indexed one, before the error is raised.
    """

    folder: Path
    names: NameTable
    sizes: npt.NDArray[np.int64]
    mtimes_ns: npt.NDArray[np.int64]
    ctimes_ns: npt.NDArray[np.int64]
    inodes: npt.NDArray[np.int64]
    check_content: Callable[[int, Folder], None] = _no_look
    on_change: Callable[[], None] = _no_note

    def __len__(self) -> int:
        return len(self.names)

    def path(self, number: int) -> Path:
        """Return a file's path, for people."""
        return self.folder / self.names[number]

    def size_bytes(self, number: int) -> int:
        """Return a file's size."""
        return int(self.sizes[number])

    def indexed(self, ctimes_ns: npt.NDArray[np.int64]) -> IndexedFiles:
        """Return the files as the C library takes them, with these times of change of content or metadata."""
        return IndexedFiles(self.names.text, self.names.bounds, self.sizes, self.mtimes_ns, ctimes_ns, self.inodes)

    def check_unchanged(self, number: int, now: os.stat_result) -> None:
        """Compare a file's current status with that of the indexed file.

        Raises:
            DatasetError: it is another file, or has another size or time of change.
        """
        if inode_number(now) != self.inodes[number]:
            self.on_change()
            raise DatasetError(
                f"a shard must not change while it is served: {self.path(number)} was replaced by another file. "
                f"{HOW_TO_RENEW}"
            )
        if now.st_size != self.sizes[number] or now.st_mtime_ns != self.mtimes_ns[number]:
            self.on_change()
            raise DatasetError(
                f"shard {self.path(number)}: changed while it was served: had {self.sizes[number]} bytes and mtime "
                f"{self.mtimes_ns[number]} ns, now {now.st_size} bytes and mtime {now.st_mtime_ns} ns. {HOW_TO_RENEW}"
            )


def inode_number(status: os.stat_result) -> int:
    """Return the inode as a signed number, as arrays hold it."""
    return status.st_ino if status.st_ino < 1 << 63 else status.st_ino - (1 << 64)
