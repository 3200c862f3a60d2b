"""Reading past the page cache: the same bytes, the memory given back, and the way round where the disk refuses."""

import errno
import logging
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import numpy as np
import pytest

from emlio.errors import ClosedError, ConfigError, DatasetError
from emlio.index.dataset import Dataset
from emlio.index.opening import open_dataset
from emlio.native.disk import Batch, DiskQueue, TransferError
from emlio.reading.buffers import AheadBudget
from emlio.reading.direct.direct_engine import DirectEngine
from emlio.reading.direct.io_choice import IoMode, IoModes, available_memory, choose_io
from emlio.reading.direct.io_settings import IoSettings
from emlio.reading.engine import Reads
from emlio.reading.gather import Gatherer
from emlio.reading.open_engine import open_engine
from emlio.reading.ranges import RangeRead
from emlio_testing.datasets import write_tfrecord
from emlio_testing.leases import Returned

_RECORDS = 300


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for shard in range(2):
        sizes = rng.choice([0, 9, 1000, 30_000, 1 << 20], _RECORDS, p=[0.1, 0.3, 0.3, 0.28, 0.02])
        write_tfrecord(folder / f"{shard}.tfrecord", [rng.bytes(int(size)) for size in sizes])
    with open_dataset("d", folder) as opened:
        choice = choose_io(IoMode.DIRECT, opened)
        if "its file system does not offer" in choice.reason:
            pytest.skip("the file system of temporary files does not offer direct reading")
        assert choice.direct, choice.reason
        yield opened


@pytest.fixture
def engine(dataset: Dataset) -> Iterator[DirectEngine]:
    made = open_engine(dataset, None, AheadBudget(8 << 20), direct=IoSettings())
    assert isinstance(made, DirectEngine)
    yield made
    made.close()
    assert made.pool.lent == made.budget.held_bytes == 0


