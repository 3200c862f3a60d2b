"""What a daemon may send: the two credits that every message needs.

*Lane credit* bounds what is under way on one connection and was not read at its other end: in the queues of both processes and
of the kernels between. It comes back when the rank has *read* a message, whatever becomes of the message there. *Stream credit*
bounds what the rank holds for its user: it grows as the user takes batches. Were lane credit to wait for the user, too, a lane
full of what is not needed yet could keep back what is, and both ends would wait for ever.

Covers: both, as a daemon keeps them. Pure. Does not cover: how much a rank allows (emlio.receiver.grants), the message that
says so (emlio.wire.credit).
"""

from emlio.errors import RemoteProtocolError
from emlio.wire.credit import Credit

__all__ = ["LaneCredit", "Place", "StreamCredit"]

Place = tuple[int, int]
"""An epoch, and a slot in it."""


class LaneCredit:
    """One connection's.

    Attributes:
        sent_bytes: of all frames given to it.
        read_bytes: of those that the rank said it has read.
    """

    def __init__(self, limit_bytes: int) -> None:
        """See the class; `limit_bytes` may be under way at once, or a single message that is longer."""
        self.sent_bytes = 0
        self.read_bytes = 0
        self._limit_bytes = limit_bytes

    @property
    def under_way_bytes(self) -> int:
        """Sent and not known to have been read."""
        return self.sent_bytes - self.read_bytes

    def allows(self, size_bytes: int) -> bool:
        """Whether a frame of that size may be sent now."""
        under_way = self.under_way_bytes
        return not under_way or under_way + size_bytes <= self._limit_bytes

    def sent(self, size_bytes: int) -> None:
        """A frame was sent."""
        self.sent_bytes += size_bytes

    def hear(self, read_bytes: int) -> None:
        """The rank says that it has read so much.

        Raises:
            RemoteProtocolError: that is more than was sent.
        """
        if read_bytes > self.sent_bytes:
            raise RemoteProtocolError(
                f"a rank must not have read more of a lane than was sent: {self.sent_bytes} bytes, it says {read_bytes}"
            )
        self.read_bytes = max(self.read_bytes, read_bytes)


class StreamCredit:
    """One stream's, from its opening on.

    Attributes:
        sent_bytes: of payloads.
    """

    def __init__(self, stream: int) -> None:
        """See the class; `stream` is its number in the session."""
        self.sent_bytes = 0
        self._stream = stream
        self._bytes = 0
        self._place: Place = (0, 0)
        self._must: Place = (0, 0)

    def allows(self, place: Place, size_bytes: int) -> bool:
        """Whether a message that begins at that place may be sent now."""
        if place < self._must:
            return True
        return place < self._place and self.sent_bytes + size_bytes <= self._bytes

    def sent(self, size_bytes: int) -> None:
        """A message was sent."""
        self.sent_bytes += size_bytes

    def hear(self, credit: Credit) -> bool:
        """The rank gives credit; whether it is more than before. Over several lanes it may come in any order."""
        if credit.stream != self._stream:
            return False
        before = self._bytes, self._place, self._must
        self._bytes = max(self._bytes, credit.allowed_bytes)
        self._place = max(self._place, (credit.epoch, credit.slot))
        self._must = max(self._must, (credit.must_epoch, credit.must_slot))
        return before != (self._bytes, self._place, self._must)
