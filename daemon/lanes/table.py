"""The sessions that have lanes, and all their connections.

Covers: finding a lane by its name, lanes that come and go, received credits, ending connections.
Used by the sending thread. Does not cover: sending (emlio.daemon.lanes.sender), a session's own
rules (emlio.daemon.lanes.group).
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from emlio.daemon.lanes.group import Lane, LaneGroup, LaneState
from emlio.daemon.lanes.outlet import Outlet
from emlio.daemon.lanes.stream_totals import StreamTotals
from emlio.daemon.lanes.timers import Timers
from emlio.daemon.limits import UNREAD_MS
from emlio.daemon.network.lane_socket import Connection, Heard, LaneSocket
from emlio.errors import RemoteProtocolError

__all__ = ["LaneSession", "LaneTable"]

_AWAITED_NS: Final = 5_000_000_000
"""libzmq's own limit on a handshake."""

_LEAVING_NS: Final = 1_000_000_000
"""A rank that closes its session closes its lanes, too. After this time the daemon closes the
rest."""

_SILENT_NS: Final = 10_000_000_000
"""The time after which a silent connection is suspicious: a rank sends something as soon as a lane
is up. Twice the limit on a handshake."""

_SOUGHT_NS: Final = 3 * _SILENT_NS
"""By then a silent connection was found twice. The search under way may have begun just before the
lane was given up."""

_SIFTED_NS: Final = (1_000_000_000, (UNREAD_MS + 5_000) * 1_000_000)
"""Delays of two checks for ended connections after a lane was admitted or retired. The rank may have lost
another lane, whose connection ends here at once, or when the kernel gives it up."""

_LOOKED_UP_A_TURN: Final = 256
"""Descriptors looked up per turn; each takes some microseconds."""


class LaneSession:
    """A session that has lanes.

    Attributes:
        group: its lanes.
        outlet: its stream; None if none is attached.
        former: the totals of its former streams.
        connections: the connections of lanes that have sent something.
        try_ns: the time at which awaited lanes are tried again.
        sifts: whether a check of its lanes is due.
    """

    def __init__(self, group: LaneGroup) -> None:
        self.group = group
        self.outlet: Outlet | None = None
        self.former = StreamTotals()
        self.connections: dict[Lane, Connection] = {}
        self.try_ns = 0
        self.sifts = False

    def silence(self) -> None:
        """Send nothing more."""
        self.group.ended = True
        if self.outlet is not None:
            self.outlet.closed = True


