"""The hand-over between reading and sending: its bound in bytes, its pauses, its end; and the threads on both sides."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any

import numpy as np
import pytest
import zmq

from emlio.clock import SystemClock
from emlio.daemon.config import Endpoint, PortRange
from emlio.daemon.gate import Gate
from emlio.daemon.lane_guard import LaneGuard
from emlio.daemon.readers import Readers
from emlio.daemon.sender import Sender
from emlio.daemon.stream import Outgoing, Stream, StreamFailure
from emlio.daemon.transport import Network
from emlio.errors import CorruptRecordError, DatasetError, EmlioError, TransportError
from emlio.planner.catalog import Catalog
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.reading.buffers import BufferPool
from emlio.reading.course import StreamPosition
from emlio.reading.feed import Feed
from emlio.reading.files import OpenShards
from emlio.reading.gather import Gatherer
from emlio.shards.dataset import open_dataset
from emlio.testing.datasets import make_dataset
from emlio.tfrecord import FRAME_BYTES
from emlio.wire.data import decode_data_header

_RECORD = 1000 - FRAME_BYTES
_MESSAGE, _FOR_EVER_S = 2000, 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_dataset(tmp_path, records=100, shards=2, payload=_RECORD)
    return tmp_path


@contextmanager
def _streams(folder: Path, count: int = 1, *, limit_bytes: int = 1 << 30) -> Iterator[list[Stream]]:
    shards = OpenShards(open_dataset("numbers", folder))
    plan = Plan(Catalog(shards=shards.dataset.entries), PlanSpec(batch_size=10, shuffle=Shuffle.parse("none")))
    pool, made = BufferPool(_MESSAGE, 1 << 20), list[Stream]()
    for number in range(count):
        feed = Feed(
            plan=plan,
            rank=0,
            position=StreamPosition(epoch=0, origin=0, slot=0),
            owned=np.ones(2, np.bool_),
            local=np.arange(2),
            shards=shards,
            message_bytes=_MESSAGE,
            clock=SystemClock(),
        )
        made.append(Stream(session=7, stream=1 + number, feed=feed, pool=pool, limit_bytes=limit_bytes, label="one"))
    try:
        yield made
    finally:
        for stream in made:
            stream.close()
        shards.close()
        shards.dataset.close()


def _records(outgoing: Outgoing) -> list[int]:
    """The numbers of a message's records."""
    frames = outgoing.payload.tobytes()
    return [int.from_bytes(frames[at + 12 : at + 20], "little") for at in range(0, len(frames), 1000)]


def _take(stream: Stream) -> Outgoing:
    outgoing = stream.first()
    assert outgoing is not None
    stream.sent()
    return outgoing


