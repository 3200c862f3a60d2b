"""Programs of root's that run as an ordinary user, with mounts that only they see."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

__all__ = ["USER", "as_user", "cannot_become_user", "prepare"]

USER: Final = 65534


def cannot_become_user() -> str:
    """Return why this process cannot become another user; "" if it can."""
    missing = [name for name in ("setpriv", "unshare", "mknod") if not shutil.which(name)]
    if missing:
        return f"{', '.join(missing)} not installed"
    return "" if os.geteuid() == 0 else "only root can become another user"


def prepare(scratch: Path, *, device_mode: int = 666, user_namespaces: bool = True) -> str:
    """Return a shell program for root, in a mount namespace of its own, before another user's program runs there.

    Args:
        scratch: an empty folder.
        device_mode: of /dev/fuse, in octal digits; 666 is what the package fuse3 sets.
        user_namespaces: False if they cannot be used: no process can map its user, which is where AppArmor's
            restriction lets it fail, too.
    """
    steps = [
        f"mknod -m {device_mode} {scratch}/fuse c 10 229",
        f"mount --bind {scratch}/fuse /dev/fuse",
    ]
    prefix = Path(sys.base_prefix).resolve()
    closed = [path for path in reversed(prefix.parents) if not path.stat().st_mode & 0o001]
    if closed:  # the interpreter lies in root's home
        steps += [
            f"mkdir {scratch}/kept",
            f"mount --bind {prefix} {scratch}/kept",
            f"mount -t tmpfs -o mode=755 none {closed[0]}",
            f"mkdir -p {prefix}",
            f"mount --move {scratch}/kept {prefix}",
        ]
    if not user_namespaces:
        steps += ["mount --bind /proc /proc", "mount -o remount,bind,ro /proc"]
    return " && ".join(steps)


def as_user(program: str) -> str:
    """Return a shell command that runs a shell program as the user."""
    words = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", "sh", "-c", program]
    return shlex.join(words)
