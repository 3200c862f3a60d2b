"""The clock interface: an object that waits or measures is given a clock.

Covers: the interface and the system's clock. Does not cover: clocks of other nodes, the manual
clock (emlio_testing).
"""

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """A monotonic clock. Thread-safe; never goes back."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds since an arbitrary point; only differences are meaningful."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def monotonic_ns(self) -> int:
        """See `Clock`."""
        return time.monotonic_ns()
