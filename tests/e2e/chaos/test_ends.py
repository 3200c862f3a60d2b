"""Processes of a run that end behind its back: the run is not good, whatever comes in their place.

Covers: daemons and ranks that had ended by themselves before they were to be killed or drained, the end of a soak. Does not
cover: those that are noticed while the run looks (tests.e2e.chaos.run).
"""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess, RankProcess, settles
from tests.e2e.chaos import cli
from tests.e2e.chaos.faults import Kind, Kinds
from tests.e2e.chaos.host import Host
from tests.e2e.chaos.job import Job
from tests.e2e.chaos.known import Known
from tests.e2e.chaos.report import Sample
from tests.e2e.chaos.run import RunResult
from tests.e2e.chaos.stage import Stage

ABORTED = -signal.SIGABRT
LIMIT_S = 30.0


def abort(process: RankProcess | DaemonProcess) -> None:
    """End it by a signal that the run did not send."""
    process.send_signal(signal.SIGABRT)
    assert settles(lambda: not process.running, LIMIT_S)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    make_dataset(tmp_path / "data", records=10, shards=1)
    (tmp_path / "state").mkdir()
    made = Host(0, tmp_path / "data", tmp_path / "state", {})
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("end", [Host.kill, Host.drain, Host.look_after, Host.close])
def test_a_daemon_that_had_ended_by_itself_is_told_of(host: Host, end: "object") -> None:
    assert host.process is not None
    abort(host.process)
    assert callable(end)
    end(host)
    assert [trouble for trouble in host.troubles if f"{ABORTED}" in trouble and "by itself" in trouble]


def test_a_daemon_that_another_replaced_is_told_of_all_the_same(host: Host) -> None:
    assert host.process is not None
    abort(host.process)
    host.kill()
    host.start()
    host.look_after()
    assert len(host.troubles) == 1


def test_one_that_ends_as_it_was_told_to_is_no_trouble(host: Host) -> None:
    host.kill()
    host.start()
    host.drain()
    assert host.troubles == []


def job_of(folder: Path) -> Job:
    job = Job(folder, {"address": "emlio://127.0.0.1:1/data", "options": {"timeout": "60s", "batch_size": 1}}, {})
    job.begin(2)
    return job


def test_ranks_that_had_ended_by_themselves_are_told_of_though_others_come_in_their_place(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    try:
        first, second = (seat.process for seat in job.seats)
        assert first is not None
        assert second is not None
        abort(first)
        job.seats[0].kill()
        job.start(job.seats[0])
        abort(second)
        job.end_life()
    finally:
        job.close()
    assert [f"rank {rank} of 2 ended with status {ABORTED}" in error for rank, error in enumerate(job.errors)] == [
        True
    ] * 2


def test_ranks_that_are_killed_by_the_run_are_no_trouble(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    job.seats[0].kill()
    job.start(job.seats[0])
    job.close()
    assert job.errors == []


def test_a_daemon_that_ends_by_itself_after_the_last_run_of_a_soak_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Known(folder=tmp_path / "known", catalog=cli.make_known(tmp_path / "known").catalog, checksums=())

    def run(seed: int, *_: object) -> RunResult:
        return RunResult(
            seed=seed, seconds=0.0, schedule=(), recoveries=(), delivered=0, lost=0, repeated=0, disordered=0, changed=0,
            hangs=0, troubles=(),
        )  # fmt: skip

    stages: list[Stage] = []

    def entered(stage: Stage) -> list[object]:
        stages.append(stage)
        return []

    monkeypatch.setattr(cli, "run_seed", run)
    monkeypatch.setattr(Stage, "memory", entered)
    memory: list[Sample] = []
    troubles: list[str] = []
    kinds = Kinds(asked=(Kind.DAEMON_KILL,), missing=frozenset())
    for _ in cli._on_one_stage(iter([1, 2]), known, kinds, tmp_path, memory, troubles):
        if stages:
            process = stages[0].hosts[1].process
            assert process is not None
            abort(process)
    assert len(troubles) == 1
    assert f"ended by itself with {ABORTED}" in troubles[0]


def test_a_rank_is_under_way_once_its_latest_loader_has_given_a_batch(tmp_path: Path) -> None:
    make_dataset(tmp_path / "data", records=400, shards=1)
    (tmp_path / "job").mkdir()
    job = Job(tmp_path / "job", {"address": str(tmp_path / "data"), "options": {"batch_size": 1}}, {})
    job.begin(1)
    (seat,) = job.seats

    def sees(what: Callable[[], bool]) -> bool:
        def look() -> bool:
            seat.read()
            return what()

        return settles(look, LIMIT_S)

    try:
        assert not seat.is_under_way
        assert sees(lambda: seat.is_under_way)
        before = len(seat.taken)
        seat.ask_to_close()
        assert not seat.is_under_way, "a loader is about to be made"
        assert sees(lambda: seat.is_under_way)
        assert len(seat.closed_ns) == 1
        assert len(seat.taken) > before
    finally:
        job.close()
    assert job.errors == []
