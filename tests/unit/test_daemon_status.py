"""Answers of a daemon to status requests: the last failures, limits, and the part that a client may see.

Covers: failures, the quota, the report over prepared sessions, what fits into a reply. Does not cover: sockets and processes
(tests/integration/test_status.py, tests/e2e/test_status.py).
"""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from emlio.daemon.control.answers import Identity
from emlio.daemon.control.client import Client
from emlio.daemon.control.status.report import StatusReport, process_bytes
from emlio.daemon.control.status.service import StatusQuota
from emlio.daemon.datasets.generations import Generations
from emlio.daemon.failures import Failure, Failures
from emlio.daemon.lanes.stream_totals import SessionFigures, StreamTotals
from emlio.daemon.limits import MOST_STATUS_AT_ONCE, MOST_STATUS_UNDER_WAY, STATUS_EVERY_NS
from emlio.daemon.metrics.families import MOST_DATASETS, DaemonFamilies
from emlio.daemon.network.transport import Sent
from emlio.daemon.ranks.claims import Caller
from emlio.daemon.reading.read_times import ReadTimes
from emlio.daemon.streams import Streams
from emlio.session.states import DaemonState
from emlio.wire.control import decode_control, encode_control
from emlio.wire.limits import (
    MAX_STATUS_DATASETS,
    MAX_STATUS_FAILURES,
    MAX_STATUS_JOBS,
    MAX_STATUS_RANKS,
    MAX_STATUS_TEXT,
)
from emlio_testing.clock import ManualClock
from emlio_testing.session_pair import example_hello

S = 1_000_000_000


def everything(_: str) -> bool:
    return True


# ---- failures -------------------------------------------------------------------------------------------------------


def test_a_failure_that_repeats_is_one_entry_with_a_number_and_the_last_time() -> None:
    clock = ManualClock()
    failures = Failures(clock)
    failures.add(Failure(kind="stream", text="a disk failed", dataset="x", job="j", rank=2))
    clock.advance(5 * S)
    failures.add(Failure(kind="lost", text="the rank was silent for 10 s", dataset="x", job="j", rank=3))
    clock.advance(5 * S)
    failures.add(Failure(kind="stream", text="a disk failed", dataset="x", job="j", rank=2, at_ns=9, times=9))
    last = failures.last(everything)
    assert [(one.kind, one.rank, one.times) for one in last] == [("stream", 2, 2), ("lost", 3, 1)]
    assert last[0].at_ns == clock.monotonic_ns()
    assert failures.counts() == {"stream": 2, "lost": 1}


def test_callers_without_a_session_push_out_no_failure_of_a_rank_and_a_text_has_a_limit() -> None:
    failures = Failures(ManualClock())
    failures.add(Failure(kind="stream", text="a disk failed", dataset="x"))
    for number in range(1000):
        failures.add(Failure(kind="protocol", text=f"{number} " + "y" * 5000), outside=True)
    last = failures.last(everything)
    assert len(last) <= MAX_STATUS_FAILURES
    assert {len(one.text) for one in last if one.kind == "protocol"} == {MAX_STATUS_TEXT}
    assert [one.text for one in last if one.kind == "stream"] == ["a disk failed"]
    for number in range(1000):
        failures.add(Failure(kind=f"kind-{number}", text=f"{number}", dataset="x"))
    assert len(failures.last(everything)) == MAX_STATUS_FAILURES
    counts = failures.counts()
    assert len(counts) <= 65, "kinds are bounded too"
    assert sum(counts.values()) == 2001


def test_only_failures_of_datasets_that_may_be_seen_are_shown() -> None:
    failures = Failures(ManualClock())
    for dataset in ("open", "closed", ""):
        failures.add(Failure(kind="lost", text="gone", dataset=dataset))
    assert {one.dataset for one in failures.last(lambda name: name == "open")} == {"open"}


# ---- limits -----------------------------------------------------------------------------------------------------------


@dataclass
class Tracker:
    done: bool = False


