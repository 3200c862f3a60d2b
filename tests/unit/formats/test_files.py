"""Files that are a record each: labels, notes, NumPy's files and archives that are damaged."""

import io
import zipfile
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from emlio.errors import DatasetError
from emlio.formats.archives import archive_files
from emlio.formats.contents import Contents
from emlio.formats.registry import find_format
from emlio.formats.whole_file import any_files, array_files, file_notes
from emlio_testing.format_files import MemoryFiles, npy_of, records_in, row_of


def _npz(**arrays: npt.NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=True, **arrays)
    return file.getvalue()


@pytest.mark.parametrize(
    ("names", "format_name"),
    [
        (["a.jpg"], "files"),
        (["a.npy"], "npy"),
        (["a.NPY", "README.md"], "npy"),
        (["a.npy", "b.jpg", "c.jpg"], "files"),
        (["a.npz"], "npz"),
        (["a.jsonl"], "jsonl"),
        (["a.ndjson"], "jsonl"),
        (["a.tar"], "tar"),
        (["a.bin"], "files"),
        (["index.json", "a.mds"], "files"),
    ],
)
def test_a_folder_has_the_format_of_most_of_its_files(names: list[str], format_name: str) -> None:
    assert find_format(MemoryFiles(dict.fromkeys(names, b"")), "data").name == format_name


def _labels(*names: str) -> dict[str, int | None]:
    rows = records_in(any_files, dict.fromkeys(names, b""))
    return {row["path"]: int(row["label"]) if "label" in row else None for row in rows}


def test_folders_are_classes_and_files_about_them_are_no_records() -> None:
    assert _labels("README.md", "b/1", "a/x/2", "a/3", "labels.csv") == {"a/3": 0, "a/x/2": 0, "b/1": 1}


def test_a_file_beside_the_folders_means_that_they_are_no_classes() -> None:
    assert _labels("1.jpg", "a/2", "a/3.jpg") == {"1.jpg": None, "a/2": None, "a/3.jpg": None}


def test_files_about_a_dataset_are_records_if_there_is_nothing_else() -> None:
    assert _labels("README.md", "a.txt", "b.json") == {"README.md": None, "a.txt": None, "b.json": None}


def test_many_files_are_several_shards_without_gaps() -> None:
    files = MemoryFiles({f"c/{number:05d}.x": b"" for number in range(9000)} | {"README": b""})
    layout = any_files.layout(files, {}, "data")
    assert [len(shard.files) for shard in layout.shards] == [4096, 4096, 808]
    assert [number for shard in layout.shards for number in shard.files] == [*range(1, 9001)]
    assert [shard.name for shard in layout.shards] == ["files-000000", "files-000001", "files-000002"]


def test_only_files_of_the_extension_are_records() -> None:
    rows = records_in(array_files, {"a/1.npy": npy_of(np.arange(2)), "a/2.txt": b"", "b/3.NPY": npy_of(np.arange(3))})
    assert [(row["path"], row["label"], len(row["array"])) for row in rows] == [("a/1.npy", 0, 2), ("b/3.NPY", 1, 3)]


def test_notes_say_label_and_path() -> None:
    names = ["a/\udcff", "b/é"]
    assert file_notes(names, np.array([3, 1], np.int32), np.array([1, 0])) == [
        b"\1\0\0\0b/\xc3\xa9",
        b"\3\0\0\0a/\xff",
    ]
    assert file_notes(names, None, np.array([0])) == [b"\xff\xff\xff\xffa/\xff"]


@pytest.mark.parametrize("note", [b"", b"\0\0\0"])
def test_a_note_that_is_too_short_is_refused(note: bytes) -> None:
    form = any_files.form(Contents(format="files", settings=b'{"labels": true}'), None)
    with pytest.raises(DatasetError, match="a file's note must have its label and path"):
        row_of(form, b"data", note)


@pytest.mark.parametrize("settings", [b"", b"{}", b"[]", b"{", b"[" * 100_000])
def test_what_a_peer_tells_is_checked(settings: bytes) -> None:
    with pytest.raises(DatasetError, match="files must be told with or without labels"):
        any_files.form(Contents(format="files", settings=settings), None)


_HEADER = npy_of(np.zeros((2, 3)))


