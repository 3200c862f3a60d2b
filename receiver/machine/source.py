"""The daemons as the rank sees them: the state of each, its loss, and the session with it.

CALLED ─agree→ HERE ─block→ BLOCKED ─unblock→ HERE
any of these ─part→ PARTING ─lose→ LOST; any ─lose→ LOST ─call→ CALLED AGAIN ─agree→ HERE
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import Enum

import msgspec
from msgspec.structs import astuple

from emlio.clocks.log import ClockLog
from emlio.errors import EmlioError, LocalProtocolError, PeerLostError
from emlio.receiver.addresses.address import Peer, Target
from emlio.receiver.assignment.agreement import Holding
from emlio.receiver.machine.contact import SILENCE, Contact, Obstacle
from emlio.receiver.machine.retry import Retry
from emlio.receiver.machine.stream import PeerStream
from emlio.receiver.machine.surroundings import Outbox, Surroundings
from emlio.session.instructions import Send
from emlio.session.rank import RankSession
from emlio.session.states import RankState
from emlio.units import format_duration
from emlio.wire.control import Limit

__all__ = ["SOURCE_MOVES", "Farewell", "Source", "SourceState", "Sources", "moved"]

_GOODBYE_MS = 1_000
"""A goodbye takes milliseconds to leave, and longer on a host whose processors are all busy. Without it the daemon takes the
rank for lost."""

_SILENT_NS = 1_000_000_000
"""While the user waits, a daemon is asked for a report several times in this time."""


class SourceState(Enum):
    """The state of a daemon, as the rank sees it.

    Attributes:
        CALLED: being connected for the first time; it has not agreed to the plan.
        HERE: it agreed, and a stream can be ordered from it.
        BLOCKED: it agreed, but no lane to it could be connected for too long.
        PARTING: it said goodbye, and something that it sent is still in flight.
        LOST: there is no connection to it. It is connected again when its delay is over.
        CALLED_AGAIN: being connected again; it has not agreed since it was lost.
    """

    CALLED = "called"
    HERE = "here"
    BLOCKED = "blocked"
    PARTING = "parting"
    LOST = "lost"
    CALLED_AGAIN = "called again"


_TALKING = (SourceState.CALLED, SourceState.HERE, SourceState.BLOCKED, SourceState.CALLED_AGAIN)

SOURCE_MOVES: Mapping[tuple[SourceState, str], SourceState] = {
    (SourceState.CALLED, "agree"): SourceState.HERE,
    (SourceState.CALLED_AGAIN, "agree"): SourceState.HERE,
    (SourceState.CALLED_AGAIN, "agree, blocked"): SourceState.BLOCKED,
    (SourceState.HERE, "block"): SourceState.BLOCKED,
    (SourceState.BLOCKED, "unblock"): SourceState.HERE,
    (SourceState.CALLED, "call"): SourceState.CALLED,
    (SourceState.CALLED_AGAIN, "call"): SourceState.CALLED_AGAIN,
    (SourceState.LOST, "call"): SourceState.CALLED_AGAIN,
    (SourceState.LOST, "lose"): SourceState.LOST,
    (SourceState.PARTING, "lose"): SourceState.LOST,
    **{(state, "part"): SourceState.PARTING for state in _TALKING},
    **{(state, "lose"): SourceState.LOST for state in _TALKING},
}


def moved(state: SourceState, move: str) -> SourceState:
    """Return the state after a move.

    Raises:
        LocalProtocolError: there is no such move in this state.
    """
    after = SOURCE_MOVES.get((state, move))
    if after is None:
        allowed = sorted(name for known, name in SOURCE_MOVES if known is state)
        raise LocalProtocolError(
            f"{move!r} is not allowed for a daemon in state {state.value}; allowed: {', '.join(allowed)}"
        )
    return after


class Farewell(msgspec.Struct, frozen=True):
    """The reason for which a daemon left, and the time."""

    error: EmlioError
    at_ns: int


class Source:
    """A daemon.

    A method that returns an error judges the daemon: the caller loses it by that error, if there is one.

    Attributes:
        state: see `SourceState`.
        conversation: the session with it.
        contact: the control connection.
        stream: its stream, and the lanes of the session.
        holding: the shards it has listed, once it has, and what matches a predicate.
        listed: the shards it has listed, while it evaluates a predicate.
        retry: its last loss, until it is certain to be over.
        farewell: its goodbye, while it is parting.
        called_ns: when it was first connected to.
        late: it was added after the plan was made, or had not answered by then.
        leaving: it was taken off the list of daemons.
        in_vain: how often it was silent after an order, since it last sent anything that was
            missing.
        asked_generation: the generation that its last hello named, if any.
    """

    def __init__(
        self,
        number: int,
        target: Target,
        machine: RankSession,
        out: Outbox,
        around: Surroundings,
        *,
        streams: bool = True,
    ) -> None:
        """Connect to the daemon.

        Args:
            number: its stream's number.
            target: the daemon as named in the loader's address.
            machine: the session, which has not begun.
            out: takes instructions.
            around: answers the machine's questions.
            streams: whether it will send a stream, for which lanes are connected.
        """
        self.state = SourceState.CALLED
        self.conversation = machine
        self.contact = Contact(number, target, out)
        self.stream = PeerStream(lambda: self.conversation, self.contact, out, around, streams=streams)
        self.holding: Holding | None = None
        self.listed: Holding | None = None
        self.retry: Retry | None = None
        self.farewell: Farewell | None = None
        self.called_ns = out.now_ns
        self.late = self.leaving = False
        self.in_vain = 0
        self.asked_generation: int | None = None
        self._out = out

    def parts(self) -> tuple[object, ...]:
        """Return the objects whose attributes are the daemon's state."""
        return (self, self.contact, self.contact.routes, self.stream)

    @property
    def number(self) -> int:
        """Its stream's number."""
        return self.contact.number

    @property
    def peer(self) -> Peer:
        """Its name."""
        return self.contact.peer

    @property
    def peer_name(self) -> str:
        """Its address as text, which is its name in the agreement."""
        return str(self.contact.peer)

    @property
    def is_here(self) -> bool:
        """Return whether a stream can be ordered from it."""
        return self.state is SourceState.HERE

    @property
    def is_agreed(self) -> bool:
        """Return whether it has agreed to the plan in the current session."""
        return self.state in (SourceState.HERE, SourceState.BLOCKED)

    @property
    def is_heard(self) -> bool:
        """Return whether it has answered in the current session."""
        over = self.contact.closed or self.conversation.state is RankState.OVER
        return self.conversation.welcome is not None and not over

    @property
    def is_lost(self) -> bool:
        """Return whether it was lost and has not agreed to the plan since."""
        return self.retry is not None and not self.retry.agreed

    @property
    def unfit(self) -> EmlioError | None:
        """The reason for which no shard is assigned to it while others hold it; it may be tried again."""
        return self.retry.error if self.retry is not None and self.retry.is_unfit else None

    @property
    def finds_matches(self) -> bool:
        """Return whether it is evaluating a predicate, which may take minutes."""
        return self.conversation.state is RankState.LISTED and self.conversation.matches.is_open

    def told(self, matches: bytes) -> None:
        """Record for which records a predicate holds, or digests of that where it is asked for them first."""
        if self.listed is not None:
            self.listed = replace(self.listed, digests=(*self.listed.digests, matches))
        elif self.holding is not None:
            self.holding = replace(self.holding, matches=(*self.holding.matches, matches))

    # ---- moves --------------------------------------------------------------------------------------------------------

    def call_again(self, machine: RankSession) -> None:
        """Start a new session, at the next address if the one in use did not answer."""
        self.state = moved(self.state, "call")
        same = self.conversation.welcome is not None
        self.conversation = machine
        self.contact.call(same=same)

    def agree(self) -> None:
        """Record that the daemon agreed to the plan."""
        self.state = moved(self.state, "agree, blocked" if self.stream.was_blocked else "agree")
        self.stream.lanes.expect()
        if self.retry is not None:
            self.retry.agreed, self.retry.is_unfit = True, False
        if self.holding is not None:
            self.holding = replace(self.holding, matches=())  # the plan has them

    def works(self) -> None:
        """Record that its last loss is over: it sends what was missing, or was heard for long enough."""
        if not self.is_lost:
            self.retry = None

    def block(self) -> None:
        """Record that no lane to it can be connected."""
        self.state = moved(self.state, "block")
        self.stream.was_blocked = True

    def unblock(self) -> None:
        """Record that lanes to it can be connected again."""
        self.state = moved(self.state, "unblock")
        self.stream.was_blocked = False

    def bid_farewell(self, error: EmlioError) -> EmlioError | None:
        """Record its goodbye; what it sent before may still come. See `parted`."""
        self.state = moved(self.state, "part")
        self.farewell = Farewell(error, self._out.now_ns)
        return self.parted()

    def parted(self) -> EmlioError | None:
        """Return the farewell of a daemon that said goodbye, once all it sent is here."""
        if self.farewell is None:
            return None
        all_is_here = self.stream.received_bytes >= self.conversation.report.sent_bytes
        return self.farewell.error if all_is_here or not self.stream.lanes.up else None

    def stopped(self) -> EmlioError | None:
        """Drop all data: no stream is wanted. Return the farewell of a parting daemon, which owes nothing more."""
        self.stream.drop()
        return self.farewell.error if self.farewell is not None else None

    def disconnect(self) -> None:
        """Disconnect: the session is over."""
        self.state = moved(self.state, "lose")
        self.farewell = None
        self.conversation.leave()  # its instructions are dropped: the connection ends
        self._close(0)

    def dismiss(self) -> None:
        """Say goodbye and disconnect."""
        if self.contact.closed:
            return
        for instruction in self.conversation.leave():
            if isinstance(instruction, Send):
                self.contact.send(instruction.message)
        self._close(_GOODBYE_MS)

    def _close(self, linger_ms: int) -> None:
        self.stream.lanes.close()
        self.contact.disconnect(linger_ms)

    def find_way(self) -> None:
        """See `Contact`. Closes lanes to an address that did not connect."""
        way = self.contact.way
        self.contact.find_way()
        if self.contact.way != way:
            self.stream.lanes.close()

    # ---- in words -----------------------------------------------------------------------------------------------------

    def clearer(self, error: EmlioError) -> EmlioError:
        """Return the error, or the reason why it could not be connected at all."""
        if not isinstance(error, PeerLostError) or self.conversation.welcome is not None:
            return error
        obstacle = self.contact.obstacle() or (None if self.contact.connected else SILENCE)
        return (
            error
            if obstacle is None
            else PeerLostError(f"the daemon at {self.peer} cannot be reached: {obstacle.words}")
        )

    def obstacle(self) -> Obstacle:
        """Return the reason why it does not answer."""
        unheard = self.conversation.welcome is None
        return (self.contact.obstacle() if unheard else None) or self.contact.silence()

    def without_lanes_ns(self) -> int:
        """Return how long no lane has been up since the daemon agreed to the plan; 0 if one is."""
        return self.stream.without_lanes_ns() if self.is_agreed else 0

    def describe(self) -> str:
        """Return its state, in words."""
        now_ns, retry = self._out.now_ns, self.retry
        loss = ""
        if retry is not None:
            since = f", since then: {retry.since}" if retry.since is not None else ""
            loss = f"lost {format_duration(now_ns - retry.lost_ns)} ago: {retry.error}{since}"
        if self.is_lost:
            return f"{self.peer} {loss}"
        if not loss and self.stream.damage is not None:
            loss = f"its stream was interrupted {format_duration(now_ns - self.stream.damaged_ns)} ago: {self.stream.damage}"
        before = f", and {loss}" if loss else ""  # it is back, but has sent nothing of what was missing
        if without_ns := self.without_lanes_ns():
            return f"{self.peer} without lanes for {format_duration(without_ns)}: {self.stream.obstacle()}{before}"
        silence = format_duration(self.conversation.silence_ns(now_ns))
        return f"{self.peer} {self.conversation.state.value}, silent for {silence}{before}"


