"""Messages made of groups of rows: each row once, the cost of an order, files that change."""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
import pyarrow.parquet
import pytest

from emlio.errors import DatasetError
from emlio.formats.tabular.tables import Tables
from emlio.index.dataset import Dataset
from emlio.index.indexed import open_objects
from emlio.index.opening import list_objects, open_dataset
from emlio.planner.catalog import Catalog
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.reading import group_engine
from emlio.reading.ahead_budget import AheadBudget
from emlio.reading.feed import Feed
from emlio.reading.gather import Gatherer
from emlio.reading.group_cache import GroupCache
from emlio.reading.group_engine import GroupEngine
from emlio.reading.group_maker import GroupMaker
from emlio.reading.message_planner import StreamPosition
from emlio.reading.open_engine import open_engine
from emlio.store.bucket.address import ObjectAddress
from emlio.store.bucket.bucket_store import Bucket
from emlio.store.bucket.requests import Requests
from emlio_testing.clock import ManualClock
from emlio_testing.fake_objects import FakeObjects
from emlio_testing.format_datasets import FORMS
from emlio_testing.reading import added_checksums, faults_in

Bytes = npt.NDArray[np.uint8]

_RECORDS = 211


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    FORMS["parquet"].make(tmp_path / "data", _RECORDS)
    return tmp_path / "data"


_caches: list[GroupCache] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _caches:
        _caches.pop().close()


def _source(dataset: Dataset, most_bytes: int) -> GroupEngine:
    _caches.append(GroupCache(most_bytes))
    source = open_engine(dataset, None, AheadBudget(1 << 20), _caches[-1])
    assert isinstance(source, GroupEngine)
    return source


def _feed(source: GroupEngine, shuffle: str) -> Feed:
    entries = source.dataset.entries
    return Feed(
        plan=Plan(Catalog(shards=entries), PlanSpec(batch_size=4, shuffle=Shuffle.parse(shuffle))),
        rank=0,
        position=StreamPosition(epoch=0, origin=0, slot=0, end=1),
        owned=np.ones(len(entries), np.bool_),
        local=np.arange(len(entries)),
        engine=source,
        message_bytes=400,
        clock=ManualClock(),
    )


def _read_all(source: GroupEngine, shuffle: str) -> list[tuple[int, int]]:
    """Return the shard and the number of each record read, after looking at its bytes."""
    feed, gatherer, found = _feed(source, shuffle), Gatherer(), list[tuple[int, int]]()
    shards = source.dataset.shards
    firsts = np.cumsum([0, *(shard.records for shard in shards)])
    while (message := feed.next(gatherer)) is not None:
        out = np.zeros(message.payload_bytes, np.uint8)
        feed.read(message, gatherer, out)
        feed.crcs(message, memoryview(out))
        begins = np.cumsum(message.sizes) - message.sizes
        for begin, shard, record in zip(begins.tolist(), message.shard.tolist(), message.record.tolist(), strict=True):
            # Flags, the length of the data, the label, and the data, which begin with the record's number.
            assert int.from_bytes(out[begin + 13 : begin + 21].tobytes(), "little") == firsts[shard] + record
            found.append((shard, record))
    feed.stop()
    return found


@pytest.mark.parametrize("shuffle", ["global", "block:20:2", "shard", "none"])
@pytest.mark.parametrize("most_bytes", [0, 3000, 1 << 30])
def test_every_row_is_read_once_whatever_the_memory(folder: Path, shuffle: str, most_bytes: int) -> None:
    with open_dataset("d", folder) as dataset:
        source = _source(dataset, most_bytes)
        found = _read_all(source, shuffle)
        assert sorted(found) == [(s, r) for s, shard in enumerate(dataset.shards) for r in range(shard.records)]
        assert source._cache.held_bytes <= max(most_bytes, 0)  # type: ignore[attr-defined]
        source.close()
        assert source._cache.held_bytes == 0  # type: ignore[attr-defined]


def test_in_order_each_group_is_made_once(folder: Path) -> None:
    with open_dataset("d", folder) as dataset:
        source = _source(dataset, 8000)
        _read_all(source, "none")
        assert source._cache.made_bytes == sum(int(shard.ends[-1]) for shard in dataset.shards)  # type: ignore[attr-defined]
        source.close()


def test_rows_of_objects_are_read_alike(folder: Path, tmp_path: Path) -> None:
    objects = FakeObjects({path.name: path.read_bytes() for path in folder.iterdir()})
    address = ObjectAddress.parse("s3://b/p")
    bucket = Bucket(address, Requests(address, objects, pause=lambda _: False))
    with (
        open_objects("d", list_objects("d", bucket), tmp_path / "c", {}) as there,
        open_dataset("d", folder) as here,
    ):
        assert [entry.digest for entry in there.entries] == [entry.digest for entry in here.entries]
        source = _source(there, 1 << 30)
        assert len(set(_read_all(source, "global"))) == _RECORDS
        source.close()


