"""A mount namespace of this process's own, without root by a user namespace too; and a process that ends with its parent."""

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["end_with_parent", "enter_own_namespace"]

_NEW_MOUNTS: Final = 0x00020000
_NEW_USER: Final = 0x10000000
_RECURSIVE, _SLAVE = 1 << 14, 1 << 19
_PARENT_DEATH_SIGNAL: Final = 1
_DEVICE: Final = "/dev/fuse"

_libc = ctypes.CDLL(None, use_errno=True)
_libc.unshare.argtypes = [ctypes.c_int]
_libc.mount.argtypes = [*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_char_p]


def enter_own_namespace() -> bool:
    """Give this process, which must have one thread, its own mounts; return whether it may mount there.

    What others mount is still seen. The user stays the same, and may mount until the next exec. Where the system refuses
    any of it nothing is changed: a setuid fusermount3 works outside of a user namespace only.
    """
    if os.geteuid() == 0 and _libc.unshare(_NEW_MOUNTS) == 0:
        return _keep_mounts()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os._exit(not (_enter_user_namespace() and os.access(_DEVICE, os.R_OK | os.W_OK)))
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0 and _enter_user_namespace()


def _enter_user_namespace() -> bool:
    uid, gid = os.getuid(), os.getgid()
    if _libc.unshare(_NEW_USER | _NEW_MOUNTS):
        return False
    with suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
    try:
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    except OSError:  # AppArmor lets a process enter one, and takes its capabilities
        return False
    return _keep_mounts()


def _keep_mounts() -> bool:
    return bool(_libc.mount(b"none", b"/", None, _RECURSIVE | _SLAVE, None) == 0)


def end_with_parent(parent: int, how: signal.Signals = signal.SIGTERM) -> None:
    """Have this process sent a signal when its parent ends, or the thread there that made it."""
    _libc.prctl(_PARENT_DEATH_SIGNAL, int(how))
    if os.getppid() != parent:
        os.kill(os.getpid(), how)
