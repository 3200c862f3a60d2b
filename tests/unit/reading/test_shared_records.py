"""Jobs that share what they read: the right bytes, fewer from the disk, no job held back, memory in its limit."""

import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.errors import ClosedError
from emlio.index.dataset import Dataset
from emlio.index.opening import open_dataset
from emlio.planner.choice.choice import Choice
from emlio.planner.order import Shuffle
from emlio.planner.plan import PlanSpec
from emlio.reading.buffers import AheadBudget, BufferPool
from emlio.reading.direct.direct_engine import DirectEngine
from emlio.reading.direct.io_choice import IoMode, choose_io
from emlio.reading.direct.io_settings import IoSettings
from emlio.reading.engine import Reads
from emlio.reading.feed import Feed
from emlio.reading.gather import Gatherer
from emlio.reading.message_planner import MessagePlan
from emlio.reading.open_engine import open_engine
from emlio.reading.page_cache import PageCacheEngine
from emlio.reading.ranges import RangeRead
from emlio.reading.sharing.shared_reads import SharedReads
from emlio.reading.sharing.shared_records import SharedMemory, SharedRecords
from emlio.store.opened.open_files import OpenFiles
from emlio_testing.clock import ManualClock
from emlio_testing.datasets import write_tfrecord
from emlio_testing.reading import feed_of

_RECORDS = 600


class Disk(Reads):
    """Reads files, and counts what it is asked for. Like the direct engine's, several threads may complete different reads."""

    def __init__(self, engine: "Counted", reads: Reads) -> None:
        self._engine, self._reads = engine, reads
        self.submitted: set[int] = set()
        self.closed = False

    def wants(self, planned: "list[RangeRead]", gatherer: Gatherer) -> bool:  # type: ignore[override]  # see feed
        return len(planned) <= 3

    def submit(self, read: RangeRead, gatherer: Gatherer) -> bool:
        self._engine.read_bytes += read.size_bytes
        self.submitted.add(id(read))
        return not self.closed

    def complete(self, read: RangeRead, gatherer: Gatherer, out: npt.NDArray[np.uint8], now_ns: int) -> None:
        if self.closed:
            raise ClosedError("the stream is closed")
        if id(read) in self.submitted:
            self.submitted.discard(id(read))
        else:
            self._engine.read_bytes += read.size_bytes
        self._engine.on_read(read)
        self._reads.complete(read, gatherer, out, now_ns)

    def close(self) -> None:
        self.closed = True
        self._reads.close()


