"""JSON lines, and columns of records that are read one by one.

Covers: finding lines, lines that are none, types of values, fields=, records unlike the others. Does not cover: files
that change (tests/integration/test_formats_changes.py).
"""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emlio.errors import ConfigError, DatasetError
from emlio.example.columns import Piece
from emlio.formats.each_record import EachRecord, stacked
from emlio.formats.format import ShardFiles
from emlio.formats.json_lines import json_lines
from emlio_testing.format_files import MemoryFiles, records_in


def _lines(data: bytes) -> list[bytes]:
    ranges = json_lines.ranges(MemoryFiles({"a.jsonl": data}), ShardFiles(name="a.jsonl", files=(0,)), b"")
    return [data[start:end] for start, end in zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n\n \t\r\n", []),
        (b"{}", [b"{}"]),
        (b"{}\n", [b"{}"]),
        (b"{}\r\n{}\r\n", [b"{}\r", b"{}\r"]),
        (b"\n{}\n\n  \n {} ", [b"{}", b" {} "]),
        (b" ", []),
    ],
)
def test_lines_with_more_than_blanks_are_records(data: bytes, lines: list[bytes]) -> None:
    assert _lines(data) == lines


@given(
    st.binary(max_size=60).map(lambda data: data.translate(bytes(b"\n \r{}ab\t"[n % 8] for n in range(256)))),
    st.integers(1, 9),
)
def test_lines_are_those_that_splitting_finds_whatever_the_blocks(data: bytes, block: int) -> None:
    class Slowly(MemoryFiles):
        def open(self, number: int) -> Any:
            file = super().open(number)
            file.read, read = (lambda _=-1: read(block)), file.read  # type: ignore[method-assign]
            return file

    files = Slowly({"a.jsonl": data})
    ranges = json_lines.ranges(files, ShardFiles(name="a.jsonl", files=(0,)), b"")
    found = [data[start:end] for start, end in zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True)]
    assert found == [line for line in data.split(b"\n") if line.strip(b" \t\r")]


def test_a_file_that_grows_meanwhile_is_an_error() -> None:
    files = MemoryFiles({"a.jsonl": b"{}\n{}\n"})
    files.sizes = files.sizes - 1
    with pytest.raises(DatasetError, match=r"a\.jsonl: had 5 bytes and has 6 now: another process is changing it"):
        json_lines.ranges(files, ShardFiles(name="a.jsonl", files=(0,)), b"")


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"nothing",
        b'{"a": NaN}',
        b'{"a": "\xff"}',
        b'{"\xff": 1}',
        b"\xef\xbb\xbf{}",
        b'{"a": 1} {"a": 2}',
        b'{"a": "\\ud800"}',
        b'{"a": 1e999}',
        b"[" * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_no_json_is_refused_with_its_begin(line: bytes) -> None:
    with pytest.raises(DatasetError, match="record 0 of the batch: must be a line of JSON, got b") as caught:
        records_in(json_lines, {"a.jsonl": line})
    assert len(str(caught.value)) < 800


@pytest.mark.parametrize("line", [b"[1, 2]", b'"text"', b"3", b"null", b"true"])
def test_what_is_no_object_is_refused(line: bytes) -> None:
    with pytest.raises(DatasetError, match="record 0 of the batch: must be a JSON object, got b"):
        records_in(json_lines, {"a.jsonl": line})


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


_NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans()


@given(st.lists(_NUMBERS, min_size=1, max_size=5))
def test_lists_of_numbers_are_never_changed(values: list[Any]) -> None:
    (row,) = records_in(json_lines, {"a.jsonl": json.dumps({"v": values}).encode()})
    found = _plain(row["v"])
    assert found == values
    assert [type(one) is bool for one in found] == [type(one) is bool for one in values]


@given(st.lists(_NUMBERS | st.none() | st.text(max_size=2), min_size=1, max_size=5))
def test_columns_of_values_are_never_changed(values: list[Any]) -> None:
    column = _plain(stacked(values))
    assert column == values
    assert [type(one) is bool for one in column] == [type(one) is bool for one in values]


def test_columns_of_one_type_are_arrays() -> None:
    assert stacked([1, 2]).dtype == np.int64
    assert stacked([1, 2.5]).dtype == np.float64
    assert stacked([True, False]).dtype == np.bool_
    assert stacked([np.int8(1), np.int8(2)]).dtype == np.int8
    assert stacked([np.zeros(2, np.int8), np.ones(2, np.int8)]).shape == (2, 2)
    assert isinstance(stacked([np.zeros(2), np.zeros(3)]), list)
    assert isinstance(stacked([np.zeros(2), np.zeros(2, np.int8)]), list)
    assert isinstance(stacked([2**63, 1]), list)
    assert isinstance(stacked([True, 1]), list)


# ---- batches --------------------------------------------------------------------------------------------------------


def _piece(*records: bytes) -> Piece:
    ends = np.cumsum([len(record) for record in records])
    sizes = np.array([len(record) for record in records])
    return Piece(buffer=memoryview(b"".join(records)), starts=ends - sizes, ends=ends, slots=np.arange(len(records)))


def _form(*fields: str) -> EachRecord:
    form = json_lines.form(None, fields or None)  # type: ignore[arg-type]
    assert isinstance(form, EachRecord)
    return form


def test_a_record_of_other_keys_is_at_fault_among_the_rest() -> None:
    piece = _piece(b'{"a":1}', b'{"b":2}', b'{"a":3,"c":1}', b"x", b'{"a":4}')
    with pytest.raises(DatasetError, match="record 3 of the batch: must be a line of JSON"):
        _form().columns([piece], 5)
    faults = _form().faults([piece])
    assert faults[1] == "has ['b'] where most records of the batch have ['a']"
    assert faults[2] == "has ['a', 'c'] where most records of the batch have ['a']"
    assert faults[3].startswith("must be a line of JSON")
    assert [*faults] == [1, 2, 3]
    assert _form("a").faults([piece]) == {1: "has no 'a', only ['b']", 3: faults[3]}


def test_a_record_with_a_column_more_says_how_to_choose() -> None:
    with pytest.raises(DatasetError, match="has 'b' that record 0 lacks; choose what to load with fields="):
        _form().columns([_piece(b'{"a":1}', b'{"a":1,"b":2}')], 2)


def test_fields_are_columns_in_their_order() -> None:
    columns = _form("b", "a").columns([_piece(b'{"a":1,"b":2,"c":3}', b'{"c":0,"b":4,"a":5}')], 2)
    assert [(name, column.tolist()) for name, column in columns.items()] == [("b", [2, 4]), ("a", [1, 5])]


def test_a_field_that_no_record_has_is_told_as_such() -> None:
    absent = _form("z").absent([_piece(b"x", b'{"a":1}', b'{"b":1}')])
    assert absent is not None
    assert (absent.name, absent.place, absent.there, absent.records) == ("z", 1, ("a",), 2)
    assert _form("a").absent([_piece(b'{"a":1}')]) is None
    assert _form().absent([_piece(b'{"a":1}')]) is None
    assert _form("z").absent([_piece(b"x")]) is None


@pytest.mark.parametrize("fields", [[], "text", ["a", "a"]])
def test_fields_must_be_different_names(fields: Any) -> None:
    with pytest.raises(ConfigError, match="fields must be a list of one or more different names"):
        json_lines.form(None, fields)  # type: ignore[arg-type]
