"""Reading threads beside a disk that does not answer."""

import logging
from threading import Event
from typing import cast

import pytest

from emlio.daemon.readers import Readers
from emlio.daemon.stream import Stream
from emlio.errors import DatasetError


class _StuckStream:
    """A stream whose disk answers when the test says so."""

    label, dataset = "session 1", "ill"

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

    label, dataset, closed = "session 2", "well", False

    def __init__(self) -> None:
        self.left = 1

    def produce(self, *_: object) -> bool:
        self.left -= 1
        return self.left >= 0

    def close(self) -> None:
        self.closed = True


def test_a_disk_that_does_not_answer_holds_up_its_own_dataset_only() -> None:
    stuck = [_StuckStream() for _ in range(3)]
    came, ready, failed = Event(), list[Stream](), list[object]()

    def on_ready(stream: Stream) -> None:
        ready.append(stream)
        came.set()

    going = cast(Stream, _GoingStream())
    readers = Readers(threads=2, memory_bytes=1 << 20, on_ready=on_ready, on_failure=failed.append)
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
    readers = Readers(threads=1, memory_bytes=1 << 20, on_ready=heard.append, on_failure=heard.append)
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
    readers = Readers(threads=2, memory_bytes=1 << 20, on_ready=lambda _: None, on_failure=lambda _: None)
    readers.start()
    try:
        readers.add(cast(Stream, stuck))
        assert stuck.reading.wait(20)
        with caplog.at_level(logging.WARNING, "emlio.daemon.readers"):
            readers.close()
        assert not stuck.answer.is_set(), "it came back before the disk did"
        assert "is left behind" in caplog.text
    finally:
        stuck.answer.set()
