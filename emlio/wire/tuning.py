"""The wishes of a rank for its stream, and a daemon's answer, as parts of control messages.

Covers: the values. Does not cover: the messages (emlio.wire.control), who decides (emlio.receiver.tuning).
"""

from typing import Annotated

import msgspec

from emlio.wire.kinds import Count
from emlio.wire.limits import MAX_LANES

__all__ = ["StreamTuning", "StreamWork"]

LaneCount = Annotated[int, msgspec.Meta(ge=0, le=MAX_LANES)]


class StreamTuning(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The wishes of a rank for its stream; 0 leaves a value to the daemon. The one with the highest number holds."""

    number: Count = 0
    lanes: LaneCount = 0  # that messages are given to: the newest ones
    message_bytes: Count = 0  # to which messages are filled
    ready_bytes: Count = 0  # that are read and not sent
    readers: Count = 0  # threads that read the dataset at the same time


class StreamWork(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """From a daemon: the way in which it serves a stream, and the cost of its work."""

    tuning: Count  # the number of the one that holds
    lanes: Count  # that messages are given to
    idle: Annotated[tuple[Count, ...], msgspec.Meta(max_length=2 * MAX_LANES)]  # get no more, and all was read of them
    cpu_ns: Count  # processor time of the whole daemon
    sent_bytes: Count  # of all its streams
