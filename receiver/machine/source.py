"""A daemon as the rank sees it: the session with it, its lanes, and its stream.

Covers: one daemon's state, connecting to it, its lanes, decoding what came over them, parting from
one that leaves. Does not cover: all daemons together (emlio.receiver.machine.sources), when each
step is taken (emlio.receiver.machine.daemon_pool).
"""

from dataclasses import replace

from emlio.errors import EmlioError, PeerLostError, RemoteProtocolError
from emlio.receiver.addresses.connection_events import LaneEvent, LinkEvent
from emlio.receiver.addresses.known_path import KnownPath
from emlio.receiver.addresses.lane_count import lanes_each, lanes_for, lanes_of_rank
from emlio.receiver.addresses.target import Target
from emlio.receiver.assignment.agreement import Holding
from emlio.receiver.machine.contact import Contact
from emlio.receiver.machine.instructions import LookAtLanes, Remember
from emlio.receiver.machine.lane_set import NO_FILE_LEFT, LaneReader, LaneSet
from emlio.receiver.machine.message import Message
from emlio.receiver.machine.obstacles import SILENCE, Obstacle
from emlio.receiver.machine.outbox import Outbox
from emlio.receiver.machine.retry import Retry
from emlio.receiver.machine.source_state import SourceState, moved
from emlio.receiver.machine.stream_reader import StreamReader
from emlio.receiver.machine.surroundings import Surroundings
from emlio.session.instructions import Send, StreamOpened
from emlio.session.rank import RankSession
from emlio.session.states import RankState
from emlio.units import format_duration
from emlio.wire.seal import CIPHERS, StreamSeal

__all__ = ["Source"]

_GOODBYE_MS = 200

_LOOK_NS = 500_000_000
_LOOK_HUNGRY_NS = 50_000_000
"""Between looks at the lanes' events. To wait for the event sockets of all lanes would cost more."""

_SETTLED_NS = 10_000_000
"""Connections that end together end within this time, perhaps the control connection among them:
the stream is reopened once for all."""

_USUAL_OFFSET = 1
"""From a daemon's control port to its data port, unless the daemon says otherwise."""

_LAST_PORT = 65_535

_OBSTACLES: dict[LaneEvent | None, str] = {
    LaneEvent.UNREACHABLE: "it cannot be reached",
    LaneEvent.TURNED_AWAY: (
        "it refuses this session, because it belongs to another service or daemon, or because the daemon has no "
        "free lanes (see its log)"
    ),
    LaneEvent.ENDED: "it closes connections at once",
}


