"""A process that ends a mount's connection if the process that serves it is killed.

Where that happens while it stores into a page that a reader waits for, the kernel lets neither of them go: the thread that stores
cannot be ended, and what it has open keeps the connection. So another process must end that.
"""

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from emlio.cli.own_namespace import end_with_parent
from emlio.files.mount.mounting import MountId, force, mounts_at

__all__ = ["guarded"]

_MOST_DESCRIPTORS: Final = 1 << 20


@contextmanager
def guarded() -> Generator[Callable[[str, MountId], None]]:
    """Yield what must be told the directory of a mount, and which one it is; the guard ends with the context.

    This thread must live as long as the process: the kernel tells the guard when it ends. It should be the only one yet.
    """
    parent = os.getpid()
    heard, told = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        guard = os.fork()
        if guard == 0:
            _watch(heard, parent)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(heard)

    def tell(directory: str, mounted: MountId) -> None:
        os.write(told, b"%d %d %d %s" % (*mounted, os.fsencode(directory)))

    try:
        yield tell
    finally:
        os.close(told)
        with suppress(ProcessLookupError, ChildProcessError):  # where SIGCHLD is ignored it is not to be waited for
            os.kill(guard, signal.SIGKILL)
            os.waitpid(guard, 0)


def _watch(heard: int, parent: int) -> None:
    """Wait for the end of the parent's thread, and end its connection. Does not return."""
    with suppress(BaseException):
        os.setsid()  # what ends all of a group, as a shell does, must not end both
        end_with_parent(parent, signal.SIGUSR2)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        os.dup2(heard, 3)
        os.closerange(4, min(os.sysconf("SC_OPEN_MAX"), _MOST_DESCRIPTORS))
        os.set_blocking(3, False)
        signal.sigwait({signal.SIGUSR2})
        *numbers, directory = os.read(3, 1 << 16).split(b" ", 3)
        _end(os.fsdecode(directory), MountId(*map(int, numbers)))
    os._exit(0)


def _end(directory: str, wanted: MountId) -> None:
    """End the connection of a mount, if it is there still: another one may have its numbers by now."""
    found = mounts_at(directory)
    if not any(wanted.may_be(one) for one in found):
        return
    try:
        Path(f"/sys/fs/fuse/connections/{os.minor(wanted.device)}/abort").write_text("1", encoding="ascii")
    except OSError:  # not mounted, as in some containers
        if wanted.may_be(found[-1]):  # else another one hides it, which this would end
            force(directory)
