"""Copying records to rows in C, beside the same in NumPy.

Covers: equal rows, refusal of what lies outside. Does not cover: building the library (test_native.py).
"""

from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emlio import native
from emlio.example.columns import Piece
from emlio.formats.record_form import LENGTH, RECORD, RowRecords
from emlio.native import library as native_library

pytestmark = pytest.mark.skipif(not native.is_used(), reason=f"the C library is not used: {native.why_not()}")


def _places(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


@given(st.lists(st.binary(max_size=70), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_rows_are_the_records_with_zeros_behind_them(records: list[bytes], random: Random) -> None:
    slots = list(range(len(records)))
    random.shuffle(slots)
    half = len(records) // 2
    pieces: list[Piece] = []
    for part in (slice(0, half), slice(half, None)):
        own = records[part]
        ends = np.cumsum([len(record) + 3 for record in own], dtype=np.int64) if own else np.empty(0, np.int64)
        buffer = memoryview(b"".join(b"###" + record for record in own))
        starts = ends - np.array([len(record) for record in own], np.int64)
        pieces.append(Piece(buffer=buffer, starts=starts, ends=ends, slots=np.array(slots[part], np.int64)))
    columns = RowRecords().columns(pieces, len(records))
    for record, slot in zip(records, slots, strict=True):
        row = columns[RECORD][slot].tobytes()
        assert row == record + bytes(len(row) - len(record))
        assert columns[LENGTH][slot] == len(record)


@pytest.mark.parametrize("width", [5, 300])
def test_rows_are_the_same_without_the_library(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    payload = bytes(range(256)) * 2
    starts, ends = _places(3, 100, 200), _places(3 + width, 101, 200)
    piece = Piece(buffer=memoryview(payload), starts=starts, ends=ends, slots=_places(2, 0, 1))
    ours = RowRecords().columns([piece], 3)
    monkeypatch.setattr(native_library, "_LIBRARY", native_library.Library(Path("/nowhere")))
    assert not native.place_rows(piece.buffer, starts, ends, piece.slots, np.zeros((3, width), np.uint8))
    theirs = RowRecords().columns([piece], 3)
    assert ours[RECORD].tolist() == theirs[RECORD].tolist()


@pytest.mark.parametrize(
    ("starts", "ends", "slots"),
    [
        (_places(0, -1), _places(5, 4), _places(0, 1)),
        (_places(0, 6), _places(5, 5), _places(0, 1)),
        (_places(0, 6), _places(5, 11), _places(0, 1)),
        (_places(0, 2**62), _places(5, 2**62), _places(0, 1)),
        (_places(0, 0), _places(5, 7), _places(0, 1)),
        (_places(0, 0), _places(5, 5), _places(0, 2)),
        (_places(0, 0), _places(5, 5), _places(0, -1)),
        (_places(0), _places(5, 5), _places(0, 1)),
        (_places(0, 0), _places(5, 5), _places(0)),
    ],
)
def test_what_lies_outside_is_refused(
    starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], slots: npt.NDArray[np.int64]
) -> None:
    room = np.full((4, 6), 9, np.uint8)
    assert not native.place_rows(memoryview(bytes(10)), starts, ends, slots, room[1:3])
    assert (room[[0, 3]] == 9).all()


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((2, 6), np.int8),
        np.zeros((6, 2), np.uint8).T,
        np.zeros(12, np.uint8),
        np.zeros((2, 12), np.uint8)[:, :6],
    ],
)
def test_memory_of_another_form_is_refused(rows: npt.NDArray[np.uint8]) -> None:
    assert not native.place_rows(memoryview(bytes(10)), _places(0), _places(5), _places(0), rows)
