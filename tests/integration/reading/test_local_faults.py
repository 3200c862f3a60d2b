"""What goes wrong with shards on this host's disks is an error that names them: no crash, no hang, nothing left behind."""

import ctypes
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.errors import ConfigError, CorruptRecordError, DatasetError
from emlio.formats.tfrecord.mapping import mapping_name
from emlio.tfrecord import FRAME_BYTES
from emlio_testing.datasets import make_dataset, write_tfrecord
from emlio_testing.serving import numbered_ids, raw_loader, served

_RECORDS = 60
_SHARDS = 2
_SIZE = 100
_NAMES = ("train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord")

Ways = list[tuple[str, "str | Path", dict[str, Any]]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "numbers", records=_RECORDS, shards=_SHARDS, payload=_SIZE)
    return tmp_path / "numbers"


def _ids(loader: EmlioLoader) -> list[int]:
    return [number for batch in loader for number in numbered_ids(batch)]


def _use_for_ever(loader: EmlioLoader) -> None:
    while True:
        _ids(loader)


def _half(whole: Path, shard: int) -> Path:
    """One of the dataset's shards in a directory of its own."""
    half = whole.parent / f"half-{shard}"
    half.mkdir()
    for name in (_NAMES[shard], mapping_name(shard)):
        shutil.copy2(whole / name, half / name)
    return half


def _damage(path: Path, record: int) -> None:
    """Change a byte of a record's data, in a file that keeps its size and time of change."""
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(record * (_SIZE + FRAME_BYTES) + 12 + 50)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes((byte[0] ^ 1,)))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def _cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(500)


