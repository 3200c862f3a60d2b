"""A stream as the rank wants it.

Covers: from where to where, which shards, over how many lanes. Does not cover: asking for it (emlio.session.rank).
"""

from dataclasses import dataclass

from emlio.wire.control import Open, Pace

__all__ = ["StreamWanted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWanted:
    """What an order of a stream says.

    Attributes:
        epoch: where it begins.
        origin: samples of that epoch, over all ranks, that are not wanted any more.
        slot: the rank's first sample of what is left of it.
        owned: which shards it carries, as bits.
        lanes: how many connections.
        pace: how far ahead the daemon reads.
        end: the first epoch that is not wanted; None where all are.
    """

    epoch: int
    origin: int
    slot: int
    owned: bytes
    lanes: int
    pace: Pace = "race"
    end: int | None = None

    def order(self, session: int, stream: int) -> Open:
        """The message that asks for it."""
        return Open(
            session=session,
            stream=stream,
            epoch=self.epoch,
            origin=self.origin,
            slot=self.slot,
            owned=self.owned,
            lanes=self.lanes,
            pace=self.pace,
            end=self.end or 0,
        )
