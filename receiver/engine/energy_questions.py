"""Questions of other threads for the energy of the daemons' nodes, each for an interval of its own clock.

A recorder writes once a second, so the end of an epoch that has just ended is not in its file yet.
The missing part is requested again a moment later. Does not cover: clocks, the use of the answers
(emlio.receiver.engine.daemon_energy).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from emlio.clock import Clock
from emlio.errors import EmlioError
from emlio.receiver.engine.asker import OpenQuestion
from emlio.receiver.engine.daemon_energy import Gathered
from emlio.receiver.machine.daemon_pool import DaemonPool
from emlio.receiver.machine.source import Source
from emlio.receiver.threads.promise import Promise
from emlio.units import format_duration
from emlio.wire.questions import Absent, AskEnergy, Energy, Told

__all__ = ["EnergyQuestion", "Stretches", "energy_questions"]

_AGAIN_NS = 300_000_000
_WRITTEN_NS = 3_000_000_000
"""By then a running recorder has written its readings to its file."""

_MOST_READINGS = 1 << 19
"""The most readings of one question: fourteen hours at ten per second."""

Stretches = Mapping[int, tuple[int, int]]
"""The interval for the daemon with this number, by its clock. A daemon without one cannot be
asked."""


def energy_questions(
    pool: DaemonPool, clock: Clock, stretches: Stretches, timeout_ns: int, answer: Promise
) -> "list[EnergyQuestion]":
    """Return a question for each daemon. Once all are done, `answer` is set to what was gathered from each."""
    now_ns = clock.monotonic_ns()
    whole = _Whole(answer=answer, clock=clock, begun_ns=now_ns, timeout_ns=timeout_ns)
    whole.questions += [
        EnergyQuestion(pool, source.peer_name, source.number, stretches.get(source.number), whole)
        for source in _one_each(pool.sources)
    ]
    for question in whole.questions:
        question.begin()
    whole.tell()
    return [question for question in whole.questions if not question.done]


@dataclass(slots=True, kw_only=True, eq=False)
class _Whole:
    """The question to all daemons."""

    answer: Promise
    clock: Clock
    begun_ns: int
    timeout_ns: int
    questions: "list[EnergyQuestion]" = field(default_factory=list["EnergyQuestion"])

    def tell(self) -> None:
        if all(question.done for question in self.questions):
            self.answer.set_result(tuple(question.gathered() for question in self.questions))


class EnergyQuestion(OpenQuestion):
    """For the energy of one daemon's node."""

    def __init__(
        self, pool: DaemonPool, daemon: str, number: int, stretch: tuple[int, int] | None, whole: _Whole
    ) -> None:
        """Prepare the question.

        Args:
            pool: the daemons.
            daemon: the daemon's address.
            number: the number of its stream.
            stretch: the interval by its clock; None if that is not known.
            whole: the question to all daemons.
        """
        self.until_ns = whole.begun_ns + whole.timeout_ns
        self._pool = pool
        self._daemon = daemon
        self._number = number
        self._stretch = stretch
        self._whole = whole
        self._parts: list[Energy] = []
        self._absent = ""
        self._done = False

    @property
    def done(self) -> bool:
        """True once nothing more is wanted."""
        return self._done

    def begin(self) -> None:
        """End it where the daemon cannot be asked."""
        if self._stretch is None:
            self._done = True
            self._absent = "its clock could not be compared with this host's. It may run an older release of emlio"

    def gathered(self) -> Gathered:
        """Return the answers."""
        return Gathered(daemon=self._daemon, number=self._number, parts=tuple(self._parts), absent=self._absent)

    def source(self) -> Source | None:
        """Return the daemon."""
        source = self._pool.sources.number(self._number)
        if source is None or source.peer_name != self._daemon:
            self._finish("the daemon was removed from the job before it answered")
            return None
        return source if source.is_here else None

    def about(self) -> AskEnergy:
        """Return the message: for the whole interval, or what follows the last reading."""
        from_ns, to_ns = self._stretch or (0, 0)
        if not self._parts:
            return AskEnergy(from_ns=from_ns, to_ns=to_ns)
        readings = [part.readings[-1].seq for part in self._parts if part.readings]
        first = max(readings, default=-1) + 1
        return AskEnergy(from_ns=from_ns, to_ns=to_ns, recording=self._parts[0].recording, first=first)

    def hear(self, source: Source, told: Told) -> None:
        """Take a part."""
        if isinstance(told, Absent):
            self._finish(told.text)
            return
        assert isinstance(told, Energy)  # as the session has checked
        before = self._parts[0] if self._parts else told
        if (told.boot, told.recording) != (before.boot, before.recording):
            self._fail("its node restarted during the request")
            return
        if told.readings or not self._parts:
            self._parts.append(told)
        if sum(len(part.readings) for part in self._parts) > _MOST_READINGS:
            self._fail(f"it has more than {_MOST_READINGS:,} readings of this time. Request a shorter time")
            return
        if told.more:
            return
        now_ns = self._whole.clock.monotonic_ns()
        last_ns = max((part.readings[-1].mono_ns for part in self._parts if part.readings), default=-1)
        behind = self._stretch is not None and last_ns < self._stretch[1]
        if behind and told.live and now_ns - self._whole.begun_ns < _WRITTEN_NS:
            self.not_before_ns = now_ns + _AGAIN_NS
        else:
            self._finish()

    def expire(self) -> None:
        """Give it up."""
        self._finish(f"it did not answer within {format_duration(self._whole.timeout_ns)}")

    def end(self, error: EmlioError) -> None:
        """End it: the loader is closed."""
        self._finish("the loader was closed before it answered")

    def _fail(self, absent: str) -> None:
        self._parts.clear()
        self._finish(absent)

    def _finish(self, absent: str = "") -> None:
        self._done, self._absent = True, absent
        self._whole.tell()


def _one_each(sources: Iterable[Source]) -> list[Source]:
    """Return one session of each daemon: it has several if it holds several datasets of a mixture."""
    found: dict[str, Source] = {}
    for source in sources:
        welcome = source.conversation.welcome
        found.setdefault((welcome.process if welcome is not None else "") or source.peer_name, source)
    return list(found.values())
