"""The content of a status reply, and the figures for metrics.

A client sees the datasets that it may read and, of these, all jobs and ranks with their hosts. It
sees the daemon's version, age and memory. Failures without a dataset are shown to clients that may
read all datasets.

Covers: what is shown to whom, and in which order if not all of it fits. Does not cover: the message
(emlio.wire.status), who is answered (emlio.daemon.control.status.service).
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import UnsetType

from emlio import __version__
from emlio.clock import Clock
from emlio.daemon.control.answers import Identity
from emlio.daemon.control.client import Client
from emlio.daemon.datasets.generations import Generations
from emlio.daemon.datasets.served import ServedDataset
from emlio.daemon.failures import Failure, Failures
from emlio.daemon.lanes.stream_totals import SessionFigures, StreamTotals
from emlio.daemon.streams import Streams
from emlio.wire.control import StatusReply
from emlio.wire.limits import MAX_STATUS_DATASETS, MAX_STATUS_JOBS, MAX_STATUS_RANKS
from emlio.wire.status import DatasetStatus, FailureStatus, JobStatus, MemoryStatus, RankStatus, UserWaits

__all__ = ["DaemonFigures", "StatusReport", "process_bytes"]

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_SELDOM: Final = 0.05
"""A user that waits for a smaller part of the time is not held up."""

_HOLDS_UP: Final = ("rank", "network", "memory")
_ALL_DATASETS: Final = ""

_JobPlace = tuple[str, str, int]


class DaemonFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a daemon at one moment, for metrics.

    Attributes:
        daemon: its name.
        draining: whether it takes no new sessions.
        opening: datasets that are being opened.
        generations: current generations, by dataset.
        records, size_bytes: of the newest current generation, by dataset.
        sessions: by dataset.
        waiting: sessions by dataset and by what they wait for, as in `SessionFigures`.
        totals: by dataset.
        disk_bytes, shared_bytes: of all generations since the start, by dataset; see `ReadEngine`.
        sessions_begun: since the start.
        failures: since the start, by kind.
        held_bytes, bound_bytes: as in `MemoryBudget`.
        lanes: connected now.
        lanes_lost: since the start.
        read_times: of messages, by dataset: the counts by length, and the sum in seconds.
    """

    daemon: str
    draining: bool
    opening: tuple[str, ...]
    generations: dict[str, int]
    records: dict[str, int]
    size_bytes: dict[str, int]
    sessions: dict[str, int]
    waiting: dict[tuple[str, str], int]
    totals: dict[str, StreamTotals]
    disk_bytes: dict[str, int]
    shared_bytes: dict[str, int]
    sessions_begun: int
    failures: dict[str, int]
    held_bytes: int
    bound_bytes: int
    lanes: int
    lanes_lost: int
    read_times: dict[str, tuple[tuple[int, ...], float]]


