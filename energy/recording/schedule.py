"""A schedule of regular moments that does not drift.

Covers: the next moment, how many passed unused. Does not cover: waiting for it.
"""

from emlio.errors import ConfigError

__all__ = ["Schedule"]


class Schedule:
    """The moments `start + k * interval`.

    A moment that is served late does not delay the next ones. Moments that passed meanwhile are
    missed.
    """

    def __init__(self, *, start_ns: int, interval_ns: int) -> None:
        """Start a schedule whose first moment is `start_ns`."""
        if interval_ns <= 0:
            raise ConfigError(f"the interval must be above 0, got {interval_ns} ns")
        self.interval_ns = interval_ns
        self._next_ns = start_ns

    @property
    def next_ns(self) -> int:
        """The next moment."""
        return self._next_ns

    def take(self, now_ns: int) -> int:
        """Serve the latest moment that has come, and advance to the one after it.

        Args:
            now_ns: not before `next_ns`.

        Returns:
            The number of moments before the served one that were missed.
        """
        late_ns = now_ns - self._next_ns
        if late_ns < 0:
            raise ConfigError(f"a reading must not be taken before its time, {-late_ns} ns too early")
        missed = late_ns // self.interval_ns
        self._next_ns += (missed + 1) * self.interval_ns
        return missed
