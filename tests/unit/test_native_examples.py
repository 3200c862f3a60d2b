"""Examples read by the C library, beside the same by NumPy and one record at a time.

Covers: equal columns, equal errors, whatever the bytes; refusal of what lies outside. Does not cover: what the columns must
be (example/test_columns.py), building the library (test_native.py).
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from emlio import native
from emlio.errors import DatasetError
from emlio.example import ColumnDecoder, Piece, encode_example
from emlio.native import library as native_library

pytestmark = pytest.mark.skipif(not native.is_used(), reason=f"the C library is not used: {native.why_not()}")

_WITHOUT = native_library.Library(Path("/nowhere"))
_VALUES = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(lambda some: np.array(some, np.int64)),
    st.lists(st.integers(0, 300), min_size=1, max_size=1),
    st.lists(st.floats(width=32, allow_nan=False), max_size=3).map(lambda some: np.array(some, np.float32)),
    st.lists(st.binary(max_size=200), min_size=1, max_size=2),
)
_RECORDS = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", "label", ""]), _VALUES, max_size=4), min_size=1, max_size=30
)


def _pieces(records: Sequence[bytes], slots: Sequence[int], parts: int) -> list[Piece]:
    made: list[Piece] = []
    for part in range(parts):
        own, places = records[part::parts], slots[part::parts]
        if not own:
            continue
        ends = np.cumsum([len(record) + 2 for record in own], dtype=np.int64)
        starts = ends - np.array([len(record) for record in own], np.int64)
        buffer = memoryview(b"".join(b"##" + record for record in own))
        made.append(Piece(buffer=buffer, starts=starts, ends=ends, slots=np.array(places, np.int64)))
    return made


def _plain(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        return (str(column.dtype), column.shape, column.tobytes())
    return [_plain(one) if isinstance(one, (np.ndarray, list)) else bytes(one) for one in column]


def _outcome(pieces: list[Piece], count: int, fields: list[str] | None) -> Any:
    try:
        columns = ColumnDecoder(fields, together_from=1).decode(pieces, count)
    except DatasetError as error:
        return str(error)
    return {name: _plain(column) for name, column in columns.items()}


def _both(records: Sequence[bytes], random: Random, parts: int, fields: list[str] | None) -> tuple[Any, Any]:
    slots = list(range(len(records)))
    random.shuffle(slots)
    pieces = _pieces(records, slots, parts)
    ours = _outcome(pieces, len(records), fields)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_library, "_LIBRARY", _WITHOUT)
        theirs = _outcome(pieces, len(records), fields)
    return ours, theirs


def _each_error(ours: Any, theirs: Any) -> bool:
    # Where several records are wrong, either way may come to another one first.
    return isinstance(ours, str) and isinstance(theirs, str)


@settings(max_examples=300)
@given(
    _RECORDS,
    st.randoms(use_true_random=False),
    st.integers(1, 3),
    st.sampled_from([None, ["a"], ["label", ""], ["b", "a"]]),
)
def test_columns_are_those_of_numpy(
    features: list[dict[str, Any]], random: Random, parts: int, fields: list[str] | None
) -> None:
    ours, theirs = _both([encode_example(one) for one in features], random, parts, fields)
    assert ours == theirs or _each_error(ours, theirs)


@settings(max_examples=300)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "image": st.lists(st.binary(max_size=200), min_size=1, max_size=1),
                "label": st.lists(st.integers(-5, 300), min_size=1, max_size=1),
                "box": st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=2),
            }
        ),
        min_size=2,
        max_size=30,
    ),
    st.data(),
    st.randoms(use_true_random=False),
)
def test_one_changed_byte_is_told_as_numpy_tells_it(
    features: list[dict[str, Any]], data: st.DataObject, random: Random
) -> None:
    records = [bytearray(encode_example(one)) for one in features]
    which = data.draw(st.integers(0, len(records) - 1))
    place = data.draw(st.integers(0, len(records[which]) - 1))
    records[which][place] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        del records[which][place:]
    ours, theirs = _both(
        [bytes(record) for record in records], random, 2, data.draw(st.sampled_from([None, ["label", "box"]]))
    )
    assert ours == theirs or _each_error(ours, theirs)


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5), min_size=1, max_size=40))
@example([[2**63 - 1], [-(2**63)], [0]])
def test_numbers_of_any_length_arrive(values: list[list[int]]) -> None:
    piece = _pieces(
        [encode_example({"n": one} if one else {"n": np.empty(0, np.int64)}) for one in values], range(len(values)), 1
    )
    column: Any = ColumnDecoder(["n"], together_from=1).decode(piece, len(values))["n"]
    assert [np.atleast_1d(one).tolist() for one in column] == values


def test_the_library_reads_the_usual_records(monkeypatch: pytest.MonkeyPatch) -> None:
    features = [{"image": [b"x" * 1000], "label": [number], "box": [0.5, 1.0]} for number in range(50)]
    pieces = _pieces([encode_example(one) for one in features], range(50), 1)
    piece = pieces[0]
    spans = native.scan_examples(piece.buffer, piece.starts, piece.ends, (b"box", b"label", b"image"), closed=True)
    assert spans is not None
    assert not spans.odd.any()
    assert spans.kinds.tolist() == [0x12, 0x1A, 0x0A]
    assert (spans.counts == [2, 1, 1]).all()

    def never(*_: object) -> None:
        raise AssertionError("a record was parsed alone")

    monkeypatch.setattr("emlio.example.columns._read", never)
    columns = ColumnDecoder(["label"]).decode(pieces, 50)
    assert columns["label"].tolist() == list(range(50))  # type: ignore[union-attr]


def _spans(features: list[dict[str, Any]]) -> tuple[Piece, native.ExampleSpans]:
    piece = _pieces([encode_example(one) for one in features], range(len(features)), 1)[0]
    spans = native.scan_examples(piece.buffer, piece.starts, piece.ends, (b"n",), closed=False)
    assert spans is not None
    return piece, spans


@pytest.mark.parametrize(
    ("width", "shape", "dtype", "slots"),
    [
        (2, (3, 1), np.int64, [0, 1, 2]),
        (1, (2, 1), np.int64, [0, 1, 2]),
        (1, (3, 1), np.int64, [0, 1, -1]),
        (1, (3, 1), np.int64, [0, 1, 2**60]),
        (1, (3, 1), np.float32, [0, 1, 2]),
        (0, (3, 0), np.int64, [0, 1, 2]),
        (native.ONE_AFTER_THE_OTHER, (2,), np.int64, [0, 1, 2]),
        (1, (3, 1), np.int64, [0, 1]),
    ],
)
def test_numbers_that_do_not_fit_are_refused(width: int, shape: tuple[int, ...], dtype: Any, slots: list[int]) -> None:
    piece, spans = _spans([{"n": [number]} for number in (1, 2, 3)])
    out = np.zeros(shape, dtype)
    assert not native.write_numbers(piece.buffer, spans, np.array(slots, np.int64), [(width, out)])


def test_records_outside_the_buffer_are_refused() -> None:
    buffer = memoryview(encode_example({"n": [1]}))
    for start, end in ((0, len(buffer) + 1), (-1, 3), (5, 4), (2**62, 2**62)):
        starts, ends = np.array([start], np.int64), np.array([end], np.int64)
        assert native.scan_examples(buffer, starts, ends, (b"n",), closed=False) is None
