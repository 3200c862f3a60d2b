"""A clock that moves only when told to."""

__all__ = ["ManualClock"]


class ManualClock:
    """A clock that stands still between calls of `advance`.

    One thread moves it, any may read it.
    """

    def __init__(self, start_ns: int = 1_000_000_000) -> None:
        self._now_ns = start_ns

    def monotonic_ns(self) -> int:
        """See `emlio.clock.Clock`."""
        return self._now_ns

    def advance(self, duration_ns: int) -> None:
        """Advance the clock; it never goes back."""
        if duration_ns < 0:
            raise ValueError(f"time must not go back, got {duration_ns} ns")
        self._now_ns += duration_ns

    def advance_to(self, now_ns: int) -> None:
        """Advance the clock to `now_ns`, unless it is later already."""
        self._now_ns = max(self._now_ns, now_ns)
