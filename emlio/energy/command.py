"""A command that runs to its end while signals are passed on to it.

Covers: starting it, what it is told of a terminal's and others' signals, its exit status. Does not cover: what is recorded
meanwhile (emlio.energy.job_run).
"""

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
"""What a terminal sends goes to the command as well, which is in the same group: it must not hear it twice."""


def run_command(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run it; this process's main thread, which has no other threads beside it, does nothing else meanwhile.

    Args:
        words: the program, which is looked for as a shell does, and its arguments.
        environment: all of it.

    Returns:
        Its exit status; below 0 for the signal that ended it.

    Raises:
        ConfigError: it cannot be started.
    """
    heard = {*_PASSED, signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    # Where the end of children is ignored, nobody could wait for one.
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        try:
            child = os.posix_spawnp(
                words[0], list(words), dict(environment), setsigmask=mask, setsigdef=_IGNORED_BY_PYTHON
            )
        except OSError as error:
            raise ConfigError(f"the command must be a program that can be run: {words[0]}: {error.strerror}") from error
        return _await(child, heard)
    finally:
        signal.signal(signal.SIGCHLD, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _await(child: int, heard: set[signal.Signals]) -> int:
    while True:
        told = signal.sigwaitinfo(heard)
        if told.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
        elif told.si_code != _FROM_KERNEL:
            os.kill(child, told.si_signo)
