"""The stage, the host and the rank that hold up a job, from what its ranks and all its daemons tell.

Ranks wait for each other in each step, so a step's time says nothing about a rank. Blame follows the time for which a rank's
user waits for data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from msgspec.structs import astuple

from emlio.status.document import Found
from emlio.status.figures import DaemonFigures, RankFigures
from emlio.status.verdict import NEXT_STEPS, Bound, Waits
from emlio.units import counted, format_duration
from emlio.wire.status import UserWaits

__all__ = ["Blame", "JobView", "RankView", "blame_document", "jobs_of"]

_SILENT_NEXT: Final = "look at that host: the process is stopped, or the host or its network is gone"
_FULL: Final = 0.1
_OLD_NEXT: Final = "print(loader.explain()) there"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView:
    """A rank, as all its daemons see it.

    Attributes:
        rank: its number.
        place: host and process.
        by_daemon: its sessions by the daemon's address.
        user: the times of its user in the last seconds; None if it does not tell.
    """

    rank: int
    place: str
    by_daemon: Mapping[str, RankFigures]
    user: UserWaits | None

    @property
    def bytes_per_s(self) -> float:
        """The rate at which all daemons serve it."""
        return sum(one.bytes_per_s for one in self.by_daemon.values())

    @property
    def wait(self) -> float:
        """The share of the time for which its user waits for data; 0 if that is not known."""
        return self.waits.share

    @property
    def silent_ns(self) -> int:
        """For how long it has said nothing, if that is too long at all its daemons; else 0."""
        return min((one.status.silent_ns if one.silent else 0 for one in self.by_daemon.values()), default=0)

    @property
    def waits(self) -> Waits:
        """Its times, in the form from which a verdict follows."""
        user = self.user or UserWaits(0, 0, 0)
        elapsed_ns = user.records_ns + user.making_ns + user.busy_ns
        return Waits(
            wait_ns=user.records_ns + user.making_ns,
            busy_ns=user.busy_ns,
            first_ns=0,
            records_ns=user.records_ns,
            receive_ns=user.receive_ns,
            lane_ns=self._of_streams("network", elapsed_ns),
            credit_ns=self._of_streams("rank", elapsed_ns),
            starved_ns=self._of_streams("storage", elapsed_ns),
            away_ns=0,
            remote=True,
        )

    def _of_streams(self, name: str, elapsed_ns: int) -> int:
        return round(sum(one.shares[name] for one in self.by_daemon.values()) * elapsed_ns)

    def worst(self, reason: str) -> tuple[str, float]:
        """Return the daemon whose stream to it waits for this most, and its share of the time."""
        shares = {name: one.shares[reason] for name, one in self.by_daemon.items()}
        place = max(shares, key=lambda name: shares[name])
        return place, shares[place]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job, as all daemons see it.

    Attributes:
        name, dataset: its name, and that of its dataset with the generation.
        world_size: its ranks.
        ranks: those that daemons serve, by number.
        daemons: addresses.
        absent: daemons that do not answer, with the reasons.
    """

    name: str
    dataset: str
    world_size: int
    ranks: Sequence[RankView]
    daemons: Sequence[str]
    absent: Mapping[str, str]

    @property
    def blame(self) -> Blame:
        """The part that holds it up."""
        silent = max(self.ranks, key=lambda one: one.silent_ns)
        if silent.silent_ns:
            evidence = f"it has said nothing for {format_duration(silent.silent_ns)}"
            return Blame(
                stage="a rank's process", host=silent.place, rank=silent.rank, evidence=evidence, next_step=_SILENT_NEXT
            )
        worst = max(self.ranks, key=lambda one: one.wait)
        bound = worst.waits.bound
        if bound is not Bound.LOOP and self.absent:
            place, reason = next(iter(self.absent.items()))
            return self._by(Bound.AWAY, place, worst, reason)
        if all(one.user is None for one in self.ranks):
            return Blame(
                stage="not known",
                host="",
                rank=None,
                evidence="ranks of an older release do not tell",
                next_step=_OLD_NEXT,
            )
        if bound is Bound.LOOP:
            told = f"no rank waits for data for more than {worst.wait:.0%} of the time"
            return Blame(stage=bound.value, host="", rank=None, evidence=told, next_step=NEXT_STEPS[bound])
        if bound is Bound.STORAGE:
            place, share = worst.worst("storage")
            return self._by(bound, place, worst, f"its stream to it has nothing read for {share:.0%} of the time")
        if bound in (Bound.NETWORK, Bound.DAEMONS):
            place, share = worst.worst("network")
            if share < _FULL:  # all have used up their credit, whichever of them is late
                place, share = ", ".join(worst.by_daemon), worst.worst("rank")[1]
            return self._by(bound, place, worst, f"its stream to it cannot send for {share:.0%} of the time")
        return self._by(bound, worst.place, worst, "")

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
    """Return the jobs of all daemons, each once."""
    known: dict[tuple[str, str], dict[str, dict[int, RankFigures]]] = {}
    sizes: dict[tuple[str, str], int] = {}
    absent = {address: str(figures) for address, figures in found if not isinstance(figures, DaemonFigures)}
    for address, figures in found:
        if isinstance(figures, DaemonFigures):
            for job in figures.jobs:
                key = job.status.name, f"{job.status.dataset}@{job.status.generation}"
                known.setdefault(key, {})[address] = {one.status.rank: one for one in job.ranks}
                sizes[key] = job.status.world_size
    return [
        JobView(
            name=name,
            dataset=dataset,
            world_size=sizes[name, dataset],
            ranks=_ranks(by_daemon),
            daemons=list(by_daemon),
            absent=absent,
        )
        for (name, dataset), by_daemon in sorted(known.items())
        if any(by_daemon.values())
    ]


def _ranks(by_daemon: Mapping[str, Mapping[int, RankFigures]]) -> list[RankView]:
    numbers = sorted({number for ranks in by_daemon.values() for number in ranks})
    found: list[RankView] = []
    for number in numbers:
        sessions = {address: ranks[number] for address, ranks in by_daemon.items() if number in ranks}
        status = next(iter(sessions.values())).status
        told = [one.status.user for one in sessions.values() if isinstance(one.status.user, UserWaits)]
        user = max(told, key=lambda one: sum(astuple(one)), default=None)
        found.append(RankView(rank=number, place=f"{status.host}:{status.pid}", by_daemon=sessions, user=user))
    return found


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
        "blame": asdict(job.blame),
        "ranks": ranks,
    }
