"""A daemon that is away for a while: how long a rank waits for it, and that nothing else comes of it.

Covers: one killed and started again, one stopped and continued, one replaced by another that holds the same shards; the times,
the log, order and content. Does not cover: one that stays away (test_recovery_groups), figures (emlio-bench recovery).
"""

import logging
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Condition, Event, Thread

import pytest

from emlio import EmlioLoader
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import DaemonProcess

RECORDS = 6_000
HEARTBEAT_S = 3.0
"""The loader's default."""

SHORT_HEARTBEAT_S = 1.0
PACE_S = 0.001
LONG_S = 30.0
BUSY_S = 3.0
"""Added to what is wanted: a machine that runs other tests is no place to measure; emlio-bench recovery does."""

Numbers = tuple[Path, list[bytes]]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Numbers:
    """12 MB in 6 shards, and the records."""
    directory = tmp_path_factory.mktemp("recovery") / "numbers"
    return directory, make_dataset(directory, records=RECORDS, shards=6, payload=2000)


class Log(logging.Handler):
    """What the receiver logs, with the time."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines: list[tuple[float, int, str]] = []
        self._changed = Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            self._lines.append((time.monotonic(), record.levelno, record.getMessage()))
            self._changed.notify_all()

    def wait(self, text: str, since_s: float) -> float:
        """When `text` was logged, the first time after `since_s`."""

        def found() -> list[float]:
            return [at for at, _, line in self._lines if at >= since_s and text in line]

        with self._changed:
            assert self._changed.wait_for(found, LONG_S), f"{text!r} must be logged, got {self._lines}"
            return found()[0]

    def said(self) -> list[str]:
        """All of it."""
        return [line for _, _, line in self._lines]


@pytest.fixture
def log() -> Iterator[Log]:
    handler, logger = Log(), logging.getLogger("emlio.receiver")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.setLevel(level)
    logger.removeHandler(handler)


class Store:
    """A daemon that can be killed and started again at the same place. Each act returns when it was done."""

    def __init__(self, directory: Path, folder: Path) -> None:
        self._directory, self._folder, self._bind = directory, folder, free_endpoint()
        self.daemon = self._start()

    def _start(self) -> DaemonProcess:
        # Little is on its way, so that a rank soon feels that nothing more comes.
        options = ("--message-size", "64KiB", "--memory", "8MiB")
        return DaemonProcess({"numbers": self._directory}, *options, folder=self._folder, bind=self._bind)

    @property
    def peer(self) -> str:
        return self._bind.removeprefix("tcp://")

    def kill(self) -> float:
        now = time.monotonic()  # before: the loss is noticed sooner than the death
        self.daemon.kill()
        return now

    def restart(self) -> float:
        self.daemon = self._start()
        return time.monotonic()

    def stop(self) -> float:
        self.daemon.pause()
        return time.monotonic()

    def go_on(self) -> float:
        self.daemon.send_signal(signal.SIGCONT)
        return time.monotonic()


def free_endpoint() -> str:
    """A port that nobody uses, outside the range of which the system gives some away: a daemon must get it twice."""
    first = random.randrange(10_000, 19_000)  # so that two test runs at once do not race for the same
    for port in range(first, first + 1000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return f"tcp://127.0.0.1:{port}"
    raise AssertionError("no port is free")


@contextmanager
def stores(numbers: Numbers, folder: Path, count: int) -> Iterator[list[Store]]:
    started: list[Store] = []
    try:
        for _ in range(count):
            started.append(Store(numbers[0], folder))  # noqa: PERF401  # each is ended, also if the next does not start
        yield started
    finally:
        for store in started:
            store.kill()


class Rank:
    """Reads epoch after epoch in a thread of its own, and remembers when each batch came."""

    def __init__(self, loader: EmlioLoader, records: list[bytes]) -> None:
        self.loader = loader
        self.begun_s = time.monotonic()
        self.ids: list[list[int]] = []
        self._came_s: list[float] = []
        self._error: Exception | None = None
        self._records = records
        self._enough = Event()
        self._changed = Condition()
        self._thread = Thread(target=self._run, name="rank")
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._enough.is_set():
                for batch in self.loader:
                    self._take(batch["__id__"].tolist(), batch["record"])
                    if self._enough.wait(PACE_S):
                        break
        except Exception as error:  # noqa: BLE001  # whatever it is, the test's thread raises it
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _take(self, ids: list[int], views: list[memoryview]) -> None:
        assert [bytes(view) for view in views] == [self._records[number] for number in ids]
        with self._changed:
            self.ids.append(ids)
            self._came_s.append(time.monotonic())
            self._changed.notify_all()

    def _wait(self, reached: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: reached() or self._error is not None, LONG_S)
            if self._error is not None:
                raise self._error
            assert reached(), f"no batch came after number {len(self.ids)}"

    def flows(self) -> None:
        """Wait for an epoch's batches: more than can have been on their way."""
        count = len(self.ids) + len(self.loader)
        self._wait(lambda: len(self.ids) >= count)

    def gap(self, since_s: float) -> tuple[float, float]:
        """The longest time without a batch of those that ended after `since_s`: its begin and its end."""
        gaps = [(begun, ended) for begun, ended in pairwise(self._came_s) if ended >= since_s]
        return max(gaps, key=lambda gap: gap[1] - gap[0])

    def close(self) -> None:
        self._enough.set()
        self._thread.join()
        self.loader.close()


