"""The windows of block orders: each block is read once, whatever goes wrong the bytes are right, and the memory is bounded."""

import errno
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.errors import DatasetError
from emlio.index.dataset import Dataset
from emlio.index.opening import open_dataset
from emlio.native.disk import Batch, DiskQueue, TransferError
from emlio.planner.order import Shuffle
from emlio.planner.plan import PlanSpec
from emlio.reading.buffers import AheadBudget
from emlio.reading.direct.direct_engine import DirectEngine
from emlio.reading.direct.io_choice import IoMode, choose_io
from emlio.reading.direct.io_settings import IoSettings
from emlio.reading.feed import Feed
from emlio.reading.gather import Gatherer
from emlio.reading.open_engine import open_engine
from emlio.reading.sharing.shared_records import SharedMemory
from emlio.store.opened.open_files import OpenFiles
from emlio.store.opened.room import Room
from emlio_testing.datasets import write_tfrecord
from emlio_testing.reading import feed_of, page_cache

_RECORDS, _RECORD_BYTES = 6000, 1000
_BLOCKS = "block:64:16"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for shard in range(3):
        write_tfrecord(folder / f"{shard}.tfrecord", [rng.bytes(_RECORD_BYTES) for _ in range(_RECORDS // 3)])
    with open_dataset("d", folder) as opened:
        if not choose_io(IoMode.DIRECT, opened).direct:
            pytest.skip("the file system of temporary files does not offer direct reading")
        yield opened


def _engine(dataset: Dataset, budget_bytes: int = 16 << 20) -> DirectEngine:
    made = open_engine(dataset, None, AheadBudget(budget_bytes), direct=IoSettings())
    assert isinstance(made, DirectEngine)
    return made


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all transfers that were begun."""
    begin, found = DiskQueue.begin, list[int]()

    def noting(queue: DiskQueue, *columns: "np.ndarray", writes: bool = False) -> Batch:
        found.extend(columns[2].tolist())
        return begin(queue, *columns, writes=writes)

    monkeypatch.setattr(DiskQueue, "begin", noting)
    return found


def _bytes_of(feed: Feed) -> bytes:
    gatherer, parts = Gatherer(), []
    while (message := feed.next(gatherer)) is not None:
        out = np.zeros(message.payload_bytes, np.uint8)
        feed.read(message, gatherer, out)
        parts.append(out.tobytes())
    feed.stop()
    return b"".join(parts)


def _wanted(dataset: Dataset, spec: PlanSpec, rank: int = 0) -> bytes:
    cached = page_cache(dataset)
    wanted = _bytes_of(feed_of(cached, message_bytes=100_000, spec=spec, rank=rank, end=2))
    cached.close()
    return wanted


def _direct(engine: DirectEngine, spec: PlanSpec, rank: int = 0) -> bytes:
    found = _bytes_of(feed_of(engine, message_bytes=100_000, spec=spec, rank=rank, end=2))
    engine.close()
    assert engine.pool.lent == engine.budget.held_bytes == 0
    return found


def _spec(shuffle: str = _BLOCKS, world_size: int = 1) -> PlanSpec:
    return PlanSpec(batch_size=32, seed=3, shuffle=Shuffle.parse(shuffle), world_size=world_size)


def test_each_block_is_read_once_in_long_pieces(dataset: Dataset, read_bytes: list[int]) -> None:
    assert _direct(_engine(dataset), _spec()) == _wanted(dataset, _spec())
    data_bytes = 2 * int(dataset.folder_store.sizes.sum())  # two epochs
    assert data_bytes <= sum(read_bytes) < 1.25 * data_bytes
    assert len(read_bytes) < 2 * 1.3 * _RECORDS / 64


def test_jobs_that_read_windows_share_no_records_and_others_do(dataset: Dataset, read_bytes: list[int]) -> None:
    memory = SharedMemory(dataset.size_bytes // 2)
    engine = open_engine(dataset, None, AheadBudget(64 << 20), direct=IoSettings(), memory=memory)
    assert isinstance(engine, DirectEngine)
    specs = [_spec(), _spec(), _spec("global"), PlanSpec(batch_size=32, seed=4)]
    feeds = [feed_of(engine, message_bytes=100_000, spec=spec, end=2) for spec in specs]
    found, gatherer, held = [bytearray() for _ in feeds], Gatherer(), []
    going = dict(enumerate(feeds))
    while going:
        for place, feed in tuple(going.items()):
            if (message := feed.next(gatherer)) is None:
                del going[place]
                continue
            out = np.zeros(message.payload_bytes, np.uint8)
            feed.read(message, gatherer, out)
            found[place] += out.tobytes()
            held.append(memory.held_bytes)
    for feed in feeds:
        feed.stop()
    engine.close()
    assert [bytes(each) for each in found] == [_wanted(dataset, spec) for spec in specs]
    assert max(held) > 0
    assert engine.shared_bytes > 0
    assert engine.pool.lent == engine.budget.held_bytes == memory.held_bytes == 0


class Rank:
    """One rank's stream, which can go on after an end; every byte is compared."""

    def __init__(self, engine: DirectEngine, spec: PlanSpec, rank: int) -> None:
        self._engine, self._spec, self._rank = engine, spec, rank
        self._at = (0, 0, 0)
        self._wanted = memoryview(_wanted(engine.dataset, spec, rank))
        self.ended = False
        self.begin()

    def begin(self) -> None:
        self.feed = feed_of(
            self._engine, message_bytes=30_000, spec=self._spec, rank=self._rank, position=self._at, end=2
        )

    def step(self) -> None:
        gatherer = Gatherer()
        message = self.feed.next(gatherer)
        if message is None:
            self.ended = self.feed.ended  # not so where it went on at the end of an epoch
            return
        out = np.zeros(message.payload_bytes, np.uint8)
        self.feed.read(message, gatherer, out)
        assert out.tobytes() == self._wanted[: len(out)]
        self._wanted = self._wanted[len(out) :]
        self._at = (message.epoch, 0, message.slot + message.count)

    def finish(self) -> None:
        assert not self.ended or not self._wanted
        self.feed.stop()


@pytest.mark.parametrize("world_size", [2, 5])
def test_the_ranks_of_a_job_read_each_block_once_together(
    dataset: Dataset, world_size: int, read_bytes: list[int]
) -> None:
    engine, spec = _engine(dataset), _spec("block:64:32", world_size=world_size)
    ranks = [Rank(engine, spec, rank) for rank in range(world_size)]
    while not all(rank.ended for rank in ranks):
        for rank in ranks:
            rank.step()
    for rank in ranks:
        rank.finish()
    data_bytes = 2 * int(dataset.folder_store.sizes.sum())
    assert sum(read_bytes) < 1.3 * data_bytes
    engine.close()
    assert engine.pool.lent == engine.budget.held_bytes == 0


def test_a_rank_that_stays_behind_holds_neither_others_nor_memory(dataset: Dataset) -> None:
    engine, spec = _engine(dataset, 4 << 20), _spec("block:64:16", world_size=3)
    slow, *others = [Rank(engine, spec, rank) for rank in range(3)]
    slow.step()
    while not all(rank.ended for rank in others):
        for rank in others:
            rank.step()
        assert engine.budget.held_bytes <= engine.budget.most_bytes
    while not slow.ended:
        slow.step()
    for rank in (slow, *others):
        rank.finish()
    engine.close()
    assert engine.pool.lent == engine.budget.held_bytes == 0


@settings(max_examples=20, deadline=None)
@given(
    world_size=st.integers(2, 4),
    shuffle=st.sampled_from(["block:64:16", "block:16:8", "block:300:2"]),
    batch_size=st.sampled_from([1, 7, 32, 700]),
    budget_bytes=st.sampled_from([200_000, 2_000_000, 16_000_000]),
    history=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.booleans()), max_size=30),
)
def test_histories_of_ranks(
    dataset: Dataset,
    world_size: int,
    shuffle: str,
    batch_size: int,
    budget_bytes: int,
    history: list[tuple[int, int, bool]],
) -> None:
    engine = _engine(dataset, budget_bytes)
    spec = PlanSpec(batch_size=batch_size, seed=3, shuffle=Shuffle.parse(shuffle), world_size=world_size)
    ranks = [Rank(engine, spec, rank) for rank in range(world_size)]
    for number, steps, again in history:
        rank = ranks[number % world_size]
        for _ in range(steps):
            rank.step()
            assert engine.budget.held_bytes <= budget_bytes
        if again and not rank.ended:
            rank.feed.stop()
            rank.begin()
    for rank in ranks:
        rank.finish()
    engine.close()
    assert engine.pool.lent == engine.budget.held_bytes == 0


def test_ranks_on_threads_get_their_records(dataset: Dataset) -> None:
    engine, spec, failed = _engine(dataset), _spec("block:64:8", world_size=4), list[BaseException]()

    def run(number: int) -> None:
        try:
            rank = Rank(engine, spec, number)
            while not rank.ended:
                rank.step()
            rank.finish()
        except BaseException as error:  # noqa: BLE001  # shown by the test
            failed.append(error)

    threads = [Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    engine.close()
    assert engine.pool.lent == engine.budget.held_bytes == 0


@pytest.mark.parametrize("shuffle", [_BLOCKS, "block:1:1", "block:7:3", "block:64:1000", "block:9999:9999"])
@pytest.mark.parametrize("budget_bytes", [0, 300_000, 3_000_000])
def test_memory_stays_in_the_budget_and_records_are_right(dataset: Dataset, shuffle: str, budget_bytes: int) -> None:
    engine, spec = _engine(dataset, budget_bytes), _spec(shuffle)
    most = 0

    take = engine.budget.take

    def noting(size_bytes: int) -> bool:
        nonlocal most
        taken = take(size_bytes)
        most = max(most, engine.budget.held_bytes)
        return taken

    engine.budget.take = noting  # type: ignore[method-assign]
    assert _direct(engine, spec) == _wanted(dataset, spec)
    assert most <= budget_bytes


@pytest.mark.parametrize("error", [errno.EIO, errno.EAGAIN, errno.ENOSPC])
def test_a_window_that_the_disk_refuses_is_read_record_by_record(
    dataset: Dataset, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, count = DiskQueue.finish, 0

    def refuse(queue: DiskQueue, batch: Batch, *ranges: "np.ndarray | None") -> None:
        nonlocal count
        finish(queue, batch, *ranges)
        count += 1
        if count % 3 == 1:
            raise TransferError(error, 0)

    monkeypatch.setattr(DiskQueue, "finish", refuse)
    assert _direct(_engine(dataset), _spec()) == _wanted(dataset, _spec())
    assert count > 3


def test_few_descriptors_are_enough(dataset: Dataset) -> None:
    engine = _engine(dataset)
    engine.direct.close()
    engine.direct = engine.windows.files = OpenFiles(
        dataset.folder_store, read_whole=True, direct=True, files=Room(lambda: 1)
    )
    assert _direct(engine, _spec()) == _wanted(dataset, _spec())


def test_a_feed_that_stops_in_the_middle_gives_its_memory_back(dataset: Dataset) -> None:
    engine = _engine(dataset)
    for _ in range(5):
        feed, gatherer = feed_of(engine, message_bytes=100_000, spec=_spec()), Gatherer()
        for _ in range(3):
            message = feed.next(gatherer)
            assert message is not None
            feed.read(message, gatherer, np.zeros(message.payload_bytes, np.uint8))
        feed.stop()
        feed.stop()
    engine.close()
    assert engine.pool.lent == engine.budget.held_bytes == 0


@pytest.mark.parametrize("what", ["cut", "replaced", "removed"])
def test_a_file_that_changes_while_its_window_is_kept_is_refused_or_was_read_before(tmp_path: Path, what: str) -> None:
    rng = np.random.default_rng(2)
    path = tmp_path / "0.tfrecord"
    write_tfrecord(path, [rng.bytes(_RECORD_BYTES) for _ in range(_RECORDS // 3)])
    with open_dataset("d", tmp_path) as opened:
        engine = _engine(opened)
        wanted = _wanted(opened, _spec())
        feed, gatherer, found = feed_of(engine, message_bytes=100_000, spec=_spec(), end=2), Gatherer(), b""
        # A file that was opened before it lost its name is still the one that was indexed.
        with pytest.raises(DatasetError) if what == "cut" else nullcontext():
            while (message := feed.next(gatherer)) is not None:
                out = np.zeros(message.payload_bytes, np.uint8)
                feed.read(message, gatherer, out)
                found += out.tobytes()
                if what == "cut":
                    with path.open("r+b") as file:
                        file.truncate(4096)
                elif what == "replaced":
                    (tmp_path / "new").write_bytes(b"x" * path.stat().st_size)
                    (tmp_path / "new").replace(path)
                elif path.exists():
                    path.unlink()
        assert found
        assert wanted.startswith(found)
        feed.stop()
        engine.close()


def test_a_window_is_not_kept_for_what_was_begun_without_it(dataset: Dataset) -> None:
    engine = open_engine(dataset, None, AheadBudget(16 << 20), direct=IoSettings(), memory=SharedMemory(0))
    assert isinstance(engine, DirectEngine)
    spec = PlanSpec(batch_size=8, shuffle=Shuffle.parse(_BLOCKS))
    wanted, gatherer = _wanted(dataset, spec), Gatherer()
    feed = feed_of(engine, message_bytes=2 << 20, spec=spec, end=2)
    for _ in range(20):  # other jobs, whose parts leave too little for a window
        engine.budget.join()
    message = feed.next(gatherer)
    for _ in range(20):
        engine.budget.leave()
    parts: list[bytes] = []
    while message is not None:
        out = np.zeros(message.payload_bytes, np.uint8)
        feed.read(message, gatherer, out)
        parts.append(out.tobytes())
        message = feed.next(gatherer)
    assert b"".join(parts) == wanted
    assert engine.budget.held_bytes == 0
    feed.stop()
    engine.close()


def test_a_rank_hears_that_another_one_could_not_read_their_window(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, spec, gatherer = _engine(dataset), _spec(world_size=2), Gatherer()
    feeds = [feed_of(engine, message_bytes=100_000, spec=spec, rank=rank, end=1) for rank in range(2)]
    first, second = (feed.next(gatherer) for feed in feeds)
    assert first is not None
    assert second is not None
    outs = [np.zeros(message.payload_bytes, np.uint8) for message in (first, second)]

    class Turn:  # the window's lock: the second rank gets it as soon as the first one lets it go
        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            kept.lock = nullcontext()
            feeds[1].read(second, gatherer, outs[1])

    _, kept, _ = feeds[0]._reads._windows._used[id(first.window)]  # type: ignore[attr-defined]  # the direct engine's
    kept.lock = Turn()
    with monkeypatch.context() as patched:
        finish = DiskQueue.finish

        def fails_once(queue: DiskQueue, batch: Batch, *ranges: object) -> None:
            patched.undo()
            finish(queue, batch)
            batch.memory[:] = 0  # which the disk did not fill
            raise TransferError(errno.EIO, 0)

        patched.setattr(DiskQueue, "finish", fails_once)
        feeds[0].read(first, gatherer, outs[0])
    for message, out in zip((first, second), outs, strict=True):
        ranges = zip(message.file, message.starts, message.sizes, strict=True)
        store = dataset.folder_store
        assert out.tobytes() == b"".join(store.read(int(file), int(at), int(size)) for file, at, size in ranges)
    for feed in feeds:
        feed.stop()
    engine.close()
