"""The threads that send: streams dealt over lanes, failures that stay where they are, ports."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import pytest
import zmq

from emlio.daemon.config import Endpoint, PortRange
from emlio.daemon.gate import Gate
from emlio.daemon.lane_guard import LaneGuard
from emlio.daemon.ledger import Ledger
from emlio.daemon.reservation import Reservation
from emlio.daemon.sender import Sender
from emlio.daemon.stream import Outgoing, Stream, StreamFailure
from emlio.daemon.transport import Network
from emlio.errors import EmlioError, TransportError
from emlio.reading.buffers import BufferPool
from emlio.testing.daemon_streams import FOR_EVER_S, HELD, MESSAGE, RECORD, open_streams, start_readers
from emlio.testing.data_messages import read_data
from emlio.testing.datasets import make_dataset
from emlio.testing.processes import settles
from emlio.testing.proxy import free_ports


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_dataset(tmp_path, records=100, shards=2, payload=RECORD)
    return tmp_path


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


def _lanes(count: int) -> Reservation:
    return Reservation(session=1, lanes=count, guard=LaneGuard(protection="clear"))


def _reserve(sender: Sender, reservation: Reservation) -> list[int]:
    told: SimpleQueue[Sequence[int] | EmlioError] = SimpleQueue()
    sender.reserve(reservation, told.put, told.put)
    ports = told.get(timeout=FOR_EVER_S)
    if isinstance(ports, EmlioError):
        raise ports
    return list(ports)


def _attach(sender: Sender, stream: Stream, lanes: int, reserved: Reservation | None = None) -> list[int]:
    bound, failed, done = list[int](), list[EmlioError](), Event()

    def on_bound(ports: Sequence[int]) -> None:
        bound.extend(ports)
        done.set()

    def on_failure(error: EmlioError) -> None:
        failed.append(error)
        done.set()

    wanted = reserved if reserved is not None else _lanes(lanes)
    sender.attach(stream, wanted, on_bound, on_failure)
    assert done.wait(FOR_EVER_S)
    if failed:
        raise failed[0]
    return bound


@contextmanager
def _pulls(ports: Sequence[int]) -> Iterator["list[zmq.Socket[bytes]]"]:
    with zmq.Context() as context:
        sockets = [context.socket(zmq.PULL) for _ in ports]
        for socket, port in zip(sockets, ports, strict=True):
            socket.setsockopt(zmq.RCVHWM, 2)
            socket.setsockopt(zmq.RCVTIMEO, FOR_EVER_S * 1000)
            socket.connect(f"tcp://127.0.0.1:{port}")
        try:
            yield sockets
        finally:
            for socket in sockets:
                socket.close(linger=0)


def test_lanes_that_nobody_connects_to_hold_a_stream_up_for_a_moment_only(folder: Path) -> None:
    with (
        _sender() as sender,
        open_streams(folder, limit_bytes=10 * HELD) as (stream,),
        start_readers(threads=1, on_ready=sender.signal, on_failure=lambda _: None) as readers,
    ):
        ports = _attach(sender, stream, 3)
        readers.add(stream)
        with _pulls(ports[1:2]) as (pull,):
            for sequence in range(20):
                header, _ = read_data(pull.recv)
                assert (header.lane, header.lane_sequence) == (1, sequence)
        readers.remove(stream)
        sender.detach(stream)


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_stream_is_dealt_over_its_lanes_each_numbered_without_gaps(folder: Path, lanes: int) -> None:
    with (
        _sender() as sender,
        open_streams(folder, limit_bytes=10 * HELD) as (stream,),
        start_readers(threads=1, on_ready=sender.signal, on_failure=lambda _: None) as readers,
    ):
        ports = _attach(sender, stream, lanes)
        assert len(set(ports)) == lanes
        readers.add(stream)
        with _pulls(ports) as pulls:
            seen: dict[int, list[int]] = {}
            for turn in range(60):
                number = turn % lanes
                header, payload = read_data(pulls[number].recv)
                assert (header.session, header.stream, header.lane) == (7, 1, number)
                assert header.lane_sequence == turn // lanes
                seen[header.epoch * 100 + header.slot] = [
                    int.from_bytes(payload[at + 12 : at + 20], "little") for at in range(0, len(payload), 1000)
                ]
        totals = sender.totals(stream)
        assert totals.sent_bytes >= 60 * MESSAGE
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
        open_streams(folder, limit_bytes=4 * HELD) as (good,),
        start_readers(threads=1, on_ready=sender.signal, on_failure=_no_failure) as readers,
    ):
        pool = BufferPool(HELD, 0)
        broken = _Unsendable(
            session=9, stream=1, feed=good._feed, pool=pool, ledger=Ledger(0), limit_bytes=0, label="session 9"
        )
        _attach(sender, broken, 1)
        ports = _attach(sender, good, 1)
        sender.signal(broken)
        failure = failures.get(timeout=FOR_EVER_S)
        readers.add(good)
        with _pulls(ports) as (pull,):
            assert read_data(pull.recv)[0].lane_sequence == 0
        readers.remove(good)
        sender.detach(good)
        sender.detach(broken)
    assert failure.stream is broken
    assert "a defect" in str(failure.error)


def test_a_rank_that_does_not_read_holds_up_its_own_stream_only(folder: Path) -> None:
    with (
        _sender(high_water_mark=1) as sender,
        open_streams(folder, 2, limit_bytes=4 * HELD) as (slow, quick),
        start_readers(threads=1, on_ready=sender.signal, on_failure=lambda _: None) as readers,
    ):
        slow_ports, quick_ports = _attach(sender, slow, 1), _attach(sender, quick, 1)
        readers.add(slow)
        readers.add(quick)
        with _pulls(slow_ports), _pulls(quick_ports) as (pull,):
            for number in range(200):
                assert read_data(pull.recv)[0].lane_sequence == number
        assert slow.in_flight_bytes <= 4 * HELD
        for stream in (slow, quick):
            readers.remove(stream)
            sender.detach(stream)


def test_lanes_that_do_not_all_fit_the_ports_are_refused_and_none_stays_bound(folder: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.PUSH) as probe:
        first = probe.bind_to_random_port("tcp://127.0.0.1", 43000, 49000)
    ports = PortRange(first=first, last=first)
    with _sender(ports) as sender, open_streams(folder, 2) as (one, other):
        with pytest.raises(TransportError, match=f"data ports {first}-{first}"):
            _attach(sender, one, 2)
        assert _attach(sender, other, 1) == [first]
        assert sender.totals(one).sent_bytes == 0
        sender.detach(one)
        sender.detach(other)


def test_a_stream_begins_on_the_lanes_that_were_reserved_to_which_its_rank_has_come_before(folder: Path) -> None:
    with (
        _sender() as sender,
        open_streams(folder, limit_bytes=10 * HELD) as (stream,),
        start_readers(threads=1, on_ready=sender.signal, on_failure=_no_failure) as readers,
    ):
        lanes = _lanes(2)
        ports = _reserve(sender, lanes)
        with _pulls(ports) as pulls:
            assert _attach(sender, stream, 0, lanes) == ports
            readers.add(stream)
            for number, pull in enumerate(pulls):
                header, _ = read_data(pull.recv)
                assert (header.lane, header.lane_sequence) == (number, 0)
            readers.remove(stream)
            sender.detach(stream)


def test_reserved_lanes_that_no_stream_takes_give_their_ports_back(folder: Path) -> None:
    first = free_ports(1)[0]
    with _sender(PortRange(first=first, last=first)) as sender, open_streams(folder, limit_bytes=HELD) as (stream,):
        lanes = _lanes(1)
        assert _reserve(sender, lanes) == [first]
        with pytest.raises(TransportError, match="none is free"):
            _reserve(sender, _lanes(1))
        sender.release(lanes)
        sender.release(lanes)
        assert _attach(sender, stream, 1) == [first]
        sender.detach(stream)


def test_a_sender_that_ends_closes_lanes_that_are_reserved_still() -> None:
    first = free_ports(1)[0]
    for _ in range(2):
        with _sender(PortRange(first=first, last=first)) as sender:
            assert settles(partial(_is_reserved, sender), FOR_EVER_S)


def _is_reserved(sender: Sender) -> bool:
    try:
        return bool(_reserve(sender, _lanes(1)))
    except TransportError:
        return False  # libzmq frees a port in a thread of its own


def _fail() -> None:
    raise RuntimeError("a defect in an order")


def test_an_order_that_fails_leaves_its_thread_to_the_other_streams(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        _sender(threads=1) as sender,
        open_streams(folder, limit_bytes=4 * HELD) as (stream,),
        start_readers(threads=1, on_ready=sender.signal, on_failure=_no_failure) as readers,
    ):
        sender._workers[0].order(_fail)
        ports = _attach(sender, stream, 1)
        readers.add(stream)
        with _pulls(ports) as (pull,):
            assert read_data(pull.recv)[0].lane_sequence == 0
        readers.remove(stream)
        sender.detach(stream)
    assert "a defect in an order" in caplog.text


@pytest.mark.timeout(FOR_EVER_S // 5)  # who waited for the busy thread would wait longer
def test_who_ends_a_stream_does_not_wait_for_its_sending_thread(folder: Path) -> None:
    busy, go_on = Event(), Event()

    def work() -> None:
        busy.set()
        go_on.wait(FOR_EVER_S)

    first = free_ports(1)[0]
    ports = PortRange(first=first, last=first)
    with _sender(ports, threads=1) as sender, open_streams(folder, 2, limit_bytes=4 * HELD) as (one, other):
        _attach(sender, one, 1)
        sender._workers[0].order(work)
        assert busy.wait(FOR_EVER_S)
        reserved = _lanes(1)
        sender.detach(one)
        sender.release(reserved)
        go_on.set()
        assert _attach(sender, other, 1) == [first], "its lane was closed"
        sender.detach(other)
