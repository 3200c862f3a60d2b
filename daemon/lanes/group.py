"""The lanes of one session, and the choice of the lane for the next message.

Covers: each lane's state, credit and numbering, lanes in turn, the validity of a rank's credits.
Pure. Does not cover: sockets (emlio.daemon.network.lane_socket), streams and threads
(emlio.daemon.lanes.sender).
"""

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Final

import msgspec

from emlio.daemon.limits import MOST_LANE_MESSAGES
from emlio.errors import LocalProtocolError
from emlio.session.credits import LaneCredit, StreamCredit
from emlio.wire.credit import Credit, decode_credit
from emlio.wire.limits import MAX_LANES
from emlio.wire.seal import lane_group, lane_name

__all__ = ["Lane", "LaneGroup", "LaneState", "lane_limit"]

_LEAST_MESSAGES: Final = 3
"""The rank reads one, one travels, one is ready here."""

_MOST_KEPT: Final = 2 * MAX_LANES
"""The most lanes of one session. A rank replaces lost lanes, some before the daemon notices their
loss."""


def lane_limit(message_bytes: int, send_buffer_bytes: int) -> int:
    """Return the limit of bytes under way on a lane.

    It is enough to fill the kernel's buffers at both ends, with a margin.
    """
    return max(_LEAST_MESSAGES * message_bytes, send_buffer_bytes * 3 // 2)


class LaneState(Enum):
    """The state of one lane.

    Attributes:
        AWAITED: admitted; nothing was sent to it or received from it so far.
        UP: connected.
        GONE: its connection ended, or never came up. Messages under way are lost.
    """

    AWAITED = auto()
    UP = auto()
    GONE = auto()


_MOVES: Final = {
    LaneState.AWAITED: {LaneState.UP, LaneState.GONE},
    LaneState.UP: {LaneState.GONE},
    LaneState.GONE: set[LaneState](),
}


class _UnderWay(msgspec.Struct, frozen=True, kw_only=True):
    """A message on a lane: its end in bytes sent, the bytes from there back to what was read, and when it was given."""

    end: int
    queued_bytes: int
    given_ns: int


class Lane:
    """One connection of a session.

    Attributes:
        number: its number in the session; each connection has its own.
        name: its name at the socket.
        admitted_ns: the time of its admission.
        state: see `LaneState`.
        sequence: the number of messages given to it so far.
        retired: it gets no message any more.
        pace: of the message that was read last, the bytes a second, with those before it on the lane; 0 before.
    """

    def __init__(self, number: int, name: bytes, limit_bytes: int, now_ns: int) -> None:
        self.number = number
        self.name = name
        self.admitted_ns = now_ns
        self.state = LaneState.AWAITED
        self.sequence = 0
        self.retired = False
        self.pace = 0
        self._credit = LaneCredit(limit_bytes)
        self._under_way: deque[_UnderWay] = deque()

    @property
    def under_way_bytes(self) -> int:
        """The bytes sent and not known to have been read."""
        return self._credit.under_way_bytes

    def allows(self, size_bytes: int, most_messages: int) -> bool:
        """Return whether the lane's credit allows a message of that size now."""
        return self._credit.allows(size_bytes) and len(self._under_way) < most_messages

    def gave(self, *frame_bytes: int, now_ns: int = 0) -> None:
        """Note that a message of these frames was given to the lane now."""
        self._credit.sent(sum(frame_bytes))
        credit = self._credit
        self._under_way.append(_UnderWay(end=credit.sent_bytes, queued_bytes=credit.under_way_bytes, given_ns=now_ns))
        self.sequence += 1

    def hear(self, read_bytes: int, now_ns: int = 0) -> None:
        """Note that the rank has read this many bytes, which it says now; the pace follows from the two times.

        Raises:
            RemoteProtocolError: they are more than were sent.
        """
        self._credit.hear(read_bytes)
        while self._under_way and self._under_way[0].end <= self._credit.read_bytes:
            read = self._under_way.popleft()
            if now_ns > read.given_ns:
                self.pace = read.queued_bytes * 1_000_000_000 // (now_ns - read.given_ns)

    def becomes(self, state: LaneState) -> None:
        """Change the state; `LocalProtocolError` if there is no such transition."""
        if state not in _MOVES[self.state]:
            raise LocalProtocolError(f"a lane cannot go from state {self.state.name} to {state.name}")
        self.state = state


class LaneGroup:
    """The lanes of one session. Used by one thread once it is registered.

    Attributes:
        session: the session's number.
        label: the group that its lanes name.
        ended: whether nothing more is sent or received.
    """

    def __init__(
        self, *, session: int, secret: bytes, limit_bytes: int, most_messages: int = MOST_LANE_MESSAGES
    ) -> None:
        """See the class.

        Args:
            session: the session's number.
            secret: the secret that its rank drew.
            limit_bytes: the bytes that may be under way on each lane, see `lane_limit`.
            most_messages: the messages that may be under way on each lane.
        """
        self.session = session
        self.label = lane_group(secret)
        self.ended = False
        self._secret = secret
        self._limit_bytes = limit_bytes
        self._most_messages = most_messages
        self._lanes: dict[int, Lane] = {}  # without those that are gone
        self._up: list[Lane] | None = None  # by number; made on demand
        self._turn = 0
        self._most = _MOST_KEPT  # lanes that are not retired
        self._awaited = 0
        self._stream: StreamCredit | None = None
        self._number = 0  # the highest stream that a credit was for
        self._early: StreamCredit | None = None  # credit of that stream, before it is opened here

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    def __len__(self) -> int:
        return len(self._lanes)

    @property
    def lanes(self) -> list[Lane]:
        """The lanes that are not gone; may be read by any thread."""
        return list(self._lanes.values())

    @property
    def is_young(self) -> bool:
        """True if no lane has had a message."""
        return not any(lane.sequence for lane in self._lanes.values())

    @property
    def pace(self) -> int:
        """The bytes a second of the fastest lane, see `Lane`; may be read by any thread."""
        return max((lane.pace for lane in self.lanes), default=0)

    def admit(self, number: int, now_ns: int) -> Lane:
        """Add a lane that was admitted; it may come up at any time."""
        lane = Lane(number, lane_name(self._secret, number), self._limit_bytes, now_ns)
        self._lanes[number] = lane
        self._awaited += 1
        return lane

    def surplus(self) -> Lane | None:
        """Return the oldest lane if there are more than a session may have."""
        return self._lanes[min(self._lanes)] if len(self._lanes) > _MOST_KEPT else None

    def came_up(self, lane: Lane) -> None:
        """Note that the lane is connected. Calling it again does nothing."""
        if lane.state is LaneState.AWAITED:
            lane.becomes(LaneState.UP)
            self._awaited -= 1
            self._up = None
            self._retire()

    def lost(self, lane: Lane) -> None:
        """Note that the lane is gone."""
        self._awaited -= lane.state is LaneState.AWAITED
        lane.becomes(LaneState.GONE)
        del self._lanes[lane.number]
        self._up = None

    def narrow(self, lanes: int) -> bool:
        """Retire all lanes but the newest ones, now and when others come; return whether there were any.

        What is under way on a retired lane still arrives. Then it is idle, and the rank may close it.
        """
        self._most = lanes
        return self._retire()

    def _retire(self) -> bool:
        """Retire the lanes that are older than so many others that are up: one that is awaited may never come up."""
        up = self._in_use(self._most)
        surplus = (
            [lane for lane in self._lanes.values() if not lane.retired and lane.number < up[0].number] if up else []
        )
        if len(up) < self._most or not surplus:
            return False
        for lane in surplus:
            lane.retired = True
        self._up = None
        return True

    def idle(self) -> tuple[int, ...]:
        """Return the numbers of the retired lanes on which nothing is under way; may be called by any thread."""
        return tuple(lane.number for lane in self.lanes if lane.retired and not lane.under_way_bytes)

    def awaited(self, lanes: int) -> list[Lane]:
        """Return the awaited lanes among the newest that a stream may use; the newest first."""
        if not self._awaited:
            return []
        newest = sorted(self._lanes.values(), key=_number, reverse=True)[:lanes]
        return [lane for lane in newest if lane.state is LaneState.AWAITED and not lane.retired]

    def choose(self, lanes: int, size_bytes: int, may_have: Callable[[Lane], bool]) -> Lane | None:
        """Return the lane for a message, in turn; None if no lane may have it now.

        Args:
            lanes: the number of lanes that may be used. These are the newest: a rank replaces a
                lost lane by a new one.
            size_bytes: the size of the message, with its header.
            may_have: another condition on the lane.
        """
        up = self._in_use(lanes)
        for step in range(len(up)):
            lane = up[(self._turn + step) % len(up)]
            if self.allows(lane, size_bytes) and may_have(lane):
                self._turn = (self._turn + step + 1) % len(up)
                return lane
        return None

    def allows(self, lane: Lane, size_bytes: int) -> bool:
        """Return whether this lane has credit for the message."""
        return lane.allows(size_bytes, self._most_messages)

    def _in_use(self, lanes: int) -> list[Lane]:
        if self._up is None:
            up = (lane for lane in self._lanes.values() if lane.state is LaneState.UP and not lane.retired)
            self._up = sorted(up, key=_number)
        return self._up[-lanes:]

    def open(self, stream: int, credit: Credit) -> StreamCredit:
        """Begin a stream with this credit, and with credits for it that came earlier."""
        if self._early is not None and self._number == stream:
            opened = self._early
        else:
            opened = StreamCredit(stream)
        opened.hear(credit)
        self._stream = opened
        if self._number <= stream:
            self._number, self._early = stream, None
        return opened

    def hear(self, lane: Lane, data: bytes, now_ns: int = 0) -> None:
        """Take a credit that came over a lane.

        Raises:
            RemoteProtocolError: it is no credit, or names more bytes than were sent.
        """
        credit = decode_credit(data)
        lane.hear(credit.read_bytes, now_ns)
        self.came_up(lane)
        if credit.stream > self._number:
            # The order for this stream may come later, over the control connection.
            self._number, self._early = credit.stream, StreamCredit(credit.stream)
        for known in (self._early, self._stream):
            if known is not None:
                known.hear(credit)


def _number(lane: Lane) -> int:
    return lane.number
