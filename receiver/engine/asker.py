"""Asks daemons the questions of other threads: a bounded number at once, and again if a daemon is lost.

Used by the receive thread only. Does not cover: the questions (size_questions.py, record_questions.py,
energy_questions.py).
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable

from emlio.clock import Clock
from emlio.errors import EmlioError, LocalProtocolError, PeerLostError
from emlio.receiver.machine.daemon_pool import DaemonPool
from emlio.receiver.machine.source import Source
from emlio.session.instructions import AnswerCame, Send
from emlio.wire.questions import Subject, Told

__all__ = ["Asker", "OpenQuestion"]


class OpenQuestion(ABC):
    """A question of another thread. It may take several messages, to one daemon after the other.

    Attributes:
        until_ns: when it is given up; None if only the waiting thread watches the time.
        not_before_ns: when it may be asked again; None if it may be now.
    """

    until_ns: int | None = None
    not_before_ns: int | None = None

    @property
    @abstractmethod
    def done(self) -> bool:
        """True once nothing more is wanted."""

    @abstractmethod
    def source(self) -> Source | None:
        """Return the daemon to ask now; None while it is away, or if that ended the question."""

    @abstractmethod
    def about(self) -> Subject:
        """Return the message to ask with: for the first part, or the next one."""

    @abstractmethod
    def hear(self, source: Source, told: Told) -> None:
        """Take an answer of the daemon."""

    @abstractmethod
    def end(self, error: EmlioError) -> None:
        """End it: no daemon can be asked any more, because of this error."""

    def lost(self) -> None:  # noqa: B027  # most have nothing to do
        """Forget what only the daemon that was asked can continue: it was lost."""

    def expire(self) -> None:  # noqa: B027  # only for those with a time
        """Give it up: `until_ns` is over."""


class Asker:
    """The questions that are not answered yet.

    Attributes:
        ended: no daemon can be asked any more.
        error: why not.
    """

    def __init__(self, pool: DaemonPool, clock: Clock) -> None:
        """Begin without questions to these daemons."""
        self._pool = pool
        self._clock = clock
        self._waiting: deque[OpenQuestion] = deque()
        self._sent: dict[tuple[int, int, int], OpenQuestion] = {}  # by stream, session, number
        self._timed: list[OpenQuestion] = []
        self.ended = False
        self.error: EmlioError = PeerLostError("the loader has ended, so no daemon can be asked")

    def ask(self, questions: Iterable[OpenQuestion]) -> None:
        """Ask these questions, now or when their daemons are there and take more."""
        for question in questions:
            if self.ended:
                question.end(self.error)
            else:
                self._waiting.append(question)
                if question.until_ns is not None:
                    self._timed.append(question)
        self.tick()

    def hear(self, number: int, came: AnswerCame) -> None:
        """Take an answer of the daemon with this stream."""
        question = self._sent.pop((number, came.session, came.number), None)
        source = self._pool.sources.number(number)
        if question is not None and not question.done:
            if source is not None:
                question.hear(source, came.told)
            else:
                question.lost()
            if not question.done:
                self._waiting.appendleft(question)
        self.tick()

    def tick(self) -> None:
        """Ask what is due, and again where a daemon was lost."""
        if not self._waiting and not self._sent:
            return
        for key, question in list(self._sent.items()):
            if not self._is_current(*key[:2]):
                del self._sent[key]
                if not question.done:
                    question.lost()
                    self._waiting.append(question)
        now_ns = self._clock.monotonic_ns() if self._timed else 0
        for question in self._timed:
            if question.until_ns is not None and now_ns >= question.until_ns and not question.done:
                question.expire()
        kept: list[OpenQuestion] = []
        while self._waiting and self._takes_more():
            question = self._waiting.popleft()
            if not question.done and not self._send(question, now_ns) and not question.done:
                kept.append(question)
        self._waiting.extendleft(reversed(kept))
        if self._timed:
            self._timed = [question for question in self._timed if not question.done]

    def deadline_ns(self) -> int | None:
        """The latest time at which `tick` must be called."""
        waits = (question for question in self._timed if not question.done)
        found = [at for question in waits for at in (question.until_ns, question.not_before_ns)]
        return min((at for at in found if at is not None), default=None)

    def end(self, error: EmlioError | None = None) -> None:
        """End all questions: no daemon can be asked any more, because of this error if there is one."""
        self.ended, self.error = True, error or self.error
        questions = [*self._waiting, *self._sent.values()]
        self._waiting.clear()
        self._sent.clear()
        self._timed.clear()
        for question in questions:
            if not question.done:
                question.end(self.error)

    def _is_current(self, number: int, session: int) -> bool:
        source = self._pool.sources.number(number)
        return source is not None and source.is_heard and source.conversation.session == session

    def _takes_more(self) -> bool:
        return any(source.conversation.takes_questions for source in self._pool.sources)

    def _send(self, question: OpenQuestion, now_ns: int) -> bool:
        if question.not_before_ns is not None and now_ns < question.not_before_ns:
            return False
        source = question.source()
        if source is None or not source.conversation.takes_questions:
            return False
        try:
            message = source.conversation.ask(question.about())
        except LocalProtocolError:
            return False  # the session has just ended; it or another daemon is asked later
        question.not_before_ns = None
        self._sent[source.number, source.conversation.session, message.number] = question
        self._pool.carry_out(source, [Send(message=message)])
        return True
