"""Folders that change after they were indexed, kept checksums, and damaged indexes."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from emlio import EmlioLoader, Recovery
from emlio.errors import ConfigError, CorruptRecordError, DatasetError
from emlio.index.indexed import ChangeNotes
from emlio.index.opening import DatasetPath, open_dataset
from emlio.index.range_index import RangeIndex
from emlio.reading.random_reader import RandomReader
from emlio_testing.format_files import read_folder, write_megatron
from emlio_testing.reading import faults_in

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Files that are a record each."""
    folder = tmp_path / "files"
    for number in range(20):
        part = folder / f"c{number % 2}"
        part.mkdir(parents=True, exist_ok=True)
        (part / f"{number:02d}.x").write_bytes(b"%02d" % number * 50)
    return folder


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Files of several records."""
    folder = tmp_path / "lines"
    folder.mkdir()
    for part in range(2):
        (folder / f"{part}.jsonl").write_text("".join(f'{{"n": {part * 10 + n}}}\n' for n in range(10)))
    return folder


def _numbers(folder: Path) -> list[int]:
    rows = read_folder(folder)
    return [int(row["n"]) if "n" in row else int(bytes(row["data"][:2])) for row in rows]


def _in_place(path: Path, data: bytes, *, keep_mtime: bool = False) -> None:
    """Rewrite a file without a change of any folder."""
    before = path.stat()
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()
    # A clock that has not ticked since must not hide the change.
    mtime_ns = before.st_mtime_ns if keep_mtime else before.st_mtime_ns + 1_000_000
    os.utime(path, ns=(before.st_atime_ns, mtime_ns))


def test_a_file_added_or_removed_is_found_at_the_next_start(files: Path, lines: Path) -> None:
    assert _numbers(files) == [*range(0, 20, 2), *range(1, 20, 2)]
    (files / "c0" / "99.x").write_bytes(b"99")
    (files / "c1" / "01.x").unlink()
    assert _numbers(files) == [*range(0, 20, 2), 99, *range(3, 20, 2)]
    assert _numbers(lines) == [*range(20)]
    (lines / "1.jsonl").rename(lines / "0a.jsonl")
    (lines / "0.jsonl").unlink()
    assert _numbers(lines) == [*range(10, 20)]


def test_labels_follow_when_a_class_comes(files: Path) -> None:
    assert {row["path"][:2]: int(row["label"]) for row in read_folder(files)} == {"c0": 0, "c1": 1}
    (files / "a").mkdir()
    (files / "a" / "00.x").write_bytes(b"77")
    assert {row["path"][:2]: int(row["label"]) for row in read_folder(files)} == {"a/": 0, "c0": 1, "c1": 2}


@pytest.mark.parametrize("data", [b"", b"07" * 10, b"07" * 500, b"77" * 50])
def test_a_file_rewritten_in_place_is_an_error_once_and_served_after(files: Path, data: bytes) -> None:
    before = read_folder(files)
    path = files / "c1" / "07.x"
    _in_place(path, data)
    with pytest.raises(DatasetError, match=r"07\.x: changed while it was served.*[Rr]estart"):
        read_folder(files)
    after = read_folder(files)
    assert [bytes(row["data"]) for row in after if row["path"] == "c1/07.x"] == [data]
    others = [row["data"] for row in before if row["path"] != "c1/07.x"]
    assert [row["data"] for row in after if row["path"] != "c1/07.x"] == others


@pytest.mark.parametrize(
    "text", ['{"n": 0}\n{"n": 1}\n', '{"n": 7}\n' * 10, "\n".join(f'{{"n": {n}}}' for n in range(9, 40))]
)
def test_lines_rewritten_in_place_are_indexed_again_at_the_next_start(lines: Path, text: str) -> None:
    assert _numbers(lines) == [*range(20)]
    _in_place(lines / "0.jsonl", text.encode())
    assert _numbers(lines) == [json.loads(line)["n"] for line in text.splitlines()] + [*range(10, 20)]


def test_an_index_file_rewritten_in_place_is_read_again_although_the_tokens_are_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    folder.mkdir()
    write_megatron(folder / "a", [[np.arange(4)], [np.arange(2)]], np.int32)
    assert [len(row["tokens"]) for row in read_folder(folder)] == [4, 2]
    write_megatron(tmp_path / "b", [[np.arange(3)], [np.arange(3)]], np.int32)
    _in_place(folder / "a.idx", (tmp_path / "b.idx").read_bytes())
    assert [len(row["tokens"]) for row in read_folder(folder)] == [3, 3]


def test_a_record_read_by_number_is_never_of_a_file_rewritten_since(lines: Path) -> None:
    with open_dataset("lines", lines) as dataset, RandomReader(dataset) as reader:
        for _ in range(2):  # opened, and found unchanged
            assert bytes(reader.record(0, 1).data).strip() == b'{"n": 1}'
        text = (lines / "0.jsonl").read_bytes()
        _in_place(lines / "0.jsonl", text.replace(b"1}", b"7}"))  # before streams look at it again
        with pytest.raises(DatasetError, match=r"0\.jsonl: changed"):
            reader.record(0, 1)


class _StoppedError(Exception):
    """Stands for whatever ends an indexing early, such as a user's interrupt."""


