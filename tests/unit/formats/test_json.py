"""JSON lines, and columns of records that are read one by one."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emlio.errors import ConfigError, DatasetError
from emlio.example.faults import without
from emlio.formats.each_record import EachRecord, stacked
from emlio.formats.format import ShardFiles
from emlio.formats.json_lines import json_lines
from emlio_testing.example_records import piece_of
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
        (b"{}\r{}\r", [b"{}", b"{}"]),
        (b"\xef\xbb\xbf{}\n{}\n", [b"{}", b"{}"]),
        (b"\xef\xbb\xbf\n{}\n", [b"{}"]),
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
    end = b"\n" if b"\n" in data else b"\r"
    assert found == [line for line in data.split(end) if line.strip(b" \t\r")]


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
        b'{"a": "\xff"}',
        b'{"\xff": 1}',
        b"{\xef\xbb\xbf}",
        b'{"a": NaNs}',
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


def _form(*fields: str) -> EachRecord:
    form = json_lines.form(None, fields or None)  # type: ignore[arg-type]
    assert isinstance(form, EachRecord)
    return form


def test_a_key_that_a_record_lacks_is_none_and_only_what_is_no_json_is_at_fault() -> None:
    piece = piece_of([b'{"a":1}', b'{"b":2}', b'{"a":3,"c":1}', b"x", b'{"a":4}'])
    with pytest.raises(DatasetError, match="record 3 of the batch: must be a line of JSON"):
        _form().columns([piece], 5)
    for form in (_form(), _form("a")):
        assert [*form.faults([piece])] == [3]
    left = without([piece], [3])
    assert _form().columns(left, 4) == {"a": [1, None, 3, 4], "b": [None, 2, None, None], "c": [None, None, 1, None]}
    assert _form("z", "b").columns(left, 4) == {"z": [None] * 4, "b": [None, 2, None, None]}


def test_columns_are_those_of_many_lines() -> None:
    files = {
        "a.jsonl": b'\xef\xbb\xbf{"a":null}\n{"b":1.5}\nno json\n{"a":"x","b":2}\n',
        "b.jsonl": b'{"c":true}\r[]\r',
    }
    schema = json_lines.layout(MemoryFiles(files), {}, "here").schema
    assert {name: field.kind for name, field in schema.items()} == {"b": "float64", "a": "str", "c": "bool"}


def test_numbers_that_python_writes_and_json_has_not_are_read() -> None:
    rows = records_in(json_lines, {"a.jsonl": b'{"a": NaN, "b": [Infinity, -Infinity]}\n{"a": "NaN", "b": []}\n'})
    assert np.isnan(rows[0]["a"])
    assert rows[0]["b"].tolist() == [np.inf, -np.inf]
    assert rows[1]["a"] == "NaN"


def test_fields_are_columns_in_their_order() -> None:
    columns = _form("b", "a").columns([piece_of([b'{"a":1,"b":2,"c":3}', b'{"c":0,"b":4,"a":5}'])], 2)
    assert [(name, column.tolist()) for name, column in columns.items()] == [("b", [2, 4]), ("a", [1, 5])]


@pytest.mark.parametrize("fields", [[], "text", ["a", "a"]])
def test_fields_must_be_different_names(fields: Any) -> None:
    with pytest.raises(ConfigError, match="fields must be a list of one or more different names"):
        json_lines.form(None, fields)  # type: ignore[arg-type]
