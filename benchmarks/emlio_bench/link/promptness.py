"""Real-time behaviour and signals of a link's process."""

import contextlib
import ctypes
import gc
import os
import signal
from types import FrameType
from typing import Final

__all__ = ["SAID_FD", "be_prompt", "hear_signals"]

SAID_FD: Final = 1
"""Standard output, on which a link's process reports.

For select, the write end of a pipe becomes readable when the pipe has no reader any more.
"""

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


def _leave_it_to_the_descriptor(number: int, frame: FrameType | None) -> None:
    """Do nothing. Without a handler, the default action would end the process."""
