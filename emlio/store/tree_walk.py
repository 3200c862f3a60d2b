"""Walking all that lies below a served folder, whatever its dataset's format: hidden files and empty folders, too.

Left out, and counted, are links that lead out of the folder, are absolute, or lead where the daemon may not look, and
what is no file, folder or link. A folder that may not be read has no entries.
"""

import errno
import os
import stat
from array import array

import msgspec
import numpy as np

from emlio.errors import DatasetError
from emlio.open_limits import is_used_up, refusal_of
from emlio.store.beneath import open_beneath
from emlio.store.file_table import FileTable, NameTable, inode_number
from emlio.store.folder import Folder
from emlio.store.folder_store import FolderStore, FolderTimes
from emlio.store.tree import Tree

__all__ = ["WalkedFolder", "walk_tree"]

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_SHOWN_BITS = 0o555  # of a link all, as ever: programs that copy it would find a difference
_CLOSED = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
"""Reasons why a folder cannot be opened that may not be read, was replaced, or lies too deep."""


class WalkedFolder(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A folder's tree, and what identifies each file of it.

    Attributes:
        tree: the entries.
        store: the same, by the same numbers, for reading.
        left_out: how many links lead out of the folder, entries are of another kind, and folders cannot be read.
    """

    tree: Tree
    store: FolderStore
    left_out: tuple[int, int, int]


class _Walk:
    def __init__(self, folder: Folder, most_entries: int) -> None:
        self.folder = folder
        self.most_entries = most_entries
        self.modes = array("H")
        self.numbers = [array("q") for _ in range(4)]  # sizes, mtimes, ctimes, inodes
        self.names, self.name_bounds = bytearray(), array("q", [0])
        self.paths, self.path_bounds = bytearray(), array("q", [0])
        self.targets = bytearray()
        self.leading_out = self.others = self.unreadable = 0

    def add(self, path: bytes, name: bytes, mode: int, size: int, status: os.stat_result) -> None:
        if len(self.modes) == self.most_entries:
            raise DatasetError(
                f"folder {self.folder.path}: must have at most {self.most_entries:,} entries to be listed, has more"
            )
        self.modes.append(mode if stat.S_ISLNK(mode) else stat.S_IFMT(mode) | mode & _SHOWN_BITS)
        values = (size, status.st_mtime_ns, status.st_ctime_ns, inode_number(status))
        for column, value in zip(self.numbers, values, strict=True):
            column.append(value)
        self.names += name
        self.name_bounds.append(len(self.names))
        self.paths += path
        self.path_bounds.append(len(self.paths))

    def enter(self, number: int) -> None:
        """Add the entries of a folder that was added."""
        begin, end = self.path_bounds[number : number + 2]
        path = bytes(self.paths[begin:end])
        before = len(self.modes)
        try:
            descriptor = self.folder.beneath(os.fsdecode(path) or ".", _FOLDER_FLAGS)
        except OSError as error:
            if error.errno not in _CLOSED:  # such as EIO: a folder that only could not be read just now is not empty
                raise
            self.unreadable += 1
            return
        try:
            with os.scandir(descriptor) as found:
                names = sorted(os.fsencode(entry.name) for entry in found)
            for name in names:
                self._look(descriptor, path + b"/" + name if path else name, name)
        except PermissionError:  # it may be listed, but not entered
            self.unreadable += 1
        finally:
            os.close(descriptor)
        self.numbers[0][number] = len(self.modes) - before

    def _look(self, descriptor: int, path: bytes, name: bytes) -> None:
        try:
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            kind = stat.S_IFMT(status.st_mode)
            if kind == stat.S_IFREG:
                self.add(path, name, status.st_mode, status.st_size, status)
            elif kind == stat.S_IFDIR:
                self.add(path, name, status.st_mode, 0, status)
            elif kind == stat.S_IFLNK:
                target = os.readlink(name, dir_fd=descriptor)
                if self._stays(path):
                    self.targets += target
                    self.add(path, name, status.st_mode, len(target), status)
                else:
                    self.leading_out += 1
            else:
                self.others += 1
        except FileNotFoundError:
            return  # removed since it was listed

    def _stays(self, path: bytes) -> bool:
        """Return whether a link leads to a place below the folder, or nowhere."""
        try:
            os.close(open_beneath(self.folder.descriptor, os.fsdecode(path), os.O_PATH))
        except OSError as error:
            if is_used_up(error):
                raise
            # Another reason, such as EACCES, hides where it leads: at a mount it could lead out of it.
            return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
        return True


def walk_tree(folder: Folder, most_entries: int = 1 << 62) -> WalkedFolder:
    """Walk a folder.

    Raises:
        DatasetError: it cannot be read, has too many entries, or the system has no descriptor left.
    """
    walk = _Walk(folder, most_entries)
    try:
        status = os.fstat(folder.descriptor)
        walk.add(b"", b"", status.st_mode, 0, status)
        number = 0
        while number < len(walk.modes):
            if stat.S_ISDIR(walk.modes[number]):
                walk.enter(number)
            number += 1
    except OSError as error:
        raise refusal_of(error, str(folder.path)) or DatasetError(
            f"folder {folder.path}: cannot be walked: {error.strerror or error}"
        ) from error
    return _walked(folder, walk)


def _walked(folder: Folder, walk: _Walk) -> WalkedFolder:
    sizes, mtimes, ctimes, inodes = (np.frombuffer(column, np.int64) for column in walk.numbers)
    tree = Tree(
        modes=np.frombuffer(walk.modes, np.uint16),
        sizes=sizes,
        mtimes_ns=mtimes,
        names=_table(walk.names, walk.name_bounds),
        targets=np.frombuffer(walk.targets, np.uint8),
    )
    table = FileTable(
        folder=folder.path,
        names=_table(walk.paths, walk.path_bounds),
        sizes=sizes,
        mtimes_ns=mtimes,
        ctimes_ns=ctimes,
        inodes=inodes,
    )
    no_times = FolderTimes(names=NameTable.of(()), ctimes_ns=np.zeros(0, np.int64))
    return WalkedFolder(
        tree=tree,
        store=FolderStore(folder, table, no_times),
        left_out=(walk.leading_out, walk.others, walk.unreadable),
    )


def _table(text: bytearray, bounds: "array[int]") -> NameTable:
    return NameTable(np.frombuffer(text, np.uint8), np.frombuffer(bounds, np.int64))
