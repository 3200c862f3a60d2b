"""Records as bytes: slices made on demand, and the rows of one array."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from emlio.example.columns import Piece
from emlio.formats.record_form import RawRecords, RowRecords, Slices, equal_rows


def _pieces(records: Sequence[bytes], cuts: int, seed: int, *, gap: int = 12, ragged: bool = False) -> list[Piece]:
    """Return the records in `cuts` buffers, each record at a random place of the batch."""
    draw = random.Random(seed)
    slots = list(range(len(records)))
    draw.shuffle(slots)
    pieces: list[Piece] = []
    for number in range(cuts):
        chosen = np.sort(np.array(slots[number::cuts], np.int64))
        buffer: bytearray = bytearray()
        starts, ends = list[int](), list[int]()
        places: list[int] = chosen.tolist()
        for slot in places:
            buffer += bytes(gap + (draw.randrange(3) if ragged else 0))
            starts.append(len(buffer))
            buffer += records[slot]
            ends.append(len(buffer))
        bounds = np.array(starts, np.int64), np.array(ends, np.int64)
        pieces.append(Piece(buffer=memoryview(bytes(buffer)), starts=bounds[0], ends=bounds[1], slots=chosen))
    return pieces


def _records(count: int, size: int | None, seed: int = 5) -> list[bytes]:
    draw = random.Random(seed)
    return [draw.randbytes(draw.randrange(40) if size is None else size) for _ in range(count)]


@pytest.mark.parametrize("cuts", [1, 3, 7])
@pytest.mark.parametrize("size", [None, 0, 1, 33])
@pytest.mark.parametrize("ragged", [False, True])
def test_slices_are_the_records_in_the_order_of_the_batch(cuts: int, size: int | None, *, ragged: bool) -> None:
    records = _records(20, size)
    (found,) = RawRecords().columns(_pieces(records, cuts, 1, ragged=ragged), 20).values()
    assert len(found) == 20
    assert [bytes(one) for one in found] == records
    assert [bytes(found[place]) for place in range(-20, 20)] == records * 2
    assert [bytes(one) for one in found[3:9:2]] == records[3:9:2]
    assert found == records
    assert found != records[:-1]
    assert records[4] in found


def test_a_slice_is_a_view_of_what_was_received() -> None:
    (piece,) = _pieces(_records(5, 8), 1, 2)
    assert Slices([piece], 5)[2].obj is piece.buffer.obj


@pytest.mark.parametrize("place", [5, -6])
def test_there_is_no_slice_beyond_the_batch(place: int) -> None:
    with pytest.raises(IndexError):
        Slices(_pieces(_records(5, 8), 2, 2), 5)[place]


@pytest.mark.parametrize("cuts", [1, 3, 7])
@pytest.mark.parametrize("size", [None, 0, 1, 33])
@pytest.mark.parametrize("ragged", [False, True])
def test_rows_are_the_records_with_zeros_behind_shorter_ones(cuts: int, size: int | None, *, ragged: bool) -> None:
    records = _records(20, size)
    columns = RowRecords().columns(_pieces(records, cuts, 1, ragged=ragged), 20)
    rows, lengths = columns["record"], columns["length"]
    assert lengths.tolist() == [len(record) for record in records]
    assert rows.dtype == np.uint8
    assert rows.shape == (20, max(len(record) for record in records))
    assert [bytes(row) for row in rows] == [record.ljust(rows.shape[1], b"\0") for record in records]


def test_a_batch_without_records_has_no_rows() -> None:
    columns = RowRecords().columns([], 0)
    assert (columns["record"].shape, columns["length"].shape) == ((0, 0), (0,))


def test_rows_do_not_share_the_memory_of_what_was_received() -> None:
    (piece,) = _pieces(_records(5, 8), 1, 2)
    rows = RowRecords().columns([piece], 5)["record"]
    assert rows.flags.writeable
    assert not np.shares_memory(rows, np.frombuffer(piece.buffer, np.uint8))


def test_equal_rows_are_found_only_where_all_records_have_the_size() -> None:
    records = _records(12, 8)
    assert equal_rows(_pieces(records, 2, 1), 12, 8) is not None
    assert equal_rows(_pieces(records, 2, 1), 12, 7) is None
    assert equal_rows(_pieces(records, 2, 1), 13, 8) is None  # one is in no piece
    assert equal_rows(_pieces([*records[:-1], b"short"], 2, 1), 12, 8) is None
