"""The times for which daemons' streams waited while the user waited for records.

A daemon reports totals since its stream was opened. Only what lies between two reports is counted,
and only if the second one was asked for because the user waited: a stream that waits while the user
is busy bounds nothing.

Covers: these differences, over all daemons, sessions and streams. Pure. Does not cover: asking for
reports (emlio.receiver.machine.rank).
"""

from dataclasses import dataclass

from emlio.receiver.machine.source import Source
from emlio.session.rank import PeerReport, RankSession

__all__ = ["StreamWaits"]


@dataclass(frozen=True, slots=True)
class _Heard:
    """A report: its session and stream, and when it came."""

    session: RankSession
    stream: int
    report: PeerReport
    at_ns: int


class StreamWaits:
    """The sums of one loader.

    Attributes:
        lane_ns: messages were ready and no lane took one, or memory was full of them; or all was
            sent and has not arrived.
        credit_ns: messages were ready, and this rank allowed no more.
        starved_ns: nothing was ready, although it could have been sent.
        away_ns: a daemon whose records the user waited for was lost, or silent before that.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.lane_ns = self.credit_ns = self.starved_ns = self.away_ns = 0
        self._away_ns: int | None = None
        self._asked_ns: dict[int, int] = {}
        self._last: dict[int, _Heard] = {}

    def ask(self, source: Source, now_ns: int) -> None:
        """Count up to the daemon's next report: the user waits."""
        self._asked_ns.setdefault(source.number, now_ns)

    def tick(self, now_ns: int, *, away: bool) -> None:
        """Count the time since the last tick, if the user waited for a daemon that was away then."""
        if self._away_ns is not None:
            self.away_ns += now_ns - self._away_ns
        self._away_ns = now_ns if away else None

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
        self.lane_ns += lane_ns
        self.credit_ns += credit_ns
        self.starved_ns += starved_ns
