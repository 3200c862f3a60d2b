"""Messages that are sealed where they are read: once, with their memory counted, and with what the thread that sends needs."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from emlio.checksum import crc32c
from emlio.daemon.reading.stream import Outgoing, Stream, held_bytes
from emlio.errors import CorruptRecordError
from emlio.reading.gather import Gatherer
from emlio.reading.message_planner import MessagePlan
from emlio.store.opened.slices import Borrower
from emlio.wire.data import data_tail, decode_data_header, split_data_frame
from emlio.wire.seal import CIPHERS, TAG_BYTES
from emlio_testing.daemon_streams import MESSAGE, RECORD, open_streams, opener_of
from emlio_testing.datasets import make_dataset

CIPHER = CIPHERS[0]
SEALED = held_bytes(MESSAGE + TAG_BYTES, 2)
"""What a sealed message of two records counts as while it is held."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_dataset(tmp_path, records=100, shards=2, payload=RECORD)
    return tmp_path


def _no_room(_: Stream) -> None:
    pass


def _take(stream: Stream) -> Outgoing:
    outgoing = stream.first()
    assert outgoing is not None
    stream.sent()
    return outgoing


def _opened(stream: Stream, outgoing: Outgoing, cipher: str = CIPHER) -> bytes:
    header = decode_data_header(outgoing.head, outgoing.payload_bytes - TAG_BYTES)
    records = bytearray(outgoing.payload_bytes - TAG_BYTES)
    opener_of(stream, cipher).open(header.number, outgoing.head, outgoing.payload, records)
    return bytes(records)


@pytest.mark.parametrize("cipher", CIPHERS)
def test_a_sealed_message_holds_its_records_for_the_other_end_alone(folder: Path, cipher: str) -> None:
    with open_streams(folder) as (clear,), open_streams(folder, cipher=cipher) as (stream,):
        for number in range(60):  # through an epoch's end
            assert clear.produce(Gatherer(), 1 << 30, _no_room)
            assert stream.produce(Gatherer(), 1 << 30, _no_room)
            plain, outgoing = _take(clear), _take(stream)
            assert decode_data_header(outgoing.head, MESSAGE).number == number
            assert outgoing.head == plain.head, "the header says nothing of how its payload travels"
            assert outgoing.head_crc == crc32c(outgoing.head)
            assert bytes(plain.payload) not in bytes(outgoing.memory)
            assert _opened(stream, outgoing, cipher) == bytes(plain.payload)


def test_a_message_is_sealed_once_however_often_it_is_offered(folder: Path) -> None:
    with open_streams(folder, cipher=CIPHER) as (stream,):
        assert stream.produce(Gatherer(), 1 << 30, _no_room)
        outgoing = stream.first()
        assert outgoing is not None
        sealed = bytes(outgoing.payload)
        for lane in range(5):  # none of them takes it
            offered = stream.first()
            assert offered is outgoing
            tail = data_tail(offered.head, offered.head_crc, lane, 3)
            frame = split_data_frame(offered.with_tail(tail))
            assert (frame.lane, frame.lane_sequence, frame.header) == (lane, 3, offered.head)
            assert frame.payload == sealed
        assert len(_opened(stream, outgoing)) == MESSAGE


def test_a_sealed_message_counts_once(folder: Path) -> None:
    woken: list[Stream] = []
    with open_streams(folder, cipher=CIPHER) as (stream,):
        gatherer, pool, budget = Gatherer(), stream._pool, stream._memory._budget
        for made in range(1, 4):
            assert stream.produce(gatherer, 3 * SEALED, woken.append)
            assert stream.in_flight_bytes == budget.held_bytes == made * SEALED
            assert pool.lent == made, "the memory it was read into goes back at once"
        assert not stream.produce(gatherer, 3 * SEALED, woken.append)
        assert stream.parked
        payload = _take(stream).payload
        assert stream.in_flight_bytes == 3 * SEALED
        assert woken == []
        del payload
        assert stream.in_flight_bytes == budget.held_bytes == 2 * SEALED
        for left in (1, 0):
            _take(stream)
            assert stream.in_flight_bytes == budget.held_bytes == left * SEALED
        assert woken == [stream]
        assert pool.lent == 0


