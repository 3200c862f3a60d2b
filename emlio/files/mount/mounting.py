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

__all__ = ["attach", "detach", "device_number", "device_numbers", "force"]

_DEVICE: Final = "/dev/fuse"
_KIND: Final = "fuse.emlio"
_READ_ONLY, _NO_SUID, _NO_DEVICES, _FORCE, _LAZY = 1, 2, 4, 1, 2
_HELPER: Final = "fusermount3"
_HELPER_S: Final = 30.0
_NO_RIGHT: Final = (errno.EPERM, errno.EACCES)

_WITHOUT: Final = "programs can also read the files without a mount, by fsspec (emlio://)"
_ADVICE: Final = {
    **dict.fromkeys(
        _NO_RIGHT,
        f". Mounting needs root, {_HELPER} (package fuse3) with /dev/fuse open to all, or user namespaces for all (Ubuntu: "
        f"sysctl kernel.apparmor_restrict_unprivileged_userns=0); {_WITHOUT}",
    ),
    **dict.fromkeys(
        (errno.ENOENT, errno.ENODEV, errno.ENXIO),
        f". It needs the kernel's module fuse, in a container also --device /dev/fuse; {_WITHOUT}",
    ),
}

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
        return _helped(directory, error.errno or errno.EIO, f"{_DEVICE} cannot be opened")
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},default_permissions"
    flags = _READ_ONLY | _NO_SUID | _NO_DEVICES
    if _libc.mount(b"emlio", os.fsencode(directory), _KIND.encode(), flags, options.encode()) == 0:
        return device
    number = ctypes.get_errno()
    os.close(device)
    return _helped(directory, number, "mount(2) is refused")


def _helped(directory: str, number: int, what: str) -> int:
    """Let fusermount3 mount what this process was refused; it sends the descriptor."""
    said = ""
    if number in _NO_RIGHT and shutil.which(_HELPER):
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                done = subprocess.run(
                    [_HELPER, "-o", "ro,nosuid,nodev,fsname=emlio,subtype=emlio,default_permissions", "--", directory],
                    env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    timeout=_HELPER_S,
                    check=False,
                )
            ours.settimeout(_HELPER_S)
            with suppress(OSError):
                if not done.returncode and (descriptors := socket.recv_fds(ours, 1, 1)[1]):
                    os.set_inheritable(descriptors[0], False)
                    return descriptors[0]
        said = "; " + (done.stderr.decode(errors="replace").strip() or f"{_HELPER} failed")
    raise FileError(
        f"cannot mount at {directory}: {what}: {os.strerror(number)}{said}{_ADVICE.get(number, '')}",
        errno=number,
        path=directory,
        offset=0,
    )


def _unescaped(field: str) -> bytes:
    raw = os.fsencode(field)
    return raw.replace(b"\\040", b" ").replace(b"\\011", b"\t").replace(b"\\012", b"\n").replace(b"\\134", b"\\")


def device_numbers(directory: str) -> list[int]:
    """Return the device numbers of what is mounted at a path; the last one hides the others. Asks no file system."""
    wanted, found = os.fsencode(directory), list[int]()
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        fields = line.split(" ")
        if _unescaped(fields[4]) == wanted:
            major, minor = fields[2].split(":")
            found.append(os.makedev(int(major), int(minor)))
    return found


def device_number(directory: str) -> int | None:
    """Return the device number of what is mounted at a path, last of all; None if nothing is."""
    return next(reversed(device_numbers(directory)), None)


def force(directory: str) -> None:
    """End the connection of what is mounted there: its requests fail. It stays, so that what is below it is not taken for it."""
    used = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        _libc.umount2(os.fsencode(directory), _FORCE)
    finally:
        os.close(used)


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
