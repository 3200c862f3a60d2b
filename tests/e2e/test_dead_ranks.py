"""Ranks that are killed or stand still, and the processes that come in their place.

Covers: what the daemon frees and when, that others go on, who has the rank afterwards. Does not cover: daemons that die
(test_recovery), the rules of claims (tests/unit/test_claims).
"""

import gc
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.reading.stream import Stream
from emlio.daemon.service import Daemon
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess, RankProcess, settles

RECORDS = 3000
HEARTBEAT_S = 2.0
LANES = 2
OPTIONS = ("--heartbeat-timeout", f"{HEARTBEAT_S}s", "--lanes", str(LANES), "--message-size", "256KiB")
LATE_S = 3.0
"""What may pass besides: the tests share their machine with others."""

RANK = """
import json, sys, threading
from emlio import EmlioLoader, Recovery

def say(what):
    print(json.dumps(what), flush=True)

address, rank, ends = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "ends"
loader = EmlioLoader(address, batch_size=10, raw=True, ids=True, to="numpy", prefetch="1MiB", rank=rank, world_size=2,
                     recovery=Recovery(timeout=sys.argv[4] if len(sys.argv) > 4 else "30s"))
batches = iter(loader)
seen = next(batches)["__id__"].tolist()
say("began")
if not ends:
    threading.Event().wait()
for batch in batches:
    seen += batch["__id__"].tolist()
say(sorted(seen))
loader.close()
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 MB: more than the sockets on the way hold."""
    directory = tmp_path_factory.mktemp("datasets") / "large"
    make_dataset(directory, records=RECORDS, shards=3, payload=16_000)
    return directory


@pytest.fixture
def crowded(large: Path, tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess({"large": large}, *OPTIONS, folder=tmp_path) as daemon:
        yield daemon


def rank(daemon: DaemonProcess, number: int, *words: str) -> RankProcess:
    return RankProcess(RANK, daemon.address("large"), str(number), *words, environment={"EMLIO_JOB": "training"})


@contextmanager
def takes(least_s: float, most_s: float) -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert least_s <= time.monotonic() - begun < most_s


# ---- what a dead rank leaves --------------------------------------------------------------------------------------------


def test_the_lanes_of_a_killed_rank_are_closed_within_the_heartbeat_timeout_and_others_go_on(
    crowded: DaemonProcess,
) -> None:
    with rank(crowded, 0, "waits") as dead, rank(crowded, 1, "ends") as other:
        assert dead.line(0) == other.line(0) == "began"
        dead.send_signal(signal.SIGKILL)
        # It pinged a fifth of the timeout before it died, or earlier where the machine is busy.
        with takes(0.4 * HEARTBEAT_S, HEARTBEAT_S + LATE_S):
            crowded.wait_for_log("ended: the rank was silent for", HEARTBEAT_S + LATE_S)
        assert len(other.line(1)) == RECORDS // 2
        assert other.finish() == 0
        assert settles(lambda: crowded.lanes == 0, LATE_S)
    assert "Traceback" not in crowded.log


def test_all_memory_of_a_killed_rank_is_given_back(large: Path) -> None:
    """What is read, in a lane, or with the kernel; each such buffer keeps its stream alive, so none is overlooked."""
    config = DaemonConfig(
        data=(DatasetSource(name="large", directory=large),),
        bind=Endpoint(host="127.0.0.1", port=0),
        heartbeat_timeout=int(HEARTBEAT_S * 1e9),
        lanes=LANES,
    )

    def in_flight() -> list[int]:
        # By its type: `isinstance` asks each object, and some of other packages answer with a warning.
        streams: list[Stream] = [thing for thing in gc.get_objects() if type(thing) is Stream]
        return [stream.in_flight_bytes for stream in streams if stream.in_flight_bytes]

    with Daemon(config) as daemon:
        address = f"emlio://{daemon.endpoint.removeprefix('tcp://')}/large"
        with (
            RankProcess(RANK, address, "0", "waits") as dead,
            EmlioLoader(address, batch_size=10, raw=True, to="numpy", rank=1, world_size=2) as other,
        ):
            assert dead.line(0) == "began"
            batches = iter(other)
            next(batches)
            assert settles(lambda: len(in_flight()) == 2 and min(in_flight()) > 1 << 20, 30.0), in_flight()
            dead.send_signal(signal.SIGKILL)
            assert settles(lambda: len(in_flight()) == 1, HEARTBEAT_S + LATE_S), in_flight()
            assert sum(len(batch["record"]) for batch in batches) == RECORDS // 2 - 10
        assert settles(lambda: in_flight() == [], LATE_S), in_flight()


# ---- who has the rank afterwards ----------------------------------------------------------------------------------------


def test_a_rank_that_stood_still_for_longer_than_the_timeout_comes_back_by_itself(crowded: DaemonProcess) -> None:
    with rank(crowded, 0, "ends") as stopped:
        assert stopped.line(0) == "began"
        stopped.pause()
        crowded.wait_for_log("ended: the rank was silent for", HEARTBEAT_S + LATE_S)
        assert settles(lambda: crowded.lanes == 0, LATE_S)
        stopped.send_signal(signal.SIGCONT)
        seen = stopped.line(1)
        assert stopped.finish() == 0, stopped.log
    assert len(seen) == len(set(seen)) == RECORDS // 2
    assert crowded.log.count(" began") == 2


def test_a_rank_that_is_started_twice_is_refused_the_second_time_and_both_are_named(crowded: DaemonProcess) -> None:
    with rank(crowded, 0, "waits") as first:
        assert first.line(0) == "began"
        with rank(crowded, 0, "waits") as second:
            assert second.finish() == 1
            told = second.log
        assert "RefusedError" in told
        for process in (first, second):
            assert f":{process.pid} (127.0.0.1)" in told
        assert first.running
        assert crowded.log.count(" began") == 1


def test_a_rank_that_is_started_again_after_kill_9_need_not_wait_for_the_timeout(large: Path, tmp_path: Path) -> None:
    with DaemonProcess({"large": large}, "--heartbeat-timeout", "20s", folder=tmp_path) as daemon:
        with rank(daemon, 0, "waits") as dead:
            assert dead.line(0) == "began"
            dead.send_signal(signal.SIGKILL)
            dead.finish()
        with rank(daemon, 0, "ends") as successor, takes(0.0, 15.0):
            assert successor.line(0) == "began"
            assert len(successor.line(1)) == RECORDS // 2
        daemon.wait_for_log("its connection was lost, and another process waits for its rank")


def test_one_that_wakes_up_after_its_rank_was_given_away_is_refused_and_the_other_goes_on(
    crowded: DaemonProcess,
) -> None:
    with ExitStack() as stack:
        sleeper = stack.enter_context(rank(crowded, 0, "ends", "4s"))
        assert sleeper.line(0) == "began"
        sleeper.pause()
        successor = stack.enter_context(rank(crowded, 0, "waits"))
        assert successor.line(0) == "began"
        sleeper.send_signal(signal.SIGCONT)
        assert sleeper.finish() == 1
        assert "a rank must belong to one process" in sleeper.log
        for process in (sleeper, successor):
            assert f":{process.pid} (127.0.0.1)" in sleeper.log
        assert successor.running
        assert settles(lambda: crowded.lanes == LANES, LATE_S)
