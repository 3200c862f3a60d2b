"""How far ahead of the user a message may be taken off the wire.

What is not taken stays in the socket, the daemon's lane fills, and the daemon waits: so this is what bounds a rank's memory.

Covers: the decision, from bytes held and the message's place. Pure. Does not cover: the socket queues behind it.
"""

__all__ = ["Window"]


class Window:
    """A bound in bytes over all streams.

    By bytes alone a fast daemon would fill the window and a slow one's next records would find no room. So a message must also
    lie within the places that fit the window at the mean size of a record seen so far: every stream may run ahead equally far.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._seen_bytes = 0
        self._seen_records = 0
        self._peak_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes taken and not yet handed to the user."""
        return self._held_bytes

    @property
    def peak_bytes(self) -> int:
        """The most that was ever held."""
        return self._peak_bytes

    def admits(self, *, ahead_slots: int, size_bytes: int, needed: bool) -> bool:
        """Whether to take a message.

        Args:
            ahead_slots: places between the user's next sample and the message's first.
            size_bytes: of its payload.
            needed: whether the batch the user gets next is not whole without it; such a one is always taken, or the rank
                would wait for ever.
        """
        if needed:
            return True
        if self._held_bytes + size_bytes > self._limit_bytes:
            return False
        return ahead_slots * self._seen_bytes <= self._limit_bytes * max(self._seen_records, 1)

    def take(self, records: int, size_bytes: int) -> None:
        """A message was taken."""
        self._held_bytes += size_bytes
        self._peak_bytes = max(self._peak_bytes, self._held_bytes)
        self._seen_bytes += size_bytes
        self._seen_records += records

    def hand_over(self, size_bytes: int) -> None:
        """The user got a batch."""
        self._held_bytes -= size_bytes

    def clear(self) -> None:
        """Everything held was dropped."""
        self._held_bytes = 0
