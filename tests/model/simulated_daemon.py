"""A daemon without sockets, threads and files: sessions by the real state machine, messages by the plan.

Covers: answering, streams that are ordered, with the offer or after it, and replaced; sending what the two credits allow;
leaving, dying. Does not cover: its lanes (simulated_lanes), when that happens (simulated_job).
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt
from simulated_lanes import DataPort
from simulated_network import SimulatedControl, SimulatedNetwork

from emlio.checksum import crc32c
from emlio.daemon.lanes.group import LaneGroup
from emlio.planner.plan import Plan, walk
from emlio.session.credits import Place, StreamCredit
from emlio.session.daemon import DaemonSession
from emlio.session.instructions import DaemonInstruction, Ended, Judge, Send, StartStream, StopStream
from emlio.tfrecord import frame
from emlio.wire.control import Hello, Open, Ping, Pong, Refused, ShardRow, Welcome, decode_control, encode_control
from emlio.wire.data import DATA_VERSION, DataHeader, data_tail, encode_data_header, header_apart, ids_checksum

__all__ = ["MOST_RECORDS", "SimulatedDaemon", "framed"]

MOST_RECORDS = 5
"""Of one message."""

_SEND_BUFFER_BYTES = 4 << 20
_HEARTBEAT_NS = 2_000_000_000
_APART = 0.3  # of messages: those whose payload comes in a frame of its own


@cache
def framed(identity: int, size: int) -> bytes:
    """A record: its number, and as many bytes more."""
    return frame(identity.to_bytes(8, "little") + bytes(size))


@dataclass(slots=True, kw_only=True)
class _Message:
    """One that was read, and waits for credit and a lane."""

    place: Place
    head: bytes
    payload: bytes
    apart: bool

    def frames(self, lane: int, sequence: int) -> tuple[bytes, ...]:
        """As that lane carries it."""
        crc = crc32c(self.head)
        if self.apart:
            return header_apart(self.head, crc, memoryview(self.payload), lane, sequence), self.payload
        return (self.payload + data_tail(self.head, crc, lane, sequence),)


@dataclass(slots=True, kw_only=True)
class _Stream:
    """What a session pushes."""

    session: int
    order: Open
    credit: StreamCredit
    lanes: int
    places: Iterator[tuple[int, int, int]]  # epoch, slot, id
    number: int = 0
    sent_bytes: int = 0
    next: tuple[int, int, int] | None = None
    ready: _Message | None = None


@dataclass(slots=True, kw_only=True)
class _Client:
    machine: DaemonSession
    group: LaneGroup
    stream: _Stream | None = None


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
        opened: how many streams it began; those that rode with an offer are `ridden`.
        port: where lanes come in.
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
    ridden: int = 0
    port: DataPort = field(init=False)
    _clients: dict[int, _Client] = field(default_factory=dict[int, _Client])
    _sessions: int = 0

    def __post_init__(self) -> None:
        self.port = DataPort(self.host, self.draw)

    @property
    def control_endpoint(self) -> str:
        """Where ranks say hello."""
        return f"tcp://{self.host}:5555"

    def die(self, network: SimulatedNetwork, *, told: bool, loses: bool) -> None:
        """Be gone; another process may follow. The rank may be told that lanes ended, and lose what is under way there."""
        self.alive = False
        self.port.die(network, told=told, loses=loses)
        self._clients.clear()
        self.port = DataPort(self.host, self.draw)

    def leave(self, network: SimulatedNetwork) -> None:
        """Say goodbye to all and how much is under way, then be gone."""
        for identity, client in list(self._clients.items()):
            if client.stream is not None:
                self._send(network, identity, Pong(nonce=0, sent_bytes=client.stream.sent_bytes))
            self._carry_out(network, identity, client.machine.drain(), network.clock.monotonic_ns())
        self.die(network, told=True, loses=False)

    # ---- control --------------------------------------------------------------------------------------------------

    def hear(self, network: SimulatedNetwork) -> None:
        """Answer what has arrived; forget who is silent."""
        now_ns = network.clock.monotonic_ns()
        for control in self._mine(network):
            for data in control.up.arrived():
                self._answer(network, control.identity, data, now_ns)
        for identity, client in list(self._clients.items()):
            self._carry_out(network, identity, client.machine.tick(now_ns), now_ns)
        liars = self.port.listen(network, now_ns)
        for identity, client in list(self._clients.items()):
            if client.machine.session in liars:
                self._carry_out(network, identity, client.machine.refuse("protocol", "a credit must be true"), now_ns)

    def _mine(self, network: SimulatedNetwork) -> list[SimulatedControl]:
        return [control for control in network.controls if control.endpoint == self.control_endpoint]

    def _answer(self, network: SimulatedNetwork, identity: int, data: bytes, now_ns: int) -> None:
        message = decode_control(data)
        client = self._clients.get(identity)
        if isinstance(message, Hello) and client is None:
            self._greet(network, identity, message, now_ns)
        elif client is None:
            self._send(network, identity, Refused(code="no-session", text="no session on this connection"))
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
            send_buffer_bytes=_SEND_BUFFER_BYTES,
            max_lanes=64,
        )
        machine = DaemonSession(
            hello=hello, welcome=welcome, rows=self.rows, heartbeat_timeout_ns=_HEARTBEAT_NS, now_ns=now_ns
        )
        group = self.port.expect(self._sessions, hello.lane_secret)
        self._clients[identity] = _Client(machine=machine, group=group)
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
                case StartStream(order=order):
                    self._carry_out(network, identity, self._start(client, order, now_ns), now_ns)
                case StopStream():
                    client.stream = None
                case Ended():
                    self._forget(identity)
                case _:
                    raise AssertionError(f"nobody asks for {instruction}")

    def _start(self, client: _Client, order: Open, now_ns: int) -> list[DaemonInstruction]:
        bits = np.unpackbits(np.frombuffer(order.owned, np.uint8), bitorder="little")
        owned = bits[: len(self.plan.catalog.shards)].astype(np.bool_)
        if not owned.any() or not set(np.flatnonzero(owned).tolist()) <= self.held:
            return client.machine.refuse(
                "bad-order", "a stream must name at least one shard, and only shards of this daemon"
            )
        lanes = self.draw.randint(1, 3)
        client.stream = _Stream(
            session=client.machine.session,
            order=order,
            credit=client.group.open(order.stream, order.credit),
            lanes=lanes,
            places=_places(self.plan, client.machine.hello.rank, order, owned),
        )
        self.opened += 1
        self.ridden += client.machine.offer is not None and client.machine.offer.first is order
        return client.machine.opened(order.stream, lanes)

    def _forget(self, identity: int) -> None:
        client = self._clients.pop(identity, None)
        if client is not None:
            self.port.forget(client.group)

    def _forget_clients(self) -> None:
        for identity in list(self._clients):
            self._forget(identity)

    # ---- data -----------------------------------------------------------------------------------------------------

    def push(self) -> None:
        """Send a few messages, each when the credits allow it."""
        for client in self._clients.values():
            for _ in range(self.draw.randint(0, 3)):
                if client.stream is not None:
                    self._push(client.group, client.stream)

    def _push(self, group: LaneGroup, stream: _Stream) -> None:
        message = stream.ready = stream.ready or self._read(stream)
        if message is None or not stream.credit.allows(message.place, len(message.payload)):
            return
        lane = self.port.give(group, stream.lanes, message.frames(0, 0))
        if lane is None:
            return
        self.port.put(lane, message.frames(lane.number, lane.sequence))
        stream.credit.sent(len(message.payload))
        stream.sent_bytes += len(message.payload)
        stream.ready = None

    def _read(self, stream: _Stream) -> _Message | None:
        first = stream.next or next(stream.places, None)
        if first is None:
            return None
        records, stream.next = [first], None
        for _ in range(self.draw.randint(0, MOST_RECORDS - 1)):
            following = next(stream.places, None)
            if following is None or following[0] != first[0]:
                stream.next = following
                break
            records.append(following)
        frames = [framed(identity, self.size) for _, _, identity in records]
        header = DataHeader(
            version=DATA_VERSION,
            session=stream.session,
            stream=stream.order.stream,
            number=stream.number,
            epoch=first[0],
            slot=first[1],
            count=len(records),
            ids_crc=ids_checksum(np.array([identity for _, _, identity in records], np.int64)),
            sizes=np.array([len(data) for data in frames], "<u4").tobytes(),
        )
        stream.number += 1
        return _Message(
            place=first[:2],
            head=encode_data_header(header),
            payload=b"".join(frames),
            apart=self.draw.random() < _APART,
        )


def _places(plan: Plan, rank: int, order: Open, owned: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int, int]]:
    """What a stream owes from its order on: epoch, slot and id, for more epochs than any test looks at."""
    origin, slot = order.origin, order.slot
    for epoch in range(order.epoch, order.epoch + 20):
        for slots, shards, records in walk(plan.epoch(epoch, origin), rank, slot, owned):
            ids = plan.catalog.bases[shards] + records
            for place, identity in zip(slots.tolist(), ids.tolist(), strict=True):
                yield epoch, place, identity
        origin, slot = 0, 0