class StatusReport:
    """Makes the replies. Used by the control thread.

    Attributes:
        failures: the last failures.
    """

    def __init__(
        self,
        generations: Generations,
        streams: Streams,
        identity: Identity,
        failures: Failures,
        clock: Clock,
        *,
        heartbeat_timeout_ns: int,
    ) -> None:
        """See the class.

        Args:
            generations: the datasets.
            streams: the running streams.
            identity: this daemon's name.
            failures: the last failures.
            clock: for ages.
            heartbeat_timeout_ns: the silence after which a rank is lost.
        """
        self.failures = failures
        self._generations = generations
        self._streams = streams
        self._identity = identity
        self._clock = clock
        self._heartbeat_timeout_ns = heartbeat_timeout_ns
        self._since_ns = clock.monotonic_ns()

    def reply(
        self, nonce: int, clients: Collection[Client], may_read: Callable[[str], bool], *, draining: bool
    ) -> StatusReply:
        """Return the reply to a request.

        Args:
            nonce: the request's.
            clients: all sessions.
            may_read: returns whether the asking client may read a dataset.
            draining: whether the daemon takes no new sessions.
        """
        now_ns = self._clock.monotonic_ns()
        served = sorted(
            (one for one in self._generations.all if may_read(one.name)), key=lambda one: (one.name, one.generation)
        )
        all_seen = all(may_read(one.name) for one in self._generations.all)
        seen = [client for client in clients if may_read(client.served.name)]
        jobs, ranks = self._ranks(seen, now_ns)
        totals = self._streams.sender.dataset_totals()
        return StatusReply(
            nonce=nonce,
            daemon=self._identity.name,
            process=self._identity.process,
            software=__version__,
            up_ns=now_ns - self._since_ns,
            draining=draining,
            lanes=self._streams.connected.lanes,
            heartbeat_timeout_ns=self._heartbeat_timeout_ns,
            memory=MemoryStatus(
                held_bytes=self._streams.budget.held_bytes,
                most_bytes=self._streams.budget.bound_bytes,
                process_bytes=process_bytes(),
            ),
            dataset_count=len(served),
            job_count=len({_job(client) for client in seen}),
            rank_count=len(seen),
            datasets=[self._dataset(one, totals) for one in served[:MAX_STATUS_DATASETS]],
            jobs=jobs,
            ranks=ranks,
            failures=[
                _failure(one, now_ns)
                for one in self.failures.last(
                    lambda dataset: all_seen if dataset == _ALL_DATASETS else may_read(dataset)
                )
            ],
        )

    def figures(self, clients: Iterable[Client], *, begun: int, draining: bool) -> DaemonFigures:
        """Return the figures for metrics.

        Args:
            clients: all sessions.
            begun: the number of sessions since the start.
            draining: whether the daemon takes no new sessions.
        """
        generations: dict[str, int] = {}
        newest: dict[str, ServedDataset] = {}
        for served in self._generations.all:
            if self._is_current(served):
                generations[served.name] = generations.get(served.name, 0) + 1
                before = newest.get(served.name)
                newest[served.name] = served if before is None or served.generation > before.generation else before
        read_bytes = self._generations.read_bytes()
        sessions, waiting = Counter[str](), Counter[tuple[str, str]]()
        for client in clients:
            sessions[client.served.name] += 1
            waiting[client.served.name, self._streams.sender.figures(client.group).waits_for] += 1
        return DaemonFigures(
            daemon=self._identity.name,
            draining=draining,
            opening=tuple(sorted(str(one) for one in self._generations.opening)),
            generations=generations,
            records={name: one.catalog.records for name, one in newest.items()},
            size_bytes={name: one.size_bytes for name, one in newest.items()},
            sessions=dict(sessions),
            waiting=dict(waiting),
            totals=self._streams.sender.dataset_totals(),
            disk_bytes={name: read_bytes[name][0] for name in newest},
            shared_bytes={name: read_bytes[name][1] for name in newest},
            sessions_begun=begun,
            failures=self.failures.counts(),
            held_bytes=self._streams.budget.held_bytes,
            bound_bytes=self._streams.budget.bound_bytes,
            lanes=self._streams.connected.lanes,
            lanes_lost=self._streams.sender.lanes_lost,
            read_times={name: one.read() for name, one in self._streams.read_times.items()},
        )

    def _is_current(self, served: ServedDataset) -> bool:
        return self._generations.find(served.name, served.generation) is served

    def _dataset(self, served: ServedDataset, totals: dict[str, StreamTotals]) -> DatasetStatus:
        return DatasetStatus(
            name=served.name,
            generation=served.generation,
            current=self._is_current(served),
            shards=len(served.rows),
            records=served.catalog.records,
            size_bytes=served.size_bytes,
            sessions=served.sessions,
            # Counted by name: shown once, beside the generation that new jobs read.
            sent_bytes=totals.get(served.name, StreamTotals()).sent_bytes if self._is_current(served) else 0,
            io=str(served.io),
            disk_bytes=served.files.disk_bytes,
            shared_bytes=served.files.shared_bytes,
        )

    def _ranks(self, clients: Iterable[Client], now_ns: int) -> tuple[list[JobStatus], list[RankStatus]]:
        """Return the jobs and their ranks, as many as fit."""
        known = [(client, self._streams.sender.figures(client.group)) for client in clients]
        # Where not all fit: first those whose users wait, then those for which this daemon waits.
        known.sort(
            key=lambda one: (
                not _waits(one[0].user.latest(now_ns)),
                one[1].waits_for not in _HOLDS_UP,
                _job(one[0]),
                one[0].caller.hello.rank,
            )
        )
        sessions = Counter(_job(client) for client, _ in known)
        shown = dict.fromkeys(_job(client) for client, _ in known[:MAX_STATUS_RANKS])
        jobs = sorted(list(shown)[:MAX_STATUS_JOBS])
        places = {job: place for place, job in enumerate(jobs)}
        worlds = {_job(client): client.caller.hello.world_size for client, _ in known}
        rows = [
            self._rank(client, places[_job(client)], figures, now_ns)
            for client, figures in known[:MAX_STATUS_RANKS]
            if _job(client) in places
        ]
        return [
            JobStatus(name=job[0], dataset=job[1], generation=job[2], world_size=worlds[job], sessions=sessions[job])
            for job in jobs
        ], sorted(rows, key=lambda row: (row.job, row.rank, row.session))

    def _rank(self, client: Client, job: int, figures: SessionFigures, now_ns: int) -> RankStatus:
        hello, totals = client.caller.hello, figures.totals
        epoch, slot = figures.place
        return RankStatus(
            job=job,
            rank=hello.rank,
            session=client.machine.session,
            host=hello.host,
            pid=hello.pid,
            state=client.machine.state.value,
            waits_for=figures.waits_for,
            age_ns=max(now_ns - client.since_ns, 0),
            silent_ns=max(now_ns - client.machine.heard_ns, 0),
            lanes=figures.lanes,
            sent_bytes=totals.sent_bytes,
            unread_bytes=figures.unread_bytes,
            held_bytes=self._streams.session_bytes(client.group),
            blocked_ns=totals.blocked_ns,
            withheld_ns=totals.withheld_ns,
            starved_ns=totals.starved_ns,
            epoch=epoch,
            slot=slot,
            user=client.user.latest(now_ns),
        )


def process_bytes() -> int:
    """Return the memory of this process that is resident; 0 if the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def _waits(user: UserWaits | UnsetType) -> bool:
    """Return whether a rank's user waits for data."""
    if not isinstance(user, UserWaits):
        return False
    waits_ns = user.records_ns + user.making_ns
    return waits_ns > _SELDOM * (waits_ns + user.busy_ns)


def _job(client: Client) -> _JobPlace:
    return client.caller.hello.job, client.served.name, client.served.generation


def _failure(failure: Failure, now_ns: int) -> FailureStatus:
    return FailureStatus(
        age_ns=max(now_ns - failure.at_ns, 0),
        times=failure.times,
        kind=failure.kind,
        text=failure.text,
        dataset=failure.dataset,
        job=failure.job,
        rank=failure.rank,
    )
