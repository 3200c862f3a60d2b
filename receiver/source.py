"""The daemons as the receive thread sees them: the conversation with each, and the lanes it opened.

Covers: connecting and closing lanes, reading a message off one and understanding its header, parting from a daemon that leaves,
what is known of all of them together. Does not cover: deciding when (emlio.receiver.engine).
"""

from collections.abc import Iterator

import numpy as np

from emlio.errors import EmlioError, PeerLostError
from emlio.keys.curve import KeyPair
from emlio.keys.key import SecretKey
from emlio.receiver.agreement import Holding
from emlio.receiver.contact import Contact
from emlio.receiver.intake import Message
from emlio.receiver.lanes import are_enough, lanes_each, lanes_to_reserve
from emlio.receiver.names import Target
from emlio.receiver.reorder import LaneOrder
from emlio.receiver.retry import Retry
from emlio.receiver.transport import (
    ControlLink,
    Credentials,
    Lane,
    LinkEvent,
    Network,
)
from emlio.receiver.trust import Trust
from emlio.session.instructions import LanesReserved, StreamOpened
from emlio.session.rank import RankSession
from emlio.session.states import RankState
from emlio.socket_buffers import receive_buffer_bytes, send_buffer_bytes
from emlio.units import format_duration
from emlio.wire.data import DataFrame, decode_data_header, split_data_frame
from emlio.wire.protection import CLEAR, CURVE
from emlio.wire.seal import CIPHERS, TAG_BYTES, LaneSeal, admission_token, lane_key

__all__ = ["Source", "Sources", "Tap"]


class Tap:
    """A lane, the order its messages must have, what opens them, and one that may be held back."""

    def __init__(self, lane: Lane, order: LaneOrder, seal: LaneSeal | None) -> None:
        self.lane = lane
        self.order = order
        self.held: Message | None = None
        self._seal = seal
        self._apart: DataFrame | None = None  # the header of a message whose payload comes in the next frame

    def read(self) -> Message | None:
        """The lane's next message, or None when no whole one is waiting.

        Raises:
            RemoteProtocolError: it is not the message that must come next, or it was changed.
        """
        while (frame := self.lane.receive()) is not None:
            if self._apart is not None:
                parts, self._apart = self._apart, None
                parts.check_apart(frame)
                return self._open(parts.header, frame)
            parts = split_data_frame(frame)
            if parts.payload is not None:
                return self._open(parts.header, parts.payload)
            self._apart = parts
        return None

    def _open(self, head: bytes, payload: memoryview) -> Message:
        seal = self._seal
        header = decode_data_header(head, len(payload) - (TAG_BYTES if seal is not None else 0))
        self.order.check(header)
        if seal is not None:
            payload = seal.open_here(header.lane_sequence, head, payload)
        return Message(header=header, payload=payload, sizes=header.record_sizes())


