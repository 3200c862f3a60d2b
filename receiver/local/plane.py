"""Shards of this host as a source of records.

Covers: following instructions and the credit, as a daemon does. Does not cover: reading
(emlio.receiver.local.shard_reader).
"""

from collections.abc import Collection, Iterable, Iterator

from emlio.errors import EmlioError
from emlio.reading.message_planner import StreamPosition
from emlio.receiver.connection.transport import Waited
from emlio.receiver.local.shard_reader import LocalShards
from emlio.receiver.machine.events import DataEvent, MessageRead, ReadingFailed
from emlio.receiver.machine.instructions import DataInstruction, ReadHere, SayCredit
from emlio.session.credits import StreamCredit

__all__ = ["LocalPlane"]


class LocalPlane:
    """The local shards as a `emlio.receiver.connection.lane_plane.DataPlane`.

    Used by the receive thread.
    """

    def __init__(self, shards: LocalShards) -> None:
        """Take over the shards."""
        self._shards = shards
        self._number = 0
        self._credit = StreamCredit(0)

    def things(self) -> Iterable[Waited]:
        """See `DataPlane`. None: the reading thread wakes the receive thread."""
        return ()

    def carry_out(self, instruction: DataInstruction) -> list[DataEvent]:
        """See `DataPlane`."""
        match instruction:
            case ReadHere(source=number, plan=plan, rank=rank, owned=owned, epoch=epoch, origin=origin, end=end):
                self._number, self._credit = number, StreamCredit(0)
                self._shards.owned = owned
                self._shards.open(plan, rank, StreamPosition(epoch=epoch, origin=origin, slot=0, end=end))
            case SayCredit(credit=credit):
                if self._credit.hear(credit):
                    self._shards.wake()  # more of what was read may be taken now
            case _:
                pass  # lanes belong to another plane
        return []

    def events(self, ready: Collection[Waited]) -> Iterator[DataEvent]:
        """See `DataPlane`."""
        while True:
            try:
                message = self._shards.first()
            except EmlioError as error:
                yield ReadingFailed(error)
                return
            if message is None:
                return
            header, size_bytes = message.header, len(message.payload)
            if not self._credit.allows((header.epoch, header.slot), size_bytes):
                return
            self._shards.taken()
            self._credit.sent(size_bytes)
            yield MessageRead(self._number, message)

    def close(self) -> None:
        """See `DataPlane`."""
        self._shards.close()
