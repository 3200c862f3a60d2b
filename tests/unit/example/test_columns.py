import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

from emlio.errors import ConfigError, DatasetError
from emlio.example import ColumnDecoder, Piece, encode_example
from emlio_testing.example_records import piece_of

WAYS = pytest.mark.parametrize("together_from", [1, 10**9], ids=["together", "one by one"])


def decode(features: list[dict[str, Any]], fields: list[str] | None, together_from: int) -> dict[str, Any]:
    piece = piece_of([encode_example(each) for each in features])
    return dict(ColumnDecoder(fields, together_from=together_from).decode([piece], len(features)))


@WAYS
def test_numbers_are_stacked_and_bytes_are_views_in_batch_order(together_from: int) -> None:
    records = [encode_example({"image": b"%d" % n, "label": n - 5, "box": [n, 0.5]}) for n in range(20)]
    first = piece_of(records[:10], list(range(19, 9, -1)))
    second = piece_of(records[10:], list(range(10)))
    columns = ColumnDecoder(["label", "image", "box"], together_from=together_from).decode([first, second], 20)
    order = [*range(10, 20), *range(9, -1, -1)]
    assert list(columns) == ["label", "image", "box"]
    assert columns["label"].dtype == np.int64
    assert columns["label"].tolist() == [n - 5 for n in order]
    assert columns["image"] == [b"%d" % n for n in order]
    assert columns["box"].dtype == np.float32
    assert columns["box"].tolist() == [[n, 0.5] for n in order]


@WAYS
def test_bytes_are_not_copied(together_from: int) -> None:
    source = bytearray(b"".join(encode_example({"image": b"pixels"}) for _ in range(10)))
    size = len(source) // 10
    starts = np.arange(10) * size
    piece = Piece(buffer=memoryview(source), starts=starts, ends=starts + size, slots=np.arange(10))
    images = ColumnDecoder(["image"], together_from=together_from).decode([piece], 10)["image"]
    source[source.rindex(b"pixels")] = ord("P")
    assert images[9] == b"Pixels"


@WAYS
def test_lengths_that_differ_make_a_list_of_arrays_that_can_be_written_to(together_from: int) -> None:
    features = [{"ids": np.arange(n % 3) * 1000, "box": np.full(n % 4, 0.25, np.float32)} for n in range(12)]
    columns = decode(features, None, together_from)
    assert [row.tolist() for row in columns["ids"]] == [[0, 1000][: n % 3] for n in range(12)]
    assert [row.tolist() for row in columns["box"]] == [[0.25] * (n % 4) for n in range(12)]
    assert {row.dtype for row in columns["ids"]} == {np.dtype(np.int64)}
    assert all(row.flags.writeable for row in [*columns["ids"], *columns["box"]])


@WAYS
def test_no_values_anywhere_make_an_array_without_columns(together_from: int) -> None:
    columns = decode([{"ids": np.empty(0, np.int64)}] * 9, ["ids"], together_from)
    assert columns["ids"].shape == (9, 0)


@WAYS
def test_several_byte_values_in_one_record_make_lists_of_views(together_from: int) -> None:
    columns = decode([{"word": [b"a", b"b"] if n == 4 else b"c"} for n in range(9)], ["word"], together_from)
    assert columns["word"] == [[b"a", b"b"] if n == 4 else [b"c"] for n in range(9)]


@WAYS
def test_without_fields_the_columns_are_those_of_the_record_at_place_0_sorted(together_from: int) -> None:
    assert list(decode([{"b": 1, "a": 2, "c": b""}] * 9, None, together_from)) == ["a", "b", "c"]


@WAYS
@pytest.mark.parametrize("fields", [["a", "b"], None])
def test_a_record_without_a_wanted_feature_is_an_error_that_names_it(
    fields: list[str] | None, together_from: int
) -> None:
    features: list[dict[str, Any]] = [{"a": 1, "b": 2}] * 12
    features[7] = {"a": 1, "x": 3, "w": 4}
    says = r"record 7 of the batch (must have feature 'b', it has only \['a', 'w', 'x'\]|has a feature 'w')"
    with pytest.raises(DatasetError, match=says):
        decode(features, fields, together_from)


@WAYS
def test_a_feature_of_two_kinds_is_an_error_that_names_both_records(together_from: int) -> None:
    features: list[dict[str, Any]] = [{"a": 1}] * 12
    features[7] = {"a": 1.0}
    with pytest.raises(DatasetError, match=r"feature 'a' .* record 0 holds int64, record 7 floats"):
        decode(features, ["a"], together_from)


@WAYS
def test_a_malformed_record_is_an_error_that_names_its_place_in_the_batch(together_from: int) -> None:
    records = [encode_example({"a": 1}) for _ in range(12)]
    records[7] = records[7][:-1]
    piece = piece_of(records, [*range(11, -1, -1)])
    with pytest.raises(DatasetError, match=r"record 4 of the batch: not a tf\.train\.Example: byte 0 of the record"):
        ColumnDecoder(["a"], together_from=together_from).decode([piece], 12)


@WAYS
def test_a_run_of_numbers_over_64_bits_is_refused_in_either_way(together_from: int) -> None:
    good = encode_example({"a": [-1, -1]})
    bad = good[:-1] + b"\x02"
    with pytest.raises(DatasetError, match=r"record 9 of the batch.*at most 64 bits"):
        ColumnDecoder(["a"], together_from=together_from).decode([piece_of([good] * 9 + [bad] + [good] * 5)], 15)


