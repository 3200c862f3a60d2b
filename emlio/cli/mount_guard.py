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
from emlio.files.mount.mounting import device_numbers, force

__all__ = ["guarded"]

_MOST_DESCRIPTORS: Final = 1 << 20


@contextmanager
def guarded() -> Generator[Callable[[str, int], None]]:
    """Yield what must be told the directory and the device number of a mount; the guard ends with the context.

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

    def tell(directory: str, device: int) -> None:
        os.write(told, b"%d %s" % (device, os.fsencode(directory)))

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
        end_with_parent(parent, signal.SIGUSR2)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # of a terminal, or for all of a group
            signal.signal(number, signal.SIG_IGN)
        os.dup2(heard, 3)
        os.closerange(4, min(os.sysconf("SC_OPEN_MAX"), _MOST_DESCRIPTORS))
        os.set_blocking(3, False)
        signal.sigwait({signal.SIGUSR2})
        device, _, directory = os.read(3, 1 << 16).partition(b" ")
        if int(device) in device_numbers(os.fsdecode(directory)):
            _end(os.fsdecode(directory), int(device))
    os._exit(0)


def _end(directory: str, device: int) -> None:
    try:
        Path(f"/sys/fs/fuse/connections/{os.minor(device)}/abort").write_text("1", encoding="ascii")
    except OSError:  # not mounted, as in some containers
        force(directory)
