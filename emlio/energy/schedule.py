"""When to read: at regular moments that do not drift.

Covers: which moment is next, how many passed unused. Does not cover: waiting for it.
"""

from emlio.errors import ConfigError

__all__ = ["Schedule"]


class Schedule:
    """Moments `start + k * interval`.

    One that is served late does not delay those after it; those that passed meanwhile are missed.
    """

    def __init__(self, *, start_ns: int, interval_ns: int) -> None:
        """The first moment is the start itself."""
        if interval_ns <= 0:
            raise ConfigError(f"the interval must be above 0, got {interval_ns} ns")
        self.interval_ns = interval_ns
        self._next_ns = start_ns

    @property
    def next_ns(self) -> int:
        """The moment that is waited for."""
        return self._next_ns

    def take(self, now_ns: int) -> int:
        """Serve the latest moment that has come, and wait for the one after it.

        Args:
            now_ns: not before `next_ns`.

        Returns:
            How many moments before the one served passed unserved.
        """
        late_ns = now_ns - self._next_ns
        if late_ns < 0:
            raise ConfigError(f"the moment must have come, which it does in {-late_ns} ns")
        missed = late_ns // self.interval_ns
        self._next_ns += (missed + 1) * self.interval_ns
        return missed
