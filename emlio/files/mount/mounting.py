"""Mounting a FUSE file system, and taking it away: mount(2) with the right to it, else with fusermount3.

Root has the right, and so has every process in a user and mount namespace of its own (`unshare -Urm`).
"""

import ctypes
import errno
import os
import shutil
import socket
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from emlio.errors import FileError

__all__ = ["MountId", "attach", "detach", "force", "mounts_at"]

_DEVICE: Final = "/dev/fuse"
_KIND: Final = "fuse.emlio"
_READ_ONLY, _NO_SUID, _NO_DEVICES, _FORCE, _LAZY = 1, 2, 4, 1, 2
_HELPER: Final = "fusermount3"
_HELPER_S: Final = 30.0
_NO_RIGHT: Final = (errno.EPERM, errno.EACCES)
_HERE: Final = -100
_NOT_SYNCED: Final = 0x4000
_UNIQUE: Final = 0x4000
_STATX_BYTES, _MOUNT_AT = 256, 144

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
_libc.statx.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p]


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


class MountId(NamedTuple):
    """The numbers of a mount.

    Attributes:
        device: of its file system; one that is mounted later may have the same.
        mount: as for the device.
        unique: never used again; 0 where it is not known: the kernel is older than 6.8, or another mount hides this one.
    """

    device: int
    mount: int
    unique: int = 0

    def may_be(self, other: "MountId") -> bool:
        """Return whether both can be of one mount."""
        return self[:2] == other[:2] and (self.unique == other.unique or not (self.unique and other.unique))


def mounts_at(directory: str) -> list[MountId]:
    """Return what is mounted at a path; the last one hides the others. Asks no file system."""
    wanted, found = os.fsencode(directory), list[MountId]()
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        fields = line.split(" ")
        if _unescaped(fields[4]) == wanted:
            major, minor = fields[2].split(":")
            found.append(MountId(os.makedev(int(major), int(minor)), int(fields[0])))
    if found:
        found[-1] = found[-1]._replace(unique=_unique(wanted))
    return found


def _unique(directory: bytes) -> int:
    """Return the number of a mount that no other one ever has; 0 if the kernel knows none."""
    known = ctypes.create_string_buffer(_STATX_BYTES)
    if _libc.statx(_HERE, directory, _NOT_SYNCED, _UNIQUE, known):
        return 0
    (has,), (number,) = struct.unpack_from("=I", known), struct.unpack_from("=Q", known, _MOUNT_AT)
    return int(number) if has & _UNIQUE else 0


def force(directory: str) -> None:
    """End the connection of what is mounted there: its requests fail. It stays, so that what is below it is not taken for it."""
    used = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        _libc.umount2(os.fsencode(directory), _FORCE)
    finally:
        os.close(used)


def detach(directory: str, wanted: MountId) -> None:
    """Take a mount away, also if it is in use; do nothing if it is not there any more, or hidden."""
    if not any(map(wanted.may_be, mounts_at(directory)[-1:])):
        return
    if _libc.umount2(os.fsencode(directory), _FORCE | _LAZY) and shutil.which(_HELPER):
        subprocess.run([_HELPER, "-u", "-z", "-q", "--", directory], timeout=_HELPER_S, check=False)