class LaneTable:
    """The lanes of all sessions.

    Attributes:
        lanes_lost: the number of lanes whose connection ended or never came up.
        strangers: the number of messages from connections that are not, or no longer, a lane.
    """

    def __init__(
        self,
        socket: LaneSocket,
        timers: Timers,
        on_fault: Callable[[int, RemoteProtocolError], None],
        on_other_lanes: Callable[[LaneSession], None],
        on_lane_ended: Callable[[str], None] = lambda _: None,
    ) -> None:
        """See the class.

        Args:
            socket: the socket of the lanes.
            timers: the thread's timers.
            on_fault: called with a session whose rank broke the protocol.
            on_other_lanes: called with a session that lost a lane to which nothing was being sent.
            on_lane_ended: called, with the session's group, for each admitted lane whose connection
                has ended.
        """
        self.lanes_lost = 0
        self.strangers = 0
        self._socket = socket
        self._timers = timers
        self._on_fault = on_fault
        self._on_other_lanes = on_other_lanes
        self._on_lane_ended = on_lane_ended
        self._sessions: dict[str, LaneSession] = {}
        self._names: dict[bytes, tuple[Lane, LaneSession]] = {}
        self._descriptors: dict[int, tuple[Lane, LaneSession]] = {}
        self._looking = False
        self._silent: set[Connection] = set()  # found by the last search

    def register(self, group: LaneGroup) -> None:
        """Add a session that begins."""
        self._sessions[group.label] = LaneSession(group)

    def session(self, label: str) -> LaneSession | None:
        """Return the session of a group; None if it is over."""
        return self._sessions.get(label)

    def under_way_bytes(self, label: str) -> int:
        """Return the bytes sent over a session's lanes and not known to have been read.

        May be called by any thread.
        """
        session = self._sessions.get(label)
        return sum(lane.under_way_bytes for lane in session.group.lanes) if session is not None else 0

    def knows(self, name: bytes) -> bool:
        """Return whether a lane has this name."""
        return name in self._names

    def admit(self, label: str, number: int) -> LaneSession | None:
        """Add an admitted lane; return its session, or None if that is over."""
        session, now_ns = self._sessions.get(label), time.monotonic_ns()
        if session is None:
            self._seek(label)  # the session ended in the meantime
            return None
        lane = session.group.admit(number, now_ns)
        self._names[lane.name] = lane, session
        self._timers.at(now_ns + _AWAITED_NS, partial(self._expire, lane, session))
        # Not earlier: otherwise connecting lanes would cause extra attempts.
        session.try_ns = max(session.try_ns, now_ns)
        if session.connections:
            self._sift_later(session, now_ns)
        if (surplus := session.group.surplus()) is not None:
            self._disconnect(surplus, session)
            self.lose(surplus, session)
        return session

    def narrow(self, session: LaneSession, lanes: int) -> None:
        """Have the stream use so many lanes, and retire the others. See `LaneGroup.narrow`."""
        if session.outlet is not None:
            session.outlet.lanes = lanes
        if session.group.narrow(lanes):
            self._sift_later(session, time.monotonic_ns())

    def _sift_later(self, session: LaneSession, now_ns: int) -> None:
        if not session.sifts:
            session.sifts = True
            for after_ns in _SIFTED_NS:
                self._timers.at(now_ns + after_ns, partial(self._sift, session))

    def _sift(self, session: LaneSession) -> None:
        """Lose lanes whose connection has ended.

        Otherwise only sending shows that a connection has ended, and nothing is sent to a full
        lane.
        """
        session.sifts = False
        if session.group.ended:
            return
        for lane, connection in tuple(session.connections.items()):
            if not self._socket.is_connected(connection):
                self.lose(lane, session)
                self._on_other_lanes(session)

    def _expire(self, lane: Lane, session: LaneSession) -> None:
        if lane.state is LaneState.AWAITED and lane.name in self._names:
            self.lose(lane, session)

    def lose(self, lane: Lane, session: LaneSession) -> None:
        """Drop a lane that is gone.

        Messages under way are lost; the rank notices that and opens its stream again.
        """
        self.lanes_lost += not lane.retired or lane.under_way_bytes > 0
        session.group.lost(lane)
        self._forget(lane, session)

    def end(self, label: str) -> None:
        """End a session. Its connections are closed a moment later."""
        session = self._sessions.pop(label, None)
        if session is not None:
            session.silence()
            self._timers.at(time.monotonic_ns() + _LEAVING_NS, partial(self._hang_up_all, session))

    def _hang_up_all(self, session: LaneSession) -> None:
        for lane in session.group:
            self._disconnect(lane, session)
            self._forget(lane, session)

    def _disconnect(self, lane: Lane, session: LaneSession) -> None:
        connection = session.connections.get(lane)
        if connection is not None:
            self._socket.disconnect(connection)

    def _forget(self, lane: Lane, session: LaneSession) -> None:
        if self._names.pop(lane.name, None) is None:
            return  # already forgotten
        connection = session.connections.pop(lane, None)
        if connection is not None:
            self._descriptors.pop(connection.descriptor, None)
            self._on_lane_ended(session.group.label)
        else:
            self._seek(session.group.label)

    def _seek(self, label: str) -> None:
        """Search for the connection of a lane that never sent anything.

        Nothing else tells which connection belongs to the lane, if it is connected.
        """
        self._timers.at(time.monotonic_ns() + _SOUGHT_NS, partial(self._on_lane_ended, label))
        if not self._looking:
            self._looking = True
            self._look_later()

    def hear(self, heard: Heard) -> LaneSession | None:
        """Take a credit; return the session whose stream may go on, or None."""
        known = self._names.get(heard.name)
        if known is None:
            self.strangers += 1
            return None
        lane, session = known
        if lane not in session.connections:
            self._note_connection(heard, lane, session)
        if session.group.ended:
            return None
        try:
            session.group.hear(lane, heard.data, time.monotonic_ns())
        except RemoteProtocolError as error:
            session.silence()
            self._on_fault(session.group.session, RemoteProtocolError(f"lane {lane.number}: {error}"))
            return None
        return session

    def _note_connection(self, heard: Heard, lane: Lane, session: LaneSession) -> None:
        connection = heard.connection()
        if connection is None:
            return
        # A descriptor has one connection: the lane that had this descriptor before has none any
        # more.
        before = self._descriptors.get(connection.descriptor)
        if before is not None:
            before[1].connections.pop(before[0], None)
        self._descriptors[connection.descriptor] = lane, session
        session.connections[lane] = connection

    # ---- silent connections -----------------------------------------------------------------------------------------

    def _look_later(self) -> None:
        self._timers.at(time.monotonic_ns() + _SILENT_NS, lambda: self._look(self._socket.connections(), set()))

    def _look(self, rest: Iterator[Connection], silent: set[Connection]) -> None:
        """Find connections without a lane, some at a time; close those found twice in a row."""
        try:
            found = list(islice(rest, _LOOKED_UP_A_TURN))
        except OSError:  # listing the connections needs a descriptor, and none is free
            self._look_later()
            return
        silent.update(connection for connection in found if not self._is_known(connection))
        if len(found) == _LOOKED_UP_A_TURN:
            self._timers.at(time.monotonic_ns() + 1, lambda: self._look(rest, silent))
            return
        for connection in silent & self._silent:
            self._socket.disconnect(connection)
        self._silent = silent - self._silent
        self._looking = bool(self._silent)
        if self._looking:
            self._look_later()

    def _is_known(self, connection: Connection) -> bool:
        lane, session = self._descriptors.get(connection.descriptor, (None, None))
        return lane is not None and session is not None and session.connections.get(lane) == connection
