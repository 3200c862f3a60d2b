"""The bytes that all streams of a daemon hold together.

A stream's share of the memory shrinks when other streams begin, but what it holds leaves only as
fast as its rank reads. So shares alone do not limit the sum: a new stream gets less than its share
until the others have come down to theirs.

Covers: the sum and its limit. Does not cover: shares (emlio.daemon.reading.readers), a stream's own
bytes (emlio.daemon.reading.stream).
"""

from threading import Lock

__all__ = ["MemoryBudget"]


_LEAST_PART = 4


class MemoryBudget:
    """The sum of the bytes held, and its limit.

    Thread-safe. It calls no other object, so it may be used under any lock.
    """

    def __init__(self, most_bytes: int) -> None:
        """See the class.

        Args:
            most_bytes: the limit.
        """
        self._most_bytes = self._bound_bytes = most_bytes
        self._held_bytes = 0
        self._lock = Lock()

    @property
    def bound_bytes(self) -> int:
        """The bytes that may be held now.

        This is the limit without what is set aside, and never less than a quarter of the limit.
        """
        return self._bound_bytes

    def set_aside(self, size_bytes: int) -> None:
        """Set aside this much of the memory for something else."""
        self._bound_bytes = max(self._most_bytes - size_bytes, self._most_bytes // _LEAST_PART)

    @property
    def held_bytes(self) -> int:
        """The bytes that all streams hold."""
        return self._held_bytes

    def take(self, size_bytes: int, *, always: bool) -> bool:
        """Count bytes as held if they fit; return whether they are counted.

        Args:
            size_bytes: the additional bytes.
            always: whether to count them in any case, as for the only message of a stream.
        """
        with self._lock:
            if not always and self._held_bytes + size_bytes > self._bound_bytes:
                return False
            self._held_bytes += size_bytes
            return True

    def give_back(self, size_bytes: int) -> None:
        """Note that so many bytes are free again."""
        with self._lock:
            self._held_bytes -= size_bytes