def test_messages_are_read_until_the_budget_is_used_and_come_out_in_order(folder: Path) -> None:
    woken: list[Stream] = []
    with _streams(folder) as (stream,):
        gatherer = Gatherer()
        for _ in range(3):
            assert stream.produce(gatherer, 3 * _MESSAGE, woken.append)
        assert stream.in_flight_bytes == 3 * _MESSAGE
        assert not stream.produce(gatherer, 3 * _MESSAGE, woken.append)
        assert stream.parked
        assert stream.in_flight_bytes == 3 * _MESSAGE
        assert [_records(_take(stream)) for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
        assert stream.first() is None
        assert stream.in_flight_bytes == 0
        assert woken == [stream]
        assert stream.produce(gatherer, 3 * _MESSAGE, woken.append)
        assert _records(_take(stream)) == [6, 7], "what waited for room is read, not passed over"


def test_bytes_count_until_the_network_lets_go_of_them(folder: Path) -> None:
    woken: list[Stream] = []
    with _streams(folder) as (stream,):
        assert stream.produce(Gatherer(), _MESSAGE, woken.append)
        payload = _take(stream).payload
        assert stream.in_flight_bytes == _MESSAGE
        assert not stream.produce(Gatherer(), _MESSAGE, woken.append)
        assert woken == []
        del payload
        assert stream.in_flight_bytes == 0
        assert woken == [stream]


def test_one_message_always_fits_however_small_the_budget(folder: Path) -> None:
    with _streams(folder, limit_bytes=1) as (stream,):
        gatherer = Gatherer()
        for due in ([0, 1], [2, 3], [4, 5]):
            assert stream.produce(gatherer, 1, lambda _: None)
            assert not stream.produce(gatherer, 1, lambda _: None)
            assert _records(_take(stream)) == due


def test_the_streams_own_limit_holds_whatever_the_budget(folder: Path) -> None:
    with _streams(folder, limit_bytes=2 * _MESSAGE) as (stream,):
        gatherer = Gatherer()
        assert [stream.produce(gatherer, 1 << 30, lambda _: None) for _ in range(3)] == [True, True, False]


def test_a_closed_stream_reads_nothing_and_wakes_nobody(folder: Path) -> None:
    woken: list[Stream] = []
    with _streams(folder) as (stream,):
        gatherer = Gatherer()
        assert stream.produce(gatherer, _MESSAGE, woken.append)
        assert not stream.produce(gatherer, _MESSAGE, woken.append)
        stream.close()
        stream.close()
        assert stream.first() is None
        assert stream.in_flight_bytes == 0
        stream.sent()
        assert not stream.produce(gatherer, _MESSAGE, woken.append)
        assert woken == []


@contextmanager
def _readers(**options: Any) -> Iterator[Readers]:
    usual: dict[str, Any] = {"threads": 2, "memory_bytes": 100 * _MESSAGE}
    readers = Readers(**(usual | options))
    readers.start()
    try:
        yield readers
    finally:
        readers.close()


def test_the_memory_is_shared_among_the_streams(folder: Path) -> None:
    enough = Event()

    def on_ready(_: Stream) -> None:
        if all(stream.in_flight_bytes >= 5 * _MESSAGE for stream in streams):
            enough.set()

    failures: list[StreamFailure] = []
    with (
        _streams(folder, 4) as streams,
        _readers(memory_bytes=20 * _MESSAGE, on_ready=on_ready, on_failure=failures.append) as readers,
    ):
        for stream in streams:
            readers.add(stream)
        assert enough.wait(_FOR_EVER_S)
        for stream in streams:
            readers.remove(stream)
        assert [stream.in_flight_bytes for stream in streams] == [0] * 4
    assert failures == []


def test_reading_goes_on_as_the_network_takes_and_messages_stay_in_order(folder: Path) -> None:
    arrived = Event()
    with (
        _streams(folder) as (stream,),
        _readers(memory_bytes=3 * _MESSAGE, on_ready=lambda _: arrived.set(), on_failure=lambda _: None) as readers,
    ):
        readers.add(stream)
        seen: list[int] = []
        while len(seen) < 300:
            outgoing = stream.first()
            if outgoing is None:
                assert arrived.wait(_FOR_EVER_S)
                arrived.clear()
                continue
            stream.sent()
            seen += _records(outgoing)
            del outgoing
        assert seen[:300] == list(range(100)) * 3
        assert stream.in_flight_bytes <= 3 * _MESSAGE
        readers.remove(stream)


def test_a_failing_stream_is_reported_once_and_the_others_go_on(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bad = tmp_path_factory.mktemp("bad")
    make_dataset(bad, records=10, shards=1, payload=_RECORD)
    failures: list[StreamFailure] = []
    failed, read = Event(), Event()

    def on_failure(failure: StreamFailure) -> None:
        failures.append(failure)
        failed.set()

    def on_ready(stream: Stream) -> None:
        if failed.is_set() and stream.session == 7:
            read.set()

    with _streams(folder) as (good,), _bad_stream(bad) as broken:
        path = next(bad.glob("*.tfrecord"))
        with path.open("r+b") as file:
            file.truncate(3000)
        with _readers(threads=1, on_ready=on_ready, on_failure=on_failure) as readers:
            readers.add(broken)
            assert failed.wait(_FOR_EVER_S)
            readers.add(good)
            assert read.wait(_FOR_EVER_S)
    assert [failure.stream for failure in failures] == [broken]
    assert isinstance(failures[0].error, DatasetError)
    assert not isinstance(failures[0].error, CorruptRecordError)
    assert path.name in str(failures[0].error)


@contextmanager
def _bad_stream(folder: Path) -> Iterator[Stream]:
    shards = OpenShards(open_dataset("bad", folder))
    feed = Feed(
        plan=Plan(Catalog(shards=shards.dataset.entries), PlanSpec(batch_size=10)),
        rank=0,
        position=StreamPosition(epoch=0, origin=0, slot=0),
        owned=np.ones(1, np.bool_),
        local=np.arange(1),
        shards=shards,
        message_bytes=_MESSAGE,
        clock=SystemClock(),
    )
    pool = BufferPool(_MESSAGE, 0)
    stream = Stream(session=8, stream=1, feed=feed, pool=pool, limit_bytes=1 << 20, label="session 8")
    try:
        yield stream
    finally:
        stream.close()
        shards.close()
        shards.dataset.close()


# ---- sending ------------------------------------------------------------------------------------------------------


def _no_failure(failure: StreamFailure) -> None:
    raise AssertionError(failure)


@contextmanager
def _sender(
    ports: PortRange | None = None,
    *,
    threads: int = 2,
    high_water_mark: int = 4,
    on_failure: Callable[[StreamFailure], None] = _no_failure,
) -> Iterator[Sender]:
    network = Network(Endpoint(host="127.0.0.1", port=0), ports if ports is not None else PortRange(), Gate(None))
    sender = Sender(threads=threads, network=network, high_water_mark=high_water_mark, on_failure=on_failure)
    sender.start()
    try:
        yield sender
    finally:
        sender.close()
        network.close()


def _attach(sender: Sender, stream: Stream, lanes: int) -> list[int]:
    bound, failed, done = list[int](), list[EmlioError](), Event()

    def on_bound(ports: Sequence[int]) -> None:
        bound.extend(ports)
        done.set()

    def on_failure(error: EmlioError) -> None:
        failed.append(error)
        done.set()

    sender.attach(stream, lanes, LaneGuard(protection="clear"), on_bound, on_failure)
    assert done.wait(_FOR_EVER_S)
    if failed:
        raise failed[0]
    return bound


@contextmanager
def _pulls(ports: Sequence[int]) -> Iterator["list[zmq.Socket[bytes]]"]:
    with zmq.Context() as context:
        sockets = [context.socket(zmq.PULL) for _ in ports]
        for socket, port in zip(sockets, ports, strict=True):
            socket.setsockopt(zmq.RCVHWM, 2)
            socket.setsockopt(zmq.RCVTIMEO, _FOR_EVER_S * 1000)
            socket.connect(f"tcp://127.0.0.1:{port}")
        try:
            yield sockets
        finally:
            for socket in sockets:
                socket.close(linger=0)


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_stream_is_dealt_over_its_lanes_each_numbered_without_gaps(folder: Path, lanes: int) -> None:
    with (
        _sender() as sender,
        _streams(folder, limit_bytes=10 * _MESSAGE) as (stream,),
        _readers(threads=1, on_ready=sender.signal, on_failure=lambda _: None) as readers,
    ):
        ports = _attach(sender, stream, lanes)
        assert len(set(ports)) == lanes
        readers.add(stream)
        with _pulls(ports) as pulls:
            seen: dict[int, list[int]] = {}
            for turn in range(60):
                number = turn % lanes
                head, payload = pulls[number].recv_multipart()
                header = decode_data_header(head, len(payload))
                assert (header.session, header.stream, header.lane) == (7, 1, number)
                assert header.lane_sequence == turn // lanes
                seen[header.epoch * 100 + header.slot] = [
                    int.from_bytes(payload[at + 12 : at + 20], "little") for at in range(0, len(payload), 1000)
                ]
        totals = sender.totals(stream)
        assert totals.sent_bytes >= 60 * _MESSAGE
        readers.remove(stream)
        sender.detach(stream)
        sender.detach(stream)
    for place, records in seen.items():
        assert records == [place % 100, place % 100 + 1]


class _Unsendable(Stream):
    """A stream with a defect of ours in it."""

    def first(self) -> Outgoing | None:
        raise RuntimeError("a defect")


def test_a_defect_in_one_stream_ends_that_stream_and_the_others_of_its_thread_go_on(folder: Path) -> None:
    failures: SimpleQueue[StreamFailure] = SimpleQueue()
    with (
        _sender(threads=1, on_failure=failures.put) as sender,
        _streams(folder, limit_bytes=4 * _MESSAGE) as (good,),
        _readers(threads=1, on_ready=sender.signal, on_failure=_no_failure) as readers,
    ):
        pool = BufferPool(_MESSAGE, 0)
        broken = _Unsendable(session=9, stream=1, feed=good._feed, pool=pool, limit_bytes=0, label="session 9")
        _attach(sender, broken, 1)
        ports = _attach(sender, good, 1)
        sender.signal(broken)
        failure = failures.get(timeout=_FOR_EVER_S)
        readers.add(good)
        with _pulls(ports) as (pull,):
            assert len(pull.recv_multipart()) == 2
        readers.remove(good)
        sender.detach(good)
        sender.detach(broken)
    assert failure.stream is broken
    assert "a defect" in str(failure.error)


def test_a_rank_that_does_not_read_holds_up_its_own_stream_only(folder: Path) -> None:
    with (
        _sender(high_water_mark=1) as sender,
        _streams(folder, 2, limit_bytes=4 * _MESSAGE) as (slow, quick),
        _readers(threads=1, on_ready=sender.signal, on_failure=lambda _: None) as readers,
    ):
        slow_ports, quick_ports = _attach(sender, slow, 1), _attach(sender, quick, 1)
        readers.add(slow)
        readers.add(quick)
        with _pulls(slow_ports), _pulls(quick_ports) as (pull,):
            for number in range(200):
                head, payload = pull.recv_multipart()
                assert decode_data_header(head, len(payload)).lane_sequence == number
        assert slow.in_flight_bytes <= 4 * _MESSAGE
        for stream in (slow, quick):
            readers.remove(stream)
            sender.detach(stream)


def test_lanes_that_do_not_all_fit_the_ports_are_refused_and_none_stays_bound(folder: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.PUSH) as probe:
        first = probe.bind_to_random_port("tcp://127.0.0.1", 43000, 49000)
    ports = PortRange(first=first, last=first)
    with _sender(ports) as sender, _streams(folder, 2) as (one, other):
        with pytest.raises(TransportError, match=f"data ports {first}-{first}"):
            _attach(sender, one, 2)
        assert _attach(sender, other, 1) == [first]
        assert sender.totals(one).sent_bytes == 0
        sender.detach(one)
        sender.detach(other)
