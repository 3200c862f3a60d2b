"""Time as an argument: what waits or measures is given a clock.

Covers: the seam and the system's clock. Does not cover: the clocks of other nodes; the manual clock (emlio.testing).
"""

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Tells time. Thread-safe; never goes back."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary point; only differences mean something."""
        ...


class SystemClock:
    """The machine's own monotonic clock."""

    def monotonic_ns(self) -> int:
        """See `Clock`."""
        return time.monotonic_ns()
