"""Bytes that all streams of a daemon hold together.

A stream's share of the memory shrinks when others come, and what it holds by then leaves only as fast as its rank reads. So
shares alone do not bound the sum: whoever comes finds less than its share until the others have come down to theirs.

Covers: the sum and its bound. Does not cover: shares (emlio.daemon.readers), a stream's own bytes (emlio.daemon.stream).
"""

from threading import Lock

__all__ = ["Ledger"]


class Ledger:
    """Thread-safe. It calls nobody, so it may be used under any lock."""

    def __init__(self, most_bytes: int) -> None:
        """Nothing is held.

        Args:
            most_bytes: the bound.
        """
        self._most_bytes = most_bytes
        self._held_bytes = 0
        self._lock = Lock()

    @property
    def held_bytes(self) -> int:
        """By all."""
        return self._held_bytes

    def take(self, size_bytes: int, *, always: bool) -> bool:
        """Note that so much is held from now on, if it keeps the bound; whether it is noted.

        Args:
            size_bytes: how much more.
            always: whether it is noted in any case, as for the only message of a stream.
        """
        with self._lock:
            if not always and self._held_bytes + size_bytes > self._most_bytes:
                return False
            self._held_bytes += size_bytes
            return True

    def give_back(self, size_bytes: int) -> None:
        """So much is free again."""
        with self._lock:
            self._held_bytes -= size_bytes
