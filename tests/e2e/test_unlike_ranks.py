"""Processes of one job whose options differ, or did before the job came back with others.

Covers: real processes, and what the second is told; a job that is killed and goes on with another number of ranks. Does not
cover: the rules (unit/test_comparison), loaders in one process (integration/test_rank_plans), ranks without a common daemon
(test_process_group).
"""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess, RankProcess

RECORDS = 256
HEARTBEAT_S = 6.0

RANK = """
import json, sys, threading
from emlio import EmlioLoader, Recovery

def say(what):
    print(json.dumps(what), flush=True)

address, rank, ends, options = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "ends", json.loads(sys.argv[4])
with EmlioLoader(address, rank=rank, raw=True, ids=True, to="numpy", prefetch="1MiB",
                 recovery=Recovery(timeout="40s"), **options) as loader:
    say("made")
    if not ends:
        threading.Event().wait()
    say([number for batch in loader for number in batch["__id__"].tolist()])
"""

Start = Callable[..., RankProcess]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("datasets") / "numbers"
    make_dataset(directory, records=RECORDS, shards=4)
    return directory


@pytest.fixture
def daemon(numbers: Path, tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess({"numbers": numbers}, "--heartbeat-timeout", f"{HEARTBEAT_S}s", folder=tmp_path) as daemon:
        yield daemon


@pytest.fixture
def start(daemon: DaemonProcess) -> Iterator[Start]:
    """Starts a rank of the one job."""
    with ExitStack() as stack:

        def start_one(rank: int, what: str, **options: Any) -> RankProcess:
            said = json.dumps({"world_size": 2, "batch_size": 4, "seed": 1, **options})
            words = (daemon.address("numbers"), str(rank), what, said)
            return stack.enter_context(RankProcess(RANK, *words, environment={"EMLIO_JOB": "training"}))

        yield start_one


def read_all(ranks: list[RankProcess]) -> None:
    seen = [number for rank in ranks for number in rank.line(1, 60.0)]
    assert [rank.finish() for rank in ranks] == [0] * len(ranks), "\n".join(rank.log for rank in ranks)
    assert sorted(seen) == list(range(RECORDS))


def test_a_process_with_another_option_fails_and_says_which_and_whose(start: Start) -> None:
    first = start(0, "waits")
    assert first.line(0) == "made"
    second = start(1, "ends", seed=2)
    assert second.finish() == 1
    told = second.log
    assert "RefusedError" in told
    assert f":{second.pid} (127.0.0.1)) has seed=2, rank 0 (" in told
    assert f":{first.pid} (127.0.0.1)) has seed=1" in told
    assert first.running


def test_a_job_that_was_killed_comes_back_with_another_number_of_ranks_and_another_batch_size(
    start: Start, daemon: DaemonProcess
) -> None:
    before = [start(rank, "waits") for rank in range(2)]
    for rank in before:
        assert rank.line(0) == "made"
    for rank in before:
        rank.send_signal(signal.SIGKILL)
        rank.finish()
    # The last ones first: they have no claim to wait for, only plans.
    after = [start(rank, "ends", world_size=4, batch_size=2) for rank in (3, 2, 1, 0)]
    for rank in after:
        assert rank.line(0, 60.0) == "made"
    read_all(after)
    assert "ranks-differ" not in daemon.log


def test_one_that_stands_still_is_waited_for_until_its_session_is_over(start: Start, daemon: DaemonProcess) -> None:
    asleep = start(0, "waits")
    assert asleep.line(0) == "made"
    asleep.pause()
    after = [start(rank, "ends", world_size=2, batch_size=8) for rank in (1, 0)]
    for rank in after:
        assert rank.line(0, 60.0) == "made"
    daemon.wait_for_log("ended: the rank was silent for")
    read_all(after)
    asleep.send_signal(signal.SIGCONT)
