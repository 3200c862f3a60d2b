"""The two interfaces between the rank's machine and the world: control and data.

A plane carries out instructions and reports events. The machine knows neither sockets nor threads
nor disks: tests and the exhaustive search use other planes.

Covers: the two protocols. Does not cover: their implementations
(emlio.receiver.connection.link_plane, emlio.receiver.connection.lane_plane,
emlio.receiver.local.plane).
"""

from collections.abc import Collection, Iterable
from typing import Protocol

from emlio.receiver.connection.transport import Waited
from emlio.receiver.machine.events import ControlEvent, DataEvent
from emlio.receiver.machine.instructions import ControlInstruction, DataInstruction

__all__ = ["ControlPlane", "DataPlane"]


class ControlPlane(Protocol):
    """The control connections to daemons."""

    def things(self) -> Iterable[Waited]:
        """Return the sockets to wait for."""
        ...

    def carry_out(self, instruction: ControlInstruction) -> Iterable[ControlEvent]:
        """Carry out an instruction; return the events that follow at once."""
        ...

    def events(self, ready: Collection[Waited]) -> Iterable[ControlEvent]:
        """Return the events of the ready sockets.

        Instructions may be carried out between two events.
        """
        ...

    def close(self) -> None:
        """Free the resources."""
        ...


class DataPlane(Protocol):
    """A source of records: the lanes, or this host's disks."""

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