def _described(text: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode() + data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"must be a \.npy file"),
        (b"\x93NUMPY\1\0", r"must be a \.npy file"),
        (b"GIF89a" * 9, r"must be a \.npy file"),
        (_HEADER[:-1], r"must be a \.npy file with 48 bytes of float64 .* has 47"),
        (_HEADER + b"x", r"has 49"),
        (_HEADER[:60], r"must be a \.npy file"),
        (b"\x93NUMPY\3\0" + _HEADER[8:], r"of version 1\.0 or 2\.0, is of 3\.0"),
        (npy_of(np.array([{1: 2}, None])), r"holds Python objects \(object\), which are never unpickled"),
        (npy_of(np.array([(1, "a")], [("a", "i4"), ("b", "O")])), "holds Python objects"),
        (_described("{'descr': '<i4', 'fortran_order': False, 'shape': (-1,), }"), "without negative lengths"),
        (_described("{'descr': '<i4', 'fortran_order': False, 'shape': (1 << 70, 0), }"), r"must be a \.npy file"),
        (_described(f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({1 << 70}, 0), }}"), "must be an array of"),
        (_described("{'descr': '|S0', 'fortran_order': False, 'shape': (3,), }"), "must be an array of"),
        (_described("{'descr': ('<i4', (2,)), 'fortran_order': False, 'shape': (1,), }", bytes(8)), "must be"),
        (_described("__import__('os').system('false')"), r"must be a \.npy file"),
        (_described("(" * 5000), r"must be a \.npy file"),
    ],
)
def test_arrays_that_are_damaged_or_pickled_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        records_in(array_files, {"1.npy": data})


def _zip(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return file.getvalue()


def _changed(data: bytes, old: bytes, new: bytes) -> bytes:
    assert old in data
    return data.replace(old, new)


def _twice() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.npy", npy_of(np.arange(2)))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.npy", npy_of(np.arange(3)))
    return file.getvalue()


_WHOLE = _zip(a=npy_of(np.arange(40)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"must be a \.npz archive"),
        (b"PK" * 90, r"must be a \.npz archive"),
        (_WHOLE[:-1], r"must be a \.npz archive"),
        (_WHOLE[: len(_WHOLE) // 2], r"must be a \.npz archive"),
        (_changed(_WHOLE, b"\x07\0\0\0\0\0\0\0", b"\x08\0\0\0\0\0\0\0"), "Bad CRC-32"),
        (_changed(_WHOLE, b"PK\1\2\x14\3\x14\0\0\0", b"PK\1\2\x14\3\x14\0\1\0"), "encrypted"),
        (_changed(_WHOLE, b"PK\1\2\x14\3\x14\0\0\0\0\0", b"PK\1\2\x14\3\x14\0\0\0\x63\0"), "compression"),
        (_changed(_WHOLE, b"PK\1\2\x14\3\x14\0\0\0\0\0", b"PK\1\2\x14\3\x14\0\0\0\x0e\0"), r"must be a \.npz archive"),
        (_zip(), "it holds none"),
        (_zip(a=b"no array"), r"a\.npy: must be a \.npy file"),
        (_npz(a=np.array([{}])), r"a\.npy: .*holds Python objects"),
        (_twice(), "with each array once, 'a' is there twice"),
    ],
)
def test_archives_that_are_damaged_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        records_in(archive_files, {"1.npz": data})


def test_the_arrays_of_an_archive_may_be_written_to() -> None:
    (row,) = records_in(archive_files, {"1.npz": _npz(a=np.arange(9), b=np.ones((2, 2), ">f4"))})
    assert row["a"].flags.writeable
    assert row["b"].flags.writeable


def test_a_changed_byte_anywhere_in_an_archive_is_an_error_of_the_data_or_harmless() -> None:
    whole = _npz(a=np.arange(9), b=np.ones((2, 2), ">f4"))
    (wanted,) = records_in(archive_files, {"1.npz": whole})
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x21
        try:
            (row,) = records_in(archive_files, {"1.npz": bytes(damaged)})
        except DatasetError:
            continue
        assert all(np.array_equal(row[name], wanted[name]) for name in row if name in ("a", "b"))


@pytest.mark.parametrize("names", [["a"], ["a", "\u00fc" * 9, "x" * 200], []])
def test_an_archive_that_the_daemon_unpacks_has_the_size_it_said_and_the_same_arrays(names: list[str]) -> None:
    files = MemoryFiles({"1.npz": _npz(**{name: np.arange(1000) + place for place, name in enumerate(names)})})
    layout = archive_files.layout(files, {"inflate": "storage"}, "data")
    (shard,) = layout.shards
    ranges = archive_files.ranges(files, shard, layout.settings)
    with files.open(0) as file:
        made = archive_files.unpack(file, 0, layout.settings, "1.npz", archive_files.common(file, "1.npz"))
    assert (ranges.starts.tolist(), ranges.ends.tolist()) == ([0], [len(made)])
    with np.load(io.BytesIO(made.tobytes())) as unpacked:
        assert sorted(unpacked) == sorted(names)
        assert all((unpacked[name] == np.arange(1000) + place).all() for place, name in enumerate(names))
    if names:
        assert len(made) > 8000 > int(files.sizes[0])


def test_who_unpacks_an_archive_must_be_one_of_two() -> None:
    with pytest.raises(DatasetError, match="inflate must be rank or storage, got 'gpu'"):
        archive_files.layout(MemoryFiles({"1.npz": _npz(a=np.arange(3))}), {"inflate": "gpu"}, "data")
