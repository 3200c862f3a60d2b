"""Parquet and Arrow tables: types, nulls, columns that are chosen, files that differ, what is refused."""

import datetime
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

from emlio.errors import ConfigError, DatasetError
from emlio.formats.contents import Contents, FieldType
from emlio.formats.registry import find_format
from emlio.formats.tabular import arrow_library
from emlio.formats.tabular.packed_rows import PackedColumn, PackedColumns
from emlio.formats.tabular.tables import Tables, arrow_tables, parquet_tables
from emlio_testing.format_files import MemoryFiles, records_in, row_of

_ROWS = 7
_ALL = pa.table(
    {
        "int8": pa.array([1, -2, None, 4, 5, 6, 7], pa.int8()),
        "uint64": pa.array([1, (1 << 64) - 1, 3, 4, 5, 6, 7], pa.uint64()),
        "half": pa.array(np.arange(_ROWS, dtype=np.float16)),
        "double": pa.array([0.5, None, 2.5, -0.0, float("inf"), 5, 6], pa.float64()),
        "truth": pa.array([True, None, False, True, True, False, True]),
        "text": ["x", "yy", None, "", "\u00e9", "z", "w"],
        "view": pa.array(["x", "a longer text than twelve bytes", None, "", "v", "w", "x"], pa.string_view()),
        "bytes": [b"1", b"", b"333", None, b"5", b"6", b"7"],
        "two": pa.array([b"ab", b"cd", None, b"ef", b"gh", b"ij", b"kl"], pa.binary(2)),
        "list": pa.array([[1, 2], [], None, [3], [4, 5, 6], [7], [8]], pa.list_(pa.float32())),
        "flags": pa.array([[True], [], None, [False, True], [], [], []], pa.list_(pa.bool_())),
        "pair": pa.array([[1, 2], None, [3, 4], [5, 6], [7, 8], [9, 10], [11, 12]], pa.list_(pa.int16(), 2)),
        "image": [{"bytes": b"q" * n, "path": f"p{n}"} if n != 3 else None for n in range(_ROWS)],
        "word": pa.array(["u", "v", "u", None, "u", "v", "v"]).dictionary_encode(),
        "time": pa.array([datetime.datetime(2020, 1, day + 1) if day != 2 else None for day in range(_ROWS)]),
        "day": pa.array([datetime.date(1969, 12, day + 1) for day in range(_ROWS)]),
        "span": pa.array([datetime.timedelta(seconds=n) for n in range(_ROWS)], pa.duration("ms")),
    }
)


def _parquet(table: pa.Table, rows: int = 3, **options: Any) -> bytes:
    file = io.BytesIO()
    pa.parquet.write_table(table, file, row_group_size=rows, **options)
    return file.getvalue()


def _arrow(table: pa.Table, rows: int = 3) -> bytes:
    file = io.BytesIO()
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return file.getvalue()


def _stream(table: pa.Table, rows: int = 3) -> bytes:
    for number, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(number, field.name, table.column(number).cast(field.type.value_type))
    file = io.BytesIO()
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return file.getvalue()


_WAYS: list[tuple[Tables, str, Callable[..., bytes]]] = [
    (parquet_tables, "a.parquet", _parquet),
    (arrow_tables, "a.arrow", _arrow),
    (arrow_tables, "a.arrow", _stream),
]


def _plain(value: Any) -> Any:
    match value:
        case memoryview():
            return bytes(value)
        case np.ndarray():
            return value.tolist()
        case np.datetime64() | np.timedelta64():
            return value.astype(f"{value.dtype.kind}8[us]").item()
        case np.generic():
            return value.item()
        case _:
            return value


def _expected(table: pa.Table) -> list[dict[str, Any]]:
    flat = table.flatten().to_pylist()
    days = {"day": lambda day: datetime.datetime.combine(day, datetime.time())}
    return [{name: days.get(name, lambda same: same)(value) for name, value in row.items()} for row in flat]


@pytest.mark.parametrize(("chosen", "name", "write"), _WAYS)
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_rows_are_those_of_pyarrow(chosen: Tables, name: str, write: Callable[..., bytes], rows: int) -> None:
    found = records_in(chosen, {name: write(_ALL, rows), f"b{name}": write(_ALL.slice(2, 3), rows)})
    wanted = _expected(_ALL) + _expected(_ALL.slice(2, 3))
    assert [{column: _plain(value) for column, value in row.items()} for row in found] == wanted