class Source:
    """A daemon.

    Attributes:
        number: its stream's number.
        peer: its name.
        state: see `SourceState`.
        conversation: the session with it.
        contact: the control connection.
        holding: the shards it has listed, once it has, and what matches a predicate.
        listed: the shards it has listed, while it evaluates a predicate.
        lanes: its data connections, during a session.
        received_bytes: bytes received of its stream.
        called_ns: when it was first connected to.
        moved_ns: when it last sent something, or was asked to.
        furthest: the epoch and place of the message of its stream that is furthest ahead.
        patience_ns: how long a batch may wait for it, while it reports no fault, before its stream
            is reopened.
        mends: how often that was done since it last sent something new.
        farewell, farewell_ns: why and when it left, while it is parting.
        retry: its loss, until it agrees to the plan again.
        trouble: the last loss, until it is certain to be over.
        unfit: why no shard is assigned to it while others hold it; it may be tried again.
        was_ordered: a stream was ordered from it, in this session or an earlier one.
        late: it was added after the plan was made, or had not answered by then.
        leaving: it was taken off the list of daemons.
        asked_generation: the generation that its last hello named, if any.
        in_vain: how often it was silent after an order, since it last sent anything that was
            missing.
        stale: the stream that it was to begin with on agreement is no longer the wanted one.
        was_blocked: no lane to it could be connected, and none has been since.
        broken_ns: when the last lane was lost that may have carried messages of its stream; None if
            none was.
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
        self.number = number
        self.peer = target.peer
        self.state = SourceState.CALLED
        self.conversation = machine
        self._out = out
        self._around = around
        self.contact = Contact(number, target, out)
        self.called_ns = self.moved_ns = self._look_ns = out.now_ns
        self.retry: Retry | None = None
        self.unfit: EmlioError | None = None
        self.holding: Holding | None = None
        self.listed: Holding | None = None
        self.lanes = LaneSet(number, out, str(self.peer), b"", around.chances)
        self.received_bytes = 0
        self.farewell: EmlioError | None = None
        self.farewell_ns = 0
        self.furthest = (0, -1)
        self.patience_ns = 0
        self.mends = 0
        self.trouble: Retry | None = None
        self.late = self.leaving = self.stale = self.was_blocked = self.was_ordered = False
        self.asked_generation: int | None = None
        self.in_vain = 0
        self.broken_ns: int | None = None
        self._streams = streams
        self._reader: StreamReader | None = None
        self._round_trip_ns: int | None = None

    @property
    def peer_name(self) -> str:
        """Its address as text, which is its name in the agreement."""
        return str(self.peer)

    @property
    def is_here(self) -> bool:
        """Return whether a stream can be ordered from it."""
        return self.state is SourceState.HERE

    @property
    def is_heard(self) -> bool:
        """Return whether it has answered in the current session."""
        over = self.contact.closed or self.conversation.state is RankState.OVER
        return self.conversation.welcome is not None and not over

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

    @property
    def is_agreed(self) -> bool:
        """Return whether it has agreed to the plan in the current session."""
        return self.state in (SourceState.HERE, SourceState.BLOCKED)

    def move(self, move: str) -> None:
        """Go to another state."""
        self.state = moved(self.state, move)

    # ---- the conversation ---------------------------------------------------------------------------------------------

    def call_again(self, machine: RankSession) -> None:
        """Start a new session, at the next address if the one in use did not answer."""
        self.move("call")
        same = self.conversation.welcome is not None
        self.conversation = machine
        self.contact.call(same=same)

    def agree(self) -> None:
        """Record that the daemon agreed to the plan."""
        self.move("agree, blocked" if self.was_blocked else "agree")
        self.lanes.expect()
        self.retry = self.unfit = None
        if self.holding is not None:
            self.holding = replace(self.holding, matches=())  # the plan has them

    def block(self) -> None:
        """Record that no lane to it can be connected."""
        self.move("block")
        self.was_blocked = True

    def unblock(self) -> None:
        """Record that lanes to it can be connected again."""
        self.move("unblock")
        self.was_blocked = False

    def bid_farewell(self, error: EmlioError) -> None:
        """Record its goodbye; what it sent before may still come."""
        self.move("part")
        self.farewell, self.farewell_ns = error, self._out.now_ns
        self.part()

    def disconnect(self) -> None:
        """Disconnect: the session is over."""
        self.move("lose")
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
        self.lanes.close()
        self.contact.disconnect(linger_ms)

    def clearest(self, event: LinkEvent) -> LinkEvent:
        """See `Contact`."""
        return self.contact.clearest(event, agreed=self.is_agreed or self.state is SourceState.PARTING)

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

    def may_be_silent_ns(self, first_ns: int, longest_ns: int) -> int:
        """Return how long it may be silent: longer each time it is lost before it sent anything."""
        return max(first_ns, min(first_ns << min(max(self.in_vain - 1, 0), 20), longest_ns))

    def part(self) -> None:
        """Raise the farewell of a daemon that said goodbye, once all it sent is here."""
        if self.farewell is None:
            return
        if not self.lanes.up or self.received_bytes >= self.conversation.report.sent_bytes:
            raise self.farewell

    # ---- lanes --------------------------------------------------------------------------------------------------------

    def greeted(self, ranks: int) -> None:
        """Prepare lanes for a new session: as many as the last one to this address, if known."""
        self.lanes = LaneSet(self.number, self._out, str(self.peer), self.conversation.secret, self._around.chances)
        self._reader, self.broken_ns, self._round_trip_ns = None, None, None
        path = self._around.path(self.contact.way)
        if path is not None and self.contact.routes.way is not None:
            # The number may have been learnt by a rank that was alone.
            self._connect(path.offset, lanes_of_rank(path.lanes, ranks))

    def find_way(self) -> None:
        """See `Contact`. Closes lanes to an address that did not connect."""
        way = self.contact.way
        self.contact.find_way()
        if self.contact.way != way:
            self.lanes.close()

    def connected(self, round_trip_ns: int | None, *, daemons: int, ranks: int) -> None:
        """Have the lanes that the path needs, now that TCP has connected the control connection.

        Args:
            round_trip_ns: the round trip of the TCP handshake, if known.
            daemons: the number of daemons, including this one.
            ranks: the number of ranks of the job.
        """
        self.contact.connected = True
        if round_trip_ns is None or self.conversation.welcome is not None:
            return
        self._round_trip_ns = round_trip_ns
        path = self._around.path(self.contact.way)
        lanes = lanes_each(
            lanes_for(round_trip_ns, self._around.send_buffer_bytes, self._around.receive_buffer_bytes),
            daemons=daemons,
            ranks=ranks,
        )
        self._connect(path.offset if path is not None else _USUAL_OFFSET, lanes_of_rank(lanes, ranks))

    def round_trip_ns(self) -> int:
        """Return the shortest known round trip, else 0: the answer to the hello takes several."""
        found = (self._round_trip_ns, self.conversation.round_trip_ns)
        return min((value for value in found if value is not None), default=0)

    def watch_lanes(self, *, hungry: bool) -> bool:
        """Maintain the lanes; return whether to reopen the stream, as messages may be lost."""
        now_ns = self._out.now_ns
        next_ns = now_ns + (_LOOK_HUNGRY_NS if hungry or not self.lanes.up else _LOOK_NS)
        if now_ns >= self._look_ns:
            self._look_ns = next_ns
            self._out.add(LookAtLanes(self.number))
        self._look_ns = min(self._look_ns, next_ns)  # the user may have begun to wait since it was set
        self.lanes.watch()
        if self.broken_ns is None or now_ns - self.broken_ns < _SETTLED_NS:
            return False
        if self.conversation.state is not RankState.OFFERING:
            # While OFFERING its first stream may already have begun; it is reopened after the
            # daemon agrees.
            self.broken_ns = None
        return self.conversation.state in (RankState.OPENING, RankState.STREAMING)

    def lane_changed(self, lane: int, event: LaneEvent) -> None:
        """Record a change of a lane's connection."""
        if self.lanes.changed(lane, event):
            self.broken_ns = self._out.now_ns

    def give_up_lane(self) -> None:
        """Have a lane less, for another daemon that has none."""
        self.lanes.give_up()
        self.broken_ns = self._out.now_ns

    def lanes_deadline_ns(self) -> int | None:
        """The latest time at which `watch_lanes` must be called."""
        if self.contact.closed or not len(self.lanes):
            return self.lanes.deadline_ns()
        offers = self.conversation.state is RankState.OFFERING  # see `watch_lanes`
        settled_ns = None if self.broken_ns is None or offers else self.broken_ns + _SETTLED_NS
        found = (self._look_ns, settled_ns, self.lanes.deadline_ns())
        return min(at for at in found if at is not None)

    def without_lanes_ns(self) -> int:
        """Return how long no lane has been up since the daemon agreed to the plan; 0 if one is."""
        down_ns = self.lanes.down_ns
        if down_ns is None or self.lanes.up or not self.is_agreed:
            return 0
        return self._out.now_ns - down_ns

    def data_obstacle(self) -> str:
        """Return why no lane is up, in words."""
        welcome = self.conversation.welcome
        port = self.contact.way.port + (welcome.data_offset if welcome is not None else 0)
        if self.lanes.trouble is LaneEvent.NO_FILE:
            return f"the daemon at {self.peer} answers, but {NO_FILE_LEFT}"
        what = _OBSTACLES.get(self.lanes.trouble, "it does not answer")
        return (
            f"the daemon at {self.peer} answers, but its data port {port} is not usable: {what}. Port {port} of "
            f"{self.contact.way.host} must be open to this host and lead to the same daemon as port "
            f"{self.contact.way.port}"
        )

    def have_lanes(self, lanes: int) -> None:
        """Have at least this many lanes, at the port that the daemon named.

        Raises:
            RemoteProtocolError: there is no such port.
        """
        welcome = self.conversation.welcome
        if welcome is None or not lanes:
            return
        port = self.contact.way.port + welcome.data_offset
        if not 1 <= port <= _LAST_PORT:
            raise RemoteProtocolError(
                f"the daemon at {self.peer} has its data port at {welcome.data_offset:+} from its control port; from "
                f"{self.contact.way.port} that is {port}, not a valid port. Forward both ports with the same distance"
            )
        self._connect(welcome.data_offset, lanes)

    def _connect(self, offset: int, lanes: int) -> None:
        way = self.contact.way
        port = way.port + offset
        if self._streams and 1 <= port <= _LAST_PORT:
            self.lanes.connect(way.endpoint(port), lanes)

    # ---- its stream ---------------------------------------------------------------------------------------------------

    def ordered(self) -> None:
        """Record that a stream was ordered: data of earlier streams is dropped from now on."""
        self.was_ordered = True
        self.received_bytes, self.furthest, self.broken_ns = 0, (0, -1), None
        self._read(self.conversation.stream)

    def stopped(self) -> None:
        """Drop all data: no stream is wanted. A parting daemon owes nothing more, see `part`."""
        self._read(self.conversation.stream + 1)
        if self.farewell is not None:
            raise self.farewell

    def _read(self, stream: int) -> None:
        welcome = self.conversation.welcome
        if welcome is None:
            self._reader = None
            return
        secret, session = self.conversation.secret, self.conversation.session
        seal = None
        if welcome.protection in CIPHERS:
            seal = StreamSeal(cipher=welcome.protection, secret=secret, session=session, stream=stream)
        self._reader = StreamReader(session=session, stream=stream, seal=seal, label=f"daemon {self.peer}")

    def opened(self, opened: StreamOpened) -> None:
        """Use as many lanes as the daemon does, and remember the number for the next session."""
        welcome = self.conversation.welcome
        offset = welcome.data_offset if welcome is not None else _USUAL_OFFSET
        self.have_lanes(opened.lanes)
        self.lanes.lane_bytes = opened.lane_bytes
        self._out.add(Remember(self.contact.way, KnownPath(lanes=opened.lanes, offset=offset)))

    def understand(self, lane_reader: LaneReader, frame: memoryview) -> Message | None:
        """Return the message of its stream that a frame completes, or None.

        Raises:
            RemoteProtocolError: the frame is not what must come.
        """
        try:
            if self._reader is None:
                raise RemoteProtocolError("a daemon must not send records before a stream is opened, this one did")
            return lane_reader.take(frame, self._reader)
        except RemoteProtocolError as error:
            raise self.misread(lane_reader, error) from error

    def misread(self, lane_reader: LaneReader, error: RemoteProtocolError) -> RemoteProtocolError:
        """Replace the lane; return the error with the daemon's name."""
        self.lanes.replace(lane_reader)
        return error if str(self.peer) in str(error) else RemoteProtocolError(f"the daemon at {self.peer}: {error}")

    def describe(self) -> str:
        """Return its state, in words."""
        now_ns = self._out.now_ns
        if self.retry is not None:
            since = f", since then: {self.retry.since}" if self.retry.since is not None else ""
            return f"{self.peer} lost {format_duration(now_ns - self.retry.lost_ns)} ago: {self.retry.error}{since}"
        if without_ns := self.without_lanes_ns():
            return f"{self.peer} without lanes for {format_duration(without_ns)}: {self.data_obstacle()}"
        silence = format_duration(self.conversation.silence_ns(now_ns))
        return f"{self.peer} {self.conversation.state.value}, silent for {silence}"
