"""The stream of one daemon, and the lanes of the session that it comes over.

Does not cover: when a stream is opened (emlio.receiver.machine.shard_assignment), the lanes
themselves (emlio.receiver.machine.lane_set).
"""

from collections.abc import Callable

from emlio.errors import RemoteProtocolError
from emlio.receiver.addresses.connection_events import LaneEvent
from emlio.receiver.addresses.known_path import KnownPath
from emlio.receiver.addresses.lane_count import lanes_each, lanes_for, lanes_of_rank
from emlio.receiver.machine.contact import Contact
from emlio.receiver.machine.instructions import LookAtLanes, Remember
from emlio.receiver.machine.lane_set import NO_FILE_LEFT, LaneReader, LaneSet
from emlio.receiver.machine.message import Message, StreamReader
from emlio.receiver.machine.surroundings import Outbox, Surroundings
from emlio.session.instructions import StreamOpened
from emlio.session.rank import RankSession
from emlio.session.states import RankState
from emlio.wire.limits import MAX_LANES
from emlio.wire.seal import CIPHERS, StreamSeal

__all__ = ["PeerStream"]

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


class PeerStream:
    """The stream of one daemon. It outlives sessions; lanes and what was read of the stream do not.

    Attributes:
        lanes: the data connections of the session.
        moved_ns: when it last brought something, or was asked to.
        held: whether it had used its credit at the last look.
        patience_ns: how long a batch may wait for it, while the daemon reports no fault, before it
            is reopened; 0 before it is first ordered.
        mends: how often that was done since it last brought something new.
        damage: the reason of the last mend, until it brings something new.
        damaged_ns: when that was.
        is_stale: what the daemon was to begin with on agreement is no longer wanted.
        was_blocked: no lane could be connected, and none has been since.
        handshake_ns: the round trip of TCP's handshake with the daemon of this session, if known.
        broken_ns: when the last lane was lost that may have carried messages of it; None if none was.
    """

    def __init__(
        self,
        session: Callable[[], RankSession],
        contact: Contact,
        out: Outbox,
        around: Surroundings,
        *,
        streams: bool,
    ) -> None:
        """Begin without a session.

        Args:
            session: returns the session with the daemon.
            contact: the control connection.
            out: takes instructions.
            around: answers the machine's questions.
            streams: whether lanes are connected at all.
        """
        self.lanes = LaneSet(contact.number, out, str(contact.peer), b"", around.chances)
        self.moved_ns = out.now_ns
        self.held = False
        self.patience_ns = 0
        self.mends = 0
        self.damage: RemoteProtocolError | None = None
        self.damaged_ns = 0
        self.is_stale = self.was_blocked = False
        self.broken_ns: int | None = None
        self._session = session
        self._contact = contact
        self._out = out
        self._around = around
        self._streams = streams
        self._look_ns = out.now_ns
        self._most_lanes = MAX_LANES
        self._reader: StreamReader | None = None
        self.handshake_ns: int | None = None

    @property
    def _talk(self) -> RankSession:
        return self._session()

    # ---- lanes --------------------------------------------------------------------------------------------------------

    def begin(self, ranks: int) -> None:
        """Prepare lanes for a new session: as many as the last one to this address, if known."""
        self.lanes = LaneSet(
            self._contact.number, self._out, str(self._contact.peer), self._talk.secret, self._around.chances
        )
        self._reader, self.broken_ns, self.handshake_ns = None, None, None
        self._most_lanes = MAX_LANES
        path = self._around.path(self._contact.way)
        if path is not None and self._contact.routes.way is not None:
            # The number may have been learnt by a rank that was alone.
            self._connect(path.offset, lanes_of_rank(path.lanes, ranks))

    def path_found(self, round_trip_ns: int | None, *, daemons: int, ranks: int) -> None:
        """Have the lanes that the path needs, now that TCP has connected the control connection.

        Args:
            round_trip_ns: the round trip of the TCP handshake, if known.
            daemons: the number of daemons, including this one.
            ranks: the number of ranks of the job.
        """
        self._contact.connected = True
        if round_trip_ns is None or self._talk.welcome is not None:
            return
        self.handshake_ns = round_trip_ns
        path = self._around.path(self._contact.way)
        lanes = lanes_each(
            lanes_for(round_trip_ns, self._around.send_buffer_bytes, self._around.receive_buffer_bytes),
            daemons=daemons,
            ranks=ranks,
        )
        self._connect(path.offset if path is not None else _USUAL_OFFSET, lanes_of_rank(lanes, ranks))

    def round_trip_ns(self) -> int:
        """Return the shortest known round trip, else 0: the answer to the hello takes several."""
        found = (self.handshake_ns, self._talk.round_trip_ns)
        return min((value for value in found if value is not None), default=0)

    def lanes_needed(self, *, daemons: int, ranks: int) -> int:
        """Return the lanes that the path needs, for all ranks of the job."""
        welcome = self._talk.welcome
        most, send_bytes = (welcome.max_lanes, welcome.send_buffer_bytes) if welcome is not None else (0, 0)
        alone = lanes_for(self.round_trip_ns(), send_bytes, self._around.receive_buffer_bytes, max(most, 1))
        return lanes_each(alone, daemons=daemons, ranks=ranks)

    def welcomed(self) -> RemoteProtocolError | None:
        """Have the lanes at the port that the daemon named; return what is wrong with it, if anything."""
        welcome, port = self._talk.welcome, self._port
        if welcome is None or not self._streams:
            return None
        if not 1 <= port <= _LAST_PORT:
            way = self._contact.way
            return RemoteProtocolError(
                f"the daemon at {self._contact.peer} has its data port at {welcome.data_offset:+} from its control "
                f"port; from {way.port} that is {port}, not a valid port. Forward both ports with the same distance"
            )
        self.have_lanes(self.lanes.wanted)
        return None

    def have_lanes(self, lanes: int) -> None:
        """Have at least this many lanes, at the port that the daemon named."""
        welcome = self._talk.welcome
        if welcome is not None and lanes:
            self._connect(welcome.data_offset, lanes)

    @property
    def _port(self) -> int:
        welcome = self._talk.welcome
        return self._contact.way.port + (welcome.data_offset if welcome is not None else 0)

    def _connect(self, offset: int, lanes: int) -> None:
        way = self._contact.way
        port = way.port + offset
        if self._streams and 1 <= port <= _LAST_PORT:
            self.lanes.connect(way.endpoint(port), lanes)

    def watch(self, *, hungry: bool) -> bool:
        """Maintain the lanes; return whether to reopen the stream, as messages may be lost."""
        now_ns = self._out.now_ns
        next_ns = now_ns + (_LOOK_HUNGRY_NS if hungry or not self.lanes.up else _LOOK_NS)
        if now_ns >= self._look_ns:
            self._look_ns = next_ns
            self._out.add(LookAtLanes(self._contact.number))
        self._look_ns = min(self._look_ns, next_ns)  # the user may have begun to wait since it was set
        self.lanes.watch()
        if self.broken_ns is None or now_ns - self.broken_ns < _SETTLED_NS:
            return False
        if self._talk.state is not RankState.OFFERING:
            # While OFFERING the first stream may already have begun; it is reopened after the
            # daemon agrees.
            self.broken_ns = None
        return self._talk.state in (RankState.OPENING, RankState.STREAMING)

    def deadline_ns(self) -> int | None:
        """The latest time at which `watch` must be called."""
        if self._contact.closed or not len(self.lanes):
            return self.lanes.deadline_ns()
        offers = self._talk.state is RankState.OFFERING  # see `watch`
        settled_ns = None if self.broken_ns is None or offers else self.broken_ns + _SETTLED_NS
        found = (self._look_ns, settled_ns, self.lanes.deadline_ns())
        return min(at for at in found if at is not None)

    def lane_changed(self, lane: int, event: LaneEvent) -> None:
        """Record a change of a lane's connection."""
        if self.lanes.changed(lane, event):
            self.broken_ns = self._out.now_ns

    def give_up_lane(self) -> None:
        """Have a lane less, for another daemon that has none."""
        self.lanes.give_up()
        self.broken_ns = self._out.now_ns

    def without_lanes_ns(self) -> int:
        """Return how long no lane has been up; 0 if one is, or none is wanted."""
        down_ns = self.lanes.down_ns
        return 0 if down_ns is None or self.lanes.up else self._out.now_ns - down_ns

    def obstacle(self) -> str:
        """Return why no lane is up, in words."""
        peer, way, port = self._contact.peer, self._contact.way, self._port
        if self.lanes.trouble is LaneEvent.NO_FILE:
            return f"the daemon at {peer} answers, but {NO_FILE_LEFT}"
        what = _OBSTACLES.get(self.lanes.trouble, "it does not answer")
        return (
            f"the daemon at {peer} answers, but its data port {port} is not usable: {what}. Port {port} of "
            f"{way.host} must be open to this host and lead to the same daemon as port {way.port}"
        )

    # ---- the stream ---------------------------------------------------------------------------------------------------

    @property
    def received_bytes(self) -> int:
        """Bytes received since it was ordered."""
        return self._reader.received_bytes if self._reader is not None else 0

    @property
    def furthest(self) -> tuple[int, int]:
        """The epoch and place of its message that is furthest ahead, since it was ordered."""
        return self._reader.furthest if self._reader is not None else (0, -1)

    def ordered(self) -> None:
        """Record that a stream was ordered: data of earlier streams is dropped from now on."""
        self.broken_ns = None
        self._read(self._talk.stream)

    def drop(self) -> None:
        """Drop all data: no stream is wanted."""
        self._read(self._talk.stream + 1)

    def _read(self, stream: int) -> None:
        welcome = self._talk.welcome
        if welcome is None:
            self._reader = None
            return
        secret, session = self._talk.secret, self._talk.session
        seal = None
        if welcome.protection in CIPHERS:
            seal = StreamSeal(cipher=welcome.protection, secret=secret, session=session, stream=stream)
        label = f"daemon {self._contact.peer}"
        self._reader = StreamReader(session=session, stream=stream, seal=seal, label=label)

    def wish(self, lanes: int) -> None:
        """Have so many lanes, unless that is 0 or the daemon has said that it uses fewer."""
        if lanes:
            self.lanes.want(min(lanes, self._most_lanes))

    def reported(self) -> None:
        """Close the lanes that the daemon's report names as idle, and have no more than it uses."""
        work, wished = self._talk.report.work, self._talk.pings.tuning
        if work is None or wished is None:
            return
        if wished.lanes and work.tuning == wished.number:
            if work.lanes < wished.lanes:
                self._most_lanes = max(work.lanes, 1)  # the daemon has a number of its own, or has no more to give
            self.lanes.wanted = min(self.lanes.wanted, self._most_lanes)
        if work.idle:
            self.lanes.retire(work.idle)

    def opened(self, opened: StreamOpened) -> None:
        """Use as many lanes as the daemon does, and remember the number for the next session."""
        welcome = self._talk.welcome
        offset = welcome.data_offset if welcome is not None else _USUAL_OFFSET
        self.have_lanes(opened.lanes)
        self.lanes.lane_bytes = opened.lane_bytes
        self._out.add(Remember(self._contact.way, KnownPath(lanes=opened.lanes, offset=offset)))

    def receive(self, lane_reader: LaneReader, frame: memoryview) -> Message | RemoteProtocolError | None:
        """Return the message of the stream that a frame completes, or what is wrong with the frame."""
        try:
            if self._reader is None:
                raise RemoteProtocolError("a daemon must not send records before a stream is opened, this one did")
            message = lane_reader.take(frame, self._reader)
        except RemoteProtocolError as error:
            return self.misread(lane_reader, error)
        if message is not None:
            self.moved_ns = self._out.now_ns
        return message

    def misread(self, lane_reader: LaneReader, error: RemoteProtocolError) -> RemoteProtocolError:
        """Replace the lane; return the error with the daemon's name."""
        self.lanes.replace(lane_reader)
        peer = str(self._contact.peer)
        if peer in str(error):
            return error
        named = RemoteProtocolError(f"the daemon at {peer}: {error}")
        named.__cause__ = error
        return named
