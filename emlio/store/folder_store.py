"""The files below a folder, hidden ones left out.

The order: the files of a folder by the bytes of their names, then its sub-folders likewise. It is
the same on every host that has the same files.
"""

import errno
import hashlib
import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.folders.containers import ZARR_MARKS
from emlio.formats.folders.names import is_junk
from emlio.open_limits import refusal_of
from emlio.store.file_read import read_failed
from emlio.store.file_table import FILE_COLUMNS, FileTable, NameTable, inode_number
from emlio.store.folder import Folder, must_be_file
from emlio.store.store import Store

__all__ = ["FolderStore", "FolderTimes", "unchanged", "walk", "walk_files"]

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY


class FolderTimes(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The folders of a tree, and when each last got or lost an entry.

    Attributes:
        names: relative to the top one, which is ".".
        ctimes_ns: (n,) their times of change.
    """

    names: NameTable
    ctimes_ns: npt.NDArray[np.int64]


class FolderStore(Store):
    """The files below a folder. See `Store`.

    Attributes:
        folder: closed with this.
        table: the files' names and identities.
        folders: the folders.
    """

    unwritten = ("mtimes_ns", "inodes")

    def __init__(
        self,
        folder: Folder,
        table: FileTable,
        folders: FolderTimes,
        endings: Mapping[str, int] | None = None,
        passed_over: Sequence[str] = (),
        junk: Sequence[str] = (),
    ) -> None:
        super().__init__(table.names, table.sizes, endings=endings, passed_over=passed_over, junk=junk)
        self.folder = folder
        self.table = table
        self.folders = folders

    @staticmethod
    def stored(
        folder: Folder,
        arrays: Mapping[str, npt.NDArray[Any]],
        on_change: Callable[[], None] = lambda: None,
        check_content: Callable[[int, Folder], None] = lambda _, __: None,
    ) -> "FolderStore":
        """Return the files that an index stores; see `FileTable` for the functions."""
        table = FileTable(
            folder=folder.path,
            names=NameTable(arrays["names"], arrays["name_bounds"]),
            **{column: arrays[column] for column in FILE_COLUMNS},
            check_content=check_content,
            on_change=on_change,
        )
        folders = NameTable(arrays["folders"], arrays["folder_bounds"])
        return FolderStore(folder, table, FolderTimes(names=folders, ctimes_ns=arrays["folder_ctimes_ns"]))

    @property
    def shown(self) -> str:
        """See `Store`."""
        return str(self.folder.path)

    def path(self, number: int) -> Path:
        """See `Store`."""
        return self.table.path(number)

    def check(self, number: int) -> None:
        """See `Store`. A file of which only the ctime changed is the same."""
        self.table.check_unchanged(number, self._status(number))

    def identity(self) -> bytes:
        """See `Store`."""
        found = np.empty((len(self), 4), np.int64)
        for number in range(len(self)):
            now = self._status(number)
            self.table.check_unchanged(number, now)
            found[number] = now.st_size, now.st_mtime_ns, now.st_ctime_ns, inode_number(now)
        return hashlib.blake2b(found.data, digest_size=16).digest()

    def _status(self, number: int) -> os.stat_result:
        try:
            return self.folder.stat(self.names[number])
        except OSError as error:
            path = str(self.path(number))
            raise refusal_of(error, path) or DatasetError(
                f"{path}: cannot be read: {error.strerror or error}"
            ) from error

    def is_same(self, other: Store) -> bool:
        """See `Store`."""
        return (
            isinstance(other, FolderStore)
            and len(self) == len(other)
            and self.folder.is_same(other.folder)
            and all(
                np.array_equal(getattr(self.table, column), getattr(other.table, column))
                for column in ("sizes", *self.unwritten)
            )
        )

    def missing(self, name: str) -> str:
        """See `Store`."""
        target = self.folder.link_target(name)
        return name if target is None else f"{name} (a broken link to {target})"

    def close(self) -> None:
        """See `Store`."""
        self.folder.close()

    def only(self, numbers: Sequence[int]) -> "FolderStore":
        """See `Store`."""
        table = replace(
            self.table,
            names=NameTable.of(self.names[number] for number in numbers),
            **{column: getattr(self.table, column)[numbers] for column in FILE_COLUMNS},
        )
        return FolderStore(self.folder, table, self.folders, None, self.passed_over, self.junk)

    def columns(self, numbers: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
        """See `Store`."""
        in_order = len(numbers) == len(self.names) and bool((numbers == np.arange(len(numbers))).all())
        wanted: list[int] = numbers.tolist()
        names = self.table.names if in_order else NameTable.of(self.names[number] for number in wanted)
        columns = {column: getattr(self.table, column) for column in FILE_COLUMNS}
        return {
            "names": names.text,
            "name_bounds": names.bounds,
            **{column: array if in_order else array[numbers] for column, array in columns.items()},
            "folders": self.folders.names.text,
            "folder_bounds": self.folders.names.bounds,
            "folder_ctimes_ns": self.folders.ctimes_ns,
        }

    def same(self, arrays: Mapping[str, npt.NDArray[Any]], old: slice, numbers: npt.NDArray[np.int64]) -> bool:
        """See `Store`."""
        names = NameTable(arrays["names"], arrays["name_bounds"])
        if names[old] != [self.names[number] for number in numbers.tolist()]:
            return False
        return all(np.array_equal(arrays[column][old], getattr(self.table, column)[numbers]) for column in FILE_COLUMNS)

    def read(self, number: int, offset: int, length: int) -> bytes:
        """See `Files`."""
        with self.open(number) as file:
            parts: list[bytes] = []
            while length > 0:
                try:
                    got = os.pread(file.fileno(), length, offset)
                except OSError as error:
                    raise read_failed(self.table.path(number), length, offset, error) from error
                if not got:
                    break
                parts.append(got)
                offset, length = offset + len(got), length - len(got)
            return b"".join(parts)

    def open(self, number: int) -> IO[bytes]:
        """See `Files`."""
        try:
            return open(self.folder.open(self.names[number]), "rb", buffering=0)
        except OSError as error:
            path = self.table.path(number)
            raise refusal_of(error, str(path)) or DatasetError(f"{path}: cannot be opened: {error.strerror}") from error


def walk(
    folder: Folder, advance: Callable[[int], None] = lambda _: None, top: Callable[[str], bool] | None = None
) -> FolderStore:
    """Find all files below a folder.

    A link to a file is a file. Links to folders are followed only in a folder that is not served.

    Args:
        folder: the folder.
        advance: called from time to time with the number of files found since.
        top: if given, only files at the top with such names are looked for; nothing else is looked at.

    Raises:
        DatasetError: a folder cannot be read, a link leads out of a served one or, in another one,
            nowhere, or a file is not regular.
    """
    text, bounds = bytearray(), array("q", [0])
    numbers = [array("q") for _ in FILE_COLUMNS]
    folder_names: list[str] = []
    folder_times = array("q")
    passed_over: list[str] = []
    junk: list[str] = []
    endings: Counter[str] = Counter()
    waiting = ["."]
    seen = set[tuple[int, int]]()
    while waiting:
        inside = waiting.pop()
        begun = len(numbers[0])
        if not folder.served and _was_seen(folder, inside, seen):
            passed_over.append(inside)  # by a link to a folder that is walked anyway: its files would come twice
            continue
        below = _walk_one(folder, inside, text, bounds, numbers, folder_times, endings, passed_over, junk, top)
        folder_names.append(inside)
        if top is None:
            waiting.extend(reversed(below))
        advance(len(numbers[0]) - begun)
    names = NameTable(np.frombuffer(text, np.uint8), np.frombuffer(bounds, np.int64))
    return _store(folder, names, numbers, folder_names, folder_times, endings, passed_over, junk)


def _was_seen(folder: Folder, inside: str, seen: set[tuple[int, int]]) -> bool:
    """Return whether a folder was walked under another name; remember it."""
    try:
        status = folder.stat(inside)
    except OSError as error:
        raise _unreadable(folder, inside, error) from error
    key = status.st_dev, status.st_ino
    if key in seen:
        return True
    seen.add(key)
    return False


def _walk_one(
    folder: Folder,
    inside: str,
    text: bytearray,
    bounds: "array[int]",
    numbers: "Sequence[array[int]]",
    folder_times: "array[int]",
    endings: Counter[str],
    passed_over: list[str],
    junk: list[str],
    wanted: Callable[[str], bool] | None,
) -> list[str]:
    """Add one folder's files; return its sub-folders, sorted."""
    begin = "" if inside == "." else inside + "/"
    below: list[str] = []
    try:
        descriptor = folder.beneath(inside, _FOLDER_FLAGS)
    except OSError as error:
        raise _unreadable(folder, inside, error) from error
    try:
        folder_times.append(os.fstat(descriptor).st_ctime_ns)
        with os.scandir(descriptor) as entries:
            everything = {entry.name: entry for entry in entries}
        endings.update(ZARR_MARKS & everything.keys())
        shown = (name for name in everything if not name.startswith(".") and (wanted is None or wanted(name)))
        found = [everything[name] for name in sorted(shown, key=os.fsencode)]
        for entry in found:
            name, is_folder = begin + entry.name, entry.is_dir(follow_symlinks=False)
            if is_junk(entry.name, folder=is_folder):
                junk.append(name)
                continue
            if is_folder:
                below.append(name)
                continue
            status = entry.stat(follow_symlinks=False)
            if entry.is_symlink():
                reached = _target(folder, name)
                if reached is None:
                    (below if _is_linked_folder(folder, name) else passed_over).append(name)
                    continue
                status = reached
            must_be_file(folder.path / name, status)
            endings[os.path.splitext(entry.name)[1].lower()] += 1
            text += os.fsencode(name)
            bounds.append(len(text))
            _add(numbers, status)
    except OSError as error:
        raise _unreadable(folder, inside, error) from error
    finally:
        os.close(descriptor)
    return below


def _target(folder: Folder, name: str) -> os.stat_result | None:
    """Return the status of a link's target; None if it is a folder or does not exist, as at the end of a loop of links."""
    try:
        status = folder.stat(name)
        must_be_file(folder.path / name, status)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    return status


def _is_linked_folder(folder: Folder, name: str) -> bool:
    """Return whether a link that leads to no file leads to a folder to be walked, one that is not walked anyway.

    Raises:
        DatasetError: it leads nowhere, in a folder that is not served: a record would be missing.
    """
    if folder.served:
        return False
    path = folder.path / name
    if not path.is_dir():
        raise DatasetError(f"{path}: must be a link to a file or a folder, leads nowhere")
    top, here, there = (os.path.realpath(one) for one in (folder.path, path.parent, path))
    if os.path.commonpath((here, there)) == there:
        return False
    inside = os.path.commonpath((top, there)) == top
    # A folder below the top is walked under its own name, unless it is hidden.
    return not inside or any(part.startswith(".") for part in os.path.relpath(there, top).split("/"))


def walk_files(folder: Folder, names: Iterable[str]) -> FolderStore:
    """Return these files of a folder, which are a dataset by themselves.

    Raises:
        DatasetError: one cannot be read, or is not a regular file.
    """
    numbers, found = [array("q") for _ in FILE_COLUMNS], list[str]()
    for name in names:
        path = folder.path / name
        try:
            status = folder.stat(name)
            must_be_file(path, status)
        except OSError as error:
            raise refusal_of(error, str(path)) or DatasetError(
                f"{path}: cannot be listed: {error.strerror or error}"
            ) from error
        found.append(name)
        _add(numbers, status)
    return _store(folder, NameTable.of(found), numbers, ["."], [folder.stat(".").st_ctime_ns])


def _add(numbers: "Sequence[array[int]]", status: os.stat_result) -> None:
    """Add a file's identity, in the order of `FILE_COLUMNS`."""
    sizes, mtimes, ctimes, inodes = numbers
    sizes.append(status.st_size)
    mtimes.append(status.st_mtime_ns)
    ctimes.append(status.st_ctime_ns)
    inodes.append(inode_number(status))


def _store(
    folder: Folder,
    names: NameTable,
    numbers: "Sequence[array[int]]",
    folders: Iterable[str],
    folder_times: Sequence[int],
    *rest: Any,
) -> FolderStore:
    # Arrays on the memory that was filled: a million files take as much again as a copy.
    columns: dict[str, Any] = {
        column: np.frombuffer(found, np.int64) for column, found in zip(FILE_COLUMNS, numbers, strict=True)
    }
    table = FileTable(folder=folder.path, names=names, **columns)
    times = FolderTimes(names=NameTable.of(folders), ctimes_ns=np.array(folder_times, np.int64))
    return FolderStore(folder, table, times, *rest)


def unchanged(folder: Folder, folders: FolderTimes) -> bool:
    """Return whether no file has come or gone since the folders were walked."""
    for name, ctime_ns in zip(folders.names, folders.ctimes_ns.tolist(), strict=True):
        try:
            if folder.stat(name).st_ctime_ns != ctime_ns:
                return False
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return False
            raise _unreadable(folder, name, error) from error
    return True


def _unreadable(folder: Folder, name: str, error: OSError) -> DatasetError:
    path = folder.path if name == "." else folder.path / name
    return refusal_of(error, str(path)) or DatasetError(
        f"dataset directory {path}: cannot be read: {error.strerror or error}"
    )
