"""Opening a name below an open folder, without following links out of it.

A storage node must never read outside of the folder it serves, even if an attacker moves links and
folders at the same moment. So openat2(2) with RESOLVE_BENEATH is used (Linux 5.6): the kernel
follows links itself and refuses, in the same step, each one that is absolute or climbs above the
folder. If the kernel lacks the call, or a container's filter forbids it, the path is walked here:
every component is opened with O_NOFOLLOW, relative to the previous one, and a link is read from its
own descriptor. That takes some system calls for each component, and is equally free of races, since
no path is looked up twice.
"""

import ctypes
import errno
import os
import stat
import struct
from collections import deque

__all__ = ["open_beneath", "open_by_kernel", "open_by_walking"]

_OPENAT2 = 437
"""The call's number on every architecture except Alpha."""

_NO_MAGIC_LINKS = 0x02
_BENEATH = 0x08
_HOW = struct.Struct("=QQQ")  # flags, mode, resolve
_TRIES = 100
"""The kernel returns EAGAIN if folders are moved while it resolves `..`; the manual says to try
again.
"""

_LINKS = 40
"""The kernel's own limit."""

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]


def open_beneath(folder: int, name: str, flags: int) -> int:
    """Open `name` below `folder` and return a descriptor.

    Args:
        folder: an open folder's descriptor.
        name: relative to it; its links are followed as long as they stay below it.
        flags: of open(2), for reading; the descriptor is not inherited.

    Raises:
        OSError: as from open(2); EXDEV if the name leads out of the folder.
    """
    try:
        return open_by_kernel(folder, name, flags)
    except OSError as error:
        # Filters older than the call return EPERM. If EPERM is the real result, walking gets it
        # again.
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
    return open_by_walking(folder, name, flags)


def open_by_kernel(folder: int, name: str, flags: int) -> int:
    """Open like `open_beneath`, by openat2(2); ENOSYS or EPERM if the call is not available."""
    path = os.fsencode(name)
    if b"\0" in path:
        raise _error(errno.EINVAL, name)  # C would see only the part before the null byte
    how = _HOW.pack(flags | os.O_CLOEXEC, 0, _BENEATH | _NO_MAGIC_LINKS)
    for _ in range(_TRIES):
        descriptor: int = _syscall(_OPENAT2, folder, path, how, len(how))
        if descriptor >= 0:
            return descriptor
        if ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):
            break
    raise _error(ctypes.get_errno(), name)


def open_by_walking(folder: int, name: str, flags: int) -> int:
    """Open like `open_beneath`, component by component."""
    if not name or "\0" in name:
        raise _error(errno.EINVAL if name else errno.ENOENT, name)
    parts = _parts(name, name)
    inside: list[int] = []  # the folders on the way, so that `..` returns to the previous one
    links = 0
    try:
        while parts:
            part = parts.popleft()
            here = inside[-1] if inside else folder
            if part in ("", "."):
                continue
            if part == "..":
                if not inside:
                    raise _error(errno.EXDEV, name)
                os.close(inside.pop())
                continue
            found = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            inside.append(found)
            mode = os.fstat(found).st_mode
            if stat.S_ISDIR(mode):
                continue
            if stat.S_ISLNK(mode):
                links += 1
                if links > _LINKS:
                    raise _error(errno.ELOOP, name)
                parts.extendleft(reversed(_parts(os.readlink("", dir_fd=found), name)))
                os.close(inside.pop())
                continue
            if parts:
                raise _error(errno.ENOTDIR, name)
            if flags & os.O_PATH and not flags & os.O_DIRECTORY:
                return inside.pop()
            return os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        return os.open(".", flags | os.O_CLOEXEC, dir_fd=inside[-1] if inside else folder)
    finally:
        for descriptor in inside:
            os.close(descriptor)


def _parts(path: str, name: str) -> deque[str]:
    if path.startswith("/"):
        raise _error(errno.EXDEV, name)
    return deque(path.split("/"))


def _error(number: int, name: str) -> OSError:
    return OSError(number, os.strerror(number), name)
