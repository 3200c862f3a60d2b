"""Rows of a status reply: what a daemon serves, to whom, and what failed.

Covers: the rows with their bounds. The values of `state` and `waits_for` are in docs/reference/wire.md. Does
not cover: the messages (emlio.wire.control), what a client may see (emlio.daemon.control.status).
"""

from typing import Annotated

import msgspec

from emlio.wire.kinds import Count, Name
from emlio.wire.limits import MAX_STATUS_TEXT

__all__ = ["LOCAL_STATUS", "DatasetStatus", "FailureStatus", "JobStatus", "MemoryStatus", "RankStatus", "UserWaits"]

LOCAL_STATUS = "emlio-daemon/"
"""The name of a daemon's local socket, before HOST:PORT of its control port: an abstract Unix socket, which
the kernel removes with the process, and which belongs to the same network namespace as the port."""

_Reason = Annotated[str, msgspec.Meta(max_length=MAX_STATUS_TEXT)]
_Rank = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 62)]


class DatasetStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One generation of a dataset; not `current` if it serves only jobs that began with it.

    `io` says how its files are read, and why. `disk_bytes` were asked of the disk past the page cache, and
    `shared_bytes` came from memory, where another job had brought them, since it was opened.
    `sent_bytes` are those of all generations since the daemon started, and 0 unless it is current.
    """

    name: Name
    generation: Count
    current: bool
    shards: Count
    records: Count
    size_bytes: Count
    sessions: Count
    sent_bytes: Count
    io: Name = ""
    disk_bytes: Count = 0
    shared_bytes: Count = 0


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One job on one generation of a dataset; `sessions` of its ranks are at this daemon."""

    name: Name
    dataset: Name
    generation: Count
    world_size: Count
    sessions: Count


class UserWaits(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The times of a rank's user: totals in pings; in a status, those of a few seconds before."""

    records_ns: Count  # it waited for records
    making_ns: Count  # for batches being made of records that had come
    busy_ns: Count  # its own work
    receive_ns: Count = 0  # the part of `records_ns` in which the rank's receive thread worked


class RankStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One session. `job` is its place in the reply's list of jobs.

    `sent_bytes` and the waiting times are totals of the session, `unread_bytes` and `held_bytes`
    are of now. `epoch` and `slot` are the place of the message that was sent last. `user` is unset if the
    rank does not tell.
    """

    job: Count
    rank: Count
    session: Count
    host: Name
    pid: Count
    state: Name
    waits_for: Name
    age_ns: Count
    silent_ns: Count
    lanes: Count
    sent_bytes: Count
    unread_bytes: Count
    held_bytes: Count
    blocked_ns: Count
    withheld_ns: Count
    starved_ns: Count
    epoch: Count
    slot: Count
    user: UserWaits | msgspec.UnsetType = msgspec.UNSET


class FailureStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A failure, last seen `age_ns` ago; `dataset` and `job` are "" and `rank` is -1 if it has none."""

    age_ns: Count
    times: Count
    kind: Name
    text: _Reason
    dataset: Name
    job: Name
    rank: _Rank


class MemoryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of records held now, the most that may be held now, and of the whole process."""

    held_bytes: Count
    most_bytes: Count
    process_bytes: Count
