"""A daemon without sockets, threads and files: sessions by the real state machine, messages by the plan.

Covers: answering, streams that are ordered and replaced, lanes on ports that are used again at once and let in whom the real gate
admits, leaving, dying. Does not cover: when that happens (simulated_job); a guest that has to knock again after its lane was cut:
here it stays that lane's guest.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count

import numpy as np
import numpy.typing as npt
from simulated_network import SimulatedControl, SimulatedLane, SimulatedNetwork

from emlio.daemon.gate import Gate, Knock
from emlio.daemon.lane_guard import LaneGuard
from emlio.planner.plan import Plan, walk
from emlio.session.daemon import DaemonSession
from emlio.session.instructions import (
    DaemonInstruction,
    Ended,
    FreeLanes,
    Judge,
    ReserveLanes,
    Send,
    StartStream,
    StopStream,
)
from emlio.tfrecord import frame
from emlio.wire.control import Hello, Open, Ping, Pong, Refused, ShardRow, Welcome, decode_control, encode_control
from emlio.wire.data import DATA_VERSION, DataHeader, data_tail, encode_data_header, header_apart, ids_checksum
from emlio.wire.protection import CLEAR

__all__ = ["SEND_BUFFER_BYTES", "SimulatedDaemon", "framed"]

SEND_BUFFER_BYTES = 4 << 20

_HEARTBEAT_NS = 2_000_000_000
_FIRST_PORT = 6000
_QUEUE = 3  # messages that one lane holds
_APART = 0.3  # of messages: those whose payload comes in a frame of its own


@cache
def framed(identity: int, size: int) -> bytes:
    """A record: its number, and as many bytes more."""
    return frame(identity.to_bytes(8, "little") + bytes(size))


@dataclass(slots=True, kw_only=True, eq=False)
class _Lane:
    """The daemon's end of a lane.

    Attributes:
        port: where it is bound.
        door: its name at the gate.
        guests: the ranks' ends that it let in; the gate sees to it that there is one at most.
    """

    port: int
    door: str
    guests: list[SimulatedLane] = field(default_factory=list[SimulatedLane])


@dataclass(slots=True, kw_only=True, eq=False)
class _Lanes:
    """Those of one stream, bound when it is ordered or before; and the secret that their tokens follow from."""

    each: list[_Lane]
    secret: bytes

    @property
    def ports(self) -> list[int]:
        return [lane.port for lane in self.each]


@dataclass(slots=True, kw_only=True)
class _Stream:
    """What a session pushes."""

    session: int
    order: Open
    lanes: _Lanes
    places: Iterator[tuple[int, int, int]]  # epoch, slot, id
    sequences: list[int]
    sent_bytes: int = 0
    next: tuple[int, int, int] | None = None


@dataclass(slots=True, kw_only=True)
class _Client:
    machine: DaemonSession
    stream: _Stream | None = None
    reserved: _Lanes | None = None

    @property
    def lanes(self) -> list[_Lane]:
        """All that are bound for it."""
        streams = self.stream.lanes.each if self.stream is not None else []
        return streams + (self.reserved.each if self.reserved is not None else [])


@dataclass(slots=True, kw_only=True)
class SimulatedDaemon:
    """One process, and those that follow it at the same address.

    Attributes:
        host: where it listens.
        plan: by which it works, once a rank offers it.
        rows: the shards it holds; their numbers in the catalog are `held`.
        size: bytes that each record has more than its number.
        draw: what is left to chance.
        alive: whether the process runs.
        frozen_until: the step from which on it does something again.
        opened: how many streams it began.
        portless: whether no port is free for another.
        reserved: how many lanes were last bound before there was a stream for them.
        served_ahead: how many streams got such lanes.
    """

    host: str
    plan: Plan
    rows: tuple[ShardRow, ...]
    held: frozenset[int]
    size: int
    draw: random.Random
    alive: bool = True
    frozen_until: int = 0
    opened: int = 0
    portless: bool = False
    reserved: int = 0
    served_ahead: int = 0
    _clients: dict[int, _Client] = field(default_factory=dict[int, _Client])
    _sessions: int = 0
    _gate: Gate = field(default_factory=lambda: Gate(None))
    _doors: Iterator[int] = field(default_factory=count)

    @property
    def control_endpoint(self) -> str:
        """Where ranks say hello."""
        return f"tcp://{self.host}:5555"

    def die(self) -> None:
        """Be gone; another process may follow."""
        self.alive = False
        self._forget_clients()

    def leave(self, network: SimulatedNetwork) -> None:
        """Say goodbye to all and how much is under way, then be gone."""
        for identity, client in list(self._clients.items()):
            if client.stream is not None:
                self._send(network, identity, Pong(nonce=0, sent_bytes=client.stream.sent_bytes))
            self._carry_out(network, identity, client.machine.drain(), network.clock.monotonic_ns())
        self.die()

    # ---- control --------------------------------------------------------------------------------------------------

    def hear(self, network: SimulatedNetwork) -> None:
        """Answer what has arrived; forget who is silent."""
        now_ns = network.clock.monotonic_ns()
        for control in self._mine(network):
            for data in control.up.arrived():
                self._answer(network, control.identity, data, now_ns)
        for identity, client in list(self._clients.items()):
            self._carry_out(network, identity, client.machine.tick(now_ns), now_ns)
        self._let_in(network, now_ns)

    def _let_in(self, network: SimulatedNetwork, now_ns: int) -> None:
        """Ask the gate about each of the rank's lanes that knocks; one that is turned away knocks again."""
        for lane in [lane for client in self._clients.values() for lane in client.lanes]:
            endpoint = f"tcp://{self.host}:{lane.port}"
            for guest in network.lanes:
                if guest.endpoint == endpoint and guest not in lane.guests:
                    knock = Knock(door=lane.door, address=self.host, token=guest.token)
                    if self._gate.judge(knock, now_ns).admitted:
                        lane.guests.append(guest)

    def _mine(self, network: SimulatedNetwork) -> list[SimulatedControl]:
        return [control for control in network.controls if control.endpoint == self.control_endpoint]

    def _answer(self, network: SimulatedNetwork, identity: int, data: bytes, now_ns: int) -> None:
        message = decode_control(data)
        client = self._clients.get(identity)
        if isinstance(message, Hello) and client is None:
            self._greet(network, identity, message, now_ns)
        elif client is None:
            self._send(network, identity, Refused(code="no-session", text="there is no such session here"))
        elif isinstance(message, Ping) and client.stream is not None:
            client.machine.receive(message, now_ns)
            self._send(network, identity, Pong(nonce=message.nonce, sent_bytes=client.stream.sent_bytes))
        else:
            self._carry_out(network, identity, client.machine.receive(message, now_ns), now_ns)

    def _greet(self, network: SimulatedNetwork, identity: int, hello: Hello, now_ns: int) -> None:
        # The rank that says hello again takes its own place, whether its old session is noticed or not.
        if self.draw.random() < 0.5:
            self._forget_clients()
        self._sessions += 1
        welcome = Welcome(
            session=self._sessions,
            daemon=self.host,
            software="0.1.0",
            shards=len(self.rows),
            records=sum(row.records for row in self.rows),
            missing=[],
            missing_count=0,
            heartbeat_timeout_ns=_HEARTBEAT_NS,
            send_buffer_bytes=SEND_BUFFER_BYTES,
            max_lanes=64,
        )
        machine = DaemonSession(
            hello=hello, welcome=welcome, rows=self.rows, heartbeat_timeout_ns=_HEARTBEAT_NS, now_ns=now_ns
        )
        self._clients[identity] = _Client(machine=machine)
        self._carry_out(network, identity, machine.begin(), now_ns)

    def _send(self, network: SimulatedNetwork, identity: int, message: Pong | Refused) -> None:
        for control in self._mine(network):
            if control.identity == identity:
                control.down.send(encode_control(message))

    def _carry_out(
        self, network: SimulatedNetwork, identity: int, instructions: Sequence[DaemonInstruction], now_ns: int
    ) -> None:
        client = self._clients[identity]
        machine = client.machine
        for instruction in instructions:
            match instruction:
                case Send(message=message):
                    for control in self._mine(network):
                        if control.identity == identity:
                            control.down.send(encode_control(message))
                case Judge(offer=offer, rows=rows):
                    if offer.digest != self.plan.digest:
                        answer = machine.refuse("plan-refused", "another digest")
                    else:
                        answer = (
                            machine.agree() if rows is not None or self.draw.random() < 0.5 else machine.ask_catalog()
                        )
                    self._carry_out(network, identity, answer, now_ns)
                case ReserveLanes():
                    lanes = _Lanes(each=[], secret=b"") if self.portless else self._bind(now_ns)
                    client.reserved = lanes if lanes.each else None
                    self.reserved = len(lanes.each)
                    self._carry_out(network, identity, machine.reserved(lanes.ports, lanes.secret), now_ns)
                case FreeLanes():
                    self._close(client.reserved)
                    client.reserved = None
                case StartStream(order=order):
                    self._carry_out(network, identity, self._start(client, order, now_ns), now_ns)
                case StopStream():
                    self._stop(client)
                case Ended():
                    self._forget(identity)
                case _:
                    raise AssertionError(f"nobody asks for {instruction}")

    def _start(self, client: _Client, order: Open, now_ns: int) -> list[DaemonInstruction]:
        bits = np.unpackbits(np.frombuffer(order.owned, np.uint8), bitorder="little")
        owned = bits[: len(self.plan.catalog.shards)].astype(np.bool_)
        if not owned.any() or not set(np.flatnonzero(owned).tolist()) <= self.held:
            return client.machine.refuse("bad-order", "a stream must be of shards held here, and of one at least")
        if self.portless and self.opened:
            return client.machine.refuse("no-lane", "each lane needs a port, none is free")
        self.served_ahead += client.reserved is not None
        lanes, client.reserved = client.reserved or self._bind(now_ns), None
        client.stream = _Stream(
            session=client.machine.session,
            order=order,
            lanes=lanes,
            places=_places(self.plan, client.machine.hello.rank, order, owned),
            sequences=[0] * len(lanes.each),
        )
        self.opened += 1
        return client.machine.opened(order.stream, lanes.ports, lanes.secret)

    def _bind(self, now_ns: int) -> _Lanes:
        """Lanes on the first ports that are free, each for the one guest that has its token."""
        taken = {lane.port for client in self._clients.values() for lane in client.lanes}
        free = [port for port in range(_FIRST_PORT, _FIRST_PORT + 1000) if port not in taken]
        guard = LaneGuard.draw(CLEAR)
        lanes: list[_Lane] = []
        for number, port in enumerate(free[: self.draw.randint(1, 3)]):
            lanes.append(_Lane(port=port, door=f"lane {next(self._doors)}"))
            self._gate.expect(lanes[-1].door, guard.guest(number, now_ns))
        return _Lanes(each=lanes, secret=guard.secret)

    def _close(self, lanes: _Lanes | None) -> None:
        for lane in lanes.each if lanes is not None else []:
            self._gate.forget(lane.door)

    def _stop(self, client: _Client) -> None:
        if client.stream is not None:
            self._close(client.stream.lanes)
            client.stream = None

    def _forget(self, identity: int) -> None:
        client = self._clients.pop(identity, None)
        if client is not None:
            self._stop(client)
            self._close(client.reserved)

    def _forget_clients(self) -> None:
        for identity in list(self._clients):
            self._forget(identity)

    # ---- data -----------------------------------------------------------------------------------------------------

    def push(self, network: SimulatedNetwork, step: int) -> None:
        """Send a few messages over whichever lanes take them."""
        for client in self._clients.values():
            for _ in range(self.draw.randint(0, 2)):
                if client.stream is not None:
                    self._push(network, client.stream, step)

    def _push(self, network: SimulatedNetwork, stream: _Stream, step: int) -> None:
        lane = self.draw.randrange(len(stream.lanes.each))
        guests = stream.lanes.each[lane].guests
        pulls = [pull for pull in guests if not pull.closed and pull.cut_until <= step and len(pull.queue) < _QUEUE]
        first = stream.next or next(stream.places, None)
        if not pulls or first is None:
            stream.next = first
            return
        message, stream.next = [first], None
        for _ in range(self.draw.randint(0, 4)):
            following = next(stream.places, None)
            if following is None or following[0] != first[0]:
                stream.next = following
                break
            message.append(following)
        frames = [framed(identity, self.size) for _, _, identity in message]
        header = DataHeader(
            version=DATA_VERSION,
            session=stream.session,
            stream=stream.order.stream,
            epoch=first[0],
            lane=lane,
            lane_sequence=stream.sequences[lane],
            slot=first[1],
            count=len(message),
            ids_crc=ids_checksum(np.array([identity for _, _, identity in message], np.int64)),
            sizes=np.array([len(data) for data in frames], "<u4").tobytes(),
        )
        stream.sequences[lane] += 1
        payload = b"".join(frames)
        stream.sent_bytes += len(payload)
        head, queue = encode_data_header(header), self.draw.choice(pulls).queue
        if self.draw.random() < _APART:
            queue += (header_apart(head, memoryview(payload)), payload)
        else:
            queue.append(payload + data_tail(head))


def _places(plan: Plan, rank: int, order: Open, owned: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int, int]]:
    """What a stream owes from its order on: epoch, slot and id, for more epochs than any test looks at."""
    origin, slot = order.origin, order.slot
    for epoch in range(order.epoch, order.epoch + 20):
        for slots, shards, records in walk(plan.epoch(epoch, origin), rank, slot, owned):
            ids = plan.catalog.bases[shards] + records
            for place, identity in zip(slots.tolist(), ids.tolist(), strict=True):
                yield epoch, place, identity
        origin, slot = 0, 0
