"""The two credits that a daemon needs to send a message.

*Lane credit* bounds the bytes in flight on one connection: sent, but not yet read by the rank. They
may be in the queues of both processes or in the kernels between them. The credit comes back when
the rank has *read* a message, whatever it then does with the message. *Stream credit* bounds what
the rank holds for its user; it grows as the user takes batches.

Lane credit must not depend on the user. Otherwise a lane full of data that is not needed yet could
hold back data that is, and both ends would wait forever.

Covers: both credits, as a daemon keeps them. Pure. Does not cover: how much credit a rank gives
(emlio.receiver.placement.grants), the credit message (emlio.wire.credit).
"""

from emlio.errors import RemoteProtocolError
from emlio.wire.credit import Credit

__all__ = ["LaneCredit", "Place", "StreamCredit"]

Place = tuple[int, int]
"""An epoch and a slot in it."""


class LaneCredit:
    """The credit of one connection.

    Attributes:
        sent_bytes: size of all frames sent on the connection.
        read_bytes: how many of them the rank has reported as read.
    """

    def __init__(self, limit_bytes: int) -> None:
        """Allow `limit_bytes` in flight at once, or a single message that is longer."""
        self.sent_bytes = 0
        self.read_bytes = 0
        self._limit_bytes = limit_bytes

    @property
    def under_way_bytes(self) -> int:
        """Bytes sent that are not known to have been read."""
        return self.sent_bytes - self.read_bytes

    def allows(self, size_bytes: int) -> bool:
        """Return whether a frame of this size may be sent now."""
        under_way = self.under_way_bytes
        return not under_way or under_way + size_bytes <= self._limit_bytes

    def sent(self, size_bytes: int) -> None:
        """Record that a frame was sent."""
        self.sent_bytes += size_bytes

    def hear(self, read_bytes: int) -> None:
        """Record how many bytes the rank says it has read.

        Raises:
            RemoteProtocolError: that is more than was sent.
        """
        if read_bytes > self.sent_bytes:
            raise RemoteProtocolError(
                f"a rank must not acknowledge more bytes of a lane than were sent, {self.sent_bytes}, got {read_bytes}"
            )
        self.read_bytes = max(self.read_bytes, read_bytes)


class StreamCredit:
    """The credit of one stream since it was opened.

    Attributes:
        sent_bytes: size of all payloads sent.
    """

    def __init__(self, stream: int) -> None:
        """Begin without credit; `stream` is the stream's number in the session."""
        self.sent_bytes = 0
        self._stream = stream
        self._bytes = 0
        self._place: Place = (0, 0)
        self._must: Place = (0, 0)

    def allows(self, place: Place, size_bytes: int) -> bool:
        """Return whether a message that begins at this place may be sent now."""
        if place < self._must:
            return True
        return place < self._place and self.sent_bytes + size_bytes <= self._bytes

    def sent(self, size_bytes: int) -> None:
        """Record that a message was sent."""
        self.sent_bytes += size_bytes

    def hear(self, credit: Credit) -> bool:
        """Take in credit from the rank; return whether it allows more than before.

        Credit for one stream comes over several lanes, in any order.
        """
        if credit.stream != self._stream:
            return False
        before = self._bytes, self._place, self._must
        self._bytes = max(self._bytes, credit.allowed_bytes)
        self._place = max(self._place, (credit.epoch, credit.slot))
        self._must = max(self._must, (credit.must_epoch, credit.must_slot))
        return before != (self._bytes, self._place, self._must)
