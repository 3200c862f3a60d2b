"""The credit that a rank gives: how far each stream may run ahead of the user.

A bound in bytes covers all streams: what is held here and what may come at any time, with what each
record takes here besides its bytes. Daemons count the bytes of records alone. If the bound were
divided by bytes alone, a fast daemon would get all of it, and the next records of a slow one would
find no room. So streams may send only places that fit the bound, and each gets credit for what it
owes of those.

Covers: the bound and its division, from what was opened, received and handed out. Pure. Does not
cover: telling the daemons (emlio.wire.credit), the daemons' side (emlio.session.credits).
"""

from collections import deque
from collections.abc import Iterable
from typing import Protocol

import msgspec

from emlio.session.credits import Place

__all__ = ["Allowance", "Grants", "Owed", "Schedule"]


class Owed(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what a stream has to send.

    Attributes:
        records: the number of records.
        size_bytes: their total size, as far as it is known beforehand.
    """

    records: int
    size_bytes: int


class Schedule(Protocol):
    """The needed facts of the plan: which stream owes what."""

    @property
    def last(self) -> Place | None:
        """The place after all others; None if there is no end."""
        ...

    def place_after(self, place: Place, size_bytes: int) -> Place:
        """Return the place before which this much of the bound is filled from `place` on; further only for a single record."""
        ...

    def owed(self, stream: int, begin: Place, end: Place) -> Owed:
        """Return what the stream owes from `begin` up to `end`."""
        ...


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """The credit of a stream, counted from its opening.

    Attributes:
        size_bytes: the number of bytes.
        place: only records before this place.
        must: in any case all records before this place, however many bytes they have.
    """

    size_bytes: int = 0
    place: Place = (0, 0)
    must: Place = (0, 0)


class _Stream(msgspec.Struct, kw_only=True, eq=False):
    """One stream since it was opened.

    Attributes:
        place: the place up to which it may send.
        owed: records up to that place that it has not sent, in order, in parts.
        owed_bytes: their total size.
        owed_records: their number.
        allowed_bytes: bytes that it may have sent.
        came_bytes: bytes received of it.
        largest_bytes: size of the largest message received.
    """

    place: Place
    owed: deque[Owed] = msgspec.field(default_factory=deque[Owed])
    owed_bytes: int = 0
    owed_records: int = 0
    allowed_bytes: int = 0
    came_bytes: int = 0
    largest_bytes: int = 0

    @property
    def awaited_bytes(self) -> int:
        """Bytes that may come at any time."""
        return max(self.allowed_bytes - self.came_bytes, 0)

    def extend(self, schedule: Schedule, stream: int, place: Place) -> None:
        """Allow the stream to send up to this place."""
        if place <= self.place:
            return
        part = schedule.owed(stream, self.place, place)
        self.place = place
        if part.records:
            self.owed.append(part)
            self.owed_bytes += part.size_bytes
            self.owed_records += part.records

    def settle(self, records: int) -> None:
        """Record that this many of the records it owes are here."""
        while records and self.owed:
            part = self.owed.popleft()
            taken = min(records, part.records)
            records -= taken
            left = part.records - taken
            left_bytes = part.size_bytes * left // part.records
            self.owed_bytes -= part.size_bytes - left_bytes
            self.owed_records -= taken
            if left:
                self.owed.appendleft(Owed(records=left, size_bytes=left_bytes))


class Grants:
    """The division of the bound among the streams.

    Attributes:
        limit_bytes: the bound; it may change at any time.
        held_bytes: what records take that were received and not yet handed to the user.
        peak_bytes: the most that was ever held.
    """

    def __init__(self, limit_bytes: int, *, place_bytes: int = 0) -> None:
        """Begin with this bound and no stream; a record takes `place_bytes` of it besides its own."""
        self.limit_bytes = limit_bytes
        self._place_bytes = place_bytes
        self.held_bytes = 0
        self.peak_bytes = 0
        self._must: Place = (0, 0)
        self._streams: dict[int, _Stream] = {}

    def clear(self) -> None:
        """Reset: everything held was dropped, and no stream is open."""
        self.held_bytes = 0
        self._must = (0, 0)
        self._streams.clear()

    def open(self, stream: int, place: Place) -> None:
        """Record that a stream is opened, or reopened, at this place; its totals restart."""
        self._streams[stream] = _Stream(place=place)

    def close(self, stream: int) -> None:
        """Record that nothing more comes of a stream."""
        self._streams.pop(stream, None)

    def came(self, stream: int, records: int, size_bytes: int, new_bytes: int) -> None:
        """Record a received message.

        Args:
            stream: the message's stream.
            records: the number of records in it.
            size_bytes: size of its payload.
            new_bytes: what its missing records take of the bound.
        """
        self.held_bytes += new_bytes
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)
        if (one := self._streams.get(stream)) is not None:
            one.came_bytes += size_bytes
            one.largest_bytes = max(one.largest_bytes, size_bytes)
            one.settle(records)

    def handed_over(self, size_bytes: int) -> None:
        """Record that the user got a batch, which took so much of the bound."""
        self.held_bytes -= size_bytes

    def need(self, must: Place) -> None:
        """Allow all records before this place at once, however many bytes they have."""
        self._must = max(self._must, must)

    def renew(self, schedule: Schedule, following: Place, *, most: Place | None = None) -> None:
        """Divide the free room among the streams.

        Args:
            schedule: which stream owes what.
            following: the first place of the incomplete batches.
            most: the place up to which streams may send at most, whatever room there is; None for
                no limit.
        """
        place = schedule.place_after(following, self.limit_bytes)
        place = place if most is None else min(place, most)
        for number, stream in self._streams.items():
            stream.extend(schedule, number, place)
        awaited_bytes = sum(self._takes(stream, stream.awaited_bytes) for stream in self._streams.values())
        free = self.limit_bytes - self.held_bytes - awaited_bytes
        for lacks in (_lacks, _lacks_at_end) if place == schedule.last else (_lacks,):
            # In rising order of lack: streams that lack less get all of it, the rest is shared by those
            # that lack more.
            lacking = sorted((stream for stream in self._streams.values() if lacks(stream)), key=lacks)
            for turn, stream in enumerate(lacking):
                if free <= 0:
                    return
                share = free // (len(lacking) - turn)
                given = min(lacks(stream), share * stream.owed_bytes // self._takes(stream, stream.owed_bytes))
                stream.allowed_bytes = max(stream.allowed_bytes, stream.came_bytes) + given
                free -= self._takes(stream, given)

    def _takes(self, stream: _Stream, size_bytes: int) -> int:
        """Return what so many of the bytes that the stream owes will take of the bound."""
        if stream.owed_bytes <= 0:
            return size_bytes
        return size_bytes + size_bytes * self._place_bytes * stream.owed_records // stream.owed_bytes

    def allowance(self, stream: int) -> Allowance:
        """Return the current credit of a stream; none if it is not open."""
        one = self._streams.get(stream)
        if one is None:
            return Allowance()
        return Allowance(size_bytes=one.allowed_bytes, place=one.place, must=self._must)

    def streams(self) -> Iterable[int]:
        """Return the open streams."""
        return self._streams.keys()

    def waits(self, stream: int) -> bool:
        """Return whether a stream has used its credit and needs more room to go on."""
        one = self._streams.get(stream)
        if one is None:
            return False
        # A message is sent when there is credit for all of it.
        little = max(self.limit_bytes // (_LITTLE * len(self._streams)), self._takes(one, one.largest_bytes))
        return self._takes(one, one.awaited_bytes) <= little


_LITTLE = 8
"""A stream of which less than this fraction of its share may still come counts as out of credit."""

_SPARE = 8
"""At the end of the plan, this fraction of what is owed is allowed besides it."""


def _lacks(stream: _Stream) -> int:
    """Return how much more credit the stream could use."""
    return max(stream.owed_bytes - stream.awaited_bytes, 0)


def _lacks_at_end(stream: _Stream) -> int:
    """Return it where nothing else needs the room: a last message that is larger than estimated need not wait for the user."""
    spare = max(stream.largest_bytes, stream.owed_bytes // _SPARE) if stream.owed_bytes else 0
    return max(stream.owed_bytes + spare - stream.awaited_bytes, 0)