@pytest.mark.parametrize(("chosen", "name", "write"), _WAYS)
def test_a_file_without_rows_has_no_records(chosen: Tables, name: str, write: Callable[..., bytes]) -> None:
    found = records_in(chosen, {name: write(_ALL.slice(0, 0)), f"b{name}": write(_ALL)})
    assert len(found) == _ROWS


def test_only_numbers_make_rows_of_one_size() -> None:
    table = pa.table(
        {"a": pa.array([1, 2], pa.int32()), "b": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64(), 2))}
    )
    files = MemoryFiles({"a.parquet": _parquet(table)})
    layout = parquet_tables.layout(files, {}, "data")
    ranges = parquet_tables.ranges(files, layout.shards[0], layout.settings)
    assert (ranges.ends - ranges.starts).tolist() == [1 + 4 + 16] * 2
    assert layout.schema == {"a": FieldType("int32", ()), "b": FieldType("float64", (2,))}


def test_more_than_eight_columns_have_flags() -> None:
    table = pa.table({f"c{number}": pa.array([None, number], pa.int64()) for number in range(19)})
    first, second = records_in(parquet_tables, {"a.parquet": _parquet(table)})
    assert list(first.values()) == [None] * 19
    assert list(second.values()) == list(range(19))


def test_columns_can_be_chosen() -> None:
    found = records_in(
        parquet_tables, {"a.parquet": _parquet(_ALL)}, options={"columns": "image.bytes,int8"}, fields=None
    )
    assert [list(row) for row in found] == [["image.bytes", "int8"]] * _ROWS
    some = records_in(parquet_tables, {"a.parquet": _parquet(_ALL)}, fields=["text"])
    assert [row["text"] for row in some] == _ALL["text"].to_pylist()


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(DatasetError, match=r"a\.parquet: columns must be some of int8, .*, got 'int9'"):
        records_in(parquet_tables, {"a.parquet": _parquet(_ALL)}, options={"columns": "int9"})
    with pytest.raises(ConfigError, match=r"must be columns of the dataset, .*, got 'int9'; did you mean 'int8'\?$"):
        records_in(parquet_tables, {"a.parquet": _parquet(_ALL)}, fields=["int9"])


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.string()), pa.map_(pa.string(), pa.int8()), pa.decimal128(9, 2), pa.list_(pa.list_(pa.int8()))]
)
def test_types_that_are_no_arrays_are_refused_with_the_option_that_helps(kind: Any) -> None:
    table = pa.table({"a": [1], "b": pa.array([None], kind), "c": ["x"]})
    with pytest.raises(DatasetError, match=r"column 'b' must hold numbers, .*\?columns=a,c"):
        records_in(parquet_tables, {"a.parquet": _parquet(table)})
    assert records_in(parquet_tables, {"a.parquet": _parquet(table)}, options={"columns": "a,c"})[0]["c"] == "x"


def _index(files: dict[str, bytes], chosen: Tables = parquet_tables) -> None:
    held = MemoryFiles(files)
    layout = chosen.layout(held, {}, "data")
    for shard in layout.shards:
        chosen.ranges(held, shard, layout.settings)


@pytest.mark.parametrize("kind", [pa.list_(pa.int8()), pa.list_(pa.int8(), 2)])
def test_nulls_inside_lists_are_refused_when_the_index_is_made(kind: Any) -> None:
    table = pa.table({"a": pa.array([[1, None]], kind)})
    with pytest.raises(DatasetError, match="lists in column 'a' must be without nulls"):
        _index({"a.parquet": _parquet(table)})


_FIRST = pa.table({"a": pa.array([1], pa.int64()), "t": pa.array([0], pa.timestamp("us"))})


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"a": ["x"], "t": _FIRST["t"]}, "column 'a' must be as in other files, is of string"),
        ({"a": pa.array([1], pa.int32()), "t": _FIRST["t"]}, "column 'a' must be as in other files, is of int32"),
        ({"a": [1], "t": pa.array([0], pa.timestamp("us", "Asia/Tokyo"))}, "column 't' must be as in other files"),
    ],
)
def test_files_with_other_columns_are_refused_when_the_index_is_made(other: dict[str, Any], reason: str) -> None:
    with pytest.raises(DatasetError, match=rf"b\.parquet: {reason}"):
        _index({"a.parquet": _parquet(_FIRST), "b.parquet": _parquet(pa.table(other))})


