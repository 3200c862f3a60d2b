"""The lanes of all daemons.

Covers: connecting them, reading each in turn, sending credit, reporting their events. Does not
cover: when (emlio.receiver.machine.lane_set), the data (emlio.receiver.machine.rank).
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Protocol

from emlio.errors import RemoteProtocolError
from emlio.receiver.addresses.connection_events import LaneEvent
from emlio.receiver.connection.transport import Lane, Network, Waited
from emlio.receiver.machine.events import DataEvent, FrameBroken, FrameCame, LaneChanged, LaneFull
from emlio.receiver.machine.instructions import (
    CloseLane,
    ConnectLane,
    DataInstruction,
    LookAtLanes,
    ReadHere,
    SayCredit,
)
from emlio.wire.credit import encode_credit

__all__ = ["DataPlane", "LanePlane"]

_FRAMES_A_TURN = 8
"""Frames read from one lane before the others get their turn. Asking which lanes are readable costs
about as much as a frame."""


class DataPlane(Protocol):
    """A source of records: the lanes, or this host's disks. It carries out instructions and reports events.

    The machine knows neither sockets nor threads nor disks: tests and the exhaustive search use other planes.
    """

    def things(self) -> Iterable[Waited]:
        """Return the sockets to wait for."""
        ...

    def carry_out(self, instruction: DataInstruction) -> Iterable[DataEvent]:
        """Carry out an instruction; return the events that follow at once."""
        ...

    def events(self, ready: Collection[Waited]) -> Iterable[DataEvent]:
        """Return the events of the ready sockets.

        Instructions may be carried out between two events.
        """
        ...

    def close(self) -> None:
        """Free the resources."""
        ...


class LanePlane:
    """The lanes as a `DataPlane`. Used by the receive thread."""

    def __init__(self, network: Network, daemons: Callable[[], int]) -> None:
        """Begin without lanes.

        Args:
            network: makes sockets.
            daemons: returns the number of daemons.
        """
        self._network = network
        self._daemons = daemons
        self._lanes: dict[tuple[int, int], Lane] = {}
        self._turns = 0

    def things(self) -> Iterable[Waited]:
        """See `DataPlane`."""
        return list(self._lanes.values())

    def carry_out(self, instruction: DataInstruction) -> list[DataEvent]:
        """See `DataPlane`."""
        match instruction:
            case SayCredit(source=source, lane=number, credit=credit):
                lane = self._lanes.get((source, number))
                full = lane is not None and not lane.send(encode_credit(credit))
                return [LaneFull(source, number)] if full else []
            case ConnectLane(source=source, lane=number, endpoint=endpoint, shown=shown):
                made = self._network.lane(endpoint, shown, leave=self._lanes_for_others(source))
                if made is None:
                    return [LaneChanged(source, number, LaneEvent.NO_FILE)]
                self._lanes[source, number] = made
            case CloseLane(source=source, lane=number):
                lane = self._lanes.pop((source, number), None)
                if lane is not None:
                    self._network.forget(lane)
                    lane.close()
            case LookAtLanes(source=source):
                mine = [(number, lane) for (of, number), lane in self._lanes.items() if of == source]
                return [LaneChanged(source, number, event) for number, lane in mine for event in lane.news()]
            case ReadHere():
                pass  # another plane's
        return []

    def _lanes_for_others(self, source: int) -> int | None:
        """Return for how many lanes files must be left after another lane; None if it is the first.

        This loader uses half of the files that it could have for lanes, so later loaders get lanes,
        too. Its daemons share that half evenly.
        """
        of_source = sum(of == source for of, _ in self._lanes)
        if not of_source:
            return None
        return max(2 * self._daemons() * (of_source + 1) - (len(self._lanes) + 1), 0)

    def events(self, ready: Collection[Waited]) -> Iterator[DataEvent]:
        """See `DataPlane`. The next call goes on with the lane after the last one that was read here."""
        lanes = list(self._lanes.items())
        first = self._turns % max(len(lanes), 1)
        for key, lane in lanes[first:] + lanes[:first]:
            self._turns += 1
            if lane not in ready:
                continue
            for _ in range(_FRAMES_A_TURN):
                if self._lanes.get(key) is not lane:
                    break
                try:
                    frame = lane.receive()
                except RemoteProtocolError as error:
                    yield FrameBroken(*key, error)
                    continue
                if frame is None:
                    break
                yield FrameCame(*key, frame)

    def close(self) -> None:
        """See `DataPlane`."""
        while self._lanes:
            _, lane = self._lanes.popitem()
            self._network.forget(lane)
            lane.close()
