"""Figures of a daemon between two status replies: rates, and who waits for whom.

A daemon sends totals. Two replies a moment apart tell how fast each rank is served now, and for
what its stream waited meanwhile.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from emlio.wire.control import StatusReply
from emlio.wire.status import JobStatus, RankStatus

__all__ = ["DaemonFigures", "JobFigures", "RankFigures", "figures_between"]

_MOST_OF_THE_TIME: Final = 0.5
_SILENT_PART: Final = 2
"""A rank pings five times in a heartbeat timeout: it is silent after half of it without a message."""


class RankFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One session between two replies.

    Attributes:
        status: the session as in the later reply.
        bytes_per_s: the rate at which it was served.
        shares: the shares of the time for which its stream waited for the rank (no credit), for
            the network (no lane takes a message, or what was read has not left) and for storage.
        waits_for: which of these took most of the time; "" if none did.
        silent: whether the rank misses its heartbeats.
    """

    status: RankStatus
    bytes_per_s: float
    shares: Mapping[str, float]
    waits_for: str
    silent: bool


class JobFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A job and its ranks."""

    status: JobStatus
    ranks: Sequence[RankFigures]

    @property
    def bytes_per_s(self) -> float:
        """The rate of all ranks together."""
        return sum(one.bytes_per_s for one in self.ranks)


class DaemonFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon between two replies.

    Attributes:
        reply: the later reply.
        over_ns: the time between the two.
        jobs: its jobs.
    """

    reply: StatusReply
    over_ns: int
    jobs: Sequence[JobFigures]


def figures_between(before: StatusReply | None, after: StatusReply) -> DaemonFigures:
    """Return the figures between two replies of a daemon.

    A session that is not in the former reply, or a daemon that was started meanwhile, is taken from
    its beginning.
    """
    same = before is not None and before.process == after.process and before.up_ns < after.up_ns
    former = {one.session: one for one in before.ranks} if before is not None and same else {}
    over_ns = after.up_ns - before.up_ns if before is not None and same else after.up_ns
    ranks: list[list[RankFigures]] = [[] for _ in after.jobs]
    for one in after.ranks:
        ranks[one.job].append(_rank(former.get(one.session), one, over_ns, after.heartbeat_timeout_ns))
    jobs = [JobFigures(status=job, ranks=some) for job, some in zip(after.jobs, ranks, strict=True)]
    return DaemonFigures(reply=after, over_ns=over_ns, jobs=jobs)


def _rank(before: RankStatus | None, after: RankStatus, over_ns: int, heartbeat_timeout_ns: int) -> RankFigures:
    time_ns = max(over_ns if before is not None else after.age_ns, 1)

    def grown(name: str) -> int:
        return max(int(getattr(after, name)) - (int(getattr(before, name)) if before is not None else 0), 0)

    withheld_ns = grown("withheld_ns")
    waited = {
        "rank": withheld_ns,
        "network": max(grown("blocked_ns") - withheld_ns, 0),
        "storage": grown("starved_ns"),
    }
    shares = {name: min(value / time_ns, 1.0) for name, value in waited.items()}
    longest = max(shares, key=lambda name: shares[name])
    return RankFigures(
        status=after,
        bytes_per_s=grown("sent_bytes") * 1e9 / time_ns,
        shares=shares,
        waits_for=longest if shares[longest] >= _MOST_OF_THE_TIME else "",
        silent=bool(heartbeat_timeout_ns) and after.silent_ns * _SILENT_PART > heartbeat_timeout_ns,
    )