def _stop(*_: object, **__: object) -> RangeIndex:
    raise _StoppedError


def test_a_change_is_still_known_after_indexing_failed(
    files: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_folder(files)
    _in_place(files / "c1" / "07.x", b"77" * 50)
    with pytest.raises(DatasetError, match=r"07\.x: changed while it was served"):
        read_folder(files)
    for name in ("make_index", "walk"):
        with monkeypatch.context() as patched:
            patched.setattr(f"emlio.index.indexed.{name}", _stop)
            with pytest.raises(_StoppedError):
                open_dataset("data", files)
    assert 77 in _numbers(files)
    assert not [*own_cache.rglob("*.changed*")]


def test_a_change_noted_while_files_are_indexed_is_not_lost(tmp_path: Path) -> None:
    notes = ChangeNotes(tmp_path / "ranges.json")
    assert notes.take_up() == []
    notes.add()
    first = notes.take_up()
    notes.add()
    notes.remove(first)
    assert len(notes.take_up()) == 1
    second = notes.take_up()
    assert len(second) == 1
    notes.remove(second)
    assert notes.take_up() == []


# ---- checksums ------------------------------------------------------------------------------------------------------


def _flip(path: Path, at: int) -> None:
    """Change one byte, and hide it."""
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    _in_place(path, bytes(data), keep_mtime=True)


@pytest.mark.parametrize("added", [False, True])
def test_a_byte_changed_in_secret_is_found_when_the_record_is_read_again(lines: Path, added: bool) -> None:
    assert _numbers(lines) == [*range(20)]
    _flip(lines / "1.jsonl", 6)
    if added:
        (lines / "2.jsonl").write_text('{"n": 20}\n')
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=r"record 0 .*1\.jsonl|CRC32C"):
            _numbers(lines)
    with EmlioLoader(
        str(lines), batch_size=4, shuffle=False, to="numpy", recovery=Recovery(on_error="skip", timeout="20s")
    ) as loader:
        found = [int(n) for batch in loader for n in batch["n"]]
    assert found == [*range(10), *range(11, 20), *([20] if added else [])]


def test_a_byte_changed_in_secret_in_a_file_that_is_a_record_is_found(files: Path) -> None:
    read_folder(files)
    _flip(files / "c1" / "07.x", 60)
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=r"record 13 of shard files-000000.*: c1/07\.x: the CRC32C"):
            read_folder(files)


def test_a_file_changed_on_purpose_has_no_old_checksum(files: Path, lines: Path) -> None:
    read_folder(files), read_folder(lines)
    _in_place(files / "c1" / "07.x", b"77" * 50)
    _in_place(lines / "1.jsonl", (lines / "1.jsonl").read_bytes().replace(b"15", b"55"))
    (files / "c1" / "98.x").write_bytes(b"98")
    (files / "c1" / "98.x").unlink()
    assert 77 in _numbers(files)
    assert 55 in _numbers(lines)


def test_checking_a_dataset_finds_the_same(files: Path) -> None:
    with open_dataset("data", files) as dataset:
        assert faults_in(dataset, 0) == []
        assert dataset.checksums is not None
        assert dataset.checksums.missing == 0
    _flip(files / "c0" / "04.x", 3)
    with open_dataset("data", files) as dataset:
        (error,) = faults_in(dataset, 0)
        assert (error.record, error.offset) == (2, 0)
    _in_place(files / "c0" / "04.x", b"short")
    with open_dataset("data", files) as dataset, pytest.raises(DatasetError, match=r"04\.x: changed while"):
        (faults_in(dataset, 0))


