"""The window's size, if the user sets none: enough for the path, and no more.

The window includes bytes in flight, so a long path needs more: the product of rate and round trip,
with a reserve.

Covers: the size, from the received bytes and the round trip. Pure. Does not cover: its division
(emlio.receiver.placement.grants).
"""

from emlio.receiver.setup.config import LARGEST_WINDOW_BYTES

__all__ = ["AutoWindow"]

_SMALLEST_BYTES = 128 << 20
_HERE_BYTES = 64 << 20
"""For the user, and for incomplete batches."""

_SPARE = 1.5
"""A reserve: connections recover from a loss one by one, and credit is given in parts."""

_LEAST_NS = 250_000_000
_ROUND_TRIPS = 2


class AutoWindow:
    """The window's size as it follows the path. Used by one thread.

    Attributes:
        size_bytes: the current size.
    """

    def __init__(self) -> None:
        """Begin without knowledge of the path."""
        self.size_bytes = _SMALLEST_BYTES
        self._since_ns: int | None = None
        self._before_bytes = 0

    def note(self, received_bytes: int, now_ns: int, round_trip_ns: int) -> bool:
        """Adapt the size, from time to time; return whether it has grown.

        Args:
            received_bytes: bytes received over all connections since the beginning.
            now_ns: the time.
            round_trip_ns: the round trip of the longest path.
        """
        if self._since_ns is None:
            self._since_ns, self._before_bytes = now_ns, received_bytes
            return False
        elapsed_ns = now_ns - self._since_ns
        if elapsed_ns < max(_LEAST_NS, _ROUND_TRIPS * round_trip_ns):
            return False
        on_its_way = (received_bytes - self._before_bytes) * round_trip_ns / elapsed_ns
        self._since_ns, self._before_bytes = now_ns, received_bytes
        before = self.size_bytes
        self.size_bytes = min(max(_HERE_BYTES + round(_SPARE * on_its_way), _SMALLEST_BYTES), LARGEST_WINDOW_BYTES)
        return self.size_bytes > before