@pytest.mark.parametrize(("chosen", "name", "write"), _WAYS)
def test_a_column_that_a_file_lacks_is_null_in_its_rows(chosen: Tables, name: str, write: Callable[..., bytes]) -> None:
    parts = [
        pa.table({"a": [1, 2], "none": pa.nulls(2), "s": pa.nulls(2)}),
        pa.table({"text": ["x", None], "s": [{"bytes": b"1", "n": 1}, None], "a": [3, None]}),
        pa.table({"list": [[1.5]], "pair": pa.array([[1, 2]], pa.list_(pa.int8(), 2)), "none": pa.array([True])}),
    ]
    found = records_in(chosen, {f"{number}{name}": write(part, 1) for number, part in enumerate(parts)})
    columns = ["a", "text", "s.bytes", "s.n", "list", "pair", "none"]
    assert [list(row) for row in found] == [columns] * 5
    wanted = [row for part in parts for row in part.flatten().to_pylist()]
    assert [[_plain(row[column]) for column in columns] for row in found] == [
        [row.get(column) for column in columns] for row in wanted
    ]


def test_columns_may_be_chosen_of_any_file_and_one_of_nulls_alone_is_named() -> None:
    files = {"a.parquet": _parquet(pa.table({"a": [1], "n": pa.nulls(1)})), "b.parquet": _parquet(pa.table({"b": [2]}))}
    rows = records_in(parquet_tables, files, options={"columns": "b"})
    assert rows == [{"b": None}, {"b": 2}]
    with pytest.raises(
        DatasetError, match=r"must hold values, n is none that does\. Serve the others with \?columns=a,b"
    ):
        _index(files)


def test_a_struct_whose_parts_have_dots_is_read() -> None:
    table = pa.table({"a": [{"b.x": 1}, {"b.x": 2}], "a.b": [{"y": 3}, {"y": 4}]})
    rows = records_in(parquet_tables, {"a.parquet": _parquet(table)})
    assert rows == [{"a.b.x": 1, "a.b.y": 3}, {"a.b.x": 2, "a.b.y": 4}]


