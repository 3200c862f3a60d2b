"""The stage, the host and the rank that hold up a job, from what its ranks and all its daemons tell.

Ranks wait for each other in each step, so a step's time says nothing about a rank. Blame follows the time for which a rank's
user waits for data.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from emlio.errors import RefusedError
from emlio.status.document import Found
from emlio.status.figures import DaemonFigures, RankFigures
from emlio.status.verdict import NEXT_STEPS, Bound, Waits
from emlio.units import counted, format_duration
from emlio.wire.status import UserWaits

__all__ = ["Blame", "JobView", "RankView", "blame_document", "jobs_of"]

_SILENT_NEXT: Final = "look at that host: the process is stopped, or the host or its network is gone"
_LOST: Final = "lost"
_LOST_LATELY_NS: Final = 600_000_000_000
_FULL: Final = 0.1
_QUEUED_S: Final = 0.5
"""Longer than any round trip: bytes that wait so long wait for a narrow path."""

_STREAMS: Final = "streaming"
_GONE: Final = "a rank that is gone"
_UNTOLD: Final = "its ranks have not told yet, or are of an older release"
_UNTOLD_NEXT: Final = "ask again in a few seconds, or print(loader.explain()) there"
_ELSEWHERE: Final = "none of these daemons"
_ELSEWHERE_NEXT: Final = (
    "print(loader.explain()) there. Another daemon, or a disk of that host, may be late; over a long path prefetch= may be "
    "too small"
)


class RankView(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's process, as all its daemons see it.

    Attributes:
        rank: its number.
        place: host and process.
        by_daemon: its sessions by the daemon's address: a mixture, or a loader for evaluation, has several at one.
        user: the times of its user in the last seconds, of the loader that waits most; None if none tells.
        waits: these and what its streams wait for, in the form from which a verdict follows.
    """

    rank: int
    place: str
    by_daemon: Mapping[str, Sequence[RankFigures]]
    user: UserWaits | None
    waits: Waits

    @property
    def bytes_per_s(self) -> float:
        """The rate at which all daemons serve it."""
        return sum(one.bytes_per_s for some in self.by_daemon.values() for one in some)

    @property
    def wait(self) -> float:
        """The share of the time for which its user waits for data; 0 if that is not known."""
        return self.waits.share

    @property
    def silent_ns(self) -> int:
        """For how long it has said nothing, if that is too long at all its daemons; else 0."""
        silent = (one.status.silent_ns if one.silent else 0 for some in self.by_daemon.values() for one in some)
        return min(silent, default=0)

    def worst(self, reason: str) -> tuple[str, float]:
        """Return the daemon whose stream to it waits for this most, and its share of the time."""
        shares = {name: max(one.shares[reason] for one in some) for name, some in self.by_daemon.items()}
        place = max(shares, key=lambda name: shares[name])
        return place, shares[place]

    def longest_queue(self) -> tuple[str, float]:
        """Return the daemon whose bytes to it wait longest in its connections, and for how many seconds."""
        queues = {
            name: max(one.status.unread_bytes / max(one.bytes_per_s, 1.0) for one in some)
            for name, some in self.by_daemon.items()
        }
        place = max(queues, key=lambda name: queues[name])
        return place, queues[place]


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """The part that holds up a job.

    Attributes:
        stage: in words.
        host: where it is.
        rank: whose user waits for it; None if none does.
        evidence: what was seen.
        next_step: what to do.
    """

    stage: str
    host: str
    rank: int | None
    evidence: str
    next_step: str


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job, as all daemons see it.

    Attributes:
        name, dataset: its name, and those of its datasets with the generation.
        world_size: its ranks.
        ranks: their processes that daemons serve, by number.
        daemons: addresses.
        absent: daemons that do not answer, with the reasons.
        lost: ranks that fell silent lately and have not come back, with the reasons.
    """

    name: str
    dataset: str
    world_size: int
    ranks: Sequence[RankView]
    daemons: Sequence[str]
    absent: Mapping[str, str]
    lost: Mapping[int, str] = msgspec.field(default_factory=dict[int, str])

    @property
    def blame(self) -> Blame:
        """The part that holds it up."""
        silent = max(self.ranks, key=lambda one: one.silent_ns)
        if silent.silent_ns:
            evidence = f"it has said nothing for {format_duration(silent.silent_ns)}"
            return Blame(
                stage="a rank's process", host=silent.place, rank=silent.rank, evidence=evidence, next_step=_SILENT_NEXT
            )
        worst = max(self.ranks, key=lambda one: (one.wait, one.user is not None))
        bound = worst.waits.bound
        if bound is Bound.UNKNOWN:
            return Blame(stage="what is not known yet", host="", rank=None, evidence=_UNTOLD, next_step=_UNTOLD_NEXT)
        if bound is Bound.LOOP and self.lost and not any(one.bytes_per_s for one in self.ranks):
            rank, reason = next(iter(self.lost.items()))
            evidence = f"rank {rank} is gone, and no other takes records: {reason}"
            return Blame(stage=_GONE, host="", rank=rank, evidence=evidence, next_step=_SILENT_NEXT)
        if bound is Bound.LOOP:
            told = f"no rank waits for data for more than {worst.wait:.0%} of the time"
            return Blame(stage=bound.value, host="", rank=None, evidence=told, next_step=NEXT_STEPS[bound])
        if bound is Bound.STORAGE:
            place, share = worst.worst("storage")
            return self._by(bound, place, worst, f"its stream to it has nothing read for {share:.0%} of the time")
        if bound not in (Bound.NETWORK, Bound.DAEMONS):
            return self._by(bound, worst.place, worst, "")
        place, share = worst.worst("network")
        if share >= _FULL:
            return self._by(bound, place, worst, f"its stream to it cannot send for {share:.0%} of the time")
        place, queued_s = worst.longest_queue()
        if queued_s >= _QUEUED_S:
            return self._by(bound, place, worst, f"what it sent to it takes {format_duration(queued_s * 1e9)} to leave")
        # No daemon here is late: all have sent what they may.
        if self.absent:
            place, reason = next(iter(self.absent.items()))
            return self._by(Bound.AWAY, place, worst, f"if {place} serves this job: {reason}")
        share = worst.worst("rank")[1]
        found = self._by(
            bound, "", worst, f"streams of {', '.join(worst.by_daemon)} have no credit for {share:.0%} of it"
        )
        return msgspec.structs.replace(found, stage=_ELSEWHERE, next_step=_ELSEWHERE_NEXT)

    def _by(self, bound: Bound, host: str, worst: RankView, evidence: str) -> Blame:
        told = f"rank {worst.rank} ({worst.place}) waits for data for {worst.wait:.0%} of the time"
        others = sum(one.wait >= worst.wait / 2 for one in self.ranks) - 1
        told += f", and {counted(others, 'other rank')} for half as much or more" if others else ""
        return Blame(
            stage=bound.value.removesuffix(" in this process"),
            host=host,
            rank=worst.rank,
            evidence=f"{told}; {evidence}" if evidence else told,
            next_step=NEXT_STEPS[bound],
        )


def jobs_of(found: Sequence[Found]) -> list[JobView]:
    """Return the jobs of all daemons, each once, whatever the number of its datasets: a name alone does not make one."""
    jobs: dict[tuple[str, str], _Job] = {}
    # A daemon that refuses to tell may serve well.
    absent = {
        address: str(figures)
        for address, figures in found
        if not isinstance(figures, DaemonFigures) and not isinstance(figures, RefusedError)
    }
    for address, figures in found:
        if not isinstance(figures, DaemonFigures):
            continue
        for job in figures.jobs:
            status = job.status
            known = jobs.setdefault((status.name, f"{status.dataset}@{status.generation}"), _Job())
            known.daemons[address] = None
            known.world_size = max(known.world_size, status.world_size)
            for failure in figures.reply.failures:
                if failure.kind == _LOST and (failure.job, failure.dataset) == (status.name, status.dataset):
                    known.lost.update({failure.rank: failure.text} if failure.age_ns < _LOST_LATELY_NS else {})
            for one in job.ranks:
                # Mounts, and processes that look at single records, wait for no batch.
                if one.status.state == _STREAMS or isinstance(one.status.user, UserWaits):
                    place = one.status.rank, f"{one.status.host}:{one.status.pid}"
                    known.ranks.setdefault(place, {}).setdefault(address, []).append(one)
    return [_seen(name, datasets, job, absent) for name, datasets, job in _merged(jobs) if job.ranks]


def _merged(jobs: Mapping[tuple[str, str], "_Job"]) -> list[tuple[str, list[str], "_Job"]]:
    """Return the jobs by name with their datasets; one process that reads several makes them one job."""
    found: list[tuple[str, list[str], _Job]] = []
    for (name, dataset), job in sorted(jobs.items()):
        same = [one for one in found if one[0] == name and one[2].ranks.keys() & job.ranks.keys()]
        for one in same:
            found.remove(one)
            job.take(one[2])
        found.append((name, [*(other for one in same for other in one[1]), dataset], job))
    return found


def _seen(name: str, datasets: Sequence[str], job: "_Job", absent: Mapping[str, str]) -> JobView:
    here = {rank for rank, _ in job.ranks}
    return JobView(
        name=name,
        dataset=", ".join(datasets),
        world_size=job.world_size,
        ranks=[_view(*place, by_daemon) for place, by_daemon in sorted(job.ranks.items())],
        daemons=list(job.daemons),
        absent=absent,
        lost={rank: reason for rank, reason in sorted(job.lost.items()) if rank not in here and rank >= 0},
    )


class _Job(msgspec.Struct):
    """A job while its parts are collected: daemons as keys, in order; sessions by process and daemon; lost ranks."""

    daemons: dict[str, None] = msgspec.field(default_factory=dict[str, None])
    world_size: int = 0
    ranks: dict[tuple[int, str], dict[str, list[RankFigures]]] = msgspec.field(
        default_factory=dict[tuple[int, str], dict[str, list[RankFigures]]]
    )
    lost: dict[int, str] = msgspec.field(default_factory=dict[int, str])

    def take(self, other: "_Job") -> None:
        """Add the parts of another one."""
        self.daemons = {**other.daemons, **self.daemons}
        self.world_size = max(self.world_size, other.world_size)
        self.lost |= other.lost
        for place, by_daemon in other.ranks.items():
            mine = self.ranks.setdefault(place, {})
            for address, some in by_daemon.items():
                mine.setdefault(address, []).extend(some)


def _view(rank: int, place: str, by_daemon: Mapping[str, Sequence[RankFigures]]) -> RankView:
    sessions = [one for some in by_daemon.values() for one in some]
    told = [one.status.user for one in sessions if isinstance(one.status.user, UserWaits)]
    user = max(told, key=_waited, default=None)
    return RankView(rank=rank, place=place, by_daemon=by_daemon, user=user, waits=_waits(user, sessions))


def _waits(told: UserWaits | None, sessions: Sequence[RankFigures]) -> Waits:
    user = told or UserWaits(0, 0, 0)
    elapsed_ns = user.records_ns + user.making_ns + user.busy_ns

    def of_streams(name: str) -> int:
        return round(sum(one.shares[name] for one in sessions) * elapsed_ns)

    return Waits(
        wait_ns=user.records_ns + user.making_ns,
        busy_ns=user.busy_ns,
        first_ns=0,
        records_ns=user.records_ns,
        receive_ns=user.receive_ns,
        lane_ns=of_streams("network"),
        credit_ns=of_streams("rank"),
        starved_ns=of_streams("storage"),
        away_ns=0,
        remote=True,
    )


def _waited(user: UserWaits) -> float:
    """Return the share of the time for which a user waits."""
    waits_ns = user.records_ns + user.making_ns
    return waits_ns / max(waits_ns + user.busy_ns, 1)


def blame_document(job: JobView) -> dict[str, Any]:
    """Return a job with what holds it up, as JSON."""
    ranks = [
        {"rank": one.rank, "place": one.place, "wait": one.wait, "bytes_per_s": one.bytes_per_s} for one in job.ranks
    ]
    return {
        "name": job.name,
        "dataset": job.dataset,
        "world_size": job.world_size,
        "daemons": list(job.daemons),
        "absent": dict(job.absent),
        "blame": msgspec.to_builtins(job.blame),
        "ranks": ranks,
    }