class Source:
    """A daemon. Used by the receive thread only.

    Attributes:
        number: its stream's number.
        machine: the conversation.
        peer: what it is called.
        contact: how it is called.
        holding: what it says it holds, once it has.
        agreed: whether it agreed to the plan.
        owned: (shards,) which shards it sends.
        taps: its lanes.
        received_bytes: taken from them.
        called_ns: when it was first.
        moved_ns: when it last sent something, or was asked to.
        furthest: the epoch and place of the message of its stream that lies furthest ahead.
        patience_ns: how long a batch may wait for it, while it says it is well, before its stream is opened anew.
        mends: how often that was done since it last sent something new.
        farewell, farewell_ns: why and when it left, while messages of it are still on their way.
        retry: since it was lost, until it agrees to the plan again.
        trouble: the last loss, until it is clear that it is over.
        unfit: why it is not asked for anything, while others can be.
        late: it was added when the plan stood.
        leaving: it was taken off the list.
        in_vain: how often it said nothing to an order, or after it, since it sent anything that was missing.
    """

    def __init__(
        self, number: int, target: Target, machine: RankSession, network: Network, trust: Trust, now_ns: int
    ) -> None:
        self.number = number
        self.peer = target.peer
        self.machine = machine
        self._network = network
        self._trust = trust
        self.contact = Contact(target, network, trust, now_ns)
        self.called_ns = now_ns
        self.retry: Retry | None = None
        self.unfit: EmlioError | None = None
        self.holding: Holding | None = None
        self.agreed = False
        self.owned = np.zeros(0, np.bool_)
        self.taps: list[Tap] = []
        self.received_bytes = 0
        self.farewell: EmlioError | None = None
        self.farewell_ns = 0
        self.moved_ns = 0
        self.furthest = (0, -1)
        self.patience_ns = 0
        self.mends = 0
        self.trouble: Retry | None = None
        self.late = False
        self.leaving = False
        self.in_vain = 0
        self._reserved: list[Lane] = []
        self._reserved_for = 0

    @property
    def peer_name(self) -> str:
        """Its address in words, which is its name in the agreement."""
        return str(self.peer)

    @property
    def is_here(self) -> bool:
        """Whether it can be asked for a stream."""
        return self.agreed and self.retry is None and self.unfit is None and self.farewell is None

    @property
    def is_heard(self) -> bool:
        """Whether it has answered in the conversation that goes on."""
        return self.machine.welcome is not None and not self.link.closed and self.machine.state is not RankState.OVER

    @property
    def holds_back(self) -> bool:
        """Whether it could send more than there is room for."""
        return any(tap.held is not None for tap in self.taps)

    @property
    def link(self) -> ControlLink:
        """The control connection."""
        return self.contact.link

    def call_again(self, machine: RankSession, now_ns: int) -> None:
        """Begin a new conversation on a new connection, at the next address if the one in use did not answer."""
        same = self.machine.welcome is not None
        self.machine = machine
        self.agreed = False
        self.farewell = None
        self.contact.call(now_ns, same=same)

    def clearest(self, news: LinkEvent) -> LinkEvent:
        """See `Contact`."""
        return self.contact.clearest(news, agreed=self.agreed)

    def clearer(self, error: EmlioError) -> EmlioError:
        """The same, or why it could not be called at all."""
        obstacle = self.obstacle() if isinstance(error, PeerLostError) else ""
        return PeerLostError(f"the daemon at {self.peer} must be reachable: {obstacle}") if obstacle else error

    def obstacle(self) -> str:
        """What keeps it from being called, in words; "" where it was called and does not answer."""
        return self.contact.obstacle() if self.machine.welcome is None else ""

    def may_be_silent_ns(self, first_ns: int, longest_ns: int) -> int:
        """How long it may be silent. One that is lost again before it sent anything may only be slow: it gets twice as long."""
        return max(first_ns, min(first_ns << min(max(self.in_vain - 1, 0), 20), longest_ns))

    def hang_up(self) -> None:
        """The conversation is over: disconnect."""
        self.agreed = False
        self.close(0)

    def lanes_to_reserve(self, daemons: int, ranks: int) -> int:
        """How many would be worth having before the plan is agreed; 0 where none, or where they were asked for.

        Args:
            daemons: how many there are, this one with them.
            ranks: of the job.
        """
        round_trip_ns = self.link.take_round_trip_ns()
        if round_trip_ns is None or self.machine.state is not RankState.GREETING:
            return 0
        lanes = lanes_to_reserve(round_trip_ns, send_buffer_bytes(), receive_buffer_bytes())
        self._reserved_for = lanes_each(lanes, daemons=daemons, ranks=ranks)
        return self._reserved_for

    def lanes_to_order(self, needed: int, most: int) -> int:
        """How many the next stream asks for: those that are ready, where they do, or what it needs."""
        ready = self.machine.reserved_lanes
        return ready if ready and are_enough(self._reserved_for, needed) else min(needed, most)

    def reserve(self, reserved: LanesReserved) -> None:
        """Connect to lanes that no stream has yet. What comes over them waits in their sockets."""
        for number, port in enumerate(reserved.ports):
            lane = self._lane(port, number, reserved.secret)
            self._reserved.append(lane)
            self._network.forget(lane)

    def close_reserved(self) -> None:
        """Disconnect from those: no stream gets them."""
        reserved, self._reserved = self._reserved, []
        for lane in reserved:
            lane.close()

    def _lane(self, port: int, number: int, secret: bytes) -> Lane:
        way = self.contact.way
        endpoint, credentials = way.endpoint(port), self._trust.credentials(way)
        if credentials is not None and self._protection == CURVE:
            own = KeyPair.of(SecretKey(raw=lane_key(secret, number)))
            return self._network.lane(endpoint, b"", Credentials(pair=own, daemon=credentials.daemon))
        return self._network.lane(endpoint, admission_token(secret, number) if secret else b"", None)

    @property
    def _protection(self) -> str:
        return self.machine.welcome.protection if self.machine.welcome is not None else CLEAR

    def connect(self, opened: StreamOpened) -> None:
        """Connect to the lanes of a stream, if they are not those that are connected; those of the one before are closed."""
        self.close_lanes()
        if not opened.reserved:
            self.close_reserved()
        reserved, self._reserved = self._reserved, []
        self.received_bytes, self.furthest = 0, (0, -1)
        protection = self._protection
        for number, port in enumerate(opened.ports):
            label = f"daemon {self.peer} lane {number}"
            order = LaneOrder(session=self.machine.session, stream=opened.stream, lane=number, label=label)
            seal = None
            if protection in CIPHERS:
                seal = LaneSeal(cipher=protection, secret=opened.secret, lane=number)
            lane = reserved[number] if reserved else self._lane(port, number, opened.secret)
            self.taps.append(Tap(lane, order, seal))
            self._network.remember(lane)

    def hold(self, tap: Tap, message: Message) -> None:
        """There is no room for it: keep it, and read no more from this lane."""
        tap.held = message
        self._network.forget(tap.lane)

    def release(self, tap: Tap) -> None:
        """The message held was taken: read on."""
        tap.held = None
        self._network.remember(tap.lane)

    def part(self) -> None:
        """Raise the farewell of a daemon that said goodbye, once all it sent is here."""
        if self.farewell is None:
            return
        if not self.taps or self.received_bytes >= self.machine.report.sent_bytes:
            raise self.farewell

    def describe(self, now_ns: int) -> str:
        """How it is doing, in words."""
        if self.retry is not None:
            since = f", since then: {self.retry.since}" if self.retry.since is not None else ""
            return f"{self.peer} lost {format_duration(now_ns - self.retry.lost_ns)} ago: {self.retry.error}{since}"
        silence = format_duration(self.machine.silence_ns(now_ns))
        return f"{self.peer} {self.machine.state.value}, {silence} since it last spoke"

    def close_lanes(self) -> None:
        """Disconnect from all lanes."""
        for tap in self.taps:
            tap.held = None
            self._network.forget(tap.lane)
            tap.lane.close()
        self.taps = []

    def close(self, linger_ms: int) -> None:
        """Disconnect, after giving last words a moment to leave."""
        self.close_lanes()
        self.close_reserved()
        if not self.link.closed:
            self._network.forget(self.link)
            self.link.close(linger_ms)


