"""The stage, the host and the rank that are blamed for a slow job, by the reports of ranks and daemons."""

from typing import Any

import msgspec
import pytest

from emlio.errors import PeerLostError, RefusedError
from emlio.status.blame import JobView, jobs_of
from emlio.status.document import Found
from emlio.status.figures import DaemonFigures, JobFigures, RankFigures
from emlio.status.verdict import Bound
from emlio.wire.control import StatusReply
from emlio.wire.status import FailureStatus, JobStatus, MemoryStatus, RankStatus, UserWaits

MS = 1_000_000
S = 1_000 * MS
NOTHING = {"rank": 0.0, "network": 0.0, "storage": 0.0}


def _rank(number: int, user: tuple[int, ...] | None = (0, 0, 2000, 0), **changes: Any) -> RankFigures:
    """Return a rank whose user waited for records and for batches, worked, and whose thread worked, in milliseconds."""
    status = RankStatus(
        **{
            "job": 0,
            "rank": number,
            "session": number,
            "host": f"gpu{number}",
            "pid": 7,
            "state": "streaming",
            **dict.fromkeys(("age_ns", "silent_ns", "lanes", "sent_bytes", "unread_bytes", "held_bytes"), 0),
            **dict.fromkeys(("blocked_ns", "withheld_ns", "starved_ns", "epoch", "slot"), 0),
            "waits_for": "",
        }
    )
    if user is not None:
        status = msgspec.structs.replace(status, user=UserWaits(*(value * MS for value in user)))
    usual = RankFigures(status=status, bytes_per_s=1e6, shares=NOTHING, waits_for="", silent=False)
    return msgspec.structs.replace(usual, **changes)


def _daemon(address: str, *ranks: RankFigures) -> Found:
    job = JobStatus(name="run", dataset="images", generation=1, world_size=4, sessions=len(ranks))
    reply = StatusReply(
        nonce=1,
        daemon=address,
        process=address,
        software="0.1.0",
        up_ns=S,
        draining=False,
        lanes=1,
        heartbeat_timeout_ns=10 * S,
        memory=MemoryStatus(held_bytes=0, most_bytes=1, process_bytes=1),
        dataset_count=0,
        job_count=1,
        rank_count=len(ranks),
        datasets=[],
        jobs=[job],
        ranks=[],
        failures=[],
    )
    return address, DaemonFigures(reply=reply, over_ns=S, jobs=[JobFigures(status=job, ranks=ranks)])


def _job(*found: Found) -> JobView:
    (job,) = jobs_of(found)
    return job


def test_a_job_whose_ranks_do_not_wait_is_bound_by_its_loop() -> None:
    blame = _job(_daemon("store1", _rank(0), _rank(1, user=(0, 40, 1960, 0)))).blame
    assert (blame.stage, blame.rank, blame.host) == (Bound.LOOP.value, None, "")
    assert "more than 2% of the time" in blame.evidence


def test_blame_follows_the_wait_for_data_and_never_the_step() -> None:
    # Rank 0 has the longest steps and waits least; rank 1 waits for its own batches.
    job = _job(_daemon("store1", _rank(0, user=(0, 0, 9000, 0)), _rank(1, user=(100, 1500, 400, 0))))
    assert (job.blame.stage, job.blame.rank, job.blame.host) == ("decoding", 1, "gpu1:7")
    assert "waits for data for 80% of the time" in job.blame.evidence


@pytest.mark.parametrize(
    ("shares", "stage"),
    [
        ({"storage": 0.8}, Bound.STORAGE.value),
        ({"network": 0.8}, Bound.NETWORK.value),
        ({"network": 0.4}, Bound.NETWORK.value),
    ],
)
def test_of_several_daemons_the_one_whose_stream_waits_most_is_blamed(shares: dict[str, float], stage: str) -> None:
    hungry = (1800, 100, 100, 0)
    job = _job(
        _daemon("store1", _rank(0), _rank(1, user=hungry, shares=NOTHING | {"rank": 0.9})),
        _daemon("store2", _rank(0), _rank(1, user=hungry, shares=NOTHING | shares)),
    )
    assert (job.blame.stage, job.blame.rank, job.blame.host) == (stage, 1, "store2")
    assert job.daemons == ["store1", "store2"]
    assert job.ranks[1].bytes_per_s == 2e6