def test_a_bad_order_is_told_once_with_what_helps(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group_engine, "_LOOK_AFTER_BYTES", 1)
    with open_dataset("pics", folder) as dataset, caplog.at_level(logging.WARNING):
        for order, most_bytes in (("none", 4000), ("global", 0), ("global", 1 << 30)):
            source = _source(dataset, most_bytes)
            _read_all(source, order)
            source.close()
    (warning,) = caplog.records
    assert "dataset pics: for" in warning.getMessage()
    assert 'shuffle="block:RECORDS:BLOCKS"' in warning.getMessage()


def _drain(feed: Feed, gatherer: Gatherer) -> None:
    while (message := feed.next(gatherer)) is not None:
        feed.read(message, gatherer, np.zeros(message.payload_bytes, np.uint8))


def _replace(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 100)


@pytest.mark.parametrize(
    ("change", "reason"), [(_replace, "was replaced|changed while"), (_cut, "changed while it was served")]
)
@pytest.mark.parametrize("most_bytes", [0, 1 << 30])
def test_a_file_that_changes_is_an_error_that_names_it(
    folder: Path, change: Callable[[Path], Any], reason: str, most_bytes: int
) -> None:
    with open_dataset("d", folder) as dataset:
        source = _source(dataset, most_bytes)
        feed, gatherer = _feed(source, "none"), Gatherer()
        message = feed.next(gatherer)
        assert message is not None
        feed.read(message, gatherer, np.zeros(message.payload_bytes, np.uint8))
        change(folder / "part-2.parquet")
        with pytest.raises(DatasetError, match=rf"part-2\.parquet.*({reason})|({reason}).*part-2"):
            _drain(feed, gatherer)
        feed.stop()
        source.close()


def test_files_that_were_written_anew_are_indexed_anew(folder: Path) -> None:
    open_dataset("d", folder).close()
    FORMS["parquet"].make(folder.with_name("other"), 50)
    for path in folder.with_name("other").iterdir():
        path.replace(folder / path.name)
    with open_dataset("d", folder) as dataset:
        assert dataset.records == 50
        source = _source(dataset, 1 << 30)
        assert len(_read_all(source, "global")) == 50
        source.close()


def test_an_index_is_used_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_dataset("d", folder) as first:
        entries = first.entries
    monkeypatch.setattr("emlio.formats.tabular.tables.Tables.ranges", None)
    with open_dataset("d", folder) as again:
        assert again.entries == entries
        source = _source(again, 1 << 30)
        assert len(_read_all(source, "global")) == _RECORDS
        source.close()


def test_one_more_file_leaves_the_index_of_the_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_dataset("d", folder).close()
    (folder / "part-9.parquet").write_bytes((folder / "part-0.parquet").read_bytes())
    indexed: list[str] = []
    real = Tables.ranges

    def counted(self: Any, files: Any, shard: Any, settings: bytes) -> Any:
        indexed.append(shard.name)
        return real(self, files, shard, settings)

    monkeypatch.setattr("emlio.formats.tabular.tables.Tables.ranges", counted)
    with open_dataset("d", folder) as dataset:
        assert dataset.records == _RECORDS + dataset.shards[0].records
        source = _source(dataset, 1 << 30)
        feed, gatherer = _feed(source, "none"), Gatherer()
        _drain(feed, gatherer)
        feed.stop()
        source.close()
    assert indexed == ["part-9.parquet"]


def test_a_file_that_is_added_and_changes_the_order_of_columns_leaves_no_stale_checksums(
    folder: Path, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    tables.mkdir()
    rows = {"x": list(range(60)), "y": list(range(60, 120))}
    pyarrow.parquet.write_table(pyarrow.table(rows), tables / "b.parquet", row_group_size=7)
    with open_dataset("d", tables) as dataset:
        assert (faults_in(dataset, 0)) == []
    other = pyarrow.table({name: rows[name] for name in ("y", "x")})
    pyarrow.parquet.write_table(other, tables / "a.parquet", row_group_size=7)
    with open_dataset("d", tables) as dataset:
        assert [(faults_in(dataset, number)) for number in range(2)] == [[], []]


def test_reading_record_by_record_makes_each_group_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Counter[tuple[int, int]]()
    real = GroupMaker.make

    def counted(self: GroupMaker, group: Any, opened: Any) -> Bytes:
        made[group.file, group.place] += 1
        return real(self, group, opened)

    monkeypatch.setattr(GroupMaker, "make", counted)
    with open_dataset("d", folder) as dataset, ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda number: added_checksums(dataset, number), range(len(dataset.shards)))) == _RECORDS
    assert set(made.values()) == {1}


def test_a_footer_is_read_once_for_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = Tables.common

    def counted(self: Tables, file: Any, where: str) -> object:
        read.append(where)
        return real(self, file, where)

    monkeypatch.setattr(Tables, "common", counted)
    with open_dataset("d", folder) as dataset:
        source = _source(dataset, 0)
        _read_all(source, "none")
        source.close()
    assert len(read) == len(set(read)) == 4