# ---- the cache ------------------------------------------------------------------------------------------------------


def _index(own_cache: Path) -> Path:
    (found,) = own_cache.rglob("ranges-*.json")
    return found


def _damages(own_cache: Path) -> list[Callable[[], object]]:
    index = _index(own_cache)
    arrays = sorted(index.parent.glob("ranges-*/*.npy"))

    def put(path: Path, data: bytes) -> Callable[[], object]:
        return lambda: path.write_bytes(data)

    found: list[Callable[[], object]] = []
    for path in arrays:
        data = path.read_bytes()
        found += [put(path, data[:-1]), put(path, b""), path.unlink]
        if path.name != "checksums.npy" and len(data) > 128:
            found.append(put(path, data[:-1] + bytes([data[-1] ^ 1])))
    text = index.read_bytes()
    found += [
        put(index, text[:-1]),
        put(index, b""),
        put(index, b"[]"),
        put(index, text.replace(b"0.jsonl", b"\xff.jsonl")),
        put(index, text.replace(b"0.jsonl", b"9.jsonl")),
    ]
    found += [put(index, text.replace(b'"told":false', b'"told":true')), put(index, text.replace(b"jsonl", b"tar", 1))]
    found.append(put(index, text.replace(b'"version":2', b'"version":3')))
    found.append(lambda: shutil.rmtree(index.parent))
    return found


def test_a_damaged_index_is_made_again(lines: Path, own_cache: Path) -> None:
    with open_dataset("data", lines):
        count = len(_damages(own_cache))
    for number in range(count):
        with open_dataset("data", lines):
            pass
        _damages(own_cache)[number]()
        with open_dataset("data", lines) as dataset:
            assert [shard.name for shard in dataset.shards] == ["0.jsonl", "1.jsonl"]
            assert dataset.records == 20
            assert dataset.shards[1].ends[-1] == (lines / "1.jsonl").stat().st_size - 1
            assert dataset.contents.format == "jsonl"
            assert dataset.notes is None


def test_another_folder_at_the_same_path_has_its_own_index(lines: Path, tmp_path: Path) -> None:
    assert _numbers(lines) == [*range(20)]
    moved = lines.rename(tmp_path / "moved")
    lines.mkdir()
    for name, first in (("0.jsonl", 30), ("1.jsonl", 40)):
        (lines / name).write_text("".join(f'{{"n": {first + n}}}\n' for n in range(10)))
        old = (moved / name).stat()
        os.utime(lines / name, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert _numbers(lines) == [*range(30, 50)]
    assert _numbers(moved) == [*range(20)]


def test_options_have_indexes_of_their_own(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(21, dtype=np.int32))
    for _ in range(2):
        assert len(read_folder(f"{tmp_path}?format=tokens&window=10")) == 2
        assert len(read_folder(f"{tmp_path}?format=tokens&window=5")) == 4
        assert len(read_folder(f"{tmp_path}?format=npy-rows")) == 21
        assert len(read_folder(tmp_path)) == 1


# ---- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("format=nothing", "format must be one of tfrecord, mds, .*, got 'nothing'$"),
        ("format=webdataset", "got 'webdataset'; did you mean 'tar'"),
        ("format=parqet", "did you mean 'parquet'"),
        ("format=", "got ''"),
        ("window=5", "format jsonl takes the options split .*; got window"),
        ("format=jsonl&dtype=int32", "format jsonl takes the options split .*; got dtype"),
        ("format=tokens&windows=5", "an option must be one of format, split, .*got 'windows'; did you mean 'window'"),
        ("splt=train", "an option must be one of format, split, .*got 'splt'; did you mean 'split'"),
        ("where=n==1", r"got 'where'\. Records are chosen by subset= of the loader"),
        ("format=tfrecord&window=5", "takes the options"),
        ("format=jsonl&format=jsonl", "must be given once each"),
        ("jsonl", "must be OPTION=VALUE"),
        ("format=jsonl&&", "must be OPTION=VALUE"),
    ],
)
def test_options_that_are_not_known_are_refused(lines: Path, query: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_folder(f"{lines}?{query}")


def test_a_folder_with_a_question_mark_in_its_name_is_a_folder(lines: Path) -> None:
    odd = lines.rename(lines.parent / "what?format=tar")
    assert DatasetPath.parse(str(odd)).options == {}
    assert _numbers(odd) == [*range(20)]
    assert DatasetPath.parse(str(lines) + "?").options == {}
