from typing import Any

import numpy as np
import pytest

from emlio.errors import DatasetError
from emlio.example import ColumnDecoder, Piece, encode_example
from emlio.example.faults import Absent, find_absent, find_faults, without

_NO_KIND = b"\x0a\x07\x0a\x05\x0a\x01a\x12\x00"


def _piece(records: list[bytes], slots: list[int] | None = None) -> Piece:
    ends = np.cumsum([len(record) for record in records], dtype=np.int64)
    return Piece(
        buffer=memoryview(b"".join(records)),
        starts=ends - np.array([len(record) for record in records], np.int64),
        ends=ends,
        slots=np.arange(len(records)) if slots is None else np.array(slots, np.int64),
    )


def _batch(*records: bytes | dict[str, Any]) -> list[Piece]:
    """The records in two pieces, the later places first."""
    coded = [record if isinstance(record, bytes) else encode_example(record) for record in records]
    half = len(coded) // 2
    return [_piece(coded[half:], list(range(half, len(coded)))), _piece(coded[:half])]


def _places_at_fault(pieces: list[Piece], fields: list[str] | None) -> list[int]:
    return list(find_faults(pieces, fields))


_FIELDS = pytest.mark.parametrize("fields", [None, ["a"]])


@_FIELDS
def test_a_sound_batch_has_no_faults_though_its_lengths_differ(fields: list[str] | None) -> None:
    records = [{"a": np.arange(n, dtype=np.int64)} for n in range(6)]
    assert find_faults(_batch(*records), fields) == {}


@_FIELDS
def test_a_malformed_record_is_named_with_the_byte(fields: list[str] | None) -> None:
    faults = find_faults(_batch({"a": 1}, {"a": 2}, b"\x0a\x7f\x00", {"a": 3}), fields)
    assert list(faults) == [2]
    assert faults[2].startswith("not a tf.train.Example: ")
    assert "byte 0 of the record" in faults[2]
    assert "raw=True" not in faults[2]


@_FIELDS
def test_records_that_mostly_are_of_another_kind_are_told_how_to_be_read(fields: list[str] | None) -> None:
    faults = find_faults(_batch(b"\xff" * 9, {"a": 1}, b"\x07"), fields)
    assert list(faults) == [0, 2]
    for reason in faults.values():
        assert reason.startswith("not a tf.train.Example: ")
        assert reason.endswith("use raw=True for records of another format")


def test_what_is_wrong_in_a_feature_nobody_wants_is_no_fault() -> None:
    entry = b"\x0a\x01b\x12\x7f"
    odd = encode_example({"a": 1})
    odd = b"\x0a" + bytes([odd[1] + 2 + len(entry)]) + odd[2:] + b"\x0a" + bytes([len(entry)]) + entry
    pieces = _batch({"a": 1, "b": 1}, odd, {"a": 3, "b": 1})
    assert find_faults(pieces, ["a"]) == {}
    assert ColumnDecoder(["a"]).decode(pieces, 3)["a"].tolist() == [1, 1, 3]
    assert _places_at_fault(pieces, ["a", "b"]) == [1]


@pytest.mark.parametrize("lacking", [{"b": 1, "c": 2}, {"a": b""}])
def test_a_record_without_a_wanted_feature_says_what_it_has(lacking: dict[str, Any]) -> None:
    faults = find_faults(_batch(lacking, {"a": b"", "c": 1}), ["c", "a"])
    missing = "c" if "c" not in lacking else "a"
    assert faults == {0: f"has no feature {missing!r}, only {sorted(lacking)}"}


def test_a_feature_without_a_kind_counts_as_absent() -> None:
    assert find_faults(_batch(_NO_KIND, {"a": 1}), ["a"]) == {0: "has no feature 'a', only []"}


def test_a_record_that_lacks_a_feature_and_is_malformed_elsewhere_is_one_fault() -> None:
    broken = b"\x0a\x07\x0a\x05\x0a\x01b\x12\x7f"
    assert "tf.train.Example" in find_faults(_batch(broken, {"a": 1}), ["a"])[0]


