"""How far each stream may run ahead of the user: the credit that a rank gives.

A bound in bytes over all streams, of what is held here and of what may come at any time. By bytes alone a fast daemon would get
all of it, and the next records of a slow one would find no room. So streams may send only what lies within the places that fit
the bound, and each gets credit for what it owes of those.

Covers: the bound and its division, from what was opened, came and was handed out. Pure. Does not cover: telling the daemons
(emlio.wire.credit), what they do with it (emlio.session.credits).
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from emlio.session.credits import Place

__all__ = ["Allowance", "Grants", "Owed", "Schedule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """A part of what a stream is to send.

    Attributes:
        records: how many.
        size_bytes: of them together, as far as that is known beforehand.
    """

    records: int
    size_bytes: int


class Schedule(Protocol):
    """Which stream owes what: what is to be known of the plan."""

    def place_after(self, place: Place, size_bytes: int) -> Place:
        """Up to where so many bytes lie from this place on, as far as is known; further only for a single record."""
        ...

    def owed(self, stream: int, begin: Place, end: Place) -> Owed:
        """What the stream owes of the places from `begin` up to `end`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a stream may send, counted from its opening on.

    Attributes:
        size_bytes: so many bytes,
        place: of places before this one;
        must: and whatever lies before this one, however many bytes it has.
    """

    size_bytes: int = 0
    place: Place = (0, 0)
    must: Place = (0, 0)


@dataclass(slots=True, kw_only=True, eq=False)
class _Stream:
    """One stream since it was opened.

    Attributes:
        place: up to where it may send.
        owed: what it may send by its place and has not, in order, in parts.
        owed_bytes: of these together.
        allowed_bytes: what it may have sent.
        came_bytes: what came of it.
    """

    place: Place
    owed: deque[Owed] = field(default_factory=deque[Owed])
    owed_bytes: int = 0
    allowed_bytes: int = 0
    came_bytes: int = 0

    @property
    def awaited_bytes(self) -> int:
        """What may come of it at any time."""
        return max(self.allowed_bytes - self.came_bytes, 0)

    def extend(self, schedule: Schedule, stream: int, place: Place) -> None:
        """It may send up to that place now."""
        if place <= self.place:
            return
        part = schedule.owed(stream, self.place, place)
        self.place = place
        if part.records:
            self.owed.append(part)
            self.owed_bytes += part.size_bytes

    def settle(self, records: int) -> None:
        """So many of the records that it owes are here."""
        while records and self.owed:
            part = self.owed.popleft()
            taken = min(records, part.records)
            records -= taken
            left = part.records - taken
            left_bytes = part.size_bytes * left // part.records
            self.owed_bytes -= part.size_bytes - left_bytes
            if left:
                self.owed.appendleft(Owed(records=left, size_bytes=left_bytes))


class Grants:
    """See the module.

    Attributes:
        held_bytes: taken and not yet handed to the user.
        peak_bytes: the most that was ever held.
    """

    def __init__(self, limit_bytes: int) -> None:
        """See the class."""
        self.held_bytes = 0
        self.peak_bytes = 0
        self._limit_bytes = limit_bytes
        self._must: Place = (0, 0)
        self._streams: dict[int, _Stream] = {}

    def clear(self) -> None:
        """Everything held was dropped, and no stream is open."""
        self.held_bytes = 0
        self._must = (0, 0)
        self._streams.clear()

    def open(self, stream: int, place: Place) -> None:
        """A stream is opened, or opened again, at this place: its totals count from nothing."""
        self._streams[stream] = _Stream(place=place)

    def close(self, stream: int) -> None:
        """Nothing comes of a stream any more."""
        self._streams.pop(stream, None)

    def came(self, stream: int, records: int, size_bytes: int, new_bytes: int) -> None:
        """A message came.

        Args:
            stream: which stream's.
            records: how many it has.
            size_bytes: of its payload.
            new_bytes: of what was missing and is held now.
        """
        self.held_bytes += new_bytes
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)
        if (one := self._streams.get(stream)) is not None:
            one.came_bytes += size_bytes
            one.settle(records)

    def handed_over(self, size_bytes: int) -> None:
        """The user got a batch."""
        self.held_bytes -= size_bytes

    def renew(self, schedule: Schedule, following: Place, must: Place) -> None:
        """Divide the room that there is now.

        Args:
            schedule: which stream owes what.
            following: the user's next place.
            must: the first place that is not needed at once.
        """
        self._must = max(self._must, must)
        place = schedule.place_after(following, self._limit_bytes)
        for number, stream in self._streams.items():
            stream.extend(schedule, number, place)
        free = self._limit_bytes - self.held_bytes - sum(stream.awaited_bytes for stream in self._streams.values())
        # Those that lack most come last: what others lack less of is given whole, and what it is too little for is shared.
        lacking = sorted((stream for stream in self._streams.values() if _lacks(stream)), key=_lacks)
        for turn, stream in enumerate(lacking):
            if free <= 0:
                return
            given = min(_lacks(stream), free // (len(lacking) - turn))
            stream.allowed_bytes = max(stream.allowed_bytes, stream.came_bytes) + given
            free -= given

    def allowance(self, stream: int) -> Allowance:
        """What a stream may send now."""
        one = self._streams[stream]
        return Allowance(size_bytes=one.allowed_bytes, place=one.place, must=self._must)

    def streams(self) -> Iterable[int]:
        """Those that are open."""
        return self._streams.keys()


def _lacks(stream: _Stream) -> int:
    """How much more credit it could use."""
    return max(stream.owed_bytes - stream.awaited_bytes, 0)
