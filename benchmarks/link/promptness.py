"""A process that hands things over on time, and hears when it is told something.

Covers: priority, timers, waiting for a moment, memory that stays; signals as a descriptor. Does not cover: what is handed over
(emlio.benchmarks.link.forwarder, .netem_holder, .relaying).
"""

import contextlib
import ctypes
import gc
import os
import select
import signal
import time
from collections.abc import Sequence
from types import FrameType
from typing import Final

__all__ = ["SAID_FD", "be_prompt", "hear_signals", "ready_until", "watch_ns"]

SAID_FD: Final = 1
"""Standard output, which a link's process says things on. As the write end of a pipe it becomes readable, as far as select knows,
when nobody can read from it any more."""

_WATCHED_NS: Final = 250_000
"""About as late as an idle virtual machine's timers are."""
_WATCHED_PART: Final = 20
_PRIORITY: Final = 1
_PR_SET_TIMERSLACK: Final = 29
_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_MEMORY_STEP_BYTES: Final = 8 << 20


def be_prompt() -> None:
    """For a process that does nothing else."""
    # Ahead of every ordinary process: a nicer value alone leaves packets tens of milliseconds late on a busy machine. Where it is
    # not allowed `latest_ns` tells.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)  # else each wait is up to 50 µs too long
    if hasattr(libc, "mallopt"):
        # Else memory goes back to the kernel with nearly every packet, and its pages are cleared for the next.
        libc.mallopt(_M_TRIM_THRESHOLD, -1)
        libc.mallopt(_M_TOP_PAD, _MEMORY_STEP_BYTES)
    gc.disable()  # nothing here refers to itself, and a pause is a delay


def hear_signals() -> int:
    """From now on SIGTERM, SIGUSR1 and SIGUSR2 do nothing but make this descriptor readable, each with its number as a byte."""
    signals, told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(told)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, _leave_it_to_the_descriptor)
    return signals


def watch_ns(left_ns: int) -> int:
    """How long before a moment that is so far away to be awake, since timers are late: a twentieth of a processor at most."""
    return min(left_ns // _WATCHED_PART, _WATCHED_NS)


def ready_until(watched: Sequence[int], due_ns: int | None) -> list[int]:
    """Those of some descriptors that are ready to be read, as soon as one is; none once the moment has come.

    Args:
        watched: the descriptors.
        due_ns: the moment, by CLOCK_MONOTONIC; None for never.
    """
    if due_ns is None:
        return select.select(watched, [], [])[0]
    left_ns = due_ns - time.monotonic_ns()
    if left_ns <= 0:
        return select.select(watched, [], [], 0)[0]
    ready = select.select(watched, [], [], (left_ns - watch_ns(left_ns)) / 1e9)[0]
    while not ready and time.monotonic_ns() < due_ns:
        ready = select.select(watched, [], [], 0)[0]
    return ready


def _leave_it_to_the_descriptor(number: int, frame: FrameType | None) -> None:
    """A handler must be there, or the default one ends the process."""
