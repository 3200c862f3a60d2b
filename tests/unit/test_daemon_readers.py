"""Reading threads beside a disk that does not answer."""

import logging
import threading
import time
from pathlib import Path
from threading import Event
from typing import cast

import pytest

from emlio.daemon.reading.readers import Readers
from emlio.daemon.reading.stream import Search, Stream, StreamFailure, StreamLimits
from emlio.errors import DatasetError
from emlio_testing.daemon_streams import FOR_EVER_S, RECORD, open_streams, start_readers
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import settles


class _StuckStream:
    """A stream whose disk answers when the test says so."""

    label, dataset, job, searching = "session 1", "ill", "job", False
    limits = StreamLimits(ready_bytes=1 << 20)

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.reading, self.answer = Event(), Event()
        self.closed = False

    def produce(self, *_: object) -> bool:
        self.reading.set()
        assert self.answer.wait(20)
        if self._error is not None:
            raise self._error
        return False

    def close(self) -> None:
        self.closed = True


class _GoingStream:
    """A stream of another dataset, which has one message."""

    label, dataset, job, closed, searching = "session 2", "well", "job", False, False
    limits = StreamLimits(ready_bytes=1 << 20)

    def __init__(self) -> None:
        self.left = 1

    def produce(self, *_: object) -> bool:
        self.left -= 1
        return self.left >= 0

    def close(self) -> None:
        self.closed = True


class _SearchingStream:
    """A stream that finds nothing, and counts how often it looks."""

    label, dataset, closed, searching = "session 3", "well", False, True
    limits = StreamLimits(ready_bytes=1 << 20)

    def __init__(self, rest_ns: int, job: str = "job", takes_s: float = 0.0) -> None:
        self.job = job
        self._takes_s = takes_s
        self.search = Search()
        self.search.rest_ns = rest_ns
        self.looks = 0
        self.looked = Event()

    def produce(self, *_: object) -> bool:
        self.looks += 1
        self.looked.set()
        time.sleep(self._takes_s)
        return True

    def close(self) -> None:
        self.closed = True


def test_a_search_without_end_rests_while_others_are_read_for() -> None:
    searching, going = _SearchingStream(rest_ns=3600 * 10**9), _GoingStream()
    came, ready = Event(), list[Stream]()

    def on_ready(stream: Stream) -> None:
        ready.append(stream)
        came.set()

    readers = Readers(threads=1, memory_bytes=lambda: 1 << 20, on_ready=on_ready, on_failure=lambda _: None)
    readers.start()
    try:
        readers.add(cast(Stream, searching))
        assert searching.looked.wait(20)
        readers.add(cast(Stream, going))
        assert came.wait(20)
        assert ready == [going], "nobody hears of a search that found nothing"
        assert searching.looks == 1
    finally:
        readers.close()


def test_a_job_that_searches_gets_no_more_of_a_thread_than_a_job_that_reads() -> None:
    searching, going = _SearchingStream(rest_ns=0, job="searches", takes_s=0.01), _GoingStream()
    going.left = 20
    came = Event()

    def on_ready(_: Stream) -> None:
        if not going.left:
            came.set()

    readers = Readers(threads=1, memory_bytes=lambda: 1 << 20, on_ready=on_ready, on_failure=lambda _: None)
    readers.start()
    try:
        readers.add(cast(Stream, searching))
        assert searching.looked.wait(20)
        before = searching.looks
        readers.add(cast(Stream, going))
        assert came.wait(20)
        assert searching.looks - before <= 20
    finally:
        readers.close()


def test_a_search_goes_on_after_its_rest_and_ends_with_its_stream() -> None:
    searching = _SearchingStream(rest_ns=1)
    readers = Readers(threads=1, memory_bytes=lambda: 1 << 20, on_ready=lambda _: None, on_failure=lambda _: None)
    readers.start()
    try:
        readers.add(cast(Stream, searching))
        for _ in range(3):
            assert searching.looked.wait(20)
            searching.looked.clear()
        readers.remove(cast(Stream, searching))
    finally:
        readers.close()


def test_a_disk_that_does_not_answer_holds_up_its_own_dataset_only() -> None:
    stuck = [_StuckStream() for _ in range(3)]
    came, ready, failed = Event(), list[Stream](), list[object]()

    def on_ready(stream: Stream) -> None:
        ready.append(stream)
        came.set()

    going = cast(Stream, _GoingStream())
    readers = Readers(threads=2, memory_bytes=lambda: 1 << 20, on_ready=on_ready, on_failure=failed.append)
    readers.start()
    try:
        for stream in stuck:
            readers.add(cast(Stream, stream))
        assert stuck[0].reading.wait(20)
        assert stuck[1].reading.wait(20)
        readers.add(going)
        assert came.wait(10), "both threads of the other dataset are inside its disk"
        assert ready == [going]
        for stream in stuck[:2]:
            stream.answer.set()
        assert stuck[2].reading.wait(20), "its disk is back, it goes on"
    finally:
        for stream in stuck:
            stream.answer.set()
        readers.close()
    assert failed == []


