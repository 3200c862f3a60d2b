"""The totals of a stream: the bytes sent and the times waited. And of a session's streams together.

Does not cover: counting (emlio.daemon.lanes.sender), reporting
(emlio.daemon.control.session_host).
"""

import msgspec

__all__ = ["SessionFigures", "StreamTotals"]


class StreamTotals(msgspec.Struct, kw_only=True):
    """The bytes that a stream sent, and the times for which it waited.

    Attributes:
        sent_bytes: the payload given to lanes.
        blocked_ns: the time a message could not leave: the network or the rank is slower.
        starved_ns: the time a message could have left and none was ready: reading is slower. Not
            the time after the last message.
        withheld_ns: the part of `blocked_ns` in which the rank gave the stream no more credit: its
            user is slower.
    """

    sent_bytes: int = 0
    blocked_ns: int = 0
    starved_ns: int = 0
    withheld_ns: int = 0

    def plus(self, other: "StreamTotals") -> "StreamTotals":
        """Return the sums."""
        return StreamTotals(
            sent_bytes=self.sent_bytes + other.sent_bytes,
            blocked_ns=self.blocked_ns + other.blocked_ns,
            starved_ns=self.starved_ns + other.starved_ns,
            withheld_ns=self.withheld_ns + other.withheld_ns,
        )


class SessionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one session's sending at one moment.

    Attributes:
        totals: of its streams, the former ones and the open one.
        waits_for: what the open stream waits for: "rank" (it gives no credit), "network" (no lane
            takes a message), "memory" (what was read has not left yet), "storage" (nothing is read
            yet), or "" if it waits for nothing.
        lanes: its connected lanes.
        unread_bytes: bytes sent and not known to have been read.
        place: epoch and slot of the message sent last.
        idle: the numbers of its lanes that get nothing more, and of which the rank has read everything.
    """

    totals: StreamTotals = msgspec.field(default_factory=StreamTotals)
    waits_for: str = ""
    lanes: int = 0
    unread_bytes: int = 0
    place: tuple[int, int] = (0, 0)
    idle: tuple[int, ...] = ()
