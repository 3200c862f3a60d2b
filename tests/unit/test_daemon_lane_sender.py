"""The sending thread's body, turn by turn, over a socket that does as it is told."""

import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
from msgspec import structs

from emlio.checksum import crc32c
from emlio.daemon.lanes.group import LaneGroup
from emlio.daemon.lanes.sender import LaneSender
from emlio.daemon.network.lane_socket import Connection, LaneSocket, Outcome
from emlio.daemon.reading.stream import Outgoing, Stream
from emlio.reading.message_planner import MessagePlan
from emlio.wire.credit import Credit, encode_credit
from emlio.wire.data import DATA_VERSION, DataHeader, encode_data_header
from emlio.wire.seal import lane_group, lane_name
from emlio_testing.daemon_streams import MESSAGE
from emlio_testing.data_messages import read_data

SECRET = b"s" * 32
FRAME = MESSAGE + 200
FAR = 1 << 61  # beyond what the machine's clock says
NO_END = Credit(read_bytes=0, stream=1, allowed_bytes=1 << 60, epoch=1 << 40)


@dataclass
class Said:
    """A credit without a connection."""

    name: bytes
    data: bytes

    def connection(self) -> None:
        return None


@dataclass
class Socket:
    """Notes frames by lane; each send comes out as `outcomes` say, then well."""

    outcomes: deque[Outcome] = field(default_factory=deque[Outcome])
    frames: dict[bytes, list[bytes]] = field(default_factory=dict[bytes, list[bytes]])
    says: deque[Said] = field(default_factory=deque[Said])
    ended: set[int] = field(default_factory=set[int])

    def send(self, name: bytes, frame: Any) -> Outcome:
        outcome = self.outcomes.popleft() if self.outcomes else Outcome.SENT
        if outcome is Outcome.SENT:
            self.frames.setdefault(name, []).append(bytes(frame))
        return outcome

    def receive(self) -> Said | None:
        return self.says.popleft() if self.says else None

    def is_connected(self, connection: Connection) -> bool:
        return connection.descriptor not in self.ended

    def connections(self) -> Iterator[Connection]:
        return iter(())

    def close(self) -> None: ...


def turn(sender: LaneSender, now_ns: int) -> None:
    """Orders, due timers, and one turn of each stream that can go on."""
    sender._obey()
    while (action := sender._timers.take(now_ns)) is not None:
        action()
    for _ in range(len(sender._ready)):
        sender._take_turn(*sender._ready.take(), now_ns)


@contextmanager
def sender_over(socket: Socket) -> Iterator[LaneSender]:
    sender = LaneSender(
        cast("LaneSocket", socket),
        on_failure=lambda failure: pytest.fail(str(failure)),
        on_fault=lambda session, error: pytest.fail(f"{session}: {error}"),
    )
    sender.register(LaneGroup(session=7, secret=SECRET, limit_bytes=9 * FRAME))
    try:
        yield sender
    finally:
        sender.close()


@dataclass
class Message:
    """What a header tells of a message."""

    slot: int
    size_bytes: int = MESSAGE
    epoch: int = 0
    count: int = 2


