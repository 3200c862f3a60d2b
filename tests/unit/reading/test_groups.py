"""Messages made of groups of rows: each row once, the cost of an order, files that change."""

import logging
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
import pyarrow.parquet
import pytest

from emlio.formats.tabular.tables import Tables
from emlio.index.dataset import Dataset
from emlio.index.opening import open_dataset
from emlio.reading import group_engine
from emlio.reading.buffers import AheadBudget
from emlio.reading.gather import Gatherer
from emlio.reading.group_cache import GroupCache
from emlio.reading.group_engine import GroupEngine, GroupMaker
from emlio.reading.open_engine import open_engine
from emlio_testing.format_datasets import FORMS
from emlio_testing.reading import added_checksums, faults_in, feed_of

Bytes = npt.NDArray[np.uint8]

_RECORDS = 211


@pytest.fixture
def folder(tmp_path: Path, own_cache: Path) -> Path:
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


def _read_all(source: GroupEngine, shuffle: str) -> list[tuple[int, int]]:
    """Return the shard and the number of each record read, after looking at its bytes."""
    feed, gatherer, found = feed_of(source, shuffle, 400, end=1), Gatherer(), list[tuple[int, int]]()
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


def test_one_more_file_leaves_the_index_of_the_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_dataset("d", folder).close()
    (folder / "part-9.parquet").write_bytes((folder / "part-0.parquet").read_bytes())
    indexed: list[str] = []
    real = Tables.ranges

    def counted(self: Any, files: Any, shard: Any, settings: bytes) -> Any:
        indexed.append(shard.name)
        return real(self, files, shard, settings)

    monkeypatch.setattr(Tables, "ranges", counted)
    with open_dataset("d", folder) as dataset:
        assert dataset.records == _RECORDS + dataset.shards[0].records
    assert indexed == ["part-9.parquet"]
