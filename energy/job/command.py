"""A command that runs to its end while signals are forwarded to it."""

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Final

from emlio.errors import ConfigError

__all__ = ["run_command"]

_PASSED: Final = frozenset(
    {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
)
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)
_FROM_KERNEL: Final = 0x80
"""A signal that the kernel sent, such as a terminal's Ctrl-C, already reached the command.

The command is in the same process group, so such a signal must not be forwarded again.
"""

_LOOKED_S: Final = 1.0
"""The command's end is also looked for this often: a thread of a library may have had the signal."""


def run_command(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command. Call it from the main thread of a process that has no other threads.

    Another thread, such as those of NumPy's libraries, may get a signal that is blocked here.

    Args:
        words: the program, looked up on PATH, and its arguments.
        environment: the whole environment of the command.

    Returns:
        The exit status; minus the signal's number if a signal ended the command.

    Raises:
        ConfigError: the command cannot be started.
    """
    heard = {*_PASSED, signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    # Where SIGCHLD is ignored, the kernel reaps children itself and waitpid fails.
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        try:
            child = os.posix_spawnp(
                words[0], list(words), dict(environment), setsigmask=mask, setsigdef=_IGNORED_BY_PYTHON
            )
        except OSError as error:
            raise ConfigError(f"the command cannot be run: {words[0]}: {error.strerror}") from error
        return _await(child, heard)
    finally:
        signal.signal(signal.SIGCHLD, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _await(child: int, heard: set[signal.Signals]) -> int:
    while True:
        told = signal.sigtimedwait(heard, _LOOKED_S)
        if told is not None and told.si_signo != signal.SIGCHLD:
            if told.si_code != _FROM_KERNEL:
                os.kill(child, told.si_signo)
            continue
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
