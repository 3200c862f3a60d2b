"""Reading threads beside a disk that does not answer."""

import logging
from threading import Event
from typing import cast

import pytest

from emlio.daemon.readers import Readers
from emlio.daemon.stream import Stream


class _StuckStream:
    """A stream whose disk answers when the test says so."""

    label = "session 1"

    def __init__(self) -> None:
        self.reading, self.answer = Event(), Event()
        self.closed = False

    def produce(self, *_: object) -> bool:
        self.reading.set()
        assert self.answer.wait(20)
        return False

    def close(self) -> None:
        self.closed = True


def test_removing_a_stream_whose_disk_does_not_answer_does_not_wait_for_it(caplog: pytest.LogCaptureFixture) -> None:
    stuck = _StuckStream()
    stream = cast(Stream, stuck)
    readers = Readers(threads=1, memory_bytes=1 << 20, on_ready=lambda _: None, on_failure=lambda _: None)
    readers.start()
    try:
        readers.add(stream)
        assert stuck.reading.wait(20)
        with caplog.at_level(logging.WARNING, "emlio.daemon.readers"):
            readers.remove(stream)
        assert stuck.closed
        assert not stuck.answer.is_set(), "it came back before the disk did"
        assert "session 1: a disk has not answered" in caplog.text
    finally:
        stuck.answer.set()
        readers.close()


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
