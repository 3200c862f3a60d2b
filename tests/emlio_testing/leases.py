"""The kernel's information about leases on files."""

import fcntl
import os
from pathlib import Path

import psutil

__all__ = ["Returned", "gives_leases", "leases_on"]

_LOCKS = Path("/proc/locks")
_TRUSTED = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs"})
"""File systems whose leases the daemon trusts; a container's own overlay is not one of them."""


class Returned:
    """A borrower of slices that counts what it gave back."""

    def __init__(self) -> None:
        self.back: list[int] = []

    def released(self, size_bytes: int) -> None:
        """See `Borrower`."""
        self.back.append(size_bytes)


def gives_leases(folder: Path) -> bool:
    """Return whether a trusted read lease on a file in `folder` is granted, and visible."""
    mounts = {Path(mount.mountpoint): mount.fstype for mount in psutil.disk_partitions(all=True)}
    resolved = folder.resolve()
    kind = next((mounts[parent] for parent in (resolved, *resolved.parents) if parent in mounts), None)
    if kind not in _TRUSTED:
        return False
    path = folder / "lease-probe"
    path.touch()
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        return leases_on(path) == ["ACTIVE"]
    except OSError:
        return False
    finally:
        os.close(descriptor)
        path.unlink()


def leases_on(path: Path) -> list[str]:
    """Return the leases on a file, of all processes.

    Each is "ACTIVE", or "BREAKING" while a process waits to write.
    """
    inode = str(path.stat().st_ino)
    found: list[str] = []
    for line in _LOCKS.read_text(encoding="ascii").splitlines():
        # 1: LEASE  ACTIVE    READ  4711 fd:00:262145 0 EOF
        fields = line.split()
        if fields[1] == "LEASE" and fields[5].rpartition(":")[2] == inode:
            found.append(fields[2])
    return found
