"""The shares of jobs: equal, however many streams each has and however large its messages are."""

import time
from collections import Counter, deque
from collections.abc import Callable
from threading import Event

from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.daemon.reading.job_turns import JobTurns
from emlio.daemon.reading.readers import Readers
from emlio.daemon.reading.stream import StreamLimits


def _served(streams: dict[str, int], sizes: dict[str, int], turns: int) -> Counter[str]:
    waiting = JobTurns[str]()
    for job, count in streams.items():
        for _ in range(count):
            waiting.add(job, job)
    given_bytes: Counter[str] = Counter()
    for _ in range(turns):
        job = waiting.take()
        waiting.gave(job, sizes[job])
        given_bytes[job] += sizes[job]
        waiting.add(job, job)
    return given_bytes


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 1 << 20)), min_size=1, max_size=5))
@settings(max_examples=50)
def test_jobs_that_always_wait_get_the_same_bytes(jobs: list[tuple[int, int]]) -> None:
    names = [f"job {number}" for number in range(len(jobs))]
    sizes = dict(zip(names, (size for _, size in jobs), strict=True))
    served = _served(dict(zip(names, (count for count, _ in jobs), strict=True)), sizes, 200)
    assert max(served.values()) - min(served[name] for name in names) <= 2 * max(sizes.values())


def test_a_job_of_one_stream_gets_half_beside_a_job_of_sixteen() -> None:
    served = _served({"one": 1, "many": 16}, {"one": 1000, "many": 1000}, 100)
    assert served == {"one": 50_000, "many": 50_000}


def test_the_streams_of_a_job_come_in_turn() -> None:
    waiting = JobTurns[int]()
    for stream in range(3):
        waiting.add("job", stream)
    order: deque[int] = deque()
    for _ in range(6):
        order.append(waiting.take())
        waiting.gave("job", 10)
        waiting.add("job", order[-1])
    assert list(order) == [0, 1, 2, 0, 1, 2]


def test_a_job_that_rested_gets_no_more_than_its_share_afterwards() -> None:
    waiting = JobTurns[str]()
    waiting.add("rests", "rests")
    waiting.add("works", "works")
    waiting.take()  # and then it wants nothing for a long time
    for _ in range(100):
        waiting.gave(waiting.take(), 10)
        waiting.add("works", "works")
    waiting.add("rests", "rests")
    came = list[str]()
    for _ in range(10):
        came.append(waiting.take())
        waiting.gave(came[-1], 10)
        waiting.add(came[-1], came[-1])
    assert 4 <= came.count("rests") <= 6


def test_a_job_that_can_be_given_nothing_does_not_come_first_for_ever() -> None:
    waiting = JobTurns[str](10)
    came: Counter[str] = Counter()
    for job in ("nothing", "much"):
        waiting.add(job, job)
    for _ in range(1000):
        job = waiting.take()
        came[job] += 1
        waiting.gave(job, 0 if job == "nothing" else 100)
        waiting.add(job, job)
    assert 85 <= came["much"] <= 95


def test_jobs_that_are_gone_are_forgotten() -> None:
    waiting = JobTurns[int]()
    waiting.add("stays", 0)
    for number in range(1000):
        waiting.add(f"job {number}", number)
        waiting.gave(f"job {number}", 1)
        while len(waiting) > 1:
            job = f"job {waiting.take()}"
            waiting.gave(job, 1)
        if not len(waiting):
            waiting.add("stays", 0)
    assert len(waiting._given) < 200


def test_a_stream_of_a_large_job_has_its_part_of_the_jobs_part_of_the_memory() -> None:
    shares: dict[str, int] = {}
    came = Event()

    class _Asks:
        label, dataset, closed, searching = "session", "data", False, False
        limits = StreamLimits(ready_bytes=1 << 20)

        def __init__(self, job: str) -> None:
            self.job = job

        def produce(self, _: object, budget_bytes: int, __: object) -> bool:
            shares[self.job] = budget_bytes
            if len(shares) == 2:
                came.set()
            return False

        def close(self) -> None:
            self.closed = True

    readers = Readers(threads=1, memory_bytes=lambda: 1 << 20, on_ready=lambda _: None, on_failure=lambda _: None)
    streams = [_Asks("one"), *(_Asks("many") for _ in range(16))]
    for stream in streams:
        readers.add(stream)  # type: ignore[arg-type]
    readers.start()
    try:
        assert came.wait(20)
        assert shares == {"one": 1 << 19, "many": 1 << 15}
        assert (readers.parts("one"), readers.parts("many")) == (2, 32)
        for stream in streams[2:]:
            readers.remove(stream)  # type: ignore[arg-type]
        assert (readers.parts("one"), readers.parts("many")) == (2, 2)
    finally:
        readers.close()


def test_a_job_that_read_alone_for_long_owes_nothing_to_one_that_comes() -> None:
    class _Goes:
        label, dataset, closed, searching = "session", "data", False, False
        limits = StreamLimits(ready_bytes=1 << 20)

        def __init__(self, job: str) -> None:
            self.job, self.made = job, 0
            self.enough: Callable[[], bool] = lambda: False
            self.came = Event()

        def produce(self, *_: object) -> bool:
            time.sleep(0.002)
            self.made += 1
            if self.enough():
                self.came.set()
            return not self.closed

        def close(self) -> None:
            self.closed = True

    first, second = _Goes("first"), _Goes("second")
    first.enough = lambda: first.made == 100
    second.enough = lambda: second.made == 40
    readers = Readers(threads=1, memory_bytes=lambda: 1 << 20, on_ready=lambda _: None, on_failure=lambda _: None)
    readers.add(first)  # type: ignore[arg-type]
    readers.start()
    try:
        assert first.came.wait(20)
        before = first.made
        readers.add(second)  # type: ignore[arg-type]
        assert second.came.wait(20)
        assert first.made - before >= 20
    finally:
        readers.close()