@_FIELDS
def test_of_two_kinds_the_rarer_is_at_fault_also_at_place_0(fields: list[str] | None) -> None:
    faults = find_faults(_batch({"a": 0.5}, {"a": 1}, {"a": 2}, {"a": b"x"}, {"a": 3}), fields)
    assert list(faults) == [0, 3]
    assert "'a'" in faults[0]
    assert "most hold int64, this one floats" in faults[0]
    assert "this one bytes" in faults[3]


@_FIELDS
def test_where_two_kinds_are_even_the_one_at_the_lowest_place_counts(fields: list[str] | None) -> None:
    assert _places_at_fault(_batch({"a": 0.5}, {"a": 1}, {"a": 2}, {"a": 0.25}), fields) == [1, 2]


def test_each_feature_has_a_majority_of_its_own() -> None:
    pieces = _batch({"a": 1.5, "b": 1}, {"a": 1, "b": 1}, {"a": 1, "b": b""}, {"a": 1, "b": 1})
    faults = find_faults(pieces, ["b", "a"])
    assert list(faults) == [0, 2]
    assert "'a'" in faults[0]
    assert "'b'" in faults[2]


def test_where_each_record_is_odd_in_another_feature_all_are_at_fault() -> None:
    usual = {"a": 1, "b": 1, "c": 1}
    assert _places_at_fault(_batch(*({**usual, name: b""} for name in usual)), None) == [0, 1, 2]


def test_a_record_that_is_out_has_no_say_about_kinds() -> None:
    assert _places_at_fault(_batch({"a": 1, "b": 1}, {"a": 0.5, "b": 1}, {"a": 0.5}), ["a", "b"]) == [1, 2]


def test_without_fields_the_names_are_those_of_most_records_not_of_place_0() -> None:
    faults = find_faults(_batch({"a": 1, "extra": 2}, {"a": 1, "b": 2}, {"a": 3, "b": 4}, {"a": 5}), None)
    assert list(faults) == [0, 3]
    assert "lacks ['b'] and adds ['extra']" in faults[0]
    assert "lacks ['b'] and adds []" in faults[3]
    assert "fields=" in faults[3]


def test_without_fields_and_even_the_names_at_the_lowest_place_count() -> None:
    assert _places_at_fault(_batch({"a": 1}, {"b": 1}, {"b": 2}, {"a": 2}), None) == [1, 2]


@_FIELDS
def test_all_can_be_at_fault(fields: list[str] | None) -> None:
    assert _places_at_fault(_batch(b"\xff", b"no", b"\x0a\x01"), fields) == [0, 1, 2]


def test_what_is_left_is_decoded_with_the_places_closed_up() -> None:
    pieces = _batch(b"\xff", {"a": 1}, {"a": 2}, {"a": b"x"}, {"a": 4}, {"a": 5})
    with pytest.raises(DatasetError):
        ColumnDecoder(None).decode(pieces, 6)
    left = without(pieces, find_faults(pieces, None))
    assert ColumnDecoder(None).decode(left, 4)["a"].tolist() == [1, 2, 4, 5]


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
    left = without([_piece([record] * 3, [9, 2, 4]), _piece([record], [7])], [4])
    assert [piece.slots.tolist() for piece in left] == [[2, 0], [1]]
    assert {piece.slots.dtype for piece in left} == {np.dtype(np.int64)}


def test_a_feature_that_no_readable_record_has_is_told_with_those_there_are() -> None:
    records: tuple[dict[str, Any], ...] = {"b": 1, "a": 2}, {"a": 3}
    absent = find_absent(_batch(*records), ["a", "c"])
    assert absent == Absent(name="c", place=0, there=("a", "b"), records=2)
    assert find_absent(_batch(*records), ["a", "b"]) is None, "some record has it"
    assert find_absent([], ["a"]) is None