class Sources:
    """All daemons of one loader, in the order of the address."""

    def __init__(self) -> None:
        self._all: dict[int, Source] = {}
        self._left: dict[int, tuple[str, ClockLog]] = {}

    def __iter__(self) -> Iterator[Source]:
        return iter(tuple(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def add(self, source: Source) -> None:
        """Add a daemon."""
        self._all[source.number] = source

    def remove(self, source: Source) -> None:
        """Remove a daemon; its clock is kept."""
        del self._all[source.number]
        self._left[source.number] = source.peer_name, source.conversation.clocks

    def clocks(self) -> Mapping[int, tuple[str, ClockLog]]:
        """Return the addresses and clocks of daemons by their numbers, also of those that were removed."""
        return self._left | {source.number: (source.peer_name, source.conversation.clocks) for source in self}

    def number(self, number: int) -> Source | None:
        """Return the daemon with this number; None if it is not a daemon's."""
        return self._all.get(number)

    @property
    def owe(self) -> bool:
        """Return whether something was read of a lane that its daemon was not told of."""
        return any(source.stream.lanes.owes for source in self)

    @property
    def lanes(self) -> int:
        """The number of data connections that are up."""
        return sum(source.stream.lanes.up for source in self)

    def deadline_ns(self) -> int | None:
        """The latest time at which one of the sessions must be looked after."""
        deadlines = [source.conversation.deadline_ns() for source in self]
        deadlines += [source.contact.deadline_ns() for source in self]
        deadlines += [source.stream.deadline_ns() for source in self]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def away(self, needs: Callable[[Source], bool], now_ns: int) -> list[int]:
        """Return the daemons that are needed and lost, or silent for a while."""
        return [
            source.number
            for source in self
            if needs(source) and (source.is_lost or source.conversation.silence_ns(now_ns) > _SILENT_NS)
        ]

    def round_trip_ns(self) -> int | None:
        """Return the longest of the daemons' shortest round trips."""
        found = [source.conversation.round_trip_ns for source in self]
        return max((value for value in found if value is not None), default=None)

    def limits(self) -> tuple[Limit | None, bool]:
        """Return how far all daemons that answer let the user go, and whether all of them know where it is."""
        pings = [source.conversation.pings for source in self if source.is_heard]
        limit = min((one.limit for one in pings if one.limit is not None), key=astuple, default=None)
        return limit, all(one.knows_place for one in pings)

    def protection(self) -> str:
        """Return the protections in use, each once."""
        welcomes = [source.conversation.welcome for source in self]
        return ", ".join(dict.fromkeys(welcome.protection for welcome in welcomes if welcome is not None))

    def describe(self) -> str:
        """Return the state of each daemon, in words."""
        return ", ".join(source.describe() for source in self)