def sent(tracker: Tracker) -> Sent:
    return Sent(reached=True, taken=True, tracker=cast(Any, tracker))


def test_a_client_is_answered_some_times_at_once_and_then_at_a_rate() -> None:
    quota = StatusQuota()
    assert [quota.take(b"a", 0) for _ in range(MOST_STATUS_AT_ONCE + 2)] == [True] * MOST_STATUS_AT_ONCE + [False] * 2
    assert quota.take(b"b", 0), "another client has its own rate"
    assert quota.take(b"a", STATUS_EVERY_NS)
    assert not quota.take(b"a", STATUS_EVERY_NS)
    assert sum(quota.take(b"a", STATUS_EVERY_NS + step * S // 1000) for step in range(1, 10_001)) == 50


def test_a_client_that_reads_no_answer_gets_no_other_one() -> None:
    quota, tracker = StatusQuota(), Tracker()
    assert quota.take(b"a", 0)
    quota.sent(b"a", sent(tracker))
    assert not quota.take(b"a", 100 * S)
    tracker.done = True
    assert quota.take(b"a", 100 * S)


def test_answers_under_way_to_all_clients_have_a_limit() -> None:
    quota = StatusQuota()
    trackers = [Tracker() for _ in range(MOST_STATUS_UNDER_WAY)]
    for number, tracker in enumerate(trackers):
        owner = b"%d" % number
        assert quota.take(owner, 0)
        quota.sent(owner, sent(tracker))
    assert not quota.take(b"another", 0)
    trackers[3].done = True
    assert quota.take(b"another", 0)


def test_clients_beyond_the_memory_for_them_cost_nothing_more() -> None:
    quota = StatusQuota()
    for number in range(5000):
        assert quota.take(b"%d" % number, 0)
    assert len(quota._clients) <= 1024


# ---- the report -------------------------------------------------------------------------------------------------------


@dataclass
class FakeStreams:
    """Figures by group."""

    sessions: dict[str, SessionFigures] = field(default_factory=dict[str, SessionFigures])
    held_bytes: int = 5
    bound_bytes: int = 10
    lanes: int = 3
    lanes_lost: int = 0
    read_times: dict[str, ReadTimes] = field(default_factory=dict[str, ReadTimes])

    @property
    def sender(self) -> "FakeStreams":
        return self

    @property
    def budget(self) -> "FakeStreams":
        return self

    @property
    def connected(self) -> "FakeStreams":
        return self

    def figures(self, group: str) -> SessionFigures:
        return self.sessions.get(group, SessionFigures())

    def session_bytes(self, group: str) -> int:
        return len(group)

    def dataset_totals(self) -> dict[str, StreamTotals]:
        return {"open": StreamTotals(sent_bytes=7, blocked_ns=5 * S, withheld_ns=3 * S, starved_ns=2 * S)}


@dataclass
class Served:
    name: str
    generation: int = 1
    sessions: int = 0
    size_bytes: int = 100
    io: str = "cache (--io cache)"
    rows: tuple[int, ...] = (1, 2)
    catalog: Any = field(default_factory=lambda: SimpleNamespace(records=50))
    files: Any = field(default_factory=lambda: SimpleNamespace(disk_bytes=30, shared_bytes=12))


class FakeGenerations:
    def __init__(self, *served: Served) -> None:
        self.all = list(served)
        self.opening = set[str]()
        self.current = {(one.name, one.generation): one for one in served}

    def find(self, name: str, number: int) -> Served | None:
        return self.current.get((name, number))

    def read_bytes(self) -> dict[str, tuple[int, int]]:
        return {one.name: (one.files.disk_bytes, one.files.shared_bytes) for one in self.all}


class Stage:
    """A report over fakes."""

    def __init__(self, *served: Served) -> None:
        self.clock, self.streams = ManualClock(), FakeStreams()
        self.failures, self.served = Failures(self.clock), served
        self.generations = FakeGenerations(*served)
        self.report = StatusReport(
            cast(Generations, self.generations),
            cast(Streams, self.streams),
            Identity(name="store1-1", process="p"),
            self.failures,
            self.clock,
            heartbeat_timeout_ns=10 * S,
        )

    def client(self, served: Served, rank: int, *, job: str = "j", figures: SessionFigures | None = None) -> Client:
        group = f"{served.name}-{job}-{rank}"
        if figures is not None:
            self.streams.sessions[group] = figures
        hello = msgspec.structs.replace(
            example_hello(), job=job, rank=rank, world_size=4, dataset=served.name, host="gpu1"
        )
        machine = SimpleNamespace(session=100 + rank, state=DaemonState.STREAMING, heard_ns=self.clock.monotonic_ns())
        return Client(
            caller=Caller(connection=group.encode(), hello=hello, address="10.0.0.1"),
            machine=cast(Any, machine),
            served=cast(Any, served),
            protection="clear",
            since_ns=self.clock.monotonic_ns(),
            group=group,
        )


def test_the_reply_says_who_is_served_and_what_each_rank_waits_for() -> None:
    stage = Stage(Served("open", sessions=2), Served("open", 2))
    stage.generations.current.pop(("open", 1))
    waits = SessionFigures(
        totals=StreamTotals(sent_bytes=9, blocked_ns=4, withheld_ns=3, starved_ns=2),
        waits_for="rank",
        lanes=2,
        unread_bytes=6,
        place=(1, 20),
    )
    clients = [stage.client(stage.served[0], 1, figures=waits), stage.client(stage.served[0], 0)]
    stage.clock.advance(3 * S)
    reply = stage.report.reply(7, clients, everything, draining=True)
    assert decode_control(encode_control(reply)) == reply
    assert (reply.nonce, reply.draining, reply.up_ns, reply.lanes, reply.daemon) == (7, True, 3 * S, 3, "store1-1")
    assert [(one.name, one.generation, one.current, one.sent_bytes) for one in reply.datasets] == [
        ("open", 1, False, 0),
        ("open", 2, True, 7),
    ]
    (job,) = reply.jobs
    assert (job.name, job.dataset, job.generation, job.world_size, job.sessions) == ("j", "open", 1, 4, 2)
    first, second = reply.ranks
    assert (first.rank, second.rank) == (0, 1)
    assert (second.waits_for, second.lanes, second.unread_bytes, second.epoch, second.slot) == ("rank", 2, 6, 1, 20)
    assert (second.sent_bytes, second.blocked_ns, second.withheld_ns, second.starved_ns) == (9, 4, 3, 2)
    assert (second.age_ns, second.silent_ns, second.state) == (3 * S, 3 * S, "streaming")
    assert reply.memory.process_bytes == pytest.approx(process_bytes(), rel=0.5)


def test_a_client_sees_only_what_it_may_read() -> None:
    stage = Stage(Served("open"), Served("closed"))
    clients = [stage.client(one, 0) for one in stage.served]
    for dataset in ("open", "closed", ""):
        stage.failures.add(Failure(kind="lost", text=f"of {dataset}", dataset=dataset))

    def may_read(name: str) -> bool:
        return name == "open"

    reply = stage.report.reply(1, clients, may_read, draining=False)
    assert "closed" not in str(reply)
    assert (reply.dataset_count, reply.job_count, reply.rank_count) == (1, 1, 1)
    assert [one.text for one in reply.failures] == ["of open"]
    whole = stage.report.reply(1, clients, everything, draining=False)
    assert {one.text for one in whole.failures} == {"of open", "of closed", "of "}


def test_of_too_many_ranks_those_that_hold_up_the_daemon_are_shown() -> None:
    stage = Stage(*(Served(f"d{number:03d}") for number in range(300)))
    clients = [stage.client(stage.served[0], rank, job=f"job-{rank % 5}") for rank in range(2000)]
    slow = stage.client(stage.served[0], 3999, job="zzz", figures=SessionFigures(waits_for="rank"))
    reply = stage.report.reply(1, [*clients, slow], everything, draining=False)
    assert (reply.rank_count, len(reply.ranks)) == (2001, MAX_STATUS_RANKS)
    assert (reply.dataset_count, len(reply.datasets)) == (300, MAX_STATUS_DATASETS)
    assert 3999 in {one.rank for one in reply.ranks}
    assert decode_control(encode_control(reply)) == reply


def test_the_largest_reply_with_the_longest_names_fits_one_message() -> None:
    long = "\U0001f600" * 255
    stage = Stage(*(Served(long) for _ in range(MAX_STATUS_DATASETS)))
    served = stage.served[0]
    clients = [stage.client(served, rank, job=f"{rank % 400:03d}" + long[3:]) for rank in range(MAX_STATUS_RANKS)]
    for client in clients:
        client.caller = Caller(
            connection=b"1", hello=msgspec.structs.replace(client.caller.hello, host=long, pid=2**61)
        )
    for number in range(1000):
        text = f"{number:04d}" + "\U0001f600" * MAX_STATUS_TEXT
        stage.failures.add(Failure(kind="lost", text=text, dataset=long, job=long, rank=1), outside=number % 2 == 0)
    reply = stage.report.reply(1, clients, everything, draining=False)
    assert (len(reply.jobs), len(reply.failures)) == (MAX_STATUS_JOBS, MAX_STATUS_FAILURES)
    assert len(reply.datasets) == MAX_STATUS_DATASETS
    assert decode_control(encode_control(reply)) == reply


# ---- metrics ----------------------------------------------------------------------------------------------------------


def _samples(families: Any) -> dict[tuple[str, ...], float]:
    return {(family.name, *labels): figure for family in families for labels, figure in family.samples}


def test_metrics_count_ranks_and_name_none() -> None:
    stage = Stage(Served("open"), Served("closed"))
    clients = [stage.client(stage.served[0], rank, figures=SessionFigures(waits_for="network")) for rank in range(64)]
    stage.streams.read_times["open"] = reads = ReadTimes()
    for took_ms in (3, 330):
        reads.add(took_ms * 1_000_000)
    figures = stage.report.figures(clients, draining=False, begun=3)
    families = DaemonFamilies().of(figures)
    samples = _samples(families)
    assert samples["emlio_daemon_sessions", "open"] == 64
    assert samples["emlio_daemon_sessions", "closed"] == 0
    assert samples["emlio_daemon_sessions_waiting", "open", "network"] == 64
    assert samples["emlio_daemon_sessions_waiting", "open", "rank"] == 0
    assert samples["emlio_daemon_sent_bytes", "open"] == 7
    waits = {reason: samples["emlio_daemon_wait_seconds", "open", reason] for reason in ("rank", "network", "storage")}
    assert waits == {"rank": 3, "network": 2, "storage": 2}
    assert samples["emlio_daemon_read_seconds", "open"] == pytest.approx(0.333)
    (lengths,) = [family for family in families if family.kind == "histogram"]
    counts = dict(lengths.buckets[[labels for labels, _ in lengths.samples].index(("open",))])
    assert (counts["0.002"], counts["0.005"], counts["0.5"], counts["+Inf"]) == (0, 1, 2, 2)
    assert samples["emlio_daemon_failures", "lost"] == 0
    assert all(family.samples for family in families), "each metric has data"
    assert len(samples) < 60


def test_the_series_of_datasets_are_bounded_and_the_rest_is_summed() -> None:
    stage = Stage(*(Served(f"d{number:03d}") for number in range(MOST_DATASETS + 50)))
    clients = [stage.client(one, 0) for one in stage.served]
    families = DaemonFamilies()
    samples = _samples(families.of(stage.report.figures(clients, draining=False, begun=3)))
    sessions = {labels[1]: figure for labels, figure in samples.items() if labels[0] == "emlio_daemon_sessions"}
    assert len(sessions) == MOST_DATASETS + 1
    assert sessions["(others)"] == 50
    again = _samples(families.of(stage.report.figures([], draining=False, begun=3)))
    assert samples.keys() == again.keys(), "a series that was there stays there"
