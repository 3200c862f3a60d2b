"""Threads that share the steps of jobs: every step once, nobody idle while there is work, and an end."""

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Barrier, Event, Lock, Thread, current_thread

import pytest

from emlio.errors import ClosedError, ConfigError
from emlio.receiver.batches.workers import Workers

_LONG_S = 20.0


@contextmanager
def _workers(threads: int) -> Iterator[Workers]:
    workers = Workers(threads, "test-worker")
    try:
        yield workers
    finally:
        workers.close()


def _never() -> None:
    raise AssertionError("cancelled, though the workers were not closed")


class _Log:
    """Notes steps, and tells when so many were noted."""

    def __init__(self, wanted: int) -> None:
        self.steps: list[tuple[str, int]] = []
        self.done = Event()
        self._wanted = wanted
        self._lock = Lock()

    def note(self, job: str, number: int) -> None:
        with self._lock:
            self.steps.append((job, number))
            if len(self.steps) == self._wanted:
                self.done.set()


def test_one_thread_does_the_steps_in_order_job_after_job() -> None:
    log = _Log(9)
    with _workers(1) as workers:
        for job in ("a", "b", "c"):
            workers.add(partial(log.note, job), 3, _never)
        assert log.done.wait(_LONG_S)
    assert log.steps == [(job, number) for job in "abc" for number in range(3)]


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_each_step_of_each_job_is_done_once_by_whatever_thread(threads: int) -> None:
    counts = [1, 7, 2, 40, 1, 1, 13]
    log = _Log(sum(counts))
    with _workers(threads) as workers:
        for job, count in _jobs(counts):
            workers.add(partial(log.note, job), count, _never)
        assert log.done.wait(_LONG_S)
    assert sorted(log.steps) == [(job, number) for job, count in _jobs(counts) for number in range(count)]


def _jobs(counts: list[int]) -> list[tuple[str, int]]:
    return [(chr(ord("a") + place), count) for place, count in zip(range(len(counts)), counts, strict=True)]


def test_the_steps_of_one_job_run_in_all_threads_at_once() -> None:
    together, done = Barrier(4), _Log(4)

    def step(number: int) -> None:
        together.wait(_LONG_S)  # passes only if four steps are under way at the same time
        done.note(current_thread().name, number)

    with _workers(4) as workers:
        workers.add(step, 4, _never)
        assert done.done.wait(_LONG_S)
    assert {name for name, _ in done.steps} == {f"test-worker-{number}" for number in range(4)}


def test_jobs_of_one_step_added_in_a_row_wake_a_thread_each() -> None:
    for _ in range(50):
        together, done = Barrier(3), _Log(3)

        def step(number: int, together: Barrier = together, done: _Log = done) -> None:
            together.wait(_LONG_S)
            done.note("", number)

        with _workers(3) as workers:
            for _ in range(3):
                workers.add(step, 1, _never)
            assert done.done.wait(_LONG_S)


def test_a_step_that_takes_long_keeps_nobody_from_the_next_job() -> None:
    go_on, log = Event(), _Log(9)

    def slow_at_3(number: int) -> None:
        if number == 3:
            assert go_on.wait(_LONG_S)
        log.note("slow", number)

    with _workers(2) as workers:
        workers.add(slow_at_3, 4, _never)
        workers.add(partial(log.note, "next"), 6, _never)
        assert log.done.wait(_LONG_S)
        go_on.set()
    assert ("slow", 3) in log.steps[-1:]


def test_closing_waits_for_steps_under_way_and_cancels_each_job_of_which_some_are_left() -> None:
    begun, go_on = Event(), Event()
    finished: list[int] = []
    cancelled: list[str] = []

    def step(number: int) -> None:
        begun.set()
        assert go_on.wait(_LONG_S)
        finished.append(number)

    workers = Workers(1, "test-worker")
    workers.add(step, 3, lambda: cancelled.append("begun"))
    workers.add(step, 1, lambda: cancelled.append("not begun"))
    assert begun.wait(_LONG_S)
    closer = Thread(target=workers.close)
    closer.start()
    go_on.set()
    closer.join(_LONG_S)
    assert not closer.is_alive()
    assert finished == [0]
    assert cancelled == ["begun", "not begun"]
    workers.close()
    assert cancelled == ["begun", "not begun"]
    assert not any(thread.name.startswith("test-worker") for thread in threading.enumerate())


def test_a_job_whose_last_step_is_under_way_is_not_cancelled() -> None:
    begun, go_on, log = Event(), Event(), _Log(1)

    def step(number: int) -> None:
        begun.set()
        assert go_on.wait(_LONG_S)
        log.note("done", number)

    workers = Workers(1, "test-worker")
    workers.add(step, 1, _never)
    assert begun.wait(_LONG_S)
    closer = Thread(target=workers.close)
    closer.start()
    go_on.set()
    closer.join(_LONG_S)
    assert log.steps == [("done", 0)]


def test_a_step_may_close_its_own_workers() -> None:
    workers = Workers(2, "test-worker")
    closed = Event()

    def step(_: int) -> None:
        workers.close()
        closed.set()

    workers.add(step, 1, _never)
    assert closed.wait(_LONG_S)
    workers.close()


def test_closed_workers_take_nothing_more() -> None:
    workers = Workers(1, "test-worker")
    workers.close()
    with pytest.raises(ClosedError, match="the workers are closed"):
        workers.add(lambda _: None, 1, _never)


def test_a_job_without_steps_is_refused() -> None:
    with _workers(1) as workers, pytest.raises(ConfigError, match="at least 1 step, got 0"):
        workers.add(lambda _: None, 0, _never)


def test_the_time_of_all_threads_is_counted() -> None:
    log = _Log(4)

    def step(number: int) -> None:
        begun_ns = time.monotonic_ns()
        while time.monotonic_ns() < begun_ns + 2_000_000:
            pass
        log.note("", number)

    workers = Workers(2, "test-worker")
    workers.add(step, 4, _never)
    assert log.done.wait(_LONG_S)
    workers.close()
    assert workers.worked_ns >= 4 * 2_000_000


class _Step:
    """A step that can be referred to weakly."""

    def __init__(self) -> None:
        self.done = Event()

    def __call__(self, number: int) -> None:
        self.done.set()


def test_nothing_of_a_job_is_kept_once_its_steps_are_done() -> None:
    gc.disable()  # what only the collector frees would be kept in a training job, too
    try:
        with _workers(1) as workers:
            step, done = _Step(), Event()
            gone = weakref.ref(step)
            workers.add(step, 1, _never)
            assert step.done.wait(_LONG_S)
            del step
            # The thread lets go of a job before it takes the next one.
            workers.add(lambda _: done.set(), 1, _never)
            assert done.wait(_LONG_S)
            assert gone() is None
    finally:
        gc.enable()