def test_a_stream_whose_disk_does_not_answer_is_removed_at_once_and_its_message_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stuck = _StuckStream(error=DatasetError("the disk is broken"))
    heard: list[object] = []
    readers = Readers(threads=1, memory_bytes=lambda: 1 << 20, on_ready=heard.append, on_failure=heard.append)
    readers.start()
    try:
        readers.add(cast(Stream, stuck))
        assert stuck.reading.wait(20)
        with caplog.at_level(logging.WARNING, "emlio.daemon.readers"):
            readers.remove(cast(Stream, stuck))
        assert stuck.closed
        assert not stuck.answer.is_set(), "it came back before the disk did"
        assert caplog.text == "", "nothing was waited for"
    finally:
        stuck.answer.set()
        readers.close()
    assert heard == [], "the stream is closed: its failure is of no concern"


def test_the_end_does_not_wait_for_a_disk_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    stuck = _StuckStream()
    readers = Readers(threads=2, memory_bytes=lambda: 1 << 20, on_ready=lambda _: None, on_failure=lambda _: None)
    readers.start()
    try:
        readers.add(cast(Stream, stuck))
        assert stuck.reading.wait(20)
        with caplog.at_level(logging.WARNING, "emlio.daemon.readers"):
            readers.close()
        assert not stuck.answer.is_set(), "it came back before the disk did"
        assert "is left running" in caplog.text
    finally:
        stuck.answer.set()


def test_the_threads_of_a_dataset_that_is_closed_end_when_its_disk_has_answered() -> None:
    stuck, came = _StuckStream(), Event()
    readers = Readers(threads=2, memory_bytes=lambda: 1 << 20, on_ready=lambda _: came.set(), on_failure=lambda _: None)
    readers.start()
    try:
        assert readers.end("ill"), "it has none yet"
        readers.add(cast(Stream, stuck))
        assert stuck.reading.wait(20)
        readers.remove(cast(Stream, stuck))
        assert not readers.end("ill")
        readers.add(cast(Stream, _GoingStream()))
        assert came.wait(20), "others have their own"
        stuck.answer.set()
        assert settles(lambda: readers.end("ill"), 20)
        assert [thread.name for thread in threading.enumerate() if thread.name.startswith("emlio-read-ill")] == []
        readers._enqueue(cast(Stream, stuck))  # memory of the stream came back from the network
        again = _StuckStream()
        again.answer.set()
        readers.add(cast(Stream, again))
        assert again.reading.wait(20)
    finally:
        stuck.answer.set()
        readers.close()


def test_an_error_that_is_kept_keeps_no_memory_of_its_stream(tmp_path: Path) -> None:
    """A log may keep it. What was being read would count as the session's for as long."""
    make_dataset(tmp_path, records=100, shards=1, payload=RECORD)
    kept, failed = list[StreamFailure](), Event()

    def keep(failure: StreamFailure) -> None:
        kept.append(failure)
        failed.set()

    with open_streams(tmp_path) as (stream,):
        (path,) = tmp_path.glob("*.tfrecord")
        with path.open("r+b") as file:
            file.truncate(500)
        with start_readers(threads=1, on_ready=lambda _: None, on_failure=keep) as readers:
            readers.add(stream)
            assert failed.wait(FOR_EVER_S)
            readers.remove(stream)
        assert stream._memory.held_bytes == stream._pool.lent == 0
    assert isinstance(kept[0].error, DatasetError)


def test_no_more_threads_read_at_the_same_time_than_all_streams_wish() -> None:
    """The largest wish counts, and a stream without one wishes for all threads."""
    stuck = [_StuckStream() for _ in range(3)]
    for stream in stuck:
        stream.limits = StreamLimits(ready_bytes=1 << 20, readers=1)
    readers = Readers(threads=3, memory_bytes=lambda: 1 << 20, on_ready=lambda _: None, on_failure=lambda _: None)
    readers.start()
    try:
        for stream in stuck:
            readers.add(cast(Stream, stream))
        assert settles(lambda: any(stream.reading.is_set() for stream in stuck), FOR_EVER_S)
        time.sleep(0.1)
        assert sum(stream.reading.is_set() for stream in stuck) == 1
        stuck[0].limits.readers = 2
        readers.tuned(cast(Stream, stuck[0]))
        assert settles(lambda: sum(stream.reading.is_set() for stream in stuck) == 2, FOR_EVER_S)
        time.sleep(0.1)
        assert sum(stream.reading.is_set() for stream in stuck) == 2
        for stream in stuck:  # those that wait for a turn get it
            stream.answer.set()
        assert settles(lambda: all(stream.reading.is_set() for stream in stuck), FOR_EVER_S)
    finally:
        for stream in stuck:
            stream.answer.set()
        readers.close()
