"""A daemon's life: signals, idleness, ranks that vanish, many sessions one after the other and at once.

Covers: what its process does, seen from outside. Does not cover: what it refuses (test_bad_commands, test_bad_peers).
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import psutil
import pytest
import zmq

from emlio import EmlioLoader
from emlio.errors import PeerLostError, RefusedError
from emlio.index.opening import open_dataset
from emlio.planner.catalog import Catalog
from emlio.planner.plan import Plan, PlanSpec
from emlio_testing.attacks.insiders import hello_of
from emlio_testing.attacks.strangers import dealer
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import DaemonProcess, RankProcess, settles
from tests.e2e.attacks.insiders import Insider, lane_in

pytestmark = pytest.mark.usefixtures("fresh_starts")

SLOW_TO_TAKE = ("--message-size", "64KiB", "--memory", "4MiB")

SIGNALS = [signal.SIGTERM, signal.SIGINT]
BOTH = pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 MB: more than the sockets on the way hold."""
    directory = tmp_path_factory.mktemp("datasets") / "large"
    make_dataset(directory, records=3000, shards=3, payload=16_000)
    return directory


def load(daemon: DaemonProcess, name: str, **options: object) -> EmlioLoader:
    arguments: dict[str, object] = {
        "batch_size": 10, "raw": True, "ids": True, "to": "numpy", "timeout": "10s", **options
    }  # fmt: skip
    return EmlioLoader(daemon.address(name), **loader_arguments(**arguments))


# ---- signals ------------------------------------------------------------------------------------------------------------


@BOTH
def test_an_idle_daemon_ends_at_once_and_takes_its_ready_file_with_it(
    small: Path, tmp_path: Path, number: signal.Signals
) -> None:
    with DaemonProcess({"small": small}, "--drain-timeout", "60s", folder=tmp_path) as daemon:
        assert list(tmp_path.glob("ready-*"))
        begun = time.monotonic()
        daemon.send_signal(number)
        assert daemon.finish() == 0
        assert time.monotonic() - begun < 25.0, "it waits for nobody"
        assert not list(tmp_path.glob("ready-*"))
        assert f"{number.name}: draining" in daemon.log
        assert "Traceback" not in daemon.log


@BOTH
def test_what_was_read_still_arrives_in_order_and_then_the_rank_is_told(
    large: Path, tmp_path: Path, number: signal.Signals
) -> None:
    with open_dataset("large", large) as dataset:
        of_epoch = Plan(Catalog(shards=tuple(dataset.entries)), PlanSpec(batch_size=10)).epoch(0)
    with (
        DaemonProcess({"large": large}, *SLOW_TO_TAKE, folder=tmp_path) as daemon,
        load(daemon, "large", prefetch="1MiB", timeout="6s") as loader,
    ):
        seen: list[list[int]] = []

        def take_all() -> None:
            for batch in loader:
                seen.append([int.from_bytes(record[:8], "little") for record in batch["record"]])
                if len(seen) == 2:
                    daemon.send_signal(number)
                    daemon.wait_for_log("draining")

        with pytest.raises(PeerLostError, match="ended the session: the daemon is shutting down") as got:
            take_all()
        assert daemon.peer in str(got.value)
        assert seen == [of_epoch.ids(0, *of_epoch.batch_slots(0, step)).tolist() for step in range(len(seen))]
        # Two batches were taken, 1 MiB was in the rank; the rest was on the way or read.
        assert daemon.finish() == 0
        assert loader.stats().received_bytes == sent_bytes(daemon)


@BOTH
def test_small_messages_arrive_as_well(tmp_path: Path, number: signal.Signals) -> None:
    """libzmq gathers small messages in a buffer of its own, which nobody else can see into."""
    make_dataset(tmp_path / "tiny", records=7, shards=1, payload=20)
    with (
        DaemonProcess({"tiny": tmp_path / "tiny"}, folder=tmp_path) as daemon,
        load(daemon, "tiny", timeout="6s") as loader,
    ):
        batches = iter(loader)
        next(batches)
        assert settles(lambda: loader.stats().received_bytes >= 2 * 7 * 36, 30.0), "two epochs are taken ahead"
        daemon.send_signal(number)
        daemon.wait_for_log("ended")
        assert next(batches, None) is None, "an iteration that ends leaves the flow as it is"
        epochs = 1

        def take_all() -> None:
            nonlocal epochs
            while True:
                epochs += sum(1 for _ in loader)

        with pytest.raises(PeerLostError, match="ended the session: the daemon is shutting down"):
            take_all()
        assert daemon.finish() == 0
        assert epochs > 1
        assert loader.stats().received_bytes == sent_bytes(daemon)


def sent_bytes(daemon: DaemonProcess) -> int:
    """What the daemon says it pushed to its only session."""
    line = next(line for line in daemon.log.splitlines() if "drained: " in line)
    return int(line.split("drained: ")[1].split()[0].replace(",", ""))