def load(address: str, **options: object) -> EmlioLoader:
    arguments: dict[str, object] = {
        "batch_size": 50, "raw": True, "ids": True, "to": "numpy", "seed": 3, "prefetch": "1MiB", "timeout": "30s", **options
    }  # fmt: skip
    return EmlioLoader(address, **loader_arguments(**arguments))


@contextmanager
def reading(numbers: Numbers, *daemons: Store, **options: object) -> Iterator[Rank]:
    """A rank that reads; in the end its batches must be those that come when nothing happens."""
    directory, records = numbers
    rank = Rank(load(f"emlio://{','.join(store.peer for store in daemons)}/numbers", **options), records)
    try:
        rank.flows()
        yield rank
        rank.flows()
    finally:
        rank.close()
    expected: list[list[int]] = []
    with load(str(directory)) as undisturbed:
        while len(expected) < len(rank.ids):
            expected += [batch["__id__"].tolist() for batch in undisturbed]
    assert rank.ids == expected[: len(rank.ids)]


def last(duration_s: float) -> None:
    """Let a fault last: there is nothing to wait for but time."""
    Event().wait(duration_s)


def test_a_daemon_that_was_killed_and_is_back_sends_on_whether_it_was_missed_before_or_not(
    numbers: Numbers, tmp_path: Path, log: Log
) -> None:
    with (
        stores(numbers, tmp_path, 1) as (store,),
        reading(numbers, store, heartbeat=f"{SHORT_HEARTBEAT_S}s") as rank,
    ):
        for down_s in (0.1, 2 * SHORT_HEARTBEAT_S):
            killed = store.kill()
            last(down_s)
            back = store.restart()
            log.wait(f"the daemon at {store.peer} is back after", killed)
            rank.flows()
            assert rank.gap(killed)[1] < back + 2.0 + BUSY_S


def test_a_daemon_that_stood_still_for_longer_than_a_heartbeat_sends_on_when_it_moves_again(
    numbers: Numbers, tmp_path: Path, log: Log
) -> None:
    with (
        stores(numbers, tmp_path, 1) as (store,),
        reading(numbers, store, heartbeat=f"{SHORT_HEARTBEAT_S}s") as rank,
    ):
        stopped = store.stop()
        log.wait(
            f"the daemon at {store.peer} is lost: the daemon at {store.peer} must send something within 1 s", stopped
        )
        last(SHORT_HEARTBEAT_S)
        moving = store.go_on()
        log.wait(f"the daemon at {store.peer} is back after", moving)
        rank.flows()
        begun, ended = rank.gap(stopped)
        assert begun < moving < ended < moving + 2.0 + BUSY_S


def test_a_daemon_that_stands_still_for_less_than_a_heartbeat_is_waited_for_and_nothing_is_said(
    numbers: Numbers, tmp_path: Path, log: Log
) -> None:
    """Half a heartbeat, and the end of the first heartbeat in it: nothing may be counted from before the conversation's start."""
    with stores(numbers, tmp_path, 1) as (store,), reading(numbers, store) as rank:
        last(rank.begun_s + 0.75 * HEARTBEAT_S - time.monotonic())
        stopped = store.stop()
        last(HEARTBEAT_S / 2)
        moving = store.go_on()
        rank.flows()
        begun, ended = rank.gap(stopped)
        assert begun < moving < ended < moving + 1.0 + BUSY_S
    assert log.said() == []


def test_a_daemon_that_stands_still_is_missed_within_a_heartbeat_though_it_is_asked_for_less_meanwhile(
    numbers: Numbers, tmp_path: Path, log: Log
) -> None:
    with stores(numbers, tmp_path, 2) as (store, other), reading(numbers, store, other) as rank:
        stopped = store.stop()
        lost = log.wait(f"the daemon at {store.peer} is lost", stopped)
        assert lost - stopped < HEARTBEAT_S + 1.0, log.said()
        rank.flows()
        assert rank.gap(stopped)[1] < lost + 1.0 + BUSY_S
        moving = store.go_on()
        log.wait(f"the daemon at {store.peer} is back after", moving)


def test_another_daemon_with_the_same_shards_takes_over_and_gives_back(
    numbers: Numbers, tmp_path: Path, log: Log
) -> None:
    with stores(numbers, tmp_path, 2) as (store, other), reading(numbers, store, other) as rank:
        killed = store.kill()
        lost = log.wait(f"the daemon at {store.peer} is lost", killed)
        assert lost - killed < HEARTBEAT_S - 1.0, "its connection ended, which is noticed before its silence"
        rank.flows()
        assert rank.gap(killed)[1] < lost + 1.0 + BUSY_S
        back = store.restart()
        log.wait(f"the daemon at {store.peer} is back after", back)
        rank.flows()
        assert not any(f"the daemon at {other.peer} is lost" in line for line in log.said()), log.said()
        # It has its part again: without it an epoch cannot be had, and its log says that it sent a good part of one.
        store.daemon.send_signal(signal.SIGTERM)
        assert store.daemon.finish() == 0
        drained = next(line for line in store.daemon.log.splitlines() if "drained: " in line)
        assert int(drained.split("drained: ")[1].split()[0].replace(",", "")) > RECORDS * 2000 / 4
