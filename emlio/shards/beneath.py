"""Opening a name below an open folder, wherever links would lead.

A storage node must not be led out of what it serves, not even by somebody who moves links and folders at the same moment. So
openat2(2) with RESOLVE_BENEATH is asked (Linux 5.6): the kernel follows links itself and refuses, in the same step, each that
is absolute or climbs above the folder. Where the kernel has no such call, or a container's filter forbids it, the way is walked
here: every part is opened by itself with O_NOFOLLOW, relative to the part before it, and a link is read from its own
descriptor. That costs some system calls for each part, and is as free of races: nothing is looked up by a path twice.

Covers: both ways, which fail alike: EXDEV says that the name leads out. Does not cover: what may lie there
(emlio.shards.folder).
"""

import ctypes
import errno
import os
import stat
import struct
from collections import deque

__all__ = ["open_beneath", "open_by_kernel", "open_by_walking"]

_OPENAT2 = 437
"""The call's number on every machine whose Linux has it, except Alpha."""

_NO_MAGIC_LINKS = 0x02
_BENEATH = 0x08
_HOW = struct.Struct("=QQQ")  # flags, mode, resolve
_TRIES = 100
"""The kernel says EAGAIN when folders are moved while it looks at `..`; to ask again is what its manual tells."""

_LINKS = 40
"""As many as the kernel follows."""

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]


def open_beneath(folder: int, name: str, flags: int) -> int:
    """A descriptor of what `name` leads to below `folder`.

    Args:
        folder: an open folder's descriptor.
        name: relative to it; its links are followed as long as they stay below.
        flags: of open(2), for reading; the descriptor is not inherited.

    Raises:
        OSError: as from open(2); EXDEV where the name leads out of the folder.
    """
    try:
        return open_by_kernel(folder, name, flags)
    except OSError as error:
        # EPERM is what filters say that are older than the call; if it is meant, walking meets it again.
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
    return open_by_walking(folder, name, flags)


def open_by_kernel(folder: int, name: str, flags: int) -> int:
    """As `open_beneath`, by openat2(2); ENOSYS or EPERM where it cannot be had."""
    path = os.fsencode(name)
    if b"\0" in path:
        raise _error(errno.EINVAL, name)  # C would see what stands before it
    how = _HOW.pack(flags | os.O_CLOEXEC, 0, _BENEATH | _NO_MAGIC_LINKS)
    for _ in range(_TRIES):
        descriptor: int = _syscall(_OPENAT2, folder, path, how, len(how))
        if descriptor >= 0:
            return descriptor
        if ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):
            break
    raise _error(ctypes.get_errno(), name)


def open_by_walking(folder: int, name: str, flags: int) -> int:
    """As `open_beneath`, part by part."""
    if not name or "\0" in name:
        raise _error(errno.EINVAL if name else errno.ENOENT, name)
    parts = _parts(name, name)
    inside: list[int] = []  # the folders on the way, so that `..` goes back to where one came from
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