def test_where_all_daemons_have_used_up_their_credit_none_is_blamed_alone() -> None:
    hungry = _rank(1, user=(1800, 100, 100, 0), shares=NOTHING | {"rank": 0.9})
    blame = _job(_daemon("store1", hungry), _daemon("store2", hungry)).blame
    assert (blame.stage, blame.host) == ("none of these daemons", "")
    assert "store1, store2" in blame.evidence


def test_a_healthy_daemon_that_is_asked_alone_is_not_blamed_for_another_one() -> None:
    hungry = _rank(1, user=(1900, 0, 100, 0), shares=NOTHING | {"rank": 0.95})
    assert _job(_daemon("store1", _rank(0), hungry)).blame.stage == "none of these daemons"


def test_a_daemon_that_does_not_answer_takes_no_blame_for_what_others_are_late_with() -> None:
    lost: Found = ("typo", PeerLostError("it does not answer"))
    slow_here = _rank(0, user=(100, 1700, 200, 0))
    assert _job(_daemon("store1", slow_here), lost).blame.stage == "decoding"
    slow_disk = _rank(0, user=(1800, 0, 200, 0), shares=NOTHING | {"storage": 0.9})
    assert _job(_daemon("store1", slow_disk), lost).blame.host == "store1"
    refused: Found = ("store2", RefusedError("not for you", code="not-admitted"))
    hungry = _rank(0, user=(1900, 0, 100, 0), shares=NOTHING | {"rank": 0.95})
    assert _job(_daemon("store1", hungry), refused).blame.stage == "none of these daemons"


def test_of_two_loaders_of_a_rank_the_one_that_waits_counts() -> None:
    hungry = _rank(0, user=(1900, 0, 100, 0), shares=NOTHING | {"storage": 0.9})
    job = _job(_daemon("store1", hungry, _rank(0)))
    assert (job.blame.stage, job.blame.host, job.blame.rank) == (Bound.STORAGE.value, "store1", 0)
    assert [one.bytes_per_s for one in job.ranks] == [2e6]


def test_processes_of_one_rank_on_two_hosts_are_told_apart() -> None:
    other = _rank(0)
    other = msgspec.structs.replace(other, status=msgspec.structs.replace(other.status, host="gpu9"))
    assert [one.place for one in _job(_daemon("store1", _rank(0), other)).ranks] == ["gpu0:7", "gpu9:7"]


def test_mounts_are_no_ranks_that_could_tell() -> None:
    mount = _rank(0, user=None)
    mount = msgspec.structs.replace(mount, status=msgspec.structs.replace(mount.status, state="ready"))
    assert jobs_of([_daemon("store1", mount)]) == []


def test_a_mixture_is_one_job_with_the_waits_of_its_slow_dataset() -> None:
    fast = _rank(0, user=(1900, 0, 100, 0), shares=NOTHING | {"rank": 0.95})
    slow = _rank(0, user=(1900, 0, 100, 0), shares=NOTHING | {"storage": 0.9})
    address, figures = _daemon("store1", fast)
    assert isinstance(figures, DaemonFigures)
    (job,) = figures.jobs
    text = JobFigures(status=msgspec.structs.replace(job.status, dataset="text"), ranks=[slow])
    found = _job((address, msgspec.structs.replace(figures, jobs=[job, text])))
    assert found.dataset == "images@1, text@1"
    assert (found.blame.stage, found.blame.host) == (Bound.STORAGE.value, "store1")


def test_a_rank_whose_thread_receives_all_the_time_is_bound_by_that() -> None:
    assert _job(_daemon("store1", _rank(0, user=(1800, 0, 200, 1700)))).blame.stage == "receiving and checking"


