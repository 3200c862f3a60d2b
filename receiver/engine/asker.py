"""Asks daemons the questions of other threads: a bounded number at once, and again if a daemon is lost.

Used by the receive thread only. Does not cover: the questions (questions.py, record_questions.py, energy_questions.py).
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from emlio.clock import Clock
from emlio.errors import EmlioError, LocalProtocolError, PeerLostError
from emlio.receiver.engine.answer_window import FIRST_MESSAGE_BYTES, AnswerWindow, Awaited
from emlio.receiver.machine.daemon_pool import DaemonPool
from emlio.receiver.machine.source import Source
from emlio.receiver.threads.promise import Promise
from emlio.session.instructions import AnswerCame, Send
from emlio.session.questions import answer_bytes
from emlio.wire.limits import RANGE_BYTES_PER_REPLY
from emlio.wire.questions import Subject, Told

__all__ = ["Asker", "OpenQuestion"]


class OpenQuestion(ABC):
    """A question to one daemon after the other. It may take several messages.

    Attributes:
        kind: of its messages' subjects.
        is_long: its answers are long: they come after short ones, and only as many as the path takes.
        message_bytes: how many bytes of a long answer the next message may ask for.
        done: nothing more is wanted.
        until_ns: when it is given up; None if only the waiting thread watches the time.
        not_before_ns: when it may be asked again; None if it may be now.
    """

    kind: type[Subject]
    is_long = False
    message_bytes = RANGE_BYTES_PER_REPLY
    done = False
    until_ns: int | None = None
    not_before_ns: int | None = None

    @abstractmethod
    def source(self) -> Source | None:
        """Return the daemon to ask now; None while it is away, or if that ended the question."""

    @abstractmethod
    def about(self) -> Subject:
        """Return the subject of the next message."""

    @abstractmethod
    def hear(self, source: Source, told: Told) -> None:
        """Take an answer of the daemon. An `EmlioError` that it raises is the error of the waiting thread."""

    def end(self, error: EmlioError) -> None:
        """End it: no daemon can be asked any more. By default that is the error of the waiting thread."""
        raise error

    def lost(self) -> None:  # noqa: B027  # most have nothing to do
        """Forget what only the daemon that was asked can continue: it was lost."""

    def expire(self) -> None:  # noqa: B027  # only for those with a time
        """Give it up: `until_ns` is over."""


class _Wanted:
    """The questions that one thread waits for."""

    def __init__(self, questions: Sequence[OpenQuestion], answer: Promise, made: Callable[[], Any]) -> None:
        self._questions = questions
        self._made = made
        self.answer = answer

    def do(self, action: Callable[[], object]) -> None:
        """Let something happen to a question, and set the answer if that was the last one."""
        try:
            action()
        except EmlioError as error:
            self.answer.set_exception(error)
        self.settle()

    def settle(self) -> None:
        if not self.answer.done() and all(question.done for question in self._questions):
            self.answer.set_result(self._made())


_Entry = tuple[OpenQuestion, _Wanted]


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
        self._short: deque[_Entry] = deque()
        self._long: deque[_Entry] = deque()  # they wait for the short ones
        self._sent: dict[tuple[int, int, int], tuple[_Entry, Awaited]] = {}  # by stream, session, number
        self._windows: dict[tuple[int, int], AnswerWindow] = {}  # by stream, session
        self._timed: list[_Entry] = []
        self.ended = False
        self.error: EmlioError = PeerLostError("the loader has ended, so no daemon can be asked")

    @property
    def window_bytes(self) -> int:
        """The most bytes of long answers that one daemon is asked for at once; for any thread."""
        return max((window.size_bytes for window in list(self._windows.values())), default=0)

    @property
    def message_bytes(self) -> int:
        """The most bytes of a long answer that the next message to a daemon may ask for; for any thread."""
        return max((window.message_bytes for window in list(self._windows.values())), default=FIRST_MESSAGE_BYTES)

    def ask(self, questions: Sequence[OpenQuestion], answer: Promise, made: Callable[[], Any] = lambda: None) -> None:
        """Ask these questions when their daemons are there and take more.

        Once all are done `answer` is set to what `made` returns. A thread that cancels it waits no longer.
        """
        self._add(questions, answer, made)
        self._begin()

    def ask_each(self, asked: "Iterable[tuple[OpenQuestion, Promise]]") -> None:
        """Ask these questions like `ask`, each of which has a promise of its own."""
        for question, answer in asked:
            self._add([question], answer, lambda: None)
        self._begin()

    def _add(self, questions: Sequence[OpenQuestion], answer: Promise, made: Callable[[], Any]) -> None:
        wanted = _Wanted(questions, answer, made)
        entries = [(question, wanted) for question in questions if not question.done]
        for entry in entries:
            self._queue(entry).append(entry)
        self._timed += [entry for entry in entries if entry[0].until_ns is not None]
        wanted.settle()

    def _begin(self) -> None:
        if self.ended:
            self.end(self.error)
        self.tick()

    def hear(self, number: int, came: AnswerCame) -> None:
        """Take an answer of the daemon with this stream."""
        entry, awaited = self._sent.pop((number, came.session, came.number), (None, None))
        source = self._pool.sources.number(number)
        window = self._windows.get((number, came.session))
        if window is not None and awaited is not None:
            round_trip_ns = 0 if source is None else source.conversation.round_trip_ns or 0
            window.take(awaited, self._clock.monotonic_ns(), round_trip_ns)
        if entry is not None and _is_open(entry):
            question, wanted = entry
            wanted.do(lambda: question.lost() if source is None else question.hear(source, came.told))
            if _is_open(entry):
                self._queue(entry).appendleft(entry)
        self.tick()

    def tick(self) -> None:
        """Ask what is due, and again where a daemon was lost."""
        if not self._short and not self._long and not self._sent:
            return
        for key, (entry, _) in list(self._sent.items()):
            if not self._is_current(*key[:2]):
                del self._sent[key]
                self._windows.pop(key[:2], None)
                entry[0].lost()
                self._queue(entry).append(entry)
        self._timed = [entry for entry in self._timed if _is_open(entry)]
        now_ns = self._clock.monotonic_ns() if self._timed else 0
        for question, wanted in self._timed:
            if question.until_ns is not None and now_ns >= question.until_ns:
                wanted.do(question.expire)
        for waiting in (self._short, self._long):
            self._send_all(waiting, now_ns)

    def deadline_ns(self) -> int | None:
        """The latest time at which `tick` must be called."""
        waits = (entry[0] for entry in self._timed if _is_open(entry))
        found = [at for question in waits for at in (question.until_ns, question.not_before_ns)]
        return min((at for at in found if at is not None), default=None)

    def end(self, error: EmlioError | None = None) -> None:
        """End all questions: no daemon can be asked any more, because of this error if there is one."""
        self.ended, self.error = True, error or self.error
        entries = [*self._short, *self._long, *(entry for entry, _ in self._sent.values())]
        for one in (self._short, self._long, self._sent, self._windows):
            one.clear()
        self._timed.clear()
        for question, wanted in entries:
            if _is_open((question, wanted)):
                wanted.do(lambda question=question: question.end(self.error))  # type: ignore[misc]

    def _is_current(self, number: int, session: int) -> bool:
        source = self._pool.sources.number(number)
        return source is not None and source.is_heard and source.conversation.session == session

    def _takes_more(self, kind: type[Subject], is_long: bool) -> bool:
        return any(self._takes(source, kind, is_long) for source in self._pool.sources)

    def _takes(self, source: Source, kind: type[Subject], is_long: bool) -> bool:
        return source.conversation.takes_question(kind) and (not is_long or self._window(source).has_room)

    def _window(self, source: Source) -> AnswerWindow:
        return self._windows.setdefault((source.number, source.conversation.session), AnswerWindow())

    def _queue(self, entry: _Entry) -> "deque[_Entry]":
        return self._long if entry[0].is_long else self._short

    def _send_all(self, waiting: "deque[_Entry]", now_ns: int) -> None:
        kept: list[_Entry] = []
        taken = {entry[0].kind for entry in waiting}
        while waiting and (taken := {kind for kind in taken if self._takes_more(kind, waiting[0][0].is_long)}):
            entry = waiting.popleft()
            if _is_open(entry) and (entry[0].kind not in taken or not self._send(entry, now_ns)):
                kept.append(entry)
        waiting.extendleft(reversed(kept))

    def _send(self, entry: _Entry, now_ns: int) -> bool:
        question, wanted = entry
        if question.not_before_ns is not None and now_ns < question.not_before_ns:
            return False
        source = question.source()
        wanted.settle()
        if source is None or not self._takes(source, question.kind, question.is_long):
            return False
        window = self._window(source)
        question.message_bytes = window.message_bytes
        try:
            message = source.conversation.ask(question.about())
        except LocalProtocolError:
            return False  # the session has just ended; it or another daemon is asked later
        question.not_before_ns = None
        awaited = window.ask(answer_bytes(message.about), self._clock.monotonic_ns())
        self._sent[source.number, message.session, message.number] = entry, awaited
        self._pool.carry_out(source, [Send(message=message)])
        return True


def _is_open(entry: _Entry) -> bool:
    question, wanted = entry
    return not question.done and not wanted.answer.done()
