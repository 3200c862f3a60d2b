"""Runs of many epochs, and a daemon that serves one job after another: what they hold does not grow.

Covers: memory, descriptors, threads and ports of both sides, as the kernel counts them. Does not cover: how much memory a side
may hold at most (emlio-bench memory), many ranks at once (test_many_ranks).

Freed memory that glibc keeps (docs/internals/decisions/libzmq.md) is no leak, and how much it is depends on the order in which
messages were freed: of a window of 64 MiB it was 4 to 13 MiB, and came and went by whole messages. So a rank gives it back before
it is measured. What is left grew by 0.1 MiB in 30 epochs, and varied by up to 3 MiB, the free ends of threads' heaps.
"""

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from emlio.example import encode_example
from emlio.units import parse_size
from emlio_bench.harness.meter import read_resident
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess, RankProcess, settles

MIB = 1 << 20
RECORDS, RECORD_BYTES = 10_000, 20_000
GROWTH = 0.05
LOOKS, BETWEEN_LOOKS_S = 3, 0.03
RANK_GROWTH_BYTES = 6 * MIB  # a heap of many threads is never quite the same; a batch of each epoch would be more
"""The ends of threads' heaps: with messages of 1 MiB they vary by that. Each epoch has 157 batches, of 1.3 MB each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a process holds.

    Attributes:
        own_bytes: memory of its own that is in RAM.
        resident_bytes: that, and pages of mapped files.
        threads: how many.
        descriptors: what they are, and how many of each kind. What is open for a moment only, such as a folder that is being
            listed, is none.
        ports: how many it listens on.
    """

    own_bytes: int
    resident_bytes: int
    threads: int
    descriptors: Counter[str]
    ports: int

    @property
    def things(self) -> tuple[int, Counter[str], int]:
        """What can be counted exactly."""
        return self.threads, self.descriptors, self.ports


