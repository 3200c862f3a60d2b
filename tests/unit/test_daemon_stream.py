"""The hand-over between reading and sending: its bound in bytes, its pauses, its end; and the threads that read."""

import tracemalloc
from pathlib import Path
from threading import Event

import pytest

from emlio.daemon.reading.stream import Outgoing, Stream, StreamFailure
from emlio.errors import CorruptRecordError, DatasetError
from emlio.reading.gather import Gatherer
from emlio.tfrecord import FRAME_BYTES
from emlio_testing.daemon_streams import FOR_EVER_S, HELD, MESSAGE, RECORD, numbers_of, open_streams, start_readers
from emlio_testing.datasets import make_dataset


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_dataset(tmp_path, records=100, shards=2, payload=RECORD)
    return tmp_path


def _take(stream: Stream) -> Outgoing:
    outgoing = stream.first()
    assert outgoing is not None
    stream.sent()
    return outgoing


def test_messages_are_read_until_the_budget_is_used_and_come_out_in_order(folder: Path) -> None:
    woken: list[Stream] = []
    with open_streams(folder) as (stream,):
        gatherer = Gatherer()
        for _ in range(3):
            assert stream.produce(gatherer, 3 * HELD, woken.append)
        assert stream.in_flight_bytes == 3 * HELD
        assert not stream.produce(gatherer, 3 * HELD, woken.append)
        assert stream.parked
        assert stream.in_flight_bytes == 3 * HELD
        assert [numbers_of(_take(stream)) for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
        assert stream.first() is None
        assert stream.in_flight_bytes == 0
        assert woken == [stream]
        assert stream.produce(gatherer, 3 * HELD, woken.append)
        assert numbers_of(_take(stream)) == [6, 7], "what waited for room is read, not passed over"


def test_bytes_count_until_the_network_lets_go_of_them(folder: Path) -> None:
    woken: list[Stream] = []
    with open_streams(folder) as (stream,):
        assert stream.produce(Gatherer(), HELD, woken.append)
        payload = _take(stream).payload
        assert stream.in_flight_bytes == HELD
        assert not stream.produce(Gatherer(), HELD, woken.append)
        assert woken == []
        del payload
        assert stream.in_flight_bytes == 0
        assert woken == [stream]


def test_one_message_always_fits_however_small_the_budget(folder: Path) -> None:
    with open_streams(folder, limit_bytes=1) as (stream,):
        gatherer = Gatherer()
        for due in ([0, 1], [2, 3], [4, 5]):
            assert stream.produce(gatherer, 1, lambda _: None)
            assert not stream.produce(gatherer, 1, lambda _: None)
            assert numbers_of(_take(stream)) == due


def test_the_streams_own_limit_holds_whatever_the_budget(folder: Path) -> None:
    with open_streams(folder, limit_bytes=2 * HELD) as (stream,):
        gatherer = Gatherer()
        assert [stream.produce(gatherer, 1 << 30, lambda _: None) for _ in range(3)] == [True, True, False]


def test_streams_together_hold_no_more_than_the_daemons_memory_but_one_message_each(folder: Path) -> None:
    woken: list[Stream] = []
    with open_streams(folder, 2, memory_bytes=4 * HELD) as (early, late):
        gatherer = Gatherer()
        # Alone it may have all of it. Its share is half when the other comes, but nobody takes away what it holds.
        assert [early.produce(gatherer, 4 * HELD, woken.append) for _ in range(5)] == [True] * 4 + [False]
        assert [late.produce(gatherer, 2 * HELD, woken.append) for _ in range(2)] == [True, False]
        assert late.parked
        _take(early)
        assert woken == []
        _take(late)
        assert woken == [late]
        assert [late.produce(gatherer, 2 * HELD, woken.append) for _ in range(2)] == [True, False]
        for _ in range(3):
            _take(early)
        assert woken == [late, early]
        _take(late)
        assert [late.produce(gatherer, 2 * HELD, woken.append) for _ in range(3)] == [True, True, False]


def test_a_closed_stream_reads_nothing_and_wakes_nobody(folder: Path) -> None:
    woken: list[Stream] = []
    with open_streams(folder) as (stream,):
        gatherer = Gatherer()
        assert stream.produce(gatherer, HELD, woken.append)
        assert not stream.produce(gatherer, HELD, woken.append)
        stream.close()
        stream.close()
        assert stream.first() is None
        assert stream.in_flight_bytes == 0
        stream.sent()
        assert not stream.produce(gatherer, HELD, woken.append)
        assert woken == []


def test_a_stream_has_ended_once_its_last_message_was_read(folder: Path) -> None:
    with open_streams(folder, epochs=1) as (stream,):
        gatherer = Gatherer()
        for _ in range(50):
            assert stream.produce(gatherer, 1 << 30, lambda _: None)
            assert not stream.ended
        assert not stream.produce(gatherer, 1 << 30, lambda _: None)
        assert stream.ended
        assert not stream.parked


def test_a_stream_whose_next_record_is_far_away_searches_until_it_is_closed(folder: Path) -> None:
    woken: list[Stream] = []
    with open_streams(folder, absent_records=1 << 39) as (stream,):
        gatherer = Gatherer()
        for _ in range(5):
            assert stream.produce(gatherer, HELD, woken.append)
            assert stream.searching
        assert stream.first() is None
        assert not stream.parked
        stream.close()
        assert not stream.produce(gatherer, HELD, woken.append)


def test_searches_neither_hold_up_other_streams_nor_outlive_their_own(folder: Path) -> None:
    arrived = Event()
    with (
        open_streams(folder, 2, session=1, absent_records=1 << 39) as hopeless,
        open_streams(folder, session=2) as (usual,),
        start_readers(threads=1, on_ready=lambda _: arrived.set(), on_failure=lambda _: None) as readers,
    ):
        for stream in hopeless:
            readers.add(stream)
        readers.add(usual)
        assert arrived.wait(FOR_EVER_S), "the search of others keeps the only thread"
        assert numbers_of(_take(usual)) == [0, 1]
        for stream in hopeless:
            readers.remove(stream)


def test_a_stream_of_few_records_reads_two_epochs_ahead_of_what_the_lanes_took(folder: Path) -> None:
    woken: list[Stream] = []
    with open_streams(folder, world_size=100) as (stream,):
        gatherer = Gatherer()
        assert [stream.produce(gatherer, 1 << 30, woken.append) for _ in range(4)] == [True, True, True, False]
        assert stream.parked
        for epoch in range(20):
            assert _take(stream).message.epoch == epoch
            assert woken == [stream] * (epoch + 1)
            assert stream.produce(gatherer, 1 << 30, woken.append)
            assert not stream.produce(gatherer, 1 << 30, woken.append)


def test_a_message_counts_as_what_it_really_takes(tmp_path: Path) -> None:
    make_dataset(tmp_path, records=4000, shards=1, payload=MESSAGE - FRAME_BYTES)
    with open_streams(tmp_path) as (stream,):
        gatherer, made = Gatherer(), 500
        assert stream.produce(gatherer, 1 << 30, lambda _: None)
        tracemalloc.start()
        for _ in range(made):
            assert stream.produce(gatherer, 1 << 30, lambda _: None)
        taken_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert taken_bytes <= made * HELD


def test_the_memory_is_shared_among_the_streams(folder: Path) -> None:
    enough = Event()

    def on_ready(_: Stream) -> None:
        if all(stream.in_flight_bytes >= 5 * HELD for stream in streams):
            enough.set()

    failures: list[StreamFailure] = []
    with (
        open_streams(folder, 4) as streams,
        start_readers(memory_bytes=lambda: 20 * HELD, on_ready=on_ready, on_failure=failures.append) as readers,
    ):
        for stream in streams:
            readers.add(stream)
        assert enough.wait(FOR_EVER_S)
        for stream in streams:
            readers.remove(stream)
        readers.close()
        assert [stream.in_flight_bytes for stream in streams] == [0] * 4
    assert failures == []


def test_reading_goes_on_as_the_network_takes_and_messages_stay_in_order(folder: Path) -> None:
    arrived = Event()
    with (
        open_streams(folder) as (stream,),
        start_readers(
            memory_bytes=lambda: 3 * HELD, on_ready=lambda _: arrived.set(), on_failure=lambda _: None
        ) as readers,
    ):
        readers.add(stream)
        seen: list[int] = []
        while len(seen) < 300:
            outgoing = stream.first()
            if outgoing is None:
                assert arrived.wait(FOR_EVER_S)
                arrived.clear()
                continue
            stream.sent()
            seen += numbers_of(outgoing)
            del outgoing
        assert seen[:300] == list(range(100)) * 3
        assert stream.in_flight_bytes <= 3 * HELD
        readers.remove(stream)


def test_a_failing_stream_is_reported_once_and_the_others_go_on(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bad = tmp_path_factory.mktemp("bad")
    make_dataset(bad, records=10, shards=1, payload=RECORD)
    failures: list[StreamFailure] = []
    failed, read = Event(), Event()

    def on_failure(failure: StreamFailure) -> None:
        failures.append(failure)
        failed.set()

    def on_ready(stream: Stream) -> None:
        if failed.is_set() and stream.session == 7:
            read.set()

    with open_streams(folder) as (good,), open_streams(bad, session=8) as (broken,):
        path = next(bad.glob("*.tfrecord"))
        with path.open("r+b") as file:
            file.truncate(3000)
        with start_readers(threads=1, on_ready=on_ready, on_failure=on_failure) as readers:
            readers.add(broken)
            assert failed.wait(FOR_EVER_S)
            readers.add(good)
            assert read.wait(FOR_EVER_S)
    assert [failure.stream for failure in failures] == [broken]
    assert isinstance(failures[0].error, DatasetError)
    assert not isinstance(failures[0].error, CorruptRecordError)
    assert path.name in str(failures[0].error)