def test_a_silent_rank_is_blamed_before_those_that_wait() -> None:
    silent = _rank(0)
    silent = msgspec.structs.replace(
        silent, status=msgspec.structs.replace(silent.status, silent_ns=7 * S), silent=True
    )
    job = _job(_daemon("store1", _rank(1, user=(1800, 0, 200, 0)), silent))
    assert (job.blame.stage, job.blame.rank, job.blame.host) == ("a rank's process", 0, "gpu0:7")
    assert "7 s" in job.blame.evidence


def test_a_daemon_that_does_not_answer_is_blamed_if_a_rank_waits() -> None:
    lost: Found = ("store2", PeerLostError("it does not answer"))
    waiting = _job(_daemon("store1", _rank(0, user=(1800, 0, 200, 0))), lost)
    assert (waiting.blame.stage, waiting.blame.host) == (Bound.AWAY.value, "store2")
    assert _job(_daemon("store1", _rank(0)), lost).blame.stage == Bound.LOOP.value


def test_ranks_of_an_older_release_do_not_tell() -> None:
    assert _job(_daemon("store1", _rank(0, user=None))).blame.stage == "what is not known yet"
    assert jobs_of([("store2", PeerLostError("gone"))]) == []


def _lost(rank: int, age_ns: int = S, job: str = "run") -> FailureStatus:
    text = "the rank was silent for 10 s (gpu9:7)"
    return FailureStatus(age_ns=age_ns, times=1, kind="lost", text=text, dataset="images", job=job, rank=rank)


def _with_failures(found: Found, *failures: FailureStatus) -> Found:
    address, figures = found
    assert isinstance(figures, DaemonFigures)
    return address, msgspec.structs.replace(
        figures, reply=msgspec.structs.replace(figures.reply, failures=list(failures))
    )


def test_a_job_that_stands_still_without_a_rank_that_was_lost_is_held_up_by_it() -> None:
    still = _rank(0, bytes_per_s=0.0)
    blame = _job(_with_failures(_daemon("store1", still), _lost(1))).blame
    assert (blame.stage, blame.rank) == ("a rank that is gone", 1)
    assert "gpu9:7" in blame.evidence


@pytest.mark.parametrize("failure", [_lost(0), _lost(1, age_ns=3600 * S), _lost(1, job="other")])
def test_a_rank_that_came_back_or_was_lost_long_ago_or_elsewhere_is_not_blamed(failure: FailureStatus) -> None:
    still = _rank(0, bytes_per_s=0.0)
    assert _job(_with_failures(_daemon("store1", still), failure)).blame.stage == Bound.LOOP.value
    assert _job(_with_failures(_daemon("store1", _rank(0)), _lost(1))).blame.stage == Bound.LOOP.value


def _on(dataset: str, *ranks: RankFigures) -> Found:
    address, figures = _daemon("store1", *ranks)
    assert isinstance(figures, DaemonFigures)
    jobs = [
        msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, dataset=dataset))
        for job in figures.jobs
    ]
    return address, msgspec.structs.replace(figures, jobs=jobs)


def test_runs_of_one_name_on_two_datasets_are_two_jobs_unless_a_process_reads_both() -> None:
    healthy, waits = _rank(0), _rank(1, user=(100, 1500, 400, 0))
    told = [(job.dataset, job.blame.stage) for job in jobs_of([_on("a", healthy), _on("b", waits)])]
    assert told == [("a@1", Bound.LOOP.value), ("b@1", "decoding")]
    (mixed,) = jobs_of([_on("a", healthy, waits), _on("b", waits)])
    assert (mixed.dataset, mixed.blame.rank) == ("a@1, b@1", 1)


def test_a_rank_that_tells_is_asked_before_one_that_does_not() -> None:
    assert _job(_daemon("store1", _rank(0, user=None), _rank(1))).blame.stage == Bound.LOOP.value
