"""Damaged files and records of every format: an error of the data, or records that lie in their file.

Covers: one to three changes of any bytes in any file of a folder, and of a record on its way. Does not cover: which
damage must be found (tests/unit/test_formats_*.py).
"""

import io
import json
import tarfile
from contextlib import suppress
from typing import IO, Any

import numpy as np
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.errors import ConfigError, DatasetError
from emlio.example import encode_example
from emlio.formats.contents import Contents
from emlio.formats.format import Format, GroupFormat
from emlio.formats.registry import FORMATS, format_named
from emlio.tfrecord import FOOTER_BYTES, HEADER_BYTES, frame
from emlio_testing.format_files import MemoryFiles, megatron_index, ranged_bytes, row_of, tar_of, write_mds

# NumPy takes a broken header for one of Python 2, tries that and says so.
pytestmark = pytest.mark.filterwarnings("ignore:Reading .*Python 2")


def _saved(save: Any, *more: Any, **named: Any) -> bytes:
    file = io.BytesIO()
    save(file, *more, **named)
    return file.getvalue()


_TABLE = pyarrow.table(
    {
        "number": pyarrow.array([1, None, 3], pyarrow.int32()),
        "text": ["a", "", "\u00fc"],
        "image": [{"bytes": b"abc", "path": "a"}, None, {"bytes": b"", "path": None}],
        "list": pyarrow.array([[1.5, 2.5], [], None], pyarrow.list_(pyarrow.float32())),
    }
)


def _write_parquet(file: IO[bytes]) -> None:
    pyarrow.parquet.write_table(_TABLE, file, row_group_size=2)


def _write_arrow(file: IO[bytes], form: str) -> None:
    make = pyarrow.ipc.new_file if form == "file" else pyarrow.ipc.new_stream
    with make(file, _TABLE.schema) as writer:
        writer.write_table(_TABLE, max_chunksize=2)


def _mds() -> dict[str, bytes]:
    columns = {"a": ("int32", 4), "b": ("str", None), "c": ("ndarray", None), "d": ("pil", None), "e": ("json", None)}
    sample = {
        "a": b"\1\0\0\0",
        "b": b"text",
        "c": b"\x09\x08\x02\x01ab",
        "d": b"\1\0\0\0\1\0\0\0\1\0\0\0L\7",
        "e": b'{"x": [1]}',
    }
    files, index = write_mds(columns, {"s0.mds": [sample] * 2, "s1.mds": [sample]})
    return {**files, "index.json": json.dumps(index).encode()}


_MEMBERS = [("d/1.jpg", b"abc"), ("d/1.cls", b"3"), ("n" * 120 + ".jpg", b""), ("2.json", b"{}" * 300)]
_FOLDERS: dict[str, tuple[str, dict[str, bytes], dict[str, str]]] = {
    "files": ("files", {"a/1": b"x", "b/2": b""}, {}),
    "tfrecord": ("tfrecord", {"a.tfrecord": frame(encode_example({"a": [1], "b": b"x"})) + frame(b"")}, {}),
    "gnu": ("tar", {"a.tar": tar_of(_MEMBERS, tarfile.GNU_FORMAT)}, {}),
    "pax": ("tar", {"a.tar": tar_of(_MEMBERS, tarfile.PAX_FORMAT)}, {}),
    "npy": ("npy", {"a.npy": _saved(np.save, np.arange(6).reshape(2, 3))}, {}),
    "npz": ("npz", {"a.npz": _saved(np.savez_compressed, a=np.arange(6), b=np.zeros(2))}, {}),
    "npz, unpacked": (
        "npz",
        {"a.npz": _saved(np.savez_compressed, a=np.arange(6), b=np.zeros(2))},
        {"inflate": "storage"},
    ),
    "npy-rows": (
        "npy-rows",
        {"a.npy": _saved(np.save, np.zeros((3, 2))), "b.npy": _saved(np.save, np.ones((1, 2)))},
        {},
    ),
    "megatron": ("megatron", {"a.bin": bytes(24), "a.idx": megatron_index(4, [2, 3, 1], [0, 8, 20], [0, 2, 3])}, {}),
    "tokens": (
        "tokens",
        {"a.npy": _saved(np.save, np.arange(30)), "b.npy": _saved(np.save, np.arange(5))},
        {"window": "4"},
    ),
    "jsonl": ("jsonl", {"a.jsonl": b'{"a": [1, 2.5], "b": "\xc3\xa9"}\n\n{"a": null}\n[]'}, {}),
    "mds": ("mds", _mds(), {}),
    "parquet": ("parquet", {"a.parquet": _saved(_write_parquet), "b.parquet": _saved(_write_parquet)}, {}),
    "arrow": ("arrow", {"a.arrow": _saved(_write_arrow, "file"), "b.arrow": _saved(_write_arrow, "stream")}, {}),
}


