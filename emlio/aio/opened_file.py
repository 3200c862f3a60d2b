"""The file of a request: opened past the page cache, made large enough, and what it says when a transfer fails."""

import ctypes
import errno
import os
import stat
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from fcntl import F_GETFL, F_SETFL, fcntl
from typing import Any, Final, Self, cast

from emlio.errors import ConfigError, FileError
from emlio.native.disk import ALIGNMENT, direct_alignment

__all__ = ["OpenedFile", "open_file"]

_MUST: Final = {
    errno.ENOSPC: "the file system must have room for them",
    errno.EDQUOT: "the user's quota must have room for them",
    errno.EFBIG: "the file system or the process's limit must allow files of this size",
    errno.EIO: "the disk must work, see the system's log",
    errno.EAGAIN: "the system must have resources for transfers, see fs.aio-max-nr and ulimit -l",
}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedFile:
    """An open file, until `close` or the end of `with`.

    Attributes:
        path: its path, or that of the caller's descriptor.
        plain: the descriptor through the page cache.
        direct: the descriptor past the page cache; -1 if there is none.
    """

    path: str
    plain: int
    direct: int

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close both descriptors.

        Raises:
            OSError: some file systems tell only here that bytes were not written.
        """
        with ExitStack() as stack:
            for descriptor in (self.plain, self.direct):
                if descriptor >= 0:
                    stack.callback(os.close, descriptor)

    def allocate(self, start: int, end: int) -> None:
        """Make room for bytes beyond the end of the file, which then ends at `end`.

        Blocks that are made as they are written to would be written one after the other.

        Raises:
            OSError: there is no room.
        """
        if _libc.fallocate(self.plain, 0, start, end - start):
            error = ctypes.get_errno()
            if error not in (errno.EOPNOTSUPP, errno.ENOSYS):  # then they are made as they are written to
                raise OSError(error, os.strerror(error))

    def size(self) -> int:
        """Return the size of the file or device."""
        found = os.fstat(self.plain)
        return os.lseek(self.plain, 0, os.SEEK_END) if stat.S_ISBLK(found.st_mode) else found.st_size

    def failure(self, number: int, offset: int, size_bytes: int, *, write: bool) -> FileError:
        """Return the error for bytes that were not read or written.

        Args:
            number: the system's error; not above 0 if a transfer came short.
            offset: the first of the request's bytes that failed.
            size_bytes: how many bytes from there on the request has.
            write: whether they were to be written.
        """
        what = f"{self.path}: cannot {'write' if write else 'read'} {size_bytes:,} bytes at offset {offset:,}"
        if number <= 0:
            number = errno.EIO if write else errno.ENODATA
            why = "it took only a part of them" if write else f"the file has {self.size():,} bytes"
        else:
            why = os.strerror(number) + (f"; {_MUST[number]}" if number in _MUST else "")
        return FileError(f"{what}: {why}", errno=number, path=self.path, offset=offset)


def open_file(file: str | os.PathLike[str] | int, *, write: bool, direct: bool) -> OpenedFile:
    """Open a file.

    Args:
        file: a path; or a descriptor, whose file is opened once more.
        write: whether it is written; it is then made if it is absent.
        direct: whether to open it past the page cache, if its file system offers that.

    Raises:
        FileError: it cannot be opened.
        ConfigError: it is neither a path nor a descriptor.
    """
    path = _name(file)
    plain = past = -1
    try:
        if isinstance(file, int):
            allowed = fcntl(file, F_GETFL) & os.O_ACCMODE
            if allowed == (os.O_RDONLY if write else os.O_WRONLY):
                raise OSError(errno.EBADF, f"the descriptor must be open for {'writing' if write else 'reading'}")
            way, path = f"/proc/self/fd/{file}", os.readlink(f"/proc/self/fd/{file}")
        else:
            way = path
        # Without O_NONBLOCK the opening of a pipe waits for its other end.
        plain = os.open(way, (os.O_WRONLY | os.O_CREAT if write else os.O_RDONLY) | os.O_NONBLOCK, 0o666)
        mode = os.fstat(plain).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode) and not stat.S_ISBLK(mode):
            raise OSError(errno.ESPIPE, "it must be a regular file or a disk, and is a pipe or another device")
        fcntl(plain, F_SETFL, 0)  # transfers wait
        if direct and 0 < direct_alignment(plain) <= ALIGNMENT:
            with suppress(OSError):  # what cannot be opened so is read and written through the page cache
                past = os.open(f"/proc/self/fd/{plain}", (os.O_WRONLY if write else os.O_RDONLY) | os.O_DIRECT)
    except OSError as error:
        if plain >= 0:
            os.close(plain)
        raise FileError(
            f"{path}: cannot be opened for {'writing' if write else 'reading'}: {error.strerror}",
            errno=error.errno or errno.EIO,
            path=path,
            offset=0,
        ) from error
    return OpenedFile(path=path, plain=plain, direct=past)


def _name(file: object) -> str:
    if isinstance(file, int) and not isinstance(file, bool) and 0 <= file < 1 << 31:
        return f"descriptor {file}"
    if isinstance(file, str | bytes | os.PathLike):
        path = os.fsdecode(cast(Any, file))
        if path and "\0" not in path:
            return path
    raise ConfigError(f"a file must be a path or a descriptor, got {file!r}")
