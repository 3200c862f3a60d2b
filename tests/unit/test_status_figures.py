"""Rates and verdicts between two status replies, as a page and as JSON."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from emlio.cli.status.page import status_page
from emlio.errors import PeerLostError, RefusedError
from emlio.status.document import status_document
from emlio.status.figures import figures_between
from emlio.wire.control import StatusReply
from emlio.wire.status import DatasetStatus, FailureStatus, JobStatus, MemoryStatus, RankStatus

S = 1_000_000_000
MB = 1_000_000


def rank(number: int, **changes: Any) -> RankStatus:
    fields: dict[str, Any] = {
        "job": 0, "rank": number, "session": 10 + number, "host": f"gpu{number}", "pid": 100 + number,
        "state": "streaming", "waits_for": "", "age_ns": 60 * S, "silent_ns": 0, "lanes": 2, "sent_bytes": 0,
        "unread_bytes": 0, "held_bytes": 0, "blocked_ns": 0, "withheld_ns": 0, "starved_ns": 0, "epoch": 0, "slot": 0,
    }  # fmt: skip
    return RankStatus(**(fields | changes))


def reply(up_ns: int, *ranks: RankStatus, **changes: Any) -> StatusReply:
    fields: dict[str, Any] = {
        "nonce": 1,
        "daemon": "store1-1",
        "process": "p",
        "software": "0.1.0",
        "up_ns": up_ns,
        "draining": False,
        "lanes": 4,
        "heartbeat_timeout_ns": 10 * S,
        "memory": MemoryStatus(held_bytes=MB, most_bytes=512 * MB, process_bytes=100 * MB),
        "dataset_count": 1,
        "job_count": 1,
        "rank_count": len(ranks),
        "datasets": [
            DatasetStatus(
                name="imagenet",
                generation=2,
                current=True,
                shards=8,
                records=1000,
                size_bytes=100 * MB,
                sessions=len(ranks),
                sent_bytes=5 * MB,
            )
        ],
        "jobs": [JobStatus(name="run-7", dataset="imagenet", generation=2, world_size=4, sessions=len(ranks))],
        "ranks": list(ranks),
        "failures": [],
    }
    return StatusReply(**(fields | changes))


@pytest.mark.parametrize(
    ("waited", "named"),
    [
        ({"blocked_ns": 9 * S // 10, "withheld_ns": 9 * S // 10}, "rank"),
        ({"blocked_ns": 9 * S // 10, "withheld_ns": S // 10}, "network"),
        ({"starved_ns": 8 * S // 10, "blocked_ns": S // 10}, "storage"),
        ({"starved_ns": 3 * S // 10, "blocked_ns": 3 * S // 10}, ""),
        ({}, ""),
    ],
)
def test_a_rank_waits_for_what_took_most_of_the_interval(waited: dict[str, int], named: str) -> None:
    before = rank(0, sent_bytes=50 * MB, blocked_ns=40 * S, withheld_ns=20 * S, starved_ns=10 * S)
    grown = {name: getattr(before, name) + value for name, value in waited.items()}
    after = msgspec.structs.replace(before, sent_bytes=80 * MB, **grown)
    figures = figures_between(reply(60 * S, before), reply(61 * S, after))
    (found,) = figures.jobs[0].ranks
    assert found.waits_for == named
    assert found.bytes_per_s == 30 * MB
    assert figures.over_ns == S


def moved(before: RankStatus, bytes_sent: int, withheld_ns: int, **changes: Any) -> RankStatus:
    return msgspec.structs.replace(
        before, sent_bytes=bytes_sent, blocked_ns=withheld_ns, withheld_ns=withheld_ns, **changes
    )


def test_a_rank_that_misses_its_heartbeats_is_silent() -> None:
    ranks = [rank(number) for number in range(3)]
    later = [moved(one, 40 * MB, S // 10) for one in ranks[:2]] + [msgspec.structs.replace(ranks[2], silent_ns=6 * S)]
    job = figures_between(reply(60 * S, *ranks), reply(61 * S, *later)).jobs[0]
    assert [one.silent for one in job.ranks] == [False, False, True]


def test_new_sessions_and_restarted_daemons_are_taken_from_their_beginning() -> None:
    young = rank(0, age_ns=2 * S, sent_bytes=10 * MB)
    other = rank(1, sent_bytes=600 * MB)
    before = reply(60 * S, other)
    figures = figures_between(before, reply(61 * S, young, other))
    assert [one.bytes_per_s for one in figures.jobs[0].ranks] == [5 * MB, 0]
    restarted = figures_between(before, reply(2 * S, young, process="q"))
    assert restarted.jobs[0].ranks[0].bytes_per_s == 5 * MB
    assert restarted.over_ns == 2 * S
    assert figures_between(None, before).jobs[0].ranks[0].bytes_per_s == 10 * MB


FAILURE = FailureStatus(
    age_ns=12 * S, times=2, kind="lost", text="the rank was silent for 10 s", dataset="imagenet", job="run-7", rank=3
)


def test_the_page_names_ranks_failures_and_daemons_that_do_not_answer() -> None:
    ranks = [rank(0), rank(1), rank(2, host="gp\x1b[2Ju")]
    later = [moved(one, 40 * MB, S * 6 // 10) for one in ranks[:2]] + [moved(ranks[2], MB, S * 99 // 100)]
    figures = figures_between(reply(60 * S, *ranks), reply(61 * S, *later, failures=[FAILURE], rank_count=9))
    page = status_page([("store1:5555", figures), ("store2:5555", PeerLostError("the daemon at store2:5555 is gone"))])
    assert page.startswith("store1:5555: serving, emlio 0.1.0, up 1 min 1 s\n")
    assert "imagenet@2" in page
    assert "job run-7 on imagenet@2: 3 sessions of 4 ranks, 81 MB/s" in page
    assert "gp\\x1b[2Ju:102" in page
    assert "the rank: no credit 99%" in page
    assert "and 6 more sessions" in page
    assert "12 s ago  lost  rank 3 of run-7 on imagenet: the rank was silent for 10 s (2 times)" in page
    assert page.endswith("store2:5555: no status\n  the daemon at store2:5555 is gone\n")
    assert all(line.isprintable() for line in page.splitlines())


def test_a_page_of_one_session_speaks_in_the_singular() -> None:
    one = reply(61 * S, rank(0), rank_count=1, lanes=1)
    page = status_page([("store1:5555", figures_between(None, one))])
    assert "  1 session, 1 lane; records in memory" in page
    assert "job run-7 on imagenet@2: 1 session of 4 ranks" in page


def test_a_page_of_an_idle_daemon_that_drains_and_of_long_times() -> None:
    long = FailureStatus(age_ns=90_000 * S, times=1, kind="protocol", text="x", dataset="", job="", rank=-1)
    idle = reply(200_000 * S, draining=True, jobs=[], datasets=[], dataset_count=3, failures=[long])
    page = status_page([("store1:5555", figures_between(None, idle))])
    assert "draining, takes no new sessions, emlio 0.1.0, up 2 d 7 h" in page
    assert "and 3 more datasets" in page
    assert "1 d 1 h ago  protocol  x\n" in page


def test_a_failure_of_a_rank_that_belongs_to_no_dataset_names_the_job_alone() -> None:
    refused = FailureStatus(age_ns=S, times=1, kind="unknown-dataset", text="refused", dataset="", job="run-7", rank=3)
    idle = reply(S, jobs=[], failures=[refused])
    page = status_page([("store1:5555", figures_between(None, idle))])
    assert "unknown-dataset  rank 3 of run-7: refused\n" in page


def test_a_session_without_a_stream_says_how_far_it_is() -> None:
    page = status_page([("s:1", figures_between(None, reply(S, rank(0, state="judging"))))])
    assert "no stream yet (judging)" in page


def test_the_document_says_the_same_in_json() -> None:
    ranks = [rank(0), rank(1)]
    later = [moved(ranks[0], 40 * MB, S * 6 // 10), moved(ranks[1], MB, S * 99 // 100)]
    figures = figures_between(reply(60 * S, *ranks), reply(61 * S, *later, failures=[FAILURE]))
    now = datetime(2026, 5, 1, 12, tzinfo=UTC)
    errors = [PeerLostError("it is gone"), RefusedError("come again", code="no-session")]
    document = status_document([("a:1", figures), *(("b:1", error) for error in errors)], now)
    first, second, third = json.loads(json.dumps(document))["daemons"]
    assert (first["answered"], first["version"], first["state"], first["over_s"]) == (True, "0.1.0", "serving", 1.0)
    assert datetime.fromisoformat(first["since"]) == now - timedelta(seconds=61)
    (job,) = first["jobs"]
    assert (job["name"], job["bytes_per_s"]) == ("run-7", 41 * MB)
    assert job["ranks"][1]["waits_for"] == "rank"
    assert job["ranks"][1]["shares"] == {"rank": 0.99, "network": 0.0, "storage": 0.0}
    assert datetime.fromisoformat(first["failures"][0]["time"]) == now - timedelta(seconds=12)
    assert (second["answered"], second["error"], second["code"]) == (False, "it is gone", "")
    assert third["code"] == "no-session"
