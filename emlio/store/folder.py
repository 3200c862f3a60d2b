"""An open folder, served or read for its owner; its entries are accessed through its descriptor.

The descriptor keeps referring to the same folder if its path is renamed or redirected. The path
itself may be a link, or lead through links, since the operator chose it. They are followed once,
when the folder is opened: a link that is moved later, as in a deployment, changes nothing for what
is being read. Below the folder, links are followed as long as they stay below it; a link that leaves
a served folder is an error.

How a path is kept below the folder: see emlio.store.beneath.
"""

import errno
import os
import stat
import weakref
from enum import Enum
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from emlio.errors import ClosedError, DatasetError
from emlio.native.files import IndexedFiles
from emlio.open_limits import refusal_of
from emlio.store.beneath import open_beneath

__all__ = [
    "FINISHING",
    "HOW_TO_RENEW",
    "UNFINISHED",
    "WRITING",
    "Folder",
    "Kind",
    "absence",
    "is_unfinished",
    "must_be_file",
]

WRITING: Final = ".writing.json"
FINISHING: Final = ".finishing.json"

UNFINISHED: Final = (
    "an emlio.Writer has not finished this dataset. If the writer does not run any more, make it again for the same "
    "folder: it continues after its finished shards"
)
"""The end of the error on such a folder."""


def is_unfinished(folder: Path) -> bool:
    """Return whether a writer has begun a dataset in a folder and has not finished it."""
    return any((folder / name).is_file() for name in (WRITING, FINISHING))


HOW_TO_RENEW = "Reload or restart the daemon, make a new loader, or run the command again, to read the new files"

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Non-blocking, because opening a FIFO would wait for a writer, and the name may be one. Reading a regular
# file is the same with it.
_FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFDIR: "a folder",
}