class Sources:
    """All daemons of one loader, in the order of the address."""

    def __init__(self) -> None:
        self._all: list[Source] = []

    def __iter__(self) -> Iterator[Source]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def add(self, source: Source) -> None:
        """One more."""
        self._all.append(source)

    def remove(self, source: Source) -> None:
        """One less."""
        self._all = [other for other in self._all if other is not source]

    def number(self, number: int) -> Source | None:
        """The one of this number, if it is a daemon's."""
        return next((source for source in self._all if source.number == number), None)

    @property
    def lanes(self) -> int:
        """Connections for data."""
        return sum(len(source.taps) for source in self._all)

    def readable(self) -> list[ControlLink | Lane]:
        """What is to be waited for."""
        links: list[ControlLink | Lane] = [source.link for source in self._all if not source.link.closed]
        return links + [tap.lane for source in self._all for tap in source.taps if tap.held is None]

    def deadline_ns(self) -> int | None:
        """When the first of the conversations must be looked after at the latest."""
        deadlines = [source.machine.deadline_ns() for source in self._all]
        deadlines += [source.contact.deadline_ns() for source in self._all]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def reports(self) -> tuple[int, int]:
        """Nanoseconds that the daemons' streams were blocked by full lanes, and starved by slow reading."""
        machines = [source.machine.report for source in self._all]
        return sum(report.blocked_ns for report in machines), sum(report.starved_ns for report in machines)

    def round_trip_ns(self) -> int | None:
        """The longest of the shortest round trips to each daemon."""
        found = [source.machine.round_trip_ns for source in self._all]
        return max((value for value in found if value is not None), default=None)

    def protection(self) -> str:
        """What the daemons protect data by, each way once."""
        welcomes = [source.machine.welcome for source in self._all]
        return ", ".join(dict.fromkeys(welcome.protection for welcome in welcomes if welcome is not None))

    def describe(self, now_ns: int) -> str:
        """How each is doing, in words."""
        return ", ".join(source.describe(now_ns) for source in self._all)