@pytest.mark.parametrize("change", [lambda data: data[:-8], lambda data: data + data, lambda data: data[:-9]])
def test_a_stream_that_is_cut_or_goes_on_is_refused(change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(DatasetError, match=r"a\.arrow: .*"):
        _index({"a.arrow": change(_stream(_ALL))}, arrow_tables)


def test_a_stream_with_dictionaries_is_refused() -> None:
    file = io.BytesIO()
    table = _ALL.select(["word"])
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(DatasetError, match=r"a\.arrow: a stream must be without dictionaries"):
        records_in(arrow_tables, {"a.arrow": file.getvalue()})


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" * 9, b"ARROW1\0\0" * 9, b"\xff" * 99])
@pytest.mark.parametrize(("chosen", "name", "_"), _WAYS[:2])
def test_no_table_is_an_error_that_names_the_file(chosen: Tables, name: str, _: Any, content: bytes) -> None:
    with pytest.raises(DatasetError, match=rf"{name}: must be a readable"):
        records_in(chosen, {name: content})


def test_classes_of_hugging_face_have_names() -> None:
    features = {"image": {"_type": "Image"}, "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
    table = pa.table({"image": [{"bytes": b"x", "path": "p"}], "label": [1]})
    told = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    for words in (told, table.replace_schema_metadata({"huggingface": "["}), table):
        layout = parquet_tables.layout(MemoryFiles({"a.parquet": _parquet(words)}), {}, "data")
        assert layout.label_names == ({0: "cat", 1: "dog"} if words is told else {})
    with pytest.raises(
        DatasetError, match=r"b\.parquet: the names of classes must be as in other files, \['cat', 'dog'\]"
    ):
        _index({"a.parquet": _parquet(told), "b.parquet": _parquet(table)})


def test_names_are_those_of_the_classes_of_the_label() -> None:
    coarse, fine = ({"names": names, "_type": "ClassLabel"} for names in (["animal"], ["cat", "dog"]))
    table = pa.table({"coarse": [0], "fine_label": [1]})
    told = table.replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": {"coarse": coarse, "fine_label": fine}}})}
    )
    layout = parquet_tables.layout(MemoryFiles({"a.parquet": _parquet(told)}), {}, "data")
    assert layout.label_names == {0: "cat", 1: "dog"}


def test_presets_find_image_and_label() -> None:
    table = pa.table({"image": [{"bytes": b"x", "path": "p"}], "label": [1]})
    (row,) = records_in(parquet_tables, {"a.parquet": _parquet(table)}, fields=["image/encoded", "image/class/label"])
    assert (bytes(row["image/encoded"]), row["image/class/label"]) == (b"x", 1)


@pytest.mark.parametrize(
    ("names", "format_name"),
    [
        (["a.parquet", "README.md"], "parquet"),
        (["data/train-0.parquet", "data/train-1.parquet", "README.md", ".gitattributes"], "parquet"),
        (["data-00000-of-00001.arrow", "dataset_info.json", "state.json"], "arrow"),
        (["a.parquet", "b.bin", "c.bin"], "files"),
    ],
)
def test_a_folder_is_taken_for_tables_by_its_files(names: list[str], format_name: str) -> None:
    assert find_format(MemoryFiles(dict.fromkeys(names, b"")), "data").name == format_name


@pytest.mark.parametrize("ending", ["tar", "jsonl", "pq", "feather"])
def test_a_few_texts_beside_shards_are_about_them(ending: str) -> None:
    about = dict.fromkeys(("README.md", "LICENSE", "info.json", "labels.txt"), b"-")
    plain = {"tar": "tar", "jsonl": "jsonl", "pq": "parquet", "feather": "arrow"}
    assert find_format(MemoryFiles(about | {f"a.{ending}": b"x"}), "data").name == plain[ending]
    many = {f"{number}.txt": b"-" for number in range(50)}
    assert find_format(MemoryFiles(many | {f"a.{ending}": b"x"}), "data").name == "files"


@pytest.mark.parametrize("names", [["a.tar", "b.parquet", "c.jsonl"], ["a.tar", "b.jpg", "c.jpg", "d.jpg"]])
def test_shards_that_hold_most_bytes_are_not_served_as_one_record_each(names: list[str]) -> None:
    data = {name: b"x" * (1 if name.endswith("jpg") else 100) for name in names}
    with pytest.raises(
        DatasetError,
        match=r"data: must hold files of one kind, .* such as a\.tar among others.*format=tar; to serve each",
    ):
        find_format(MemoryFiles(data), "data")


def test_without_pyarrow_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(arrow_library, "import_module", absent)
    with pytest.raises(ConfigError, match='requires pyarrow: pip install "pyarrow'):
        records_in(parquet_tables, {"a.parquet": b""})


# ---- at the rank ----------------------------------------------------------------------------------------------------

_COLUMNS = PackedColumns(
    columns=[
        PackedColumn(name="a", kind="numbers", dtype="<i4"),
        PackedColumn(name="b", kind="bytes"),
        PackedColumn(name="c", kind="array", dtype="<f8"),
        PackedColumn(name="d", kind="str"),
    ]
)
_CONTENTS = Contents(format="parquet", settings=_COLUMNS.encoded())


def _head(*lengths: int) -> bytes:
    return b"\0" + (5).to_bytes(4, "little") + b"".join(length.to_bytes(4, "little") for length in lengths)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"", "must have at least 17 bytes, has 0"),
        (_head(1, 0, 0), "column 'b' must end within the row's 17 bytes, ends at 18"),
        (_head(0, 0, 0) + b"x", "must fill its 18 bytes, they end at 17"),
        (_head(0, 3, 0) + b"xxx", "column 'c' must have whole numbers of float64, has 3 bytes"),
        (_head(0, 0, 1) + b"\xff", "column 'd' must be text in UTF-8"),
    ],
)
def test_a_row_that_does_not_fit_its_columns_is_an_error(row: bytes, reason: str) -> None:
    with pytest.raises(DatasetError, match=reason):
        row_of(parquet_tables.form(_CONTENTS, None), row)


@pytest.mark.parametrize(
    "settings",
    [
        b"",
        b"{}",
        b'{"columns": []}',
        b'{"columns": [{"name": "a", "kind": "numbers", "dtype": "O"}]}',
        b'{"columns": [{"name": "a", "kind": "numbers", "dtype": "nothing"}]}',
        b'{"columns": [{"name": "a", "kind": "numbers", "dtype": "<i4", "length": -1}]}',
        b'{"columns": [{"name": "a", "kind": "else"}]}',
    ],
)
def test_settings_that_describe_no_columns_are_an_error(settings: bytes) -> None:
    with pytest.raises(DatasetError):
        parquet_tables.form(Contents(format="parquet", settings=settings), None)
