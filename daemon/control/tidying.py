"""Times at which memory of ended sessions is returned to the system.

Does not cover: returning it (emlio.allocator).
"""

__all__ = ["Tidying"]

_TIDY_NS = 5_000_000_000
"""The delay after a session: others may end, and libzmq frees a connection's memory later.
Returning memory takes milliseconds."""


class Tidying:
    """The schedule. Used by the control thread."""

    def __init__(self) -> None:
        """No session has ended."""
        self.due_ns: int | None = None

    def ended(self, now_ns: int, *, others: bool) -> None:
        """Note that a session ended; after the last session, memory is returned at once."""
        if self.due_ns is None or not others:
            self.due_ns = now_ns + (_TIDY_NS if others else 0)

    def is_due(self, now_ns: int, *, again: bool) -> bool:
        """Return whether to do it now; `again` schedules it once more, as some is not free yet."""
        if self.due_ns is None or now_ns < self.due_ns:
            return False
        self.due_ns = now_ns + _TIDY_NS if again else None
        return True