class Kind(Enum):
    """The kind of an entry, without following links."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"


class Folder:
    """An open folder, which threads may share. `close` or garbage collection closes it.

    Attributes:
        path: the path it was opened by.
        place: the same path without links, as it led when the folder was opened.
        served: whether links must stay inside.
    """

    def __init__(self, path: Path, *, parent: "Folder | None" = None, served: bool = True) -> None:
        """Open the folder.

        Args:
            path: of the folder.
            parent: the folder that must contain it; by default any.
            served: whether links must stay inside. A user who converts a folder may follow them
                anywhere, also links to folders.

        Raises:
            OSError: it cannot be opened, or is not a folder.
            DatasetError: it is a link that leaves its parent.
        """
        self.path = path
        self.served = served
        opened = os.open(path, _FOLDER_FLAGS) if parent is None else parent.beneath(path.name, _FOLDER_FLAGS)
        self._opened: int | None = opened
        # Code that drops a dataset without closing it must not leak its descriptor.
        self._close = weakref.finalize(self, os.close, opened)
        self._close.atexit = False
        self._status = os.fstat(opened)
        self.place = self._resolved()

    @property
    def descriptor(self) -> int:
        """The folder's descriptor, for `dir_fd`."""
        if self._opened is None:
            raise ClosedError(f"the folder {self.path} is closed")
        return self._opened

    def kinds(self) -> dict[str, Kind]:
        """Return the folder's entries, sorted by name, without hidden ones."""
        # A separate descriptor, since users of one descriptor share its position in the listing.
        listed = os.open(".", _FOLDER_FLAGS, dir_fd=self.descriptor)
        try:
            with os.scandir(listed) as entries:
                found = {entry.name: _kind(entry) for entry in entries if not entry.name.startswith(".")}
        finally:
            os.close(listed)
        return dict(sorted(found.items()))

    def beneath(self, name: str, flags: int) -> int:
        """Open the name and return a descriptor.

        Raises:
            OSError: it cannot be opened.
            DatasetError: it leads out of a served folder.
        """
        if not self.served:
            return os.open(name, flags | os.O_CLOEXEC, dir_fd=self.descriptor)
        try:
            return open_beneath(self.descriptor, name, flags)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise DatasetError(self._leads_out(name)) from error
            raise

    def open(self, name: str) -> int:
        """Open the file for reading and return a descriptor.

        Raises:
            OSError: it does not exist, or cannot be read.
            DatasetError: it is not a regular file, or leads out of the folder.
        """
        return self.open_status(name)[0]

    def open_status(self, name: str) -> tuple[int, os.stat_result]:
        """Open the file like `open`, and also return its status."""
        try:
            descriptor = self.beneath(name, _FILE_FLAGS)
        except OSError as error:
            if error.errno == errno.ENXIO:  # from a socket, or from a missing device
                must_be_file(self.path / name, self.stat(name))
            raise
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                must_be_file(self.path / name, status)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, status

    def open_indexed(
        self, files: IndexedFiles, numbers: npt.NDArray[np.int64], opened: npt.NDArray[np.int64], *, direct: bool
    ) -> None:
        """Open those of these files that are the indexed ones, if the C library is there.

        Args:
            files: all files.
            numbers: the numbers of those to open.
            opened: gets the descriptor of each, a negative number for the others: `open_status` says what is wrong.
            direct: whether each is then to be read past the page cache.
        """
        files.open(self.descriptor, _FILE_FLAGS, numbers, opened, beneath=self.served, direct=direct)

    def read_indexed(
        self,
        files: IndexedFiles,
        ranges: "tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]",
        out: npt.NDArray[np.uint8],
    ) -> int:
        """Read ranges of files that are the indexed ones before and after, if the C library is there.

        Args:
            files: all files.
            ranges: the files' numbers, where the ranges begin, and their sizes.
            out: gets them one after the other.

        Returns:
            How many were read, up to the first of which that is not certain: `open_status` says what is wrong.
        """
        return files.read(self.descriptor, _FILE_FLAGS, ranges, out, beneath=self.served)

    def stat(self, name: str) -> os.stat_result:
        """Return the status of the name's target.

        Raises:
            OSError: it does not exist, or its status cannot be read.
            DatasetError: it leads out of the folder.
        """
        status = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        if not stat.S_ISLNK(status.st_mode):
            return status
        reached = self.beneath(name, os.O_PATH)
        try:
            return os.fstat(reached)
        finally:
            os.close(reached)

    def link_target(self, name: str) -> str | None:
        """Return the link's target, wherever it leads; None if there is no link of that name."""
        try:
            return os.readlink(name, dir_fd=self.descriptor)
        except OSError:
            return None

    def is_same(self, other: "Folder") -> bool:
        """Return whether both are the same folder of the file system."""
        return os.path.samestat(self._status, other._status)

    def check_in_place(self) -> None:
        """Check that the folder is still at its place. Where its path led through links, they may lead elsewhere.

        Raises:
            DatasetError: another folder is there, or it cannot be read.
        """
        try:
            now = os.stat(self.place)
        except OSError as error:
            raise refusal_of(error, f"folder {self.place}") or DatasetError(
                f"a dataset's folder must not be removed while it is served: {self.place} {absence(error)}"
            ) from error
        if not os.path.samestat(now, self._status):
            raise DatasetError(
                f"a dataset's folder must not be replaced while it is served: {self.place} is now another folder. "
                f"{HOW_TO_RENEW}"
            )

    def close(self) -> None:
        """Close the descriptor. Closing again does nothing."""
        self._opened = None
        self._close()

    def _resolved(self) -> Path:
        """Return the path without links; the path itself if a link is just being moved, or is one of /proc."""
        found = Path(os.path.realpath(self.path))
        try:
            is_here = os.path.samestat(os.stat(found), self._status)
        except OSError:
            is_here = False
        return found if is_here else self.path

    def _leads_out(self, name: str) -> str:
        link, folder = self.path / name, os.path.realpath(self.path)
        target = os.path.realpath(link)
        begin = f"{link}: a link in a served folder must point inside it, inside {folder}, this one points to {target}"
        if os.path.commonpath((target, folder)) == folder:
            return f"{begin} with an absolute path or through another folder. Make it relative: ln -sfr {target} {link}"
        if f"{os.sep}blobs{os.sep}" in target and f"{os.sep}snapshots{os.sep}" in f"{self.path}{os.sep}":
            # Their names tell no format: only the links have endings.
            return (
                f"{begin}, as in the cache of Hugging Face's hub. Download the files themselves: hf download NAME "
                "--repo-type dataset --local-dir DIR"
            )
        return (
            f"{begin}, outside of it. Serve the target's folder, {os.path.dirname(target)}, or put the file itself "
            "here with a hard link or a bind mount (mount --bind)"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def absence(error: OSError) -> str:
    """Describe an error of a file that existed before: it is gone, or cannot be read any more."""
    is_gone = isinstance(error, FileNotFoundError | NotADirectoryError)
    return f"{'was removed' if is_gone else 'cannot be read'} ({error.strerror or error})"


def must_be_file(path: Path, status: os.stat_result) -> None:
    """Raise an error unless the path is a regular file.

    Raises:
        IsADirectoryError: it is a folder.
        DatasetError: it is a FIFO, a socket or a device.
    """
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if kind != stat.S_IFREG:
        raise DatasetError(f"{path}: must be a regular file, is {_KINDS.get(kind, 'something else')}")


def _kind(entry: "os.DirEntry[str]") -> Kind:
    if entry.is_symlink():
        return Kind.LINK
    if entry.is_dir(follow_symlinks=False):
        return Kind.FOLDER
    return Kind.FILE if entry.is_file(follow_symlinks=False) else Kind.OTHER