def open_now(pid: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed in the meantime
            found[re.sub(r":\[\d+\]", "", os.readlink(descriptor))] += 1
    return found


def open_all_the_time(pid: int) -> Counter[str]:
    found = open_now(pid)
    for _ in range(LOOKS - 1):
        time.sleep(BETWEEN_LOOKS_S)
        found &= open_now(pid)
    return found


def held(pid: int) -> Held:
    process, memory = psutil.Process(pid), read_resident(pid)
    return Held(
        own_bytes=memory.own_bytes,
        resident_bytes=memory.own_bytes + memory.file_bytes,
        threads=process.num_threads(),
        descriptors=open_all_the_time(pid),
        ports=sum(connection.status == psutil.CONN_LISTEN for connection in process.net_connections("tcp")),
    )


# ---- many epochs --------------------------------------------------------------------------------------------------------

# It stands still after the epochs it is told, with its window full: what it holds then does not depend on who was faster. Then it
# gives back what is free, and stands still again.
EPOCHS = """
import json, signal, sys

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # before there are threads, NumPy's too: all of them block it then

from emlio import EmlioLoader, Recovery
from emlio.allocator import give_back_freed_memory

address, way, prefetch, *stops = sys.argv[1:]
options = {"raw": True} if way == "plain" else {"fields": ["number", "vector"]}
with EmlioLoader(address, batch_size=64, ids=True, to="numpy", prefetch=prefetch, tune="off",
                 recovery=Recovery(timeout="30s"), **options) as loader:
    for epoch in range(1, 1 + int(stops[-1])):
        seen = [number for batch in loader for number in batch["__id__"].tolist()]
        assert sorted(seen) == list(range(loader.records)), epoch
        if str(epoch) in stops:
            print(json.dumps(epoch))
            signal.sigwait({signal.SIGUSR1})
            give_back_freed_memory()
            print(json.dumps("gave back"))
            signal.sigwait({signal.SIGUSR1})
"""


def columns(record: int) -> bytes:
    vector = np.full(RECORD_BYTES // 4, record, np.float32)
    return encode_example({"number": record, "vector": vector, "text": b"x" * (record % 50)})


@pytest.fixture(scope="module", params=["plain", pytest.param("columns", marks=pytest.mark.slow)])
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """200 MB of raw records, or of Examples with a vector of numbers; how to load them."""
    way = str(request.param)
    directory = tmp_path_factory.mktemp("datasets") / way
    payload: Callable[[int], bytes] | int = columns if way == "columns" else RECORD_BYTES
    make_dataset(directory, records=RECORDS, shards=4, payload=payload)
    return way, directory


def holdings_after(
    daemon: DaemonProcess, address: str, way: str, prefetch: str, stops: Sequence[int]
) -> list[tuple[Held, Held]]:
    """What rank and daemon hold after these epochs."""
    found: list[tuple[Held, Held]] = []
    with RankProcess(EPOCHS, address, way, prefetch, *map(str, stops)) as rank:
        for number, epoch in enumerate(stops):
            assert rank.line(2 * number, 200.0) == epoch
            assert rank.calms_down()
            assert daemon.calms_down()
            with_freed = held(rank.pid).own_bytes
            rank.send_signal(signal.SIGUSR1)
            assert rank.line(2 * number + 1) == "gave back"
            found.append((held(rank.pid), held(daemon.pid)))
            assert with_freed - found[-1][0].own_bytes <= parse_size(prefetch) // 2, "what is kept must have a bound"
            rank.send_signal(signal.SIGUSR1)
        assert rank.finish() == 0, rank.log
        assert rank.log == "", "nothing must have gone wrong on the way"
    return found


def own_bytes(of: Held) -> int:
    return of.own_bytes


def assert_like(before: Held, after: Held, who: str, more_bytes: int) -> None:
    assert after.things == before.things, (
        f"{who}: more {after.descriptors - before.descriptors}, fewer {before.descriptors - after.descriptors}"
    )
    assert after.own_bytes - before.own_bytes <= more_bytes, who
    assert after.resident_bytes - before.resident_bytes <= more_bytes, who


def two_at_each_end(found: Sequence[tuple[Held, Held]], side: int) -> tuple[Held, Held]:
    """The larger one of the first two, and the smaller one of the last: a leak is there in both.

    A piece of a thread's heap that is there at one moment is no leak, and no descriptor that is open at one of the two.
    """
    one, other, *_, last_but_one, last = (pair[side] for pair in found)
    return (
        replace(max(one, other, key=own_bytes), descriptors=one.descriptors & other.descriptors),
        replace(min(last_but_one, last, key=own_bytes), descriptors=last_but_one.descriptors & last.descriptors),
    )


def test_after_ten_epochs_both_sides_hold_what_they_held_after_two(large: tuple[str, Path], tmp_path: Path) -> None:
    way, directory = large
    # Memory comes and goes by whole messages: with small ones a twentieth of it is more than a few of them.
    with DaemonProcess({"large": directory}, "--message-size", "1MiB", folder=tmp_path) as daemon:
        found = holdings_after(daemon, daemon.address("large"), way, "64MiB", (2, 3, 9, 10))
    assert min(rank.own_bytes for rank, _ in found) > 64 * MIB, (
        "the window must be full, or a fuller one looks like a leak"
    )
    assert_like(*two_at_each_end(found, 0), "the rank", RANK_GROWTH_BYTES)
    before, after = two_at_each_end(found, 1)
    assert_like(before, after, "the daemon", int(GROWTH * before.own_bytes))


@pytest.mark.slow
def test_with_sizes_as_they_are_by_default_fifty_epochs_hold_what_ten_did(
    large: tuple[str, Path], tmp_path: Path
) -> None:
    way, directory = large
    with DaemonProcess({"large": directory}, folder=tmp_path) as daemon:
        found = holdings_after(daemon, daemon.address("large"), way, "256MiB", (9, 10, 49, 50))
    for side, who in enumerate(("the rank", "the daemon")):
        before, after = two_at_each_end(found, side)
        assert_like(before, after, who, int(GROWTH * before.own_bytes))


# ---- many jobs ----------------------------------------------------------------------------------------------------------

JOBS_A_PROCESS = 17
WAVES = [1, pytest.param(3, marks=pytest.mark.slow)]  # of four processes: 68 and 204 jobs

KEPT_BYTES = 4 * MIB  # a quarter of --memory: buffers for the next messages
MORE_BYTES = 3 * MIB  # what comes and goes takes two; a session has a quarter of one

# Half of its loaders get into the middle of an epoch, the others to its end or nowhere. Then some are closed, some left alone.
JOBS = """
import json, os, sys, threading
from emlio import EmlioLoader, Recovery

address, count, fate = sys.argv[1], int(sys.argv[2]), sys.argv[3]
loaders = [EmlioLoader(address, batch_size=20, raw=True, to="numpy", prefetch="1MiB",
                       recovery=Recovery(timeout="30s")) for _ in range(count)]
for number, loader in enumerate(loaders):
    batches = iter(loader) if number % 4 != 3 else iter(())
    for taken, batch in enumerate(batches):
        if number % 2 == 0 and taken == 3:
            break
print(json.dumps("began"))
if fate == "killed":
    threading.Event().wait()
elif fate == "closed":
    for loader in loaders:
        loader.close()
"""


@pytest.fixture(scope="module")
def medium(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("datasets") / "medium"
    make_dataset(directory, records=500, shards=4, payload=2000)
    return directory


def wave(daemon: DaemonProcess, count: int) -> None:
    """Jobs of four processes at once: two are killed, one closes its loaders, one just ends."""
    fates = ("killed", "closed", "killed", "left")
    with ExitStack() as stack:
        processes = [
            stack.enter_context(RankProcess(JOBS, daemon.address("medium"), str(count), fate)) for fate in fates
        ]
        for process, fate in zip(processes, fates, strict=True):
            assert process.line(0, 60.0) == "began"
            if fate == "killed":
                process.send_signal(signal.SIGKILL)
        for process, fate in zip(processes, fates, strict=True):
            assert process.finish() == (-signal.SIGKILL if fate == "killed" else 0), process.log


def rests(daemon: DaemonProcess) -> bool:
    """Whether all its sessions end soon, those of killed ranks by its own judgement."""
    return settles(lambda: daemon.log.count(" began") == daemon.log.count(" ended: "), 30.0)


def at_rest(daemon: DaemonProcess) -> Held:
    """What it holds once all is given back that it does not need."""
    assert settles(lambda: daemon.lanes == 0, 30.0)
    assert daemon.calms_down()
    return held(daemon.pid)


@pytest.mark.parametrize("waves", WAVES)
def test_jobs_that_are_closed_left_or_killed_leave_the_daemon_as_it_was(
    waves: int, medium: Path, tmp_path: Path
) -> None:
    options = ("--heartbeat-timeout", "3s", "--memory", str(4 * KEPT_BYTES), "--message-size", "64KiB")
    with DaemonProcess({"medium": medium}, *options, folder=tmp_path) as daemon:
        wave(daemon, 1)  # opens what is opened once, such as the shards' files
        assert rests(daemon)
        first = at_rest(daemon)
        wave(daemon, JOBS_A_PROCESS)  # keeps what the next ones use again: buffers, threads' stacks
        assert rests(daemon)
        before = at_rest(daemon)
        for _ in range(waves):
            wave(daemon, JOBS_A_PROCESS)
        assert rests(daemon), daemon.log[-2000:]
        jobs = 4 + (1 + waves) * 4 * JOBS_A_PROCESS
        assert daemon.log.count(" began") >= jobs
        assert daemon.log.count("the rank was silent for") >= jobs // 2, "the killed ones"
        assert daemon.log.count("goodbye") >= jobs // 2
        after = at_rest(daemon)
        for earlier, most_bytes in ((first, KEPT_BYTES + MORE_BYTES), (before, MORE_BYTES)):
            assert after.things == earlier.things
            assert after.own_bytes - earlier.own_bytes <= most_bytes
            assert after.resident_bytes - earlier.resident_bytes <= most_bytes
        assert "Traceback" not in daemon.log