class Ready:
    """A stream of six messages, read already."""

    session, stream, label, job, parked, closed, ended = 7, 1, "session 7", "job", False, False, False

    def __init__(self, *, apart: bool) -> None:
        self._messages = deque(self._read(slot, apart=apart) for slot in range(6))

    def _read(self, slot: int, *, apart: bool) -> Outgoing:
        header = DataHeader(
            version=DATA_VERSION,
            session=self.session,
            stream=self.stream,
            number=slot,
            epoch=0,
            slot=slot,
            count=2,
            ids_crc=0,
            sizes=np.full(2, MESSAGE // 2, "<u4").tobytes(),
        )
        head = encode_data_header(header)
        return Outgoing(
            message=cast("MessagePlan", Message(slot)),
            head=head,
            head_crc=crc32c(head),
            memory=np.full(FRAME, slot, np.uint8),
            payload_bytes=MESSAGE,
            apart=apart,
        )

    def first(self) -> Outgoing | None:
        return self._messages[0] if self._messages else None

    def sent(self) -> None:
        self._messages.popleft()


def test_a_lane_that_speaks_in_the_turn_in_which_it_is_admitted_is_known() -> None:
    socket = Socket()
    with sender_over(socket) as sender:
        sender._obey()
        sender.admitted(lane_group(SECRET), 0)
        socket.says.append(Said(lane_name(SECRET, 0), encode_credit(Credit(read_bytes=0))))
        sender._listen()
        assert sender.strangers == 0
        socket.says.append(Said(lane_name(SECRET, 1), encode_credit(Credit(read_bytes=0))))
        sender._listen()
        assert sender.strangers == 1


def slots_of(frames: list[bytes]) -> list[int]:
    """The messages that these frames hold, in order and numbered without gaps."""
    left, slots = deque(frames), list[int]()
    while left:
        message = read_data(left.popleft)
        assert message.lane_sequence == len(slots)
        assert set(message.payload) == {message.header.slot}
        slots.append(message.header.slot)
    return slots


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("before", range(6))
@pytest.mark.parametrize("times", [1, 3])
def test_a_full_lane_is_tried_again_and_has_first_what_it_is_owed(apart: bool, before: int, times: int) -> None:
    socket = Socket(outcomes=deque([Outcome.SENT] * before + [Outcome.FULL] * times))
    with sender_over(socket) as sender:
        sender.admitted(lane_group(SECRET), 0)
        stream = cast("Stream", Ready(apart=apart))
        sender._obey()
        socket.says.append(Said(lane_name(SECRET, 0), encode_credit(Credit(read_bytes=0))))
        sender._listen()
        sender.attach(stream, lane_group(SECRET), lanes=1, credit=NO_END)
        for second in range(10):
            turn(sender, FAR + second * 1_000_000_000)
        assert slots_of(socket.frames[lane_name(SECRET, 0)]) == list(range(6))
        assert sender.totals(stream).sent_bytes == 6 * MESSAGE


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("before", range(4))
def test_a_message_whose_lane_is_gone_leaves_over_another(apart: bool, before: int) -> None:
    socket = Socket(outcomes=deque([Outcome.SENT] * before + [Outcome.GONE]))
    with sender_over(socket) as sender:
        for number in range(2):
            sender.admitted(lane_group(SECRET), number)
        stream = cast("Stream", Ready(apart=apart))
        sender._obey()
        for number in range(2):
            socket.says.append(Said(lane_name(SECRET, number), encode_credit(Credit(read_bytes=0))))
        sender._listen()
        sender.attach(stream, lane_group(SECRET), lanes=2, credit=NO_END)
        for second in range(10):
            turn(sender, FAR + second * 1_000_000_000)
        assert sender.lanes_lost == 1
        assert stream.first() is None
        assert sender.totals(stream).sent_bytes == 6 * MESSAGE
        kept = next(name for name in map(partial(lane_name, SECRET), range(2)) if name in sender._table._names)
        assert set(slots_of(socket.frames[kept])) >= set(range(before // (2 if apart else 1) + 1, 6))


def test_a_stream_stops_once_its_rank_has_read_all_and_not_if_credit_comes_at_that_moment() -> None:
    socket, label, lane = Socket(), lane_group(SECRET), lane_name(SECRET, 0)
    stream = cast("Stream", Ready(apart=False))
    with sender_over(socket) as sender:

        def hear(*, upto: int) -> None:
            read_bytes = sum(map(len, socket.frames.get(lane, [])))
            socket.says.append(
                Said(lane, encode_credit(structs.replace(NO_END, read_bytes=read_bytes, epoch=0, slot=upto)))
            )
            sender._listen()

        sender.admitted(label, 0)
        sender._obey()
        hear(upto=0)
        sender.attach(stream, label, lanes=1, credit=structs.replace(NO_END, epoch=0, slot=2))
        turn(sender, FAR)
        assert slots_of(socket.frames[lane]) == [0, 1]
        assert not sender.is_settled(stream, label), "the rank has not read them"
        hear(upto=3)
        assert sender.is_settled(stream, label), "for the moment until its turn"
        assert not sender.stops(stream, label)
        turn(sender, FAR)
        assert slots_of(socket.frames[lane]) == [0, 1, 2]
        assert not sender.is_settled(stream, label)
        hear(upto=3)
        turn(sender, FAR)
        assert [sender.is_settled(stream, label), sender.stops(stream, label)] == [True, False]
        sender._obey()
        assert sender.stops(stream, label)
        hear(upto=6)
        turn(sender, FAR)
        assert slots_of(socket.frames[lane]) == [0, 1, 2], "nothing is sent any more"
        assert sender.is_settled(stream, label)


class SaidOver(Said):
    """A credit that came by a connection."""

    def connection(self) -> Connection:  # type: ignore[override]
        return Connection(descriptor=self.name[1], peer=("::1", self.name[1]))


def test_a_full_lane_that_has_ended_is_lost_once_another_is_admitted() -> None:
    """Nothing is sent to a full lane, so sending does not tell. It would count as unread for ever, and as one of the newest."""
    socket, label = Socket(), lane_group(SECRET)
    names = [lane_name(SECRET, number) for number in range(2)]
    with sender_over(socket) as sender:
        sender.admitted(label, 0)
        socket.says.append(SaidOver(names[0], encode_credit(Credit(read_bytes=0))))
        sender._obey()
        sender._listen()
        sender.attach(cast("Stream", Ready(apart=False)), label, lanes=1, credit=NO_END)
        turn(sender, 0)
        turn(sender, 0)
        assert sender.unread_bytes(label)
        socket.ended.add(names[0][1])
        sender.admitted(label, 1)
        socket.says.append(SaidOver(names[1], encode_credit(Credit(read_bytes=0))))
        sender._obey()
        sender._listen()
        turn(sender, FAR)
        assert not sender.unread_bytes(label)
        assert sender.lanes_lost == 1


class Unready(Socket):
    """No lane is connected; tries are counted by lane."""

    def __init__(self) -> None:
        super().__init__()
        self.tries: Counter[bytes] = Counter()

    def send(self, name: bytes, frame: Any) -> Outcome:
        self.tries[name] += 1
        return Outcome.GONE


def test_lanes_that_never_come_up_take_a_part_of_the_threads_time_however_many_they_are() -> None:
    socket, elapsed_ns = Unready(), 400_000_000
    secrets = [bytes((number,)) * 32 for number in range(40)]
    with sender_over(socket) as sender:
        for number, secret in enumerate(secrets):
            sender.register(LaneGroup(session=100 + number, secret=secret, limit_bytes=9 * FRAME))
            sender.attach(cast("Stream", Ready(apart=False)), lane_group(secret), lanes=64, credit=NO_END)
            for lane in range(64):
                sender.admitted(lane_group(secret), lane)
        sender._obey()
        begun_ns = time.monotonic_ns()
        for now_ns in range(begun_ns, begun_ns + elapsed_ns, 1_000_000):
            turn(sender, now_ns)
            sender.admitted(lane_group(secrets[0]), 64 + (now_ns - begun_ns) // 1_000_000)
    most = elapsed_ns // (4 * 5_000) + 2 * 64 * len(secrets)
    assert socket.tries.total() <= most
    for secret in secrets[1:]:
        assert all(socket.tries[lane_name(secret, lane)] >= 2 for lane in range(64)), "each is tried again and again"


def test_one_sessions_lanes_are_tried_every_two_milliseconds_at_first() -> None:
    socket = Unready()
    with sender_over(socket) as sender:
        sender.attach(cast("Stream", Ready(apart=False)), lane_group(SECRET), lanes=64, credit=NO_END)
        for lane in range(64):
            sender.admitted(lane_group(SECRET), lane)
        sender._obey()
        begun_ns = time.monotonic_ns()
        for now_ns in range(begun_ns, begun_ns + 300_000_000, 1_000_000):
            turn(sender, now_ns)
    assert min(socket.tries.values()) >= 100


@pytest.mark.parametrize(
    ("parked", "ended", "allowed_bytes", "waits"),
    [
        (False, False, 1 << 60, "starved"),
        (False, True, 1 << 60, ""),
        (True, False, 1 << 60, "blocked"),
        (False, False, 6 * MESSAGE, "blocked withheld"),
        (False, True, 6 * MESSAGE, "blocked withheld"),
    ],
    ids=["slow reading", "all is sent", "no memory", "no credit", "all is sent, no credit"],
)
def test_an_idle_stream_is_starved_only_where_it_could_send(
    parked: bool, ended: bool, allowed_bytes: int, waits: str
) -> None:
    with sender_over(Socket()) as sender:
        sender.admitted(lane_group(SECRET), 0)
        ready = Ready(apart=False)
        stream = cast("Stream", ready)
        sender._obey()
        cast("Any", sender._socket).says.append(Said(lane_name(SECRET, 0), encode_credit(Credit(read_bytes=0))))
        sender._listen()
        credit = Credit(read_bytes=0, stream=1, allowed_bytes=allowed_bytes, epoch=1 << 40)
        sender.attach(stream, lane_group(SECRET), lanes=1, credit=credit)
        for second in range(3):
            turn(sender, FAR + second * 1_000_000_000)
        assert stream.first() is None
        outlet, _ = sender._outlets[stream]
        ready.parked, ready.ended = parked, ended  # as the reading thread finds after the last turn
        sender._queue(*sender._outlets[stream])
        turn(sender, FAR + 10 * 1_000_000_000)
        before = outlet.totals_at(FAR + 10 * 1_000_000_000)
        after = outlet.totals_at(FAR + 15 * 1_000_000_000)  # the wait is not over, and is told of
        waited = {
            "starved": after.starved_ns - before.starved_ns,
            "blocked": after.blocked_ns - before.blocked_ns,
            "withheld": after.withheld_ns - before.withheld_ns,
        }
        assert waited == {name: 5_000_000_000 if name in waits else 0 for name in waited}
        sender._queue(*sender._outlets[stream])
        turn(sender, FAR + 15 * 1_000_000_000)
        assert outlet.totals == after
