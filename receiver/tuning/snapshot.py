"""The figures that a loader sees of itself, and their change from one moment to the next.

Covers: the totals at one moment, the rates between two. Pure. Does not cover: reading them (emlio.receiver.tuning.tuner).
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from emlio.wire.tuning import StreamWork

__all__ = ["DaemonWork", "Interval", "Snapshot", "blame_of", "cost_of", "trip_of_path"]

_OWN_NS: Final = 5_000_000
"""A ping takes this much longer where both ends are busy: interpreters send and answer it."""

_RESTED: Final = 0.5
"""Processors that are idle for a larger share of the time make no ping longer."""


def trip_of_path(ping_ns: int | None, handshake_ns: int | None, idle: float | None = None) -> int | None:
    """Return the path's round trip, by that of a ping and that of TCP's handshake, which kernels answered.

    The path may have become longer since the handshake, or that one may have ended at a proxy on the way. So it counts only
    where this host's processors are not `idle` for much of the time.
    """
    if ping_ns is None or handshake_ns is None or (idle is not None and idle > _RESTED):
        return ping_ns
    return handshake_ns if handshake_ns < ping_ns < handshake_ns + _OWN_NS else ping_ns


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a loader at one moment: totals since it was made, unless stated otherwise.

    Attributes:
        at_ns: the time.
        received_bytes: bytes received from daemons.
        batches: batches that the user has taken.
        wait_ns: time for which the user waited for records.
        lane_ns, credit_ns, starved_ns: times for which daemons' streams waited meanwhile: for the network, for this rank,
            for their disks. See `LoaderStats`.
        held_bytes: of the window, at this moment.
        cpu_ns: processor time of the threads that receive and make batches.
        storage_cpu_ns: processor time of daemons between their reports.
        storage_bytes: bytes that they sent meanwhile, to any rank; 0 if none has reported twice.
        round_trip_ns: the shortest one measured since the last snapshot, of the farthest daemon; None if none was.
        senders: daemons that send.
        lanes: data connections that are up.
        idle: the share of the time since the last snapshot for which the processors that this process may use were idle; None
            if that is not known.
    """

    at_ns: int
    received_bytes: int = 0
    batches: int = 0
    wait_ns: int = 0
    lane_ns: int = 0
    credit_ns: int = 0
    starved_ns: int = 0
    held_bytes: int = 0
    cpu_ns: int = 0
    storage_cpu_ns: int = 0
    storage_bytes: int = 0
    round_trip_ns: int | None = None
    senders: int = 1
    lanes: int = 0
    idle: float | None = None


class DaemonWork:
    """Totals of what daemons did between two reports of each.

    A first report, or that of a daemon that was started again, is only where the next one begins.

    Attributes:
        sent_bytes: bytes sent, to any rank.
        cpu_ns: processor time.
    """

    def __init__(self) -> None:
        """Begin without a report."""
        self.sent_bytes = self.cpu_ns = 0
        self._last: dict[int, StreamWork | None] = {}

    def add(self, works: Mapping[int, StreamWork | None]) -> None:
        """Add the latest report of each daemon; None for one that has not told since its stream was opened."""
        for number, work in works.items():
            before = self._last.get(number)
            if work is not None and before is not None and work.sent_bytes >= before.sent_bytes:
                self.sent_bytes += work.sent_bytes - before.sent_bytes
                self.cpu_ns += max(work.cpu_ns - before.cpu_ns, 0)
        self._last = {number: work or self._last.get(number) for number, work in works.items()}


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """The change between two snapshots.

    Attributes:
        elapsed_ns: the time between them.
        rate: bytes received in a second.
        wait: the share of the time for which the user waited for records.
        network, window, storage: the share of the time for which daemons' streams waited for each.
        busy, storage_busy: processor seconds a second of this side's threads, and of the daemons' processes.
        sent: bytes that daemons sent in a second, to any rank; None if that is not known.
        idle: the share of the time for which this host's processors were idle; None if that is not known.
    """

    elapsed_ns: int
    rate: float
    wait: float
    network: float = 0.0
    window: float = 0.0
    storage: float = 0.0
    busy: float = 0.0
    storage_busy: float = 0.0
    sent: float | None = None
    idle: float | None = None

    @property
    def cost(self) -> float | None:
        """The processor seconds of both sides for a GB; None if nothing came or a daemon did not tell."""
        return cost_of((self,))

    @classmethod
    def between(cls, before: Snapshot, now: Snapshot) -> "Interval":
        """Return the change from one snapshot to a later one."""
        elapsed_ns = max(now.at_ns - before.at_ns, 1)
        came = max(now.received_bytes - before.received_bytes, 0)
        waits = {
            "network": now.lane_ns - before.lane_ns,
            "window": now.credit_ns - before.credit_ns,
            "storage": now.starved_ns - before.starved_ns,
        }
        sent = now.storage_bytes - before.storage_bytes
        storage_ns = now.storage_cpu_ns - before.storage_cpu_ns
        return cls(
            elapsed_ns=elapsed_ns,
            rate=came * 1e9 / elapsed_ns,
            wait=min(max((now.wait_ns - before.wait_ns) / elapsed_ns, 0.0), 1.0),
            busy=(now.cpu_ns - before.cpu_ns) / elapsed_ns,
            storage_busy=storage_ns / elapsed_ns,
            **{name: waited / elapsed_ns for name, waited in waits.items()},
            sent=sent * 1e9 / elapsed_ns if now.storage_bytes else None,
            idle=now.idle,
        )


def cost_of(intervals: Iterable[Interval]) -> float | None:
    """Return the processor seconds of both sides for a GB, over intervals together: bytes come later than they are sent."""
    known = [(each, each.sent) for each in intervals if each.sent is not None]
    came = sum(each.rate * each.elapsed_ns for each, _ in known)
    sent = sum(of * each.elapsed_ns for each, of in known)
    if not came or not sent:
        return None
    here = sum(each.busy * each.elapsed_ns for each, _ in known)
    there = sum(each.storage_busy * each.elapsed_ns for each, _ in known)
    return 1e9 * (here / came + there / sent)


def blame_of(intervals: Iterable[Interval]) -> str:
    """Return what daemons' streams waited for most, "network", "window" or "storage"; "" if that is not known."""
    sums = {"network": 0.0, "window": 0.0, "storage": 0.0}
    for each in intervals:
        for name in sums:
            sums[name] += getattr(each, name) * each.elapsed_ns
    blame = max(sums, key=lambda name: sums[name])
    return blame if sums[blame] > 0 else ""
