"""The totals of a stream: the bytes sent and the times waited.

Does not cover: counting (emlio.daemon.lanes.sender), reporting
(emlio.daemon.control.stream_reports).
"""

from dataclasses import dataclass

__all__ = ["StreamTotals"]


@dataclass(slots=True, kw_only=True)
class StreamTotals:
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