@contextmanager
def deaf(daemon: DaemonProcess) -> Iterator[None]:
    """A rank that was sent all that its lane may have under way, and reads nothing."""
    with dealer(daemon.endpoint) as socket, zmq.Context() as context:
        rank = Insider(socket)
        rank.greet(hello_of("large", protections=("clear",)))
        rank.agree()
        rank.open()
        with lane_in(context, daemon.data_port, rank.secret, 0) as lane:
            assert lane.poll(5000)
            assert daemon.calms_down()
            yield


@BOTH
def test_a_rank_that_does_not_read_holds_the_end_up_for_the_drain_timeout_only(
    large: Path, tmp_path: Path, number: signal.Signals
) -> None:
    options = ("--drain-timeout", "700ms")
    with DaemonProcess({"large": large}, *SLOW_TO_TAKE, *options, folder=tmp_path) as daemon, deaf(daemon):
        begun = time.monotonic()
        daemon.send_signal(number)
        assert daemon.finish() == 0
        assert 0.5 < time.monotonic() - begun < 25.0
        assert "the rank did not read" in daemon.log
        assert "Traceback" not in daemon.log


@BOTH
def test_a_rank_that_has_read_all_it_was_sent_does_not_hold_the_end_up(
    large: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Records that were only read ahead are read again by the daemon that sends them."""
    options = ("--drain-timeout", "60s")
    with (
        DaemonProcess({"large": large}, *SLOW_TO_TAKE, *options, folder=tmp_path) as daemon,
        load(daemon, "large", prefetch="1MiB") as loader,
    ):
        next(iter(loader))
        assert daemon.calms_down(), "the rank has what it allowed"
        begun = time.monotonic()
        daemon.send_signal(number)
        assert daemon.finish() == 0
        assert time.monotonic() - begun < 25.0
        assert "drained: " in daemon.log


@BOTH
def test_a_second_signal_stops_at_once(large: Path, tmp_path: Path, number: signal.Signals) -> None:
    options = ("--drain-timeout", "60s")
    with DaemonProcess({"large": large}, *SLOW_TO_TAKE, *options, folder=tmp_path) as daemon, deaf(daemon):
        daemon.send_signal(number)
        daemon.wait_for_log("accepting no new")
        begun = time.monotonic()
        daemon.send_signal(number)
        assert daemon.finish() == 0
        assert time.monotonic() - begun < 25.0
        assert f"{number.name}: stopping now" in daemon.log
        assert "Traceback" not in daemon.log


def test_a_draining_daemon_takes_no_new_session_and_no_new_stream(large: Path, tmp_path: Path) -> None:
    options = ("--drain-timeout", "60s")
    with (
        DaemonProcess({"large": large}, *SLOW_TO_TAKE, *options, folder=tmp_path) as daemon,
        load(daemon, "large", prefetch="1MiB", timeout="3s") as loader,
    ):
        next(iter(loader))
        with deaf(daemon):
            daemon.send_signal(signal.SIGTERM)
            daemon.wait_for_log("accepting no new")
            with pytest.raises(RefusedError, match="this daemon is shutting down") as got:
                load(daemon, "large", timeout="1s")
            assert got.value.code == "draining"
            loader.set_epoch(5)
            with pytest.raises(PeerLostError, match="this daemon is shutting down"):
                next(iter(loader))
            assert daemon.running, "the other rank has not read what it was sent"


# ---- idleness -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocked", [False, True], ids=["no stream", "a stream whose rank does not read"])
def test_an_idle_daemon_uses_no_cpu_to_speak_of(large: Path, tmp_path: Path, blocked: bool) -> None:
    with (
        DaemonProcess({"large": large}, *SLOW_TO_TAKE, folder=tmp_path) as daemon,
        load(daemon, "large", prefetch="1MiB") as loader,
    ):
        if blocked:
            next(iter(loader))
        assert daemon.calms_down()
        before, begun = daemon.cpu_s, time.monotonic()
        Event().wait(2.0)
        used, elapsed = daemon.cpu_s - before, time.monotonic() - begun
        # The kernel counts in ticks of 10 ms, so a single one must be allowed.
        assert used <= max(0.01 * elapsed, 0.02), f"{used:.3f} s of CPU in {elapsed:.1f} s"


# ---- ranks that vanish --------------------------------------------------------------------------------------------------

SLEEPER = """
import json, sys, threading
from emlio import EmlioLoader

loader = EmlioLoader(sys.argv[1], batch_size=10, raw=True, to="numpy", prefetch="1MiB")
batches = iter(loader)
next(batches)
print(json.dumps("began"))
threading.Event().wait()
"""


def held(daemon: DaemonProcess) -> tuple[int, int, int]:
    """Threads, descriptors and lanes of the daemon."""
    process = psutil.Process(daemon.pid)
    return process.num_threads(), process.num_fds(), daemon.lanes


def warm_up(daemon: DaemonProcess, name: str) -> None:
    """What is opened once and kept, such as the shards' files, is not a leak."""
    with load(daemon, name) as loader:
        for _ in loader:
            pass
    daemon.wait_for_log("the rank sent goodbye")


@pytest.mark.parametrize("fate", ["killed", "stopped"])
def test_a_rank_that_vanished_is_forgotten_within_the_heartbeat_timeout(large: Path, tmp_path: Path, fate: str) -> None:
    # Long enough that a rank on a busy machine is not taken for a dead one.
    options = (*SLOW_TO_TAKE, "--heartbeat-timeout", "2s", "--lanes", "3")
    with DaemonProcess({"large": large}, *options, folder=tmp_path) as daemon:
        warm_up(daemon, "large")
        assert settles(lambda: daemon.lanes == 0, 30.0)
        before = held(daemon)
        with RankProcess(SLEEPER, daemon.address("large")) as rank, load(daemon, "large") as other:
            assert rank.line(0) == "began"
            batches = iter(other)
            next(batches)
            assert settles(lambda: daemon.lanes == 3 + 3, 30.0)
            gone = time.monotonic()
            rank.send_signal(signal.SIGKILL if fate == "killed" else signal.SIGSTOP)
            daemon.wait_for_log("ended: the rank was silent for", 30.0)
            assert time.monotonic() - gone > 1.0
            assert settles(lambda: daemon.lanes == 3, 30.0), "only the other rank's lanes may be left"
            assert sum(len(batch["record"]) for batch in batches) == 3000 - 10, "the other rank goes on"
        assert settles(lambda: held(daemon) == before, 30.0), f"{before} before, {held(daemon)} after"


# ---- many sessions ------------------------------------------------------------------------------------------------------


@pytest.mark.slow  # test_long_runs has two hundred jobs, most of them with a worse end
def test_two_hundred_sessions_leave_descriptors_and_threads_as_they_were(daemon: DaemonProcess) -> None:
    warm_up(daemon, "small")
    assert settles(lambda: daemon.lanes == 0, 30.0)
    before = held(daemon)
    for number in range(200):
        with load(daemon, "small", batch_size=100) as loader:
            batch = next(iter(loader))
            assert len(batch["record"]) == 100, number
    daemon.wait_for_log("the rank sent goodbye", times=201)
    assert settles(lambda: held(daemon) == before, 30.0), f"{before} before, {held(daemon)} after"


CROWD = """
import json, signal, sys

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # before there are threads, NumPy's too: all of them block it then

from emlio import EmlioLoader, Recovery

address, first, count, ranks = sys.argv[1], *map(int, sys.argv[2:])
loaders = [EmlioLoader(address, batch_size=8, rank=rank, world_size=ranks, raw=True, ids=True, to="numpy",
                       recovery=Recovery(timeout="30s"),
                       prefetch="1MiB") for rank in range(first, first + count)]
iterations = [iter(loader) for loader in loaders]
seen = [next(iteration)["__id__"].tolist() for iteration in iterations]
print(json.dumps("began"))
signal.sigwait({signal.SIGUSR1})
for which, iteration in enumerate(iterations):
    for batch in iteration:
        seen[which] += batch["__id__"].tolist()
for loader in loaders:
    loader.close()
print(json.dumps(seen))
"""


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    directory = tmp_path / "wide"
    make_dataset(directory, records=2048, shards=4, payload=1000)
    return directory


def test_sixty_four_ranks_at_once_are_served_by_the_same_few_threads(wide: Path, tmp_path: Path) -> None:
    with DaemonProcess({"wide": wide}, folder=tmp_path) as daemon:
        warm_up(daemon, "wide")
        before = psutil.Process(daemon.pid).num_threads()
        with ExitStack() as stack:
            crowd = [
                stack.enter_context(RankProcess(CROWD, daemon.address("wide"), str(first), "16", "64"))
                for first in range(0, 64, 16)
            ]
            for process in crowd:
                assert process.line(0, 60.0) == "began"
            assert psutil.Process(daemon.pid).num_threads() == before
            assert daemon.log.count(" began") == 1 + 64
            assert "goodbye" not in daemon.log.split("began", 2)[2], "all 64 must be there at once"
            for process in crowd:
                process.send_signal(signal.SIGUSR1)
            ends = [process.finish() for process in crowd]
            assert ends == [0] * 4, "\n".join(process.log for process in crowd)
            seen = [ids for process in crowd for ids in process.line(1)]
        assert len(seen) == 64
        assert {len(ids) for ids in seen} == {32}
        assert sorted(record for ids in seen for record in ids) == list(range(2048))
        assert "Traceback" not in daemon.log


def test_the_ready_file_says_where_what_and_who(small: Path, tmp_path: Path) -> None:
    with DaemonProcess({"small": small, "other": small}, folder=tmp_path) as daemon:
        (file,) = tmp_path.glob("ready-*")
        assert json.loads(file.read_text(encoding="utf-8")) == {
            "endpoint": daemon.endpoint,
            "data_endpoint": f"tcp://127.0.0.1:{daemon.data_port}",
            "datasets": ["small", "other"],
            "pid": daemon.pid,
        }
        os.kill(daemon.pid, 0)
        assert f"serving at {daemon.endpoint}, data at tcp://127.0.0.1:{daemon.data_port}\n" in daemon.log + "\n"
