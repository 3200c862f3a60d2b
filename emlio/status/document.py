"""The figures of daemons as a JSON document."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from emlio.errors import EmlioError, RefusedError
from emlio.status.figures import DaemonFigures, JobFigures, RankFigures
from emlio.wire.status import FailureStatus

__all__ = ["Found", "status_document"]

Found = tuple[str, DaemonFigures | EmlioError]
"""A daemon's address, and its figures or the reason why there are none."""


def status_document(found: Sequence[Found], now: datetime) -> dict[str, Any]:
    """Return the document.

    Args:
        found: the daemons.
        now: the time of the replies, with its zone.
    """
    return {"time": _iso(now), "daemons": [_daemon(address, figures, now) for address, figures in found]}


def _daemon(address: str, figures: DaemonFigures | EmlioError, now: datetime) -> dict[str, Any]:
    if isinstance(figures, EmlioError):
        code = figures.code if isinstance(figures, RefusedError) else ""
        return {"address": address, "answered": False, "error": str(figures), "code": code}
    reply = figures.reply
    return {
        "address": address,
        "answered": True,
        "daemon": reply.daemon,
        "version": reply.software,
        "since": _iso(now - timedelta(microseconds=reply.up_ns // 1000)),
        "up_s": reply.up_ns / 1e9,
        "state": "draining" if reply.draining else "serving",
        "over_s": figures.over_ns / 1e9,
        "lanes": reply.lanes,
        "memory": msgspec.to_builtins(reply.memory),
        "counts": {"datasets": reply.dataset_count, "jobs": reply.job_count, "ranks": reply.rank_count},
        "datasets": [msgspec.to_builtins(one) for one in reply.datasets],
        "jobs": [_job(one) for one in figures.jobs],
        "failures": [_failure(one, now) for one in reply.failures],
    }


def _job(job: JobFigures) -> dict[str, Any]:
    return {
        **msgspec.to_builtins(job.status),
        "bytes_per_s": job.bytes_per_s,
        "ranks": [_rank(one) for one in job.ranks],
    }


def _rank(rank: RankFigures) -> dict[str, Any]:
    status = {name: value for name, value in msgspec.to_builtins(rank.status).items() if name != "job"}
    return {
        **status,
        "bytes_per_s": rank.bytes_per_s,
        "waits_now": rank.status.waits_for,
        "waits_for": rank.waits_for,
        "shares": dict(rank.shares),
        "silent": rank.silent,
    }


def _failure(failure: FailureStatus, now: datetime) -> dict[str, Any]:
    told = {name: value for name, value in msgspec.to_builtins(failure).items() if name != "age_ns"}
    return {"time": _iso(now - timedelta(microseconds=failure.age_ns // 1000)), **told}


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds")
