"""Real-time behaviour and signals of a link's process.

Covers: priority, timers, waiting until a time, keeping memory; signals as a descriptor. Does not
cover: the packets (emlio_bench.link.forwarder, .netem_holder, .relaying).
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
"""Standard output, on which a link's process reports.

For select, the write end of a pipe becomes readable when the pipe has no reader any more.
"""

_WATCHED_NS: Final = 250_000
"""About the delay of timers on an idle virtual machine."""
_WATCHED_PART: Final = 20
_PRIORITY: Final = 1
_PR_SET_TIMERSLACK: Final = 29
_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_MEMORY_STEP_BYTES: Final = 8 << 20


def be_prompt() -> None:
    """Give this process real-time priority, exact timers and memory that is not returned.

    Only for a process that does nothing else.
    """
    # The process must run before every ordinary process. With a better nice value alone, packets
    # are tens of milliseconds late on a busy machine. If this is not permitted, `latest_ns` shows
    # the delays.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)  # otherwise each wait is up to 50 µs too long
    if hasattr(libc, "mallopt"):
        # Otherwise memory returns to the kernel with nearly every packet, and the kernel clears its
        # pages again for the next packet.
        libc.mallopt(_M_TRIM_THRESHOLD, -1)
        libc.mallopt(_M_TOP_PAD, _MEMORY_STEP_BYTES)
    gc.disable()  # this process makes no reference cycles, and a collection would delay packets


def hear_signals() -> int:
    """Redirect SIGTERM, SIGUSR1 and SIGUSR2 to a descriptor, and return it.

    Each signal arrives as a byte with its number. From now on these signals have no other effect.
    """
    signals, told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(told)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, _leave_it_to_the_descriptor)
    return signals


def watch_ns(left_ns: int) -> int:
    """Return how long before a due time to poll, since timers are late.

    Polling takes at most a twentieth of the time.
    """
    return min(left_ns // _WATCHED_PART, _WATCHED_NS)


def ready_until(watched: Sequence[int], due_ns: int | None) -> list[int]:
    """Wait until a descriptor is readable or the time has come; return the readable descriptors.

    Args:
        watched: the descriptors.
        due_ns: the time, by CLOCK_MONOTONIC; None to wait without limit.
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
    """Do nothing. Without a handler, the default action would end the process."""
