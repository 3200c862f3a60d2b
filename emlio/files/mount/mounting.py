"""Mounting a FUSE file system, and taking it away: mount(2) with the right to it, else with fusermount3.

Root has the right, and so has every process in a user and mount namespace of its own (`unshare -Urm`).
"""

import ctypes
import errno
import os
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from emlio.errors import FileError

__all__ = ["attach", "detach", "device_number"]

_DEVICE: Final = "/dev/fuse"
_KIND: Final = "fuse.emlio"
_READ_ONLY, _NO_SUID, _NO_DEVICES, _FORCE, _LAZY = 1, 2, 4, 1, 2
_HELPER: Final = "fusermount3"
_HELPER_S: Final = 30.0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = [*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_char_p]
_libc.umount2.argtypes = [ctypes.c_char_p, ctypes.c_int]


def attach(directory: str) -> int:
    """Mount a file system, whose requests are not served yet; return the descriptor that they are read from.

    Raises:
        FileError: the system refuses.
    """
    try:
        device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM) and shutil.which(_HELPER):
            return _helped(directory)
        raise _refused(directory, error.errno or errno.EIO, f"{_DEVICE} cannot be opened") from error
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},default_permissions"
    flags = _READ_ONLY | _NO_SUID | _NO_DEVICES
    if _libc.mount(b"emlio", os.fsencode(directory), _KIND.encode(), flags, options.encode()) == 0:
        return device
    number = ctypes.get_errno()
    os.close(device)
    if number == errno.EPERM and shutil.which(_HELPER):
        return _helped(directory)
    raise _refused(directory, number, "mount(2) refused")


def _refused(directory: str, number: int, what: str) -> FileError:
    advice = ""
    if number in (errno.EPERM, errno.EACCES):
        advice = f". Install {_HELPER} (package fuse3), or mount in a namespace: unshare -Urm"
    return FileError(
        f"cannot mount at {directory}: {what}: {os.strerror(number)}{advice}", errno=number, path=directory, offset=0
    )


def _helped(directory: str) -> int:
    """Let fusermount3 mount; it sends the descriptor."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(_HELPER_S)
        done = subprocess.run(
            [_HELPER, "-o", "ro,nosuid,nodev,fsname=emlio,subtype=emlio,default_permissions", "--", directory],
            env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
            pass_fds=[theirs.fileno()],
            stderr=subprocess.PIPE,
            timeout=_HELPER_S,
            check=False,
        )
        theirs.close()
        descriptors: list[int] = []
        with suppress(OSError):
            descriptors = socket.recv_fds(ours, 1, 1)[1]
    if done.returncode or not descriptors:
        said = done.stderr.decode(errors="replace").strip() or f"{_HELPER} failed"
        raise FileError(f"cannot mount at {directory}: {said}", errno=errno.EPERM, path=directory, offset=0)
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def _unescaped(field: str) -> bytes:
    raw = os.fsencode(field)
    return raw.replace(b"\\040", b" ").replace(b"\\011", b"\t").replace(b"\\012", b"\n").replace(b"\\134", b"\\")


def device_number(directory: str) -> int | None:
    """Return the device number of what is mounted at a path, last of all; None if nothing is. Asks no file system."""
    wanted, found = os.fsencode(directory), None
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        fields = line.split(" ")
        if _unescaped(fields[4]) == wanted:
            major, minor = fields[2].split(":")
            found = os.makedev(int(major), int(minor))
    return found


def detach(directory: str, device: int) -> None:
    """Take a file system away, also if it is in use; do nothing if it is not there any more.

    Args:
        directory: where it is.
        device: its device number.
    """
    if device_number(directory) != device:
        return
    if _libc.umount2(os.fsencode(directory), _FORCE | _LAZY) and shutil.which(_HELPER):
        subprocess.run([_HELPER, "-u", "-z", "-q", "--", directory], timeout=_HELPER_S, check=False)
