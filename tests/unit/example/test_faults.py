from typing import Any

import numpy as np
import pytest

from emlio.example import ColumnDecoder, Piece, encode_example
from emlio.example.decode import BYTES, FLOATS, INTS
from emlio.example.faults import kinds_of, without
from emlio.formats.tfrecord.example_form import ExampleRecords
from emlio_testing.example_records import piece_of

_NO_KIND = b"\x0a\x07\x0a\x05\x0a\x01a\x12\x00"


def _batch(*records: bytes | dict[str, Any]) -> list[Piece]:
    """The records in two pieces, the later places first."""
    coded = [record if isinstance(record, bytes) else encode_example(record) for record in records]
    half = len(coded) // 2
    return [piece_of(coded[half:], list(range(half, len(coded)))), piece_of(coded[:half])]


def _faults(pieces: list[Piece], fields: list[str] | None) -> dict[int, str]:
    found = ExampleRecords(fields).faults(pieces)
    assert found == kinds_of(pieces, fields)[1]
    return dict(found)


_FIELDS = pytest.mark.parametrize("fields", [None, ["a"]])


@_FIELDS
def test_a_sound_batch_has_no_faults_though_its_lengths_differ(fields: list[str] | None) -> None:
    records = [{"a": np.arange(n, dtype=np.int64)} for n in range(6)]
    assert _faults(_batch(*records), fields) == {}


@_FIELDS
def test_a_malformed_record_is_named_with_the_byte(fields: list[str] | None) -> None:
    faults = _faults(_batch({"a": 1}, {"a": 2}, b"\x0a\x7f\x00", {"a": 3}), fields)
    assert list(faults) == [2]
    assert faults[2].startswith("not a tf.train.Example: ")
    assert "byte 0 of the record" in faults[2]
    assert "raw=True" not in faults[2]


@_FIELDS
def test_records_that_mostly_are_of_another_kind_are_told_how_to_be_read(fields: list[str] | None) -> None:
    faults = _faults(_batch(b"\xff" * 9, {"a": 1}, b"\x07"), fields)
    assert list(faults) == [0, 2]
    for reason in faults.values():
        assert reason.startswith("not a tf.train.Example: ")
        assert reason.endswith("use raw=True for records of another format")


def test_what_is_wrong_in_a_feature_nobody_wants_is_no_fault() -> None:
    entry = b"\x0a\x01b\x12\x7f"
    odd = encode_example({"a": 1})
    odd = b"\x0a" + bytes([odd[1] + 2 + len(entry)]) + odd[2:] + b"\x0a" + bytes([len(entry)]) + entry
    pieces = _batch({"a": 1, "b": 1}, odd, {"a": 3, "b": 1})
    assert _faults(pieces, ["a"]) == {}
    assert ColumnDecoder(["a"]).decode(pieces, 3)["a"].tolist() == [1, 1, 3]
    assert list(_faults(pieces, ["a", "b"])) == [1]


def test_the_kinds_of_features_are_told_and_one_without_a_kind_is_absent() -> None:
    pieces = _batch(_NO_KIND, {"a": 1, "b": b""}, {"a": 0.5})
    assert kinds_of(pieces, None) == ({0: {}, 1: {"a": INTS, "b": BYTES}, 2: {"a": FLOATS}}, {})
    assert kinds_of(pieces, ["b"]) == ({0: {}, 1: {"b": BYTES}, 2: {}}, {})
    columns = ExampleRecords(None).columns(pieces, 3)
    assert columns == {"a": [None, 1, 0.5], "b": [None, b"", None]}


@pytest.mark.parametrize("count", [3, 60])
def test_what_records_lack_is_none_and_the_rest_keeps_its_form(count: int) -> None:
    records = [
        {"all": n, "wide": [n, -n], "text": b"%d" % n, **({"some": [n, n]} if n % 3 == 0 else {})} for n in range(count)
    ]
    columns = ExampleRecords(["text", "some", "all", "wide", "none"]).columns(_batch(*records), count)
    assert list(columns) == ["text", "some", "all", "wide", "none"]
    assert columns["all"].tolist() == list(range(count))
    assert columns["wide"].shape == (count, 2)
    assert columns["text"] == [b"%d" % n for n in range(count)]
    assert [one if one is None else one.tolist() for one in columns["some"]] == [
        [n, n] if n % 3 == 0 else None for n in range(count)
    ]
    assert columns["none"] == [None] * count


def test_taking_out_nothing_changes_nothing_and_all_leaves_nothing() -> None:
    pieces = _batch({"a": 1}, {"a": 2}, {"a": 3})
    assert [piece.slots.tolist() for piece in without(pieces, ())] == [[1, 2], [0]]
    assert without(pieces, (0, 1, 2)) == []
    assert without([], (1,)) == []


def test_a_piece_that_loses_all_its_records_is_dropped_and_bytes_are_not_copied() -> None:
    pieces = _batch({"a": 1}, {"a": 2}, {"a": 3}, {"a": 4})
    (left,) = without(pieces, {0, 1})
    assert left.buffer is pieces[0].buffer
    assert left.slots.tolist() == [0, 1]


def test_gaps_that_were_there_before_are_closed_too() -> None:
    record = encode_example({"a": 1})
    left = without([piece_of([record] * 3, [9, 2, 4]), piece_of([record], [7])], [4])
    assert [piece.slots.tolist() for piece in left] == [[2, 0], [1]]
    assert {piece.slots.dtype for piece in left} == {np.dtype(np.int64)}
