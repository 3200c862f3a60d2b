"""The bytes requested from buckets ahead of reading, over all streams.

Covers: the sum and its limit, shares. Does not cover: what is requested
(emlio.reading.bucket_engine), memory of messages (emlio.daemon.reading.session_memory).
"""

from threading import Lock

__all__ = ["AheadBudget"]


class AheadBudget:
    """A number of bytes that several feeds share. Thread-safe; it calls no other object."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._held_bytes = 0
        self._feeds = 0
        self._lock = Lock()

    @property
    def held_bytes(self) -> int:
        """The bytes requested, or there and not read."""
        return self._held_bytes

    @property
    def share_bytes(self) -> int:
        """The part of one feed."""
        return self.most_bytes // max(self._feeds, 1)

    def join(self) -> None:
        """Count one more feed."""
        with self._lock:
            self._feeds += 1

    def leave(self) -> None:
        """Count one feed less."""
        with self._lock:
            self._feeds -= 1

    def take(self, size_bytes: int) -> bool:
        """Count bytes if they fit; return whether they are counted."""
        with self._lock:
            if self._held_bytes + size_bytes > self.most_bytes:
                return False
            self._held_bytes += size_bytes
            return True

    def give_back(self, size_bytes: int) -> None:
        """Note that so many bytes are free again."""
        with self._lock:
            self._held_bytes -= size_bytes
