"""Bounds of time and memory around each input.

Time is processor time, so that a busy machine makes no findings: after `cpu_s` a signal raises TooSlow in Python code, after
ten times as much another ends the process, which code in C cannot put off. Memory is the address space of the whole process
(RLIMIT_AS), so that nothing allocated anywhere escapes, as it would escape tracemalloc; beyond it MemoryError is raised. It
counts what is reserved and never touched too, and what earlier inputs left behind.

Covers: setting the bounds in a process of their own. Does not cover: what follows from a process's end (tests.fuzz.run).
"""

import resource
import signal
from types import FrameType

__all__ = ["CpuGuard", "TooSlow", "limit_memory"]

_UNSTOPPABLE = 10.0


class TooSlow(BaseException):
    """An input took too long. No Exception: what is fuzzed must not catch it."""


class CpuGuard:
    """Watches one input after the other; only in the main thread."""

    def __init__(self, cpu_s: float) -> None:
        self._cpu_s = cpu_s
        signal.signal(signal.SIGPROF, _raise)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)

    def begin(self) -> None:
        """The next input begins."""
        signal.setitimer(signal.ITIMER_PROF, self._cpu_s)
        signal.setitimer(signal.ITIMER_VIRTUAL, self._cpu_s * _UNSTOPPABLE)

    def end(self) -> None:
        """Nothing is watched any more."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def limit_memory(more_bytes: int) -> None:
    """Let this process grow by so much from now on."""
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + more_bytes, most))


def _raise(number: int, frame: FrameType | None) -> None:
    raise TooSlow("it took more processor time than an input may")
