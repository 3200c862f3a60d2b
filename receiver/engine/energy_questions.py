"""Asks daemons for the energy of their nodes, each for an interval of its own clock.

A recorder writes once a second, so the end of an epoch that has just ended is not in its file yet.
The missing part is requested again a moment later.

Covers: asking part by part, asking again, answers lost in transit, deadlines. Used by the receive
thread only. Does not cover: clocks, the use of the answers (emlio.receiver.engine.daemon_energy).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from emlio.clock import Clock
from emlio.errors import LocalProtocolError
from emlio.receiver.engine.daemon_energy import Gathered
from emlio.receiver.machine.daemon_pool import DaemonPool
from emlio.receiver.machine.source import Source
from emlio.receiver.threads.promise import Promise
from emlio.session.instructions import EnergyCame
from emlio.units import format_duration
from emlio.wire.control import EnergyReply

__all__ = ["EnergyQuestions", "Stretches"]

_AGAIN_NS = 300_000_000
_WRITTEN_NS = 3_000_000_000
"""By then a running recorder has written its readings to its file."""

_MOST_READINGS = 1 << 19
"""The most readings of one question: fourteen hours at ten per second."""

Stretches = Mapping[int, tuple[int, int]]
"""The interval for the daemon with this number, by its clock. A daemon without one cannot be
asked."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Question:
    """A question to one daemon.

    Attributes:
        daemon, number: the daemon.
        stretch: the interval by its clock; None if that is not known.
        parts: the answers so far.
        absent: why there are none.
        done: nothing more is wanted.
        asked: the session in which it is open.
        again_ns: when to ask for readings that were not written yet.
    """

    daemon: str
    number: int
    stretch: tuple[int, int] | None
    parts: list[EnergyReply] = field(default_factory=list[EnergyReply])
    absent: str = ""
    done: bool = False
    asked: int | None = None
    again_ns: int | None = None

    def end(self, absent: str = "") -> None:
        self.done, self.absent, self.asked, self.again_ns = True, absent, None, None

    @property
    def readings(self) -> int:
        return sum(len(part.readings) for part in self.parts)

    @property
    def last_ns(self) -> int:
        return max((part.readings[-1].mono_ns for part in self.parts if part.readings), default=-1)

    @property
    def next_seq(self) -> int:
        return max((part.readings[-1].seq + 1 for part in self.parts if part.readings), default=0)


@dataclass(slots=True, kw_only=True, eq=False)
class _Round:
    """A question to all daemons."""

    questions: list[_Question]
    begun_ns: int
    deadline_ns: int
    answer: Promise


class EnergyQuestions:
    """The open questions for energy."""

    def __init__(self, pool: DaemonPool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._rounds: list[_Round] = []
        self._ended = False

    def ask(self, stretches: Stretches, timeout_ns: int, answer: Promise) -> None:
        """Set `answer` to all daemons' answers, within this time."""
        now_ns = self._clock.monotonic_ns()
        questions = [
            _Question(daemon=source.peer_name, number=source.number, stretch=stretches.get(source.number))
            for source in _one_each(self._pool.sources)
        ]
        for question in questions:
            if question.stretch is None:
                question.end("its clock could not be compared with this host's. It may run an older release of emlio")
        self._rounds.append(
            _Round(questions=questions, begun_ns=now_ns, deadline_ns=now_ns + timeout_ns, answer=answer)
        )
        if self._ended:
            self.end()
        else:
            self.tick()

    def hear(self, number: int, came: EnergyCame) -> None:
        """Handle an answer of the daemon with this stream."""
        for one in self._rounds:
            for question in one.questions:
                if question.number == number and question.asked is not None:
                    self._take(one, question, came.reply)

    def tick(self) -> None:
        """Ask what is due; set the answers of rounds that are complete or out of time."""
        now_ns = self._clock.monotonic_ns()
        for one in list(self._rounds):
            for question in one.questions:
                if question.again_ns is not None and now_ns >= question.again_ns:
                    question.again_ns = None
                if not question.done and question.again_ns is None:
                    self._put(question)
                if not question.done and now_ns >= one.deadline_ns:
                    question.end(f"it did not answer within {format_duration(one.deadline_ns - one.begun_ns)}")
            if all(question.done for question in one.questions):
                self._rounds.remove(one)
                self._tell(one)

    def deadline_ns(self) -> int | None:
        """The latest time at which `tick` must be called."""
        found = [one.deadline_ns for one in self._rounds]
        found += [q.again_ns for one in self._rounds for q in one.questions if q.again_ns is not None]
        return min(found, default=None)

    def end(self) -> None:
        """End all questions: no daemon can be asked any more."""
        self._ended = True
        while self._rounds:
            one = self._rounds.pop()
            for question in one.questions:
                if not question.done:
                    question.end("the loader was closed before it answered")
            self._tell(one)

    def _tell(self, one: _Round) -> None:
        one.answer.set_result(
            tuple(
                Gathered(daemon=asked.daemon, number=asked.number, parts=tuple(asked.parts), absent=asked.absent)
                for asked in one.questions
            )
        )

    def _put(self, question: _Question) -> None:
        source: Source | None = self._pool.sources.number(question.number)
        if source is None or source.peer_name != question.daemon:
            question.end("the daemon was removed from the job before it answered")
            return
        if not source.is_here:
            question.asked = None
            return
        if question.stretch is None or question.asked == source.conversation.session or source.conversation.asks_energy:
            return  # it is asked already, or another question must be answered first
        from_ns, to_ns = question.stretch
        recording = question.parts[0].recording if question.parts else 0
        try:
            asks = source.conversation.ask_energy(from_ns, to_ns, recording=recording, first=question.next_seq)
        except LocalProtocolError:
            return  # the session has just ended; the daemon is asked again once it is back
        question.asked = source.conversation.session
        self._pool.carry_out(source, asks)

    def _take(self, one: _Round, question: _Question, reply: EnergyReply) -> None:
        question.asked = None
        if reply.absent:
            question.end(reply.absent)
            return
        before = question.parts[0] if question.parts else reply
        if (reply.boot, reply.recording) != (before.boot, before.recording):
            question.parts.clear()
            question.end("its node restarted during the request")
            return
        if reply.readings or not question.parts:
            question.parts.append(reply)
        if question.readings > _MOST_READINGS:
            question.parts.clear()
            question.end(f"it has more than {_MOST_READINGS:,} readings of this time. Request a shorter time")
            return
        now_ns = self._clock.monotonic_ns()
        behind = question.stretch is not None and question.last_ns < question.stretch[1]
        if behind and reply.live and not reply.more and now_ns - one.begun_ns < _WRITTEN_NS:
            question.again_ns = now_ns + _AGAIN_NS
        elif not reply.more:
            question.end()


def _one_each(sources: Iterable[Source]) -> list[Source]:
    """Return one session of each daemon: it has several if it holds several datasets of a mixture."""
    found: dict[str, Source] = {}
    for source in sources:
        welcome = source.conversation.welcome
        found.setdefault((welcome.process if welcome is not None else "") or source.peer_name, source)
    return list(found.values())