def test_both_copies_count_while_there_are_two(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_streams(folder, cipher=CIPHER) as (stream,):
        during: list[int] = []
        seal = stream._seal
        assert seal is not None
        real = seal.seal

        def watched(number: int, header: bytes, payload: memoryview, sealed: memoryview) -> None:
            during.append(stream.in_flight_bytes)
            assert stream._memory._budget.held_bytes == stream.in_flight_bytes
            real(number, header, payload, sealed)

        monkeypatch.setattr(seal, "seal", watched)
        for _ in range(2):
            assert stream.produce(Gatherer(), 1 << 30, _no_room)
        assert during == [2 * SEALED, 3 * SEALED]
        assert stream.in_flight_bytes == 2 * SEALED


@contextmanager
def _failing(stream: Stream, monkeypatch: pytest.MonkeyPatch, where: str) -> Iterator[None]:
    def fail(*_: object) -> None:
        raise CorruptRecordError("a disk failed", shard="s", record=0, offset=0)

    with monkeypatch.context() as patch:
        patch.setattr(stream._seal if where == "seal" else stream._feed, where, fail)
        yield


@pytest.mark.parametrize("where", ["borrow", "read", "seal"])
def test_what_fails_gives_all_its_memory_back(folder: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    with open_streams(folder, cipher=CIPHER) as (stream,):
        assert stream.produce(Gatherer(), 1 << 30, _no_room)
        with _failing(stream, monkeypatch, where), pytest.raises(CorruptRecordError, match="a disk failed"):
            stream.produce(Gatherer(), 1 << 30, _no_room)
        gc.collect()
        assert stream.in_flight_bytes == stream._memory._budget.held_bytes == SEALED
        assert stream._pool.lent == 1


def test_a_stream_that_is_closed_drops_what_is_sealed(folder: Path) -> None:
    with open_streams(folder, cipher=CIPHER) as (stream,):
        for _ in range(3):
            assert stream.produce(Gatherer(), 1 << 30, _no_room)
        stream.close()
        assert stream.in_flight_bytes == stream._memory._budget.held_bytes == stream._pool.lent == 0


class _Lender:
    """A feed whose messages lie in memory that is lent, as slices of a mapped file do."""

    def __init__(self, stream: Stream) -> None:
        self._feed = stream._feed
        self.lent: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._feed, name)

    def borrow(self, message: MessagePlan, gatherer: Gatherer, borrower: Borrower) -> npt.NDArray[np.uint8]:
        out = np.empty(message.size_bytes, np.uint8)
        self._feed.read(message, gatherer, out)
        view = out[:]
        size_bytes = message.size_bytes

        def back(_: object) -> None:
            self.lent.remove(size_bytes)
            borrower.released(size_bytes)

        self.lent.append(size_bytes)
        self.reference = weakref.ref(view, back)
        out.flags.writeable = False
        view.flags.writeable = False
        return view


def test_a_slice_is_given_back_when_it_is_sealed_and_leaves_in_one(folder: Path) -> None:
    with open_streams(folder, cipher=CIPHER) as (stream,):
        lender = _Lender(stream)
        stream._feed = lender  # type: ignore[assignment]
        for made in range(1, 4):
            assert stream.produce(Gatherer(), 1 << 30, _no_room)
            assert lender.lent == [], "the file is out of use again"
            assert stream.in_flight_bytes == stream._memory._budget.held_bytes == made * SEALED
        outgoing = _take(stream)
        assert not outgoing.apart
        assert len(_opened(stream, outgoing)) == MESSAGE
        del outgoing
        assert stream.in_flight_bytes == stream._memory._budget.held_bytes == 2 * SEALED