def test_every_format_is_damaged_here() -> None:
    assert {name for name, _, _ in _FOLDERS.values()} == {each.name for each in FORMATS}


_CHANGES = st.lists(
    st.tuples(
        st.sampled_from(("flip", "cut", "insert", "remove")),
        st.integers(0, 1 << 20),
        st.sampled_from([b"\0", b"\xff", b"\x80", b"\n", b"9", b"-", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f" * 8]),
    ),
    min_size=1,
    max_size=3,
)
Changes = list[tuple[str, int, bytes]]


def _changed(data: bytes, changes: Changes) -> bytes:
    for kind, place, new in changes:
        at = place % (len(data) + 1)
        if kind == "flip":
            data = data[:at] + new + data[at + len(new) :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "insert":
            data = data[:at] + new + data[at:]
        else:
            data = data[:at] + data[at + len(new) :]
    return data


def _look(chosen: Format, files: MemoryFiles, options: dict[str, str]) -> None:
    """Index a folder and read its records, as a daemon and a rank do."""
    layout = chosen.layout(files, options, "data")
    form = chosen.form(Contents(format=chosen.name, settings=layout.settings), None)
    for shard in layout.shards:
        if shard.unpacked:
            assert isinstance(chosen, GroupFormat)
            sizes = chosen.ranges(files, shard, layout.settings).ends.tolist()
            for number, size in zip(shard.files, sizes, strict=True):
                made = chosen.unpack(files.open(number), 0, layout.settings, "a", chosen).tobytes()
                assert len(made) == size
                row_of(form, made, b"\0\0\0\0path")
            continue
        if shard.whole_files:
            bounds = [(number, 0, int(files.sizes[number])) for number in shard.files]
        else:
            ranges = chosen.ranges(files, shard, layout.settings)
            starts, ends = ranges.starts.tolist(), ranges.ends.tolist()
            bounds = [(shard.files[0], start, end) for start, end in zip(starts, ends, strict=True)]
            content = ranged_bytes(chosen, files, shard.files[0], ranges, layout.settings)
            size = len(content)
            assert all(0 <= start <= end <= size for _, start, end in bounds)
            if chosen.name != "tokens":  # whose windows share a token
                assert (ranges.starts[1:] >= ranges.ends[:-1]).all()
        for number, start, end in bounds[:20]:
            data = files.read(number, start, end - start) if shard.whole_files else content[start:end]
            if not shard.whole_files and ranges.framed:
                data = data[HEADER_BYTES:-FOOTER_BYTES]
            try:
                row_of(form, data, b"\0\0\0\0path" if layout.told else b"")
            except DatasetError:
                continue


@pytest.mark.parametrize("folder", _FOLDERS)
@settings(max_examples=150)
@given(data=st.data())
def test_a_damaged_folder_is_an_error_or_gives_records_inside_its_files(folder: str, data: st.DataObject) -> None:
    name, contents, options = _FOLDERS[folder]
    which = data.draw(st.sampled_from(sorted(contents)))
    damaged = contents | {which: _changed(contents[which], data.draw(_CHANGES))}
    files = MemoryFiles(damaged)
    for each in FORMATS:
        each.claims(files)
    with suppress(DatasetError, ConfigError):
        _look(format_named(name), files, options)


@pytest.mark.parametrize("folder", _FOLDERS)
@settings(max_examples=150)
@given(data=st.data())
def test_a_damaged_record_is_an_error_of_the_data_or_a_record(folder: str, data: st.DataObject) -> None:
    name, contents, options = _FOLDERS[folder]
    chosen, files = format_named(name), MemoryFiles(contents)
    layout = chosen.layout(files, options, "data")
    form = chosen.form(Contents(format=name, settings=layout.settings), None)
    shard = layout.shards[0]
    if shard.whole_files:
        record = files.read(shard.files[0], 0, 1 << 20)
    else:
        ranges = chosen.ranges(files, shard, layout.settings)
        content = ranged_bytes(chosen, files, shard.files[0], ranges, layout.settings)
        record = content[int(ranges.starts[0]) : int(ranges.ends[0])]
        if ranges.framed:
            record = record[HEADER_BYTES:-FOOTER_BYTES]
    note = b"\0\0\0\0path" if layout.told else b""
    assert row_of(form, record, note)
    with suppress(DatasetError):
        row_of(form, _changed(record, data.draw(_CHANGES)), note)
