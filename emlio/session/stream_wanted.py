"""A stream that a rank wants to order.

Covers: its start and end, its shards, its lanes. Does not cover: ordering it (emlio.session.rank).
"""

from dataclasses import dataclass

import msgspec

from emlio.wire.control import Open
from emlio.wire.credit import Credit

__all__ = ["StreamWanted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWanted:
    """The contents of a stream order.

    Attributes:
        epoch: the first epoch.
        origin: samples of that epoch, over all ranks, that are no longer wanted.
        slot: the rank's first wanted sample among the rest of the epoch.
        owned: the shards it carries, as bits.
        lanes: the number of connections.
        credit: the initial credit.
        message_bytes: the most bytes to fill a message to; 0 leaves it to the daemon.
        end: the first epoch that is not wanted; None for no end.
    """

    epoch: int
    origin: int
    slot: int
    owned: bytes
    lanes: int
    credit: Credit
    message_bytes: int = 0
    end: int | None = None

    def order(self, session: int, stream: int) -> Open:
        """Return the message that orders the stream."""
        return Open(
            session=session,
            stream=stream,
            epoch=self.epoch,
            origin=self.origin,
            slot=self.slot,
            owned=self.owned,
            lanes=self.lanes,
            credit=msgspec.structs.replace(self.credit, stream=stream),
            message_bytes=self.message_bytes,
            end=self.end or 0,
        )