def _empty(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(0)


def _replace(path: Path) -> None:
    """Put another file of the same size and time in its place."""
    other = path.parent.parent / "other"
    shutil.copy2(path, other)
    other.replace(path)


def _delete(path: Path) -> None:
    path.unlink()


_CHANGES = [_touch, _cut, _empty, _replace, _delete]


@pytest.mark.timeout(100)
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("change", _CHANGES)
def test_a_shard_that_changes_is_an_error_that_names_it(
    folder: Path, change: Callable[[Path], None], begun: bool
) -> None:
    path = folder / _NAMES[1]
    with raw_loader(folder) as loader:
        # A file that was not opened yet and is as large and as old as the one that was indexed passes for it.
        if begun or change is _replace:
            assert sorted(_ids(loader)) == list(range(_RECORDS))
        change(path)
        with pytest.raises(DatasetError, match=path.name):
            _use_for_ever(loader)


@pytest.mark.parametrize("change", [_cut, _delete])
def test_a_large_shard_that_changes_in_the_midst_of_an_epoch_is_an_error_that_names_it(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    # Larger than what is read ahead, so that the change is met by reading, in runs and not record by record.
    make_dataset(tmp_path / "numbers", records=80, shards=2, payload=500_000)
    path = tmp_path / "numbers" / _NAMES[1]
    with raw_loader(tmp_path / "numbers", shuffle=False, prefetch="1MiB", batch_size=2) as loader:
        batches = iter(loader)
        assert next(batches)["__id__"].tolist() == [0, 1]
        change(path)
        with pytest.raises(DatasetError, match=path.name):
            list(batches)
        assert loader.stats().batches >= 2, "what was read before it still comes"


def test_different_content_under_one_name_is_refused_and_both_places_are_named(folder: Path) -> None:
    half = _half(folder, 0)
    (half / mapping_name(0)).unlink()
    write_tfrecord(half / _NAMES[0], [bytes(_SIZE)] * 30)  # as many records of the same sizes
    with served(folder, message_size=4096, memory=1 << 20) as address:
        with pytest.raises(DatasetError, match="all copies of") as refused:
            raw_loader(address, local=half)
        for said in (_NAMES[0], str(half), address.split("/")[2], "digest"):
            assert said in str(refused.value)


def test_a_shard_that_lies_nowhere_is_named_with_the_places_where_it_might(folder: Path) -> None:
    first = _half(folder, 0)
    with pytest.raises(DatasetError, match=f"{_NAMES[1]}") as refused:
        raw_loader(first)
    assert str(first) in str(refused.value)
    with served(first, message_size=4096, memory=1 << 20) as address:
        with pytest.raises(DatasetError, match=f"{_NAMES[1]}") as refused:
            raw_loader(address, local=first)
        assert str(first) in str(refused.value)
        assert address.split("/")[2] in str(refused.value)
        with raw_loader(address, local=_half(folder, 1)) as loader:
            assert sorted(_ids(loader)) == list(range(_RECORDS))


@contextmanager
def _ways(folder: Path) -> Iterator[Ways]:
    """The dataset through a daemon, from its directory, and half and half."""
    half = _half(folder, 1)
    with served(folder, message_size=4096, memory=1 << 20) as address:
        yield [("daemon", address, {}), ("directory", folder, {}), ("half", address, {"local": half})]


def test_a_damaged_record_is_an_error_that_names_shard_and_record_as_a_daemons(folder: Path) -> None:
    said: dict[str, str] = {}
    for shard, record in ((1, 7), (1, 29)):
        _damage(folder / _NAMES[shard], record)
    with _ways(folder) as ways:
        for name, where, options in ways:
            with raw_loader(where, shuffle=False, **options) as loader:
                with pytest.raises(CorruptRecordError, match=rf"record 7 of shard {_NAMES[1]}") as corrupt:
                    _ids(loader)
                assert (corrupt.value.record, corrupt.value.shard) == (7, _NAMES[1])
                assert loader.stats().batches == 2, "those before it came"
            said[name] = str(corrupt.value)
    assert said["directory"] == said["half"] == said["daemon"]


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_damaged_record_is_left_out_or_replaced_and_counted_as_a_daemons(folder: Path, on_error: str) -> None:
    damaged = {30 + 7, 30 + 8}
    for identity in damaged:
        _damage(folder / _NAMES[1], identity - 30)
    came: dict[str, list[int]] = {}
    with _ways(folder) as ways:
        for name, where, options in ways:
            with raw_loader(where, on_error=on_error, **options) as loader:
                came[name] = _ids(loader)
                stats = loader.stats()
            assert (stats.skipped_records + stats.replaced_records, stats.records) == (2, len(came[name]))
    assert came["directory"] == came["half"] == came["daemon"]
    assert set(came["directory"]) == set(range(_RECORDS)) - damaged
    assert len(came["directory"]) == _RECORDS - (2 if on_error == "skip" else 0)


def test_a_directory_that_is_none_or_holds_no_shard_is_an_error_that_names_it(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with served(folder, message_size=4096, memory=1 << 20) as address:
        for name, said in (("nowhere", "no such directory"), ("file", "is a file"), ("empty", "holds no files")):
            with pytest.raises(DatasetError, match=said) as refused:
                raw_loader(tmp_path / name)
            assert str(tmp_path / name) in str(refused.value)
            with pytest.raises(DatasetError if name == "empty" else ConfigError) as wrong:
                raw_loader(address, local=tmp_path / name)
            assert str(tmp_path / name) in str(wrong.value)


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilitySet(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


_LIBC = ctypes.CDLL(None, use_errno=True)
_CAPABILITIES_3 = 0x20080522
_READ_EVERYTHING = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


@contextmanager
def _like_any_user() -> Iterator[None]:
    """Root, too, may read only what permissions allow: this thread, and those it starts."""
    header, sets = _CapabilityHeader(_CAPABILITIES_3, 0), (_CapabilitySet * 2)()
    assert _LIBC.capget(ctypes.byref(header), sets) == 0
    before = sets[0].effective
    sets[0].effective = before & ~_READ_EVERYTHING
    assert _LIBC.capset(ctypes.byref(header), sets) == 0
    try:
        yield
    finally:
        sets[0].effective = before
        assert _LIBC.capset(ctypes.byref(header), sets) == 0


@contextmanager
def _forbidden(path: Path) -> Iterator[None]:
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        with _like_any_user():
            yield
    finally:
        path.chmod(mode)


def test_a_directory_that_may_not_be_read_is_an_error_that_names_it(folder: Path) -> None:
    with _forbidden(folder), pytest.raises(DatasetError, match=f"{folder}: cannot be read: Permission denied"):
        raw_loader(folder)


def test_a_shard_that_may_not_be_read_is_an_error_that_names_it(folder: Path) -> None:
    path = folder / _NAMES[0]
    # Its index can be read. But its status is another one than its stamp says: it is scanned.
    denied = pytest.raises(DatasetError, match=f"{path}: cannot be opened: Permission denied")
    with _forbidden(path), denied, raw_loader(folder) as loader:
        _ids(loader)
