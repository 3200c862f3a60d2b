"""The collection of all daemons of one loader.

Covers: adding and removing, figures over all of them. Does not cover: a single one
(emlio.receiver.machine.source).
"""

from collections.abc import Callable, Iterator

from msgspec.structs import astuple

from emlio.receiver.machine.source import Source
from emlio.wire.control import Limit

__all__ = ["Sources"]

_SILENT_NS = 2_000_000_000
"""While the user waits, a daemon is asked for a report several times in this time."""


class Sources:
    """All daemons of one loader, in the order of the address."""

    def __init__(self) -> None:
        self._all: list[Source] = []

    def __iter__(self) -> Iterator[Source]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def add(self, source: Source) -> None:
        """Add a daemon."""
        self._all.append(source)

    def remove(self, source: Source) -> None:
        """Remove a daemon."""
        self._all = [other for other in self._all if other is not source]

    def number(self, number: int) -> Source | None:
        """Return the daemon with this number; None if it is not a daemon's."""
        return next((source for source in self._all if source.number == number), None)

    @property
    def owe(self) -> bool:
        """Return whether something was read of a lane that its daemon was not told of."""
        return any(source.lanes.owes for source in self._all)

    @property
    def lanes(self) -> int:
        """The number of data connections that are up."""
        return sum(source.lanes.up for source in self._all)

    def deadline_ns(self) -> int | None:
        """The latest time at which one of the sessions must be looked after."""
        deadlines = [source.conversation.deadline_ns() for source in self._all]
        deadlines += [source.contact.deadline_ns() for source in self._all]
        deadlines += [source.lanes_deadline_ns() for source in self._all]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def lack(self, needs: Callable[[Source], bool], now_ns: int) -> bool:
        """Return whether a daemon that is needed is lost, or has been silent for a while."""
        return any(
            needs(source) and (source.retry is not None or source.conversation.silence_ns(now_ns) > _SILENT_NS)
            for source in self._all
        )

    def round_trip_ns(self) -> int | None:
        """Return the longest of the daemons' shortest round trips."""
        found = [source.conversation.round_trip_ns for source in self._all]
        return max((value for value in found if value is not None), default=None)

    def limits(self) -> tuple[Limit | None, bool]:
        """Return how far all daemons that answer let the user go, and whether all of them know where it is."""
        pings = [source.conversation.pings for source in self if source.is_heard]
        limit = min((one.limit for one in pings if one.limit is not None), key=astuple, default=None)
        return limit, all(one.knows_place for one in pings)

    def protection(self) -> str:
        """Return the protections in use, each once."""
        welcomes = [source.conversation.welcome for source in self._all]
        return ", ".join(dict.fromkeys(welcome.protection for welcome in welcomes if welcome is not None))

    def describe(self) -> str:
        """Return the state of each daemon, in words."""
        return ", ".join(source.describe() for source in self._all)