def _read(dataset: Dataset, shard: int, records: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> RangeRead:
    shards = np.full(len(records), shard, np.int64)
    file, starts, ends = dataset.locate(shards, records)
    sizes = ends - starts
    return RangeRead(shard=shards, record=records, file=file, starts=starts, sizes=sizes, size_bytes=int(sizes.sum()))


def _drawn(dataset: Dataset, count: int, seed: int = 1) -> list[RangeRead]:
    rng = np.random.default_rng(seed)
    return [_read(dataset, number % 2, rng.integers(0, _RECORDS, rng.integers(1, 40))) for number in range(count)]


def _bytes_of(dataset: Dataset, read: RangeRead) -> bytes:
    store, parts = dataset.folder_store, zip(read.file, read.starts, read.sizes, strict=True)
    return b"".join(store.read(int(file), int(start), int(size)) for file, start, size in parts)


def _complete(reads: Reads, read: RangeRead) -> bytes:
    out = np.empty(read.size_bytes, np.uint8)
    reads.complete(read, Gatherer(), out, 0)
    return out.tobytes()


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_records_are_those_of_the_files_however_far_ahead_they_are_asked_for(engine: DirectEngine, ahead: int) -> None:
    drawn = _drawn(engine.dataset, 40)
    reads, begun = engine.reads(), 0
    for place, read in enumerate(drawn):
        while begun < min(place + ahead, len(drawn)) and reads.submit(drawn[begun], Gatherer()):
            begun += 1
        begun = max(begun, place + 1)
        assert _complete(reads, read) == _bytes_of(engine.dataset, read)
    reads.close()


def test_a_run_is_lent_without_a_copy_and_counts_until_it_is_dropped(engine: DirectEngine) -> None:
    read, borrower = _read(engine.dataset, 0, np.arange(100, 200)), Returned()
    reads = engine.reads()
    lent = reads.borrow(read, Gatherer(), borrower, 0)
    assert lent is not None
    assert lent.tobytes() == _bytes_of(engine.dataset, read)
    view = lent.data
    del lent
    assert (borrower.back, engine.pool.lent) == ([], 1), "a view keeps the memory"
    del view
    assert (borrower.back, engine.pool.lent) == ([read.size_bytes], 0)
    reads.close()


def test_what_is_read_through_the_page_cache_instead_counts_as_waiting_for_the_disk(
    engine: DirectEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> NoReturn:
        raise DatasetError("this file system refuses direct reading")

    monkeypatch.setattr(engine.direct, "open_all", refuse)
    reads, read = engine.reads(), _read(engine.dataset, 0, np.arange(50))
    assert _complete(reads, read) == _bytes_of(engine.dataset, read)
    assert engine.queue.waited_ns() == 0
    assert engine.waited_ns() > 0
    reads.close()


def test_what_exceeds_the_memory_ahead_is_read_when_its_turn_comes(dataset: Dataset) -> None:
    engine = open_engine(dataset, None, AheadBudget(1000), direct=IoSettings())
    reads, read = engine.reads(), _read(dataset, 0, np.arange(50))
    assert not reads.submit(read, Gatherer())
    assert _complete(reads, read) == _bytes_of(dataset, read)
    reads.close()
    engine.close()


def test_datasets_with_one_budget_keep_unused_memory_once(dataset: Dataset) -> None:
    budget = AheadBudget(6 << 20)
    tracemalloc.start()
    engines = [open_engine(dataset, None, budget, direct=IoSettings()) for _ in range(8)]
    for engine in engines:
        reads, drawn = engine.reads(), [_read(dataset, 0, np.arange(at, at + 50)) for at in (0, 50, 100)]
        for read in drawn:
            reads.submit(read, Gatherer())
        for read in drawn:
            _complete(reads, read)
        reads.close()
    kept_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    for engine in engines:
        engine.close()
    assert kept_bytes < budget.most_bytes + (2 << 20)


def test_closing_drops_what_was_submitted(engine: DirectEngine) -> None:
    for _ in range(3):
        reads = engine.reads()
        for read in _drawn(engine.dataset, 4):
            assert reads.submit(read, Gatherer())
        reads.close()
        reads.close()
        with pytest.raises(ClosedError):
            _complete(reads, read)
    assert engine.budget.held_bytes == 0


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EIO, errno.EOPNOTSUPP])
def test_what_the_disk_refuses_is_read_through_the_page_cache_and_told(
    engine: DirectEngine, error: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    finish = DiskQueue.finish

    def refuse(queue: DiskQueue, batch: Batch, *_: object) -> None:
        finish(queue, batch)
        raise TransferError(error, 0)

    monkeypatch.setattr(DiskQueue, "finish", refuse)
    reads = engine.reads()
    with caplog.at_level(logging.WARNING):
        for read in _drawn(engine.dataset, 5):
            assert _complete(reads, read) == _bytes_of(engine.dataset, read)
    reads.close()
    assert [("not logged any more" in record.message) for record in caplog.records] == [False, False, True]


def test_a_dataset_is_read_directly_if_it_exceeds_half_of_the_memory(dataset: Dataset) -> None:
    size = int(dataset.folder_store.sizes.sum())
    assert choose_io(IoMode.AUTO, dataset, available_bytes=2 * size - 2).direct
    assert not choose_io(IoMode.AUTO, dataset, available_bytes=2 * size).direct
    assert not choose_io(IoMode.CACHE, dataset, available_bytes=0).direct
    assert choose_io(IoMode.DIRECT, dataset, available_bytes=1 << 40).direct


def test_what_a_file_system_cannot_is_not_chosen() -> None:
    if not os.path.isdir("/dev/shm"):
        pytest.skip("there is no /dev/shm")
    with TemporaryDirectory(dir="/dev/shm") as folder:
        write_tfrecord(Path(folder) / "a.tfrecord", [b"x" * 5000])
        with open_dataset("d", Path(folder)) as opened:
            choice = choose_io(IoMode.DIRECT, opened)
    assert (choice.direct, str(choice)) == (False, "cache (its file system does not offer direct reading)")


def test_modes_are_of_all_datasets_or_of_one() -> None:
    modes = IoModes.parse("direct,a=cache, b = auto ")
    assert [modes.of(name) for name in "abc"] == [IoMode.CACHE, IoMode.AUTO, IoMode.DIRECT]
    assert modes.without_dataset(["a", "c"]) == ["b"]
    assert IoModes.parse("a=direct").of("x") is IoMode.AUTO
    for text in (
        "fast",
        "cache,direct",
        "a=cache,a=direct",
        "=cache",
        "",
        "a@2=cache",
        3,
        True,
        ["auto"],
        {"a": "auto"},
    ):
        with pytest.raises(ConfigError, match="must "):
            IoModes.parse(text)


@pytest.mark.parametrize(
    ("limits", "free_bytes"),
    [({}, 4096 << 10), ({"a/b": "max"}, 4096 << 10), ({"a/b": "3000", "a": "2000"}, 1600), ({"a/b": "100"}, 0)],
)
@pytest.mark.parametrize("version", [1, 2])
def test_the_memory_of_a_cgroup_counts_if_it_is_less(
    tmp_path: Path, limits: dict[str, str], free_bytes: int, version: int
) -> None:
    root = tmp_path / "cgroup" / ("" if version == 2 else "memory")
    limit_file, used_file, idle = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "inactive_file 1\ntotal_inactive_file"),
        2: ("memory.max", "memory.current", "inactive_file"),
    }[version]
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9999 kB\nMemAvailable:    4096 kB\n")
    (tmp_path / "proc/self/cgroup").write_text(
        "0::/a/b\n" if version == 2 else "5:cpu:/\n4:hugetlb,memory:/a/b\n0::/\n"
    )
    (root / "a/b").mkdir(parents=True)
    for group, limit in limits.items():
        (root / group / limit_file).write_text(
            limit.replace("max", "max" if version == 2 else "9223372036854771712") + "\n"
        )
        (root / group / used_file).write_text("500\n")
        (root / group / "memory.stat").write_text(f"anon 1\n{idle} 100\n")
    assert available_memory(tmp_path / "proc", tmp_path / "cgroup") == free_bytes
