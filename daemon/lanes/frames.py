"""The frames of a message on one lane.

Covers: adding the lane's own fields to a message that is ready for any lane. Does not cover:
reading and sealing messages (emlio.daemon.reading.stream), the format (emlio.wire.data).
"""

from emlio.daemon.reading.stream import Outgoing
from emlio.wire.data import data_tail, header_apart, tail_room

__all__ = ["frames_of", "most_bytes"]


def most_bytes(outgoing: Outgoing) -> int:
    """Return an upper bound on the bytes of the message's frames."""
    return outgoing.payload_bytes + tail_room(outgoing.message.count)


def frames_of(outgoing: Outgoing, lane: int, sequence: int) -> tuple[memoryview | bytes, ...]:
    """Return the frames, in order.

    They refer to the message's own memory: after it was sent, it may not be given to another lane.
    """
    if outgoing.apart:
        payload = outgoing.payload
        return header_apart(outgoing.head, outgoing.head_crc, payload, lane, sequence), payload
    return (outgoing.with_tail(data_tail(outgoing.head, outgoing.head_crc, lane, sequence)),)
