"""Safe access to files that control who may connect.

A file is read only if no other user can have written it, and it is written atomically.

Errors say which command to type where one helps. A secret file must also be unreadable for other
users.
"""

import errno
import fcntl
import os
import secrets
import shlex
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from emlio.errors import ConfigError
from emlio.keys.lines import MAX_TEXT_BYTES
from emlio.keys.owners import check_above, check_owner, check_writers, this_process

__all__ = [
    "check_folder",
    "failed",
    "is_passing",
    "make_folder",
    "put_file",
    "put_new_file",
    "read_file",
    "remove_file",
    "sole_writer",
]

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_LOCK = ".lock"
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}

_PASSING = frozenset(
    {
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS),  # exhausted, perhaps by strangers' connections
        *(errno.EIO, errno.EREMOTEIO, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH),
        *(errno.EAGAIN, errno.EINTR),
    }
)
"""Errors that say nothing about the file: neither that it is gone nor that it is unsafe."""


def failed(path: Path, what: str, error: OSError) -> ConfigError:
    """Return the error for a file or folder that could not be `what` (such as "read")."""
    return ConfigError(f"{path}: cannot be {what}: {error.strerror or error}")


def is_passing(error: ConfigError | OSError) -> bool:
    """Return whether the error is temporary, so that what was known before may still be true."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in _PASSING


def check_folder(path: Path) -> None:
    """Check that no other user can add files to the folder, or replace the folder.

    Raises:
        ConfigError: another user can, or it is not a folder.
        FileNotFoundError: it does not exist.
    """
    asker = this_process()
    try:
        check_above(path, asker)
        found = path.stat()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise failed(path, "accessed", error) from error
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{path}: must be a folder, is something else")
    check_owner(path, found, asker)
    # A container's Secret or ConfigMap: root made it, anybody may write to it, and it is mounted read-only.
    if found.st_uid != 0 or not os.statvfs(path).f_flag & os.ST_RDONLY:
        check_writers(path, found)


def make_folder(path: Path) -> None:
    """Create a folder for this user alone, or check an existing one.

    Raises:
        ConfigError: it cannot be created, or others can write to it.
    """
    try:
        for above in reversed([above for above in path.parents if not above.is_dir()]):
            # The umask must not decide: with some systems' default the group could write there, and
            # then nothing in it would be trusted.
            above.mkdir(mode=0o755, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        check_folder(path)
    except OSError as error:
        raise failed(path, "made", error) from error


def read_file(path: Path, *, secret: bool = False) -> bytes:
    """Return the file's bytes. A file that is too long is cut at one byte more than the limit.

    Args:
        path: the file, in a folder that was checked. A link to a file that is not secret is
            followed, if no other user can replace the link.
        secret: others must not be able to read the file, and it must not be a link.

    Raises:
        ConfigError: it cannot be read, or is unsafe.
        FileNotFoundError: it does not exist.
    """
    asker = this_process()
    # Without O_NONBLOCK, opening a pipe in the file's place would block until another process
    # writes to it.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if secret else 0)
    try:
        if not secret and path.is_symlink():
            check_above(path, asker)
        fd = os.open(path, flags)
    except FileNotFoundError:
        raise
    except OSError as error:
        if secret and error.errno == errno.ELOOP:
            raise ConfigError(f"{path}: must be a regular file, is a link; put the file itself there") from error
        raise failed(path, "read", error) from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(f"{path}: must be a regular file, is something else")
        check_owner(path, found, asker)
        # Root may let the group of this process read it, as a container's Secret does. Another user has no other way,
        # and root itself cannot change it where it is mounted.
        of_root = found.st_uid == 0 and found.st_gid in {os.getegid(), *os.getgroups()}
        of_root = of_root and (asker.user != 0 or bool(os.fstatvfs(fd).f_flag & os.ST_RDONLY))
        if secret and found.st_mode & _OTHERS & ~(stat.S_IRGRP if of_root else 0):
            raise ConfigError(
                f"{path}: a secret key must be readable by its owner only, its mode is {found.st_mode & 0o777:04o}. "
                f"Run chmod 600 {shlex.quote(str(path))}; if others may have read the key, remove it and make a new "
                f"one with: emlio keygen --folder {shlex.quote(str(path.parent))}"
            )
        check_writers(path, found)
        return _read_all(fd)
    except OSError as error:
        raise failed(path, "read", error) from error
    finally:
        os.close(fd)


def _read_all(fd: int) -> bytes:
    data = b""
    while len(data) <= MAX_TEXT_BYTES:
        piece = os.read(fd, MAX_TEXT_BYTES + 1 - len(data))
        if not piece:
            break
        data += piece
    return data


def put_file(path: Path, data: bytes, mode: int) -> None:
    """Replace the file atomically. Readers see the old bytes or the new ones, even after a crash.

    Raises:
        ConfigError: it cannot be written; no temporary file is left.
    """
    try:
        with _written(path, data, mode) as temporary:
            temporary.replace(path)
    except OSError as error:
        raise failed(path, "written", error) from error


def put_new_file(path: Path, data: bytes, mode: int) -> bool:
    """Create the file atomically and return True; return False and keep the file if it exists.

    Raises:
        ConfigError: it cannot be written; no temporary file is left.
    """
    try:
        with _written(path, data, mode) as temporary:
            # Like O_EXCL, a link fails if the name exists, but it leaves no partial file if the
            # machine stops.
            os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        raise failed(path, "written", error) from error
    return True


@contextmanager
def _written(path: Path, data: bytes, mode: int) -> Generator[Path, None, None]:
    """Write the bytes to disk in a temporary file beside `path`, and remove it afterwards."""
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, mode)  # the umask may have removed permissions that other users need
            file.write(data)
            file.flush()
            os.fsync(fd)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
    _keep_names(path.parent)


def remove_file(path: Path) -> None:
    """Remove the file, or the link.

    Raises:
        ConfigError: it cannot be removed.
        FileNotFoundError: it does not exist.
    """
    try:
        path.unlink()
        _keep_names(path.parent)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise failed(path, "removed", error) from error


def _keep_names(folder: Path) -> None:
    """Sync the folder, so that its entries survive a crash."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def sole_writer(folder: Path) -> Generator[None, None, None]:
    """Hold an exclusive lock on the folder against other commands.

    Commands hold the lock for milliseconds, and the system releases it when a process ends. So
    there is no deadline.

    Raises:
        ConfigError: the lock cannot be taken.
    """
    path = folder / _LOCK
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise failed(path, "opened", error) from error
    with os.fdopen(fd, "rb"):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as error:
            # Some network file systems have no locks. Files are still written atomically there, but
            # one of two concurrent changes may be lost.
            if error.errno not in _NO_LOCKS:
                raise failed(path, "locked", error) from error
        yield