@WAYS
def test_a_malformed_entry_is_refused_though_a_later_one_of_its_name_would_count(together_from: int) -> None:
    entry = b"\x0a\x01a\x12\x02\x1a\x05"  # its list ends outside
    sound = encode_example({"a": 3})[2:]
    record = b"\x0a" + bytes([len(entry) + 2 + len(sound)]) + b"\x0a" + bytes([len(entry)]) + entry + sound
    with pytest.raises(DatasetError, match="record 0 of the batch"):
        ColumnDecoder(["a"], together_from=together_from).decode([piece_of([record] * 10)], 10)


@WAYS
def test_what_was_not_asked_for_is_skipped_unseen(together_from: int) -> None:
    entry = b"\x0a\x05bogus\xff\xff\xff"
    sound = encode_example({"a": 3})[2:]
    record = b"\x0a" + bytes([len(sound) + len(entry) + 2]) + b"\x0a" + bytes([len(entry)]) + entry + sound
    decoder = ColumnDecoder(["a"], together_from=together_from)
    assert decoder.decode([piece_of([record] * 10)], 10)["a"].tolist() == [3] * 10


@WAYS
def test_a_name_longer_than_a_byte_can_count_and_an_empty_one_are_read(together_from: int) -> None:
    names = ["", "n" * 127, "n" * 128, "n" * 300]
    columns = decode([{name: [n, len(name)] for name in names} for n in range(10)], names, together_from)
    assert [columns[name][9].tolist() for name in names] == [[9, len(name)] for name in names]


@WAYS
def test_more_orders_than_one_in_a_piece_are_all_read(together_from: int) -> None:
    names = [f"feature {n}" for n in range(30)]
    records: list[bytes] = []
    for first in range(40):
        turned = [names[(first + n) % 30] for n in range(30)]
        entries = b"".join(encode_example({name: int(name[8:])})[2:] for name in turned)
        size = len(entries)
        records.append(b"\x0a" + bytes([size & 0x7F | 0x80, size >> 7]) + entries)
    columns = ColumnDecoder(None, together_from=together_from).decode([piece_of(records)], 40)
    assert all(columns[name].tolist() == [int(name[8:])] * 40 for name in names)


def test_a_record_of_endless_entries_does_not_hold_up_the_others() -> None:
    long = b"\x0a\x04\x0a\x00\x12\x00" * 3000
    records = [encode_example({"a": n}) for n in range(50)]
    size = len(long) + len(records[3]) - 2
    records[3] = b"\x0a" + bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14]) + long + records[3][2:]
    columns = ColumnDecoder(["a"], together_from=1).decode([piece_of(records)], 50)
    assert columns["a"].tolist() == list(range(50))


@pytest.mark.parametrize("slots", [[0, 1], [0, 1, 1], [1, 2, 3], [-1, 0, 1], [0, 1, 2, 3]])
def test_slots_must_be_each_place_once(slots: list[int]) -> None:
    piece = piece_of([encode_example({"a": 1})] * len(slots), slots)
    with pytest.raises(ConfigError, match=r"each number in \[0, 3\) once"):
        ColumnDecoder(["a"]).decode([piece], 3)


def test_a_batch_of_no_records_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\[0, 0\)"):
        ColumnDecoder(["a"]).decode([], 0)


@pytest.mark.parametrize("fields", ["label", [], ["a", "a"], ["\ud800"], [b"a"]])
def test_fields_must_be_different_names(fields: Any) -> None:
    with pytest.raises(ConfigError, match="fields must be"):
        ColumnDecoder(fields)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"starts": np.array([-1])}, "inside its buffer of 4 bytes"),
        ({"ends": np.array([5])}, "inside its buffer"),
        ({"starts": np.array([3]), "ends": np.array([2])}, "inside its buffer"),
        ({"starts": np.array([0], np.int32)}, "starts must be int64"),
        ({"ends": np.array([[4]])}, "ends must be int64"),
        ({"slots": np.array([0, 1])}, "slots must be int64, one per record"),
        ({"buffer": memoryview(np.zeros(4, np.int32))}, "contiguous bytes"),
        ({"buffer": memoryview(b"12345678")[::2]}, "contiguous bytes"),
    ],
)
def test_a_piece_is_valid_at_birth(changes: dict[str, Any], says: str) -> None:
    sound = {"buffer": memoryview(b"1234"), "starts": np.array([0]), "ends": np.array([4]), "slots": np.array([0])}
    with pytest.raises(ConfigError, match=says):
        Piece(**(sound | changes))


def test_an_interrupt_at_any_place_of_the_slots_check_is_not_taken_for_wrong_slots() -> None:
    decoder, piece = ColumnDecoder(), piece_of([encode_example({"label": 1})])
    passed = strike_at = 0

    def strike(frame: FrameType, event: str, _: object) -> None:
        nonlocal passed
        if frame.f_code.co_filename == __file__ or event not in ("call", "c_call", "c_return"):
            return
        passed += 1
        if passed == strike_at:
            sys.setprofile(None)
            raise TimeoutError("the user's")

    while passed == strike_at:
        passed, strike_at = 0, strike_at + 1
        sys.setprofile(strike)
        try:
            decoder._check_slots([piece], 1)
        except TimeoutError:
            assert passed == strike_at
        finally:
            sys.setprofile(None)
    assert strike_at > 10
