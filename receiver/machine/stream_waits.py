"""The times for which daemons' streams waited while the user waited for records.

A daemon reports totals since its stream was opened. Only what lies between two reports is counted,
and only if the second one was asked for because the user waited: a stream that waits while the user
is busy bounds nothing.

Covers: these differences, over all daemons, sessions and streams. Pure. Does not cover: asking for
reports (emlio.receiver.machine.rank).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from emlio.receiver.machine.source import Source
from emlio.session.rank import PeerReport, RankSession

__all__ = ["DaemonWaits", "StreamWaits"]


class _Heard(msgspec.Struct, frozen=True):
    """A report: its session and stream, and when it came."""

    session: RankSession
    stream: int
    report: PeerReport
    at_ns: int


@dataclass(frozen=True, slots=True)
class DaemonWaits:
    """The waits of one daemon's streams, and for it.

    Attributes:
        lane_ns: messages were ready and no lane took one, or memory was full of them; or all was
            sent and has not arrived.
        credit_ns: messages were ready, and this rank allowed no more.
        starved_ns: nothing was ready, although it could have been sent.
        away_ns: the user waited for its records while it was lost, or silent before that.
    """

    lane_ns: int = 0
    credit_ns: int = 0
    starved_ns: int = 0
    away_ns: int = 0

    def plus(self, more: "DaemonWaits", times: int = 1) -> "DaemonWaits":
        """Return the sum with others, or with `times` of -1 the difference."""
        return DaemonWaits(
            self.lane_ns + times * more.lane_ns,
            self.credit_ns + times * more.credit_ns,
            self.starved_ns + times * more.starved_ns,
            self.away_ns + times * more.away_ns,
        )


class StreamWaits:
    """The waits of one loader.

    Attributes:
        by_source: of each daemon, by the number of its stream.
        away_ns: the time in which any daemon was away that the user waited for.
        local_ns: the time in which the user waited for records of this host's disks alone.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.by_source: dict[int, DaemonWaits] = {}
        self.away_ns = 0
        self.local_ns = 0
        self._ticked_ns = 0
        self._local = False
        self._away: tuple[int, ...] = ()
        self._asked_ns: dict[int, int] = {}
        self._last: dict[int, _Heard] = {}

    def total(self) -> DaemonWaits:
        """Return the sums over all daemons; of the times in which several were away only one counts."""
        found = DaemonWaits()
        for one in tuple(self.by_source.values()):
            found = found.plus(one)
        return replace(found, away_ns=self.away_ns)

    def ask(self, source: Source, now_ns: int) -> None:
        """Count up to the daemon's next report: the user waits."""
        self._asked_ns.setdefault(source.number, now_ns)

    def tick(self, now_ns: int, away: Sequence[int], *, local: bool = False) -> None:
        """Count the time since the last tick for what the user waited for then.

        Args:
            now_ns: the time.
            away: the daemons that are away, and that the user waits for.
            local: whether the user waits for records of this host's disks alone.
        """
        elapsed_ns = now_ns - self._ticked_ns
        for number in self._away:
            self._add(number, DaemonWaits(away_ns=elapsed_ns))
        self.away_ns += elapsed_ns if self._away else 0
        self.local_ns += elapsed_ns if self._local else 0
        # Without such a wait the time does not matter, and the state is the same at any time.
        self._away, self._local, self._ticked_ns = tuple(away), local, now_ns if away or local else 0

    def _add(self, number: int, more: DaemonWaits) -> None:
        self.by_source[number] = self.by_source.get(number, DaemonWaits()).plus(more)

    def hear(self, source: Source, now_ns: int) -> None:
        """Take in the daemon's report, if it has changed."""
        talk = source.conversation
        now = talk.report
        last = self._last.get(source.number)
        if now == PeerReport() or (last is not None and last.report is now):
            return
        self._last[source.number] = _Heard(talk, talk.stream, now, now_ns)
        asked_ns = self._asked_ns.pop(source.number, None)
        if asked_ns is None:
            return
        if last is None or (last.session, last.stream) != (talk, talk.stream):
            last = _Heard(talk, talk.stream, PeerReport(), asked_ns)
        before = last.report
        lane_ns = max((now.blocked_ns - now.withheld_ns) - (before.blocked_ns - before.withheld_ns), 0)
        credit_ns = max(now.withheld_ns - before.withheld_ns, 0)
        starved_ns = max(now.starved_ns - before.starved_ns, 0)
        if now.sent_bytes > source.stream.received_bytes:
            # A daemon that waits for nothing has sent all it may, or is just sending.
            lane_ns = max(now_ns - last.at_ns - credit_ns - starved_ns, lane_ns)
        self._add(source.number, DaemonWaits(lane_ns, credit_ns, starved_ns))