class Counted(PageCacheEngine):
    """An engine that shares, on a disk that counts.

    Attributes:
        read_bytes: asked of the disk.
        on_read: called before each read.
        waited_ns: the time for which threads have waited for it.
    """

    def __init__(self, dataset: Dataset, memory: SharedMemory) -> None:
        super().__init__(dataset, OpenFiles(dataset.folder_store))
        self.waited_ns = 0
        self.shared = SharedRecords(dataset=dataset, memory=memory, waited_ns=lambda: self.waited_ns)
        self.pool = BufferPool(1 << 20, 8 << 20)
        self.read_bytes = 0
        self.on_read: Callable[[RangeRead], None] = lambda _: None

    def reads(self) -> Reads:
        return SharedReads(Disk(self, super().reads()), self.shared, self.pool)

    def close(self) -> None:
        self.shared.close()
        super().close()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    folder, rng = tmp_path_factory.mktemp("shared"), np.random.default_rng(0)
    for shard, records in enumerate((_RECORDS // 3, 0, _RECORDS - _RECORDS // 3)):
        write_tfrecord(folder / f"{shard}.tfrecord", [rng.bytes(int(rng.integers(0, 4000))) for _ in range(records)])
    with open_dataset("d", folder) as opened:
        yield opened


def _engine(dataset: Dataset, part: float = 1 / 3, memory: SharedMemory | None = None) -> Counted:
    return Counted(dataset, memory or SharedMemory(int(part * dataset.size_bytes)))


class Job:
    """One stream, its clock, and a check of every byte that it gets."""

    def __init__(self, engine: Counted, seed: int, clock: ManualClock, **options: object) -> None:
        self.clock = clock
        options.setdefault("message_bytes", 20_000)
        self.feed: Feed = feed_of(engine, seed=seed, clock=clock, **options)  # type: ignore[arg-type]  # by name
        self.gatherer = Gatherer()
        self._dataset = engine.dataset

    def step(self) -> MessagePlan | None:
        message = self.feed.next(self.gatherer)
        if message is None:
            return None
        assert self.feed.borrow(message, self.gatherer, None) is None  # type: ignore[arg-type]  # messages are short
        out = np.empty(message.payload_bytes, np.uint8)
        self.feed.read(message, self.gatherer, out)
        assert out.tobytes() == _bytes_of(self._dataset, message)
        return message


def _bytes_of(dataset: Dataset, message: MessagePlan) -> bytes:
    store, ranges = dataset.folder_store, zip(message.file, message.starts, message.sizes, strict=True)
    return b"".join(store.read(int(file), int(at), int(size)) for file, at, size in ranges)


def _run(jobs: list[Job], clock: ManualClock, rounds: int, *, every: dict[int, int] | None = None) -> None:
    """Let jobs take messages in turn; one named in `every` only in each so many rounds."""
    for number in range(rounds):
        clock.advance(50_000_000)
        for place, job in enumerate(jobs):
            if number % (every or {}).get(place, 1) == 0:
                job.step()


def test_four_jobs_read_far_less_than_alone(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.thread_time_ns", lambda: 0)  # sharing pauses where its work takes long
    monkeypatch.setattr("time.monotonic_ns", lambda: 0)
    engine, clock = _engine(dataset), ManualClock()
    jobs = [Job(engine, seed, clock) for seed in range(4)]
    _run(jobs, clock, 3 * dataset.size_bytes // 19_000)
    asked = engine.read_bytes + engine.shared.hit_bytes
    assert asked == pytest.approx(4 * 3 * dataset.size_bytes, rel=0.1)
    assert engine.read_bytes < 0.62 * asked
    engine.close()


@pytest.mark.parametrize("shuffle", ["shard", "block:16:4", "global"])
def test_jobs_with_one_order_read_the_disk_once(dataset: Dataset, shuffle: str) -> None:
    engine, clock = _engine(dataset), ManualClock()
    jobs = [Job(engine, 7, clock, shuffle=shuffle, end=1) for _ in range(3)]
    _run(jobs, clock, 2 * dataset.size_bytes // 19_000)
    assert engine.read_bytes < 1.1 * dataset.size_bytes
    engine.close()


def test_ranks_of_one_job_are_one_job(dataset: Dataset) -> None:
    engine, clock = _engine(dataset), ManualClock()
    spec = PlanSpec(seed=1, batch_size=8, world_size=4)
    ranks = [Job(engine, 0, clock, spec=spec, rank=rank, end=2) for rank in range(4)]
    _run(ranks, clock, 20)
    assert engine.shared.kept is None
    assert engine.shared.memory.held_bytes == 0
    other = [Job(engine, 0, clock, spec=PlanSpec(seed=2, batch_size=8, world_size=4), rank=rank) for rank in range(4)]
    _run([*ranks, *other], clock, 2 * dataset.size_bytes // 76_000)
    assert engine.shared.hit_bytes > 0.2 * dataset.size_bytes
    engine.close()


def test_one_job_alone_goes_to_the_disk_as_if_nothing_could_be_shared(dataset: Dataset) -> None:
    engine, clock = _engine(dataset), ManualClock()
    _run([Job(engine, 0, clock)], clock, 50)
    assert engine.shared.kept is None
    assert engine.shared.memory.held_bytes == engine.shared.hit_bytes == 0
    engine.close()


def test_a_memory_that_would_save_little_is_not_used(dataset: Dataset) -> None:
    engine, clock = _engine(dataset, part=0.01), ManualClock()
    _run([Job(engine, seed, clock) for seed in range(2)], clock, 5)
    assert engine.shared.kept is None
    engine.close()


def test_sharing_that_costs_more_than_the_disk_pauses_and_is_tried_again(dataset: Dataset) -> None:
    engine, clock = _engine(dataset), ManualClock()

    def judge(work_s: float, disk_s: float) -> bool:
        for _ in range(2):
            clock.advance(1_000_000_000)
            engine.waited_ns += int(disk_s * 1e9)
            with engine.shared.lock:
                engine.shared.spent(int(work_s * 1e9))
        return engine.shared.kept is not None

    _run(jobs := [Job(engine, seed, clock) for seed in range(3)], clock, 2)
    assert judge(0.3, 0.1), "it takes little of a processor"
    assert judge(0.5, 0.6), "the disk takes more time"
    for pause_s in (30, 60, 120):
        assert not judge(0.5, 0.1)
        hit_bytes = engine.shared.hit_bytes
        _run(jobs, clock, 20)  # the right bytes, and nothing shared
        assert engine.shared.hit_bytes - hit_bytes == engine.shared.memory.held_bytes == 0
        clock.advance((pause_s - 3) * 1_000_000_000)
        assert engine.shared.kept is None
        clock.advance(2_000_000_000)
        _run(jobs, clock, 30)
        assert engine.shared.hit_bytes > hit_bytes
    assert not judge(0.5, 0.1)
    memory = engine.shared.memory
    assert memory.share_bytes(object()) == memory.most_bytes // 2, "its part is kept for it"
    for job in jobs:
        job.feed.stop()  # those that come are not judged by these
    _run([Job(engine, seed, clock) for seed in range(3)], clock, 30)
    assert memory.held_bytes
    engine.close()


def test_a_stopped_job_holds_nothing_back_and_keeps_nothing(dataset: Dataset) -> None:
    figures: list[int] = []
    for stopped in (0, 1):
        engine, clock = _engine(dataset), ManualClock()
        jobs = [Job(engine, seed, clock) for seed in range(3)]
        _run([*jobs, *(Job(engine, 9, clock) for _ in range(stopped))], clock, 30)
        halted = [Job(engine, 9, clock) for _ in range(stopped)]
        before = engine.read_bytes
        _run(jobs, clock, 3 * dataset.size_bytes // 19_000)
        figures.append(engine.read_bytes - before)
        assert len(halted) == stopped
        engine.close()
    assert figures[1] < 1.1 * figures[0]


def test_a_slow_job_does_not_cost_the_others_their_share(dataset: Dataset) -> None:
    figures: list[int] = []
    for slow in (0, 1):
        engine, clock = _engine(dataset), ManualClock()
        jobs = [Job(engine, seed, clock) for seed in range(3 + slow)]
        _run(jobs, clock, 3 * dataset.size_bytes // 19_000, every={3: 10})
        figures.append(engine.read_bytes)
        engine.close()
    assert figures[1] < 1.1 * figures[0]


def test_what_another_stream_asked_for_is_not_waited_for(dataset: Dataset) -> None:
    """The other one never completes what it submitted: who needs the records fetches them, once."""
    engine, clock = _engine(dataset), ManualClock()
    first, second = Job(engine, 3, clock), Job(engine, 3, clock)
    first.step()
    submitted = engine.read_bytes
    for _ in range(3):
        second.step()
    assert engine.read_bytes <= submitted + 2 * 20_000
    for _ in range(6):
        first.step()
    engine.close()


def test_streams_on_threads_get_their_bytes(dataset: Dataset) -> None:
    engine, clock, failed = _engine(dataset), ManualClock(), list[BaseException]()

    def run(seed: int) -> None:
        try:
            for part in range(3):
                job = Job(engine, seed, clock, position=(part, 0, 10 * seed))
                for _ in range(30):
                    clock.advance(100_000)
                    job.step()
                job.feed.stop()
        except BaseException as error:  # noqa: BLE001  # shown by the test
            failed.append(error)

    threads = [threading.Thread(target=partial(run, seed % 3)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert engine.shared.kept is None
    assert engine.shared.memory.held_bytes == 0
    engine.close()


def test_a_stream_goes_on_alone_with_what_it_asked_for_together(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, clock = _engine(dataset), ManualClock()
    jobs = [Job(engine, seed, clock) for seed in range(3)]
    _run(jobs, clock, 5)
    message = jobs[0].feed.next(jobs[0].gatherer)
    assert message is not None
    monkeypatch.setattr(Disk, "keeps", lambda disk, read: True)  # windows have found room since it was submitted
    out = np.empty(message.payload_bytes, np.uint8)
    jobs[0].feed.read(message, jobs[0].gatherer, out)
    assert out.tobytes() == _bytes_of(dataset, message)
    for job in jobs:
        for _ in range(5):
            job.step()
        job.feed.stop()
    engine.close()


def test_a_stream_that_stands_still_holds_no_memory_that_was_given_back(dataset: Dataset) -> None:
    memory, clock = SharedMemory(dataset.size_bytes), ManualClock()
    old, new = _engine(dataset, memory=memory), _engine(dataset, memory=memory)
    first = [Job(old, seed, clock) for seed in range(3)]
    _run(first, clock, 20)
    assert old.shared.kept is not None
    given_back = weakref.ref(old.shared.kept.memory)
    second = [Job(new, seed, clock) for seed in range(2)]
    _run([*first[1:], *second], clock, 20)  # the first one does nothing, with reads that it submitted
    assert given_back() is None
    first[0].step()
    for job in (*first, *second):
        job.feed.stop()
    old.close()
    new.close()


def test_datasets_share_the_memory_and_give_it_back(dataset: Dataset, tmp_path: Path) -> None:
    memory, clock = SharedMemory(dataset.size_bytes), ManualClock()
    told: list[int] = []
    memory.on_change = lambda: told.append(memory.held_bytes)
    old, new = _engine(dataset, memory=memory), _engine(dataset, memory=memory)
    first = [Job(old, seed, clock) for seed in range(2)]
    _run(first, clock, 20)
    assert memory.held_bytes == memory.most_bytes
    second = [Job(new, seed, clock) for seed in range(2)]
    _run([*first, *second], clock, 20)
    assert old.shared.kept is not None
    assert new.shared.kept is not None
    assert memory.held_bytes <= memory.most_bytes
    for job in first:
        job.feed.stop()
    old.close()
    _run(second, clock, 20)
    assert memory.held_bytes == memory.most_bytes
    new.close()
    assert memory.held_bytes == 0
    assert max(told) <= memory.most_bytes


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["begin", "end", "jump", "step", "still", "shrink", "grow"]),
            st.integers(0, 5),
            st.integers(0, 3),
        ),
        max_size=120,
    )
)
def test_histories(dataset: Dataset, history: list[tuple[str, int, int]]) -> None:
    """Streams begin, end, jump, stand still; the memory shrinks and grows: the bytes are always right."""
    memory, clock, jobs = SharedMemory(dataset.size_bytes // 2), ManualClock(), dict[int, Job]()
    engine = _engine(dataset, memory=memory)
    for what, which, seed in history:
        clock.advance(3_000_000_000 if what == "still" else 10_000_000)
        if what in ("end", "jump") and which in jobs:
            jobs.pop(which).feed.stop()
        if what == "begin" or (what == "jump" and which not in jobs):
            before = jobs.pop(which, None)
            if before is not None:
                before.feed.stop()
            jobs[which] = Job(engine, seed, clock, position=(which, 0, 100 * seed), end=which + 2)
        if what in ("shrink", "grow"):
            memory.most_bytes = dataset.size_bytes // (4 if what == "shrink" else 2)
        for job in list(jobs.values()):
            for _ in range(seed + 1):
                job.step()
        kept = engine.shared.kept
        if kept is not None:
            assert kept.memory.nbytes <= memory.held_bytes <= memory.most_bytes
    for job in jobs.values():
        job.feed.stop()
    assert memory.held_bytes == 0
    engine.close()


def test_the_direct_engine_shares(dataset: Dataset) -> None:
    if not choose_io(IoMode.DIRECT, dataset).direct:
        pytest.skip("the file system of temporary files does not offer direct reading")
    memory = SharedMemory(dataset.size_bytes // 3)
    engine = open_engine(dataset, None, AheadBudget(8 << 20), direct=IoSettings(), memory=memory)
    assert isinstance(engine, DirectEngine)
    clock = ManualClock()
    jobs = [Job(engine, seed, clock) for seed in range(4)]  # type: ignore[arg-type]  # any engine
    _run(jobs, clock, 2 * dataset.size_bytes // 19_000)
    assert engine.shared_bytes > 2 * dataset.size_bytes
    assert engine.disk_bytes > 0
    for job in jobs:
        job.feed.stop()
    engine.close()
    assert engine.pool.lent == engine.budget.held_bytes == memory.held_bytes == 0


def test_plans_that_do_not_tell_are_read_as_without_sharing(dataset: Dataset) -> None:
    engine, clock = _engine(dataset), ManualClock()
    spec = PlanSpec(seed=1, batch_size=8, shuffle=Shuffle(), sampling=Choice(repeat=2))
    _run([Job(engine, 0, clock, spec=spec) for _ in range(2)], clock, 40)
    assert engine.shared.kept is None
    engine.close()
