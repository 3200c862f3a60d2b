"""The questions of ranks, and when they are answered.

A question takes a few bytes and its answer up to a megabyte, and a disk may hang. So the control
thread reads nothing: threads do. Of each client one answer at a time is read from a place and kept
until it is sent; a dataset's disk that hangs holds up neither other datasets nor streams.

Does not cover: how a question is answered (subjects.py), memory for answers under way (reply_budget.py).
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from emlio.clock import Clock
from emlio.daemon.access.client_quota import ClientQuota
from emlio.daemon.config import DaemonConfig
from emlio.daemon.control.client import Client
from emlio.daemon.control.questions.reply_budget import ReplyBudget
from emlio.daemon.control.questions.subjects import Subjects
from emlio.daemon.control.questions.work import Place, Work
from emlio.daemon.control.questions.workers import Workers
from emlio.daemon.datasets.served import ServedDataset
from emlio.daemon.limits import MOST_OPEN_QUESTIONS, MOST_QUESTIONS_EACH
from emlio.daemon.network.transport import Sent
from emlio.errors import RefusedError
from emlio.session.instructions import DaemonInstruction
from emlio.wire.control import ControlMessage, ShardsReply
from emlio.wire.questions import Answer, Question, Told

__all__ = ["QuestionService"]

_LOG = logging.getLogger("emlio.daemon")


@dataclass(slots=True, kw_only=True, eq=False)
class _Asked:
    """An open question, of which the answer is not sent yet.

    Attributes:
        client, question: who asked what.
        work: makes the answer.
        dropped: its session is over.
    """

    client: Client
    question: Question
    work: Work
    dropped: bool = False

    @property
    def turn(self) -> tuple[bytes, Place | None]:
        """The client and the place from which one answer at a time is read for it."""
        return self.client.owner, self.work.place


@dataclass(slots=True, kw_only=True, eq=False)
class _Reading:
    """The questions whose turn it is at a place: of each client one."""

    ready: deque[_Asked]
    threads: int = 0


class QuestionService:
    """Answers the questions of all ranks. The control thread calls its methods."""

    def __init__(
        self,
        config: DaemonConfig,
        clock: Clock,
        send: Callable[[Client, bytes], Sent],
        call: Callable[[Callable[[], None]], None],
        carry_out: Callable[[Client, Sequence[DaemonInstruction]], None],
        *,
        subjects: Subjects | None = None,
    ) -> None:
        """See the class.

        Args:
            config: the daemon's configuration.
            clock: the control thread's.
            send: sends an encoded message.
            call: runs a function in the control thread.
            carry_out: carries out what a session's machine asks for.
            subjects: say how questions are answered.
        """
        self._call = call
        self._carry_out = carry_out
        self._subjects = subjects or Subjects(config, clock)
        self._replies = ReplyBudget(send)
        self._quota = ClientQuota(most=2 * MOST_QUESTIONS_EACH, most_each=MOST_QUESTIONS_EACH)
        self._open: dict[bytes, list[_Asked]] = {}
        self._waiting: dict[tuple[bytes, Place | None], deque[_Asked]] = {}  # the first of each has its turn
        self._places: dict[Place, _Reading] = {}
        self._workers = Workers()
        self._closed = False

    def list_shards(self, client: Client, reply: ShardsReply) -> None:
        """Send a part of the list of shards, now or when there is memory."""
        self._reply(client, partial(client.served.encoded, reply))

    def look_up(self, client: Client, question: Question) -> None:
        """Answer a question, now or later."""
        if not self._quota.take(client.owner):
            text = f"a client may have at most {self._quota.most_each} open questions; retry later"
            self._carry_out(client, client.machine.refuse("no-session", text))
            return
        try:
            work = self._subjects.find(client.served, question.about)
        except RefusedError as error:
            self._quota.give_back(client.owner)
            self._carry_out(client, client.machine.refuse(error.code, str(error)))
            return
        asked = _Asked(client=client, question=question, work=work)
        self._open.setdefault(client.identity, []).append(asked)
        if work.place is None:
            self._answer(asked, work.make)
            return
        waiting = self._waiting.setdefault(asked.turn, deque())
        waiting.append(asked)
        if waiting[0] is asked:
            self._read(asked, work.place)

    def forget(self, client: Client) -> None:
        """Drop the questions of a session that is over."""
        self._replies.forget(client)
        dropped = self._open.pop(client.identity, [])
        for asked in dropped:
            asked.dropped = True
        for asked in reversed(dropped):  # the last ones first: none of them gets a turn
            self._end(asked)

    def forget_dataset(self, served: ServedDataset) -> bool:
        """Drop what is known of a dataset that is closed; return False while it is read."""
        if any(place.dataset == served.key for place in self._places):
            return False
        self._subjects.forget(served)
        return True

    @property
    def under_way(self) -> bool:
        """True if answers still take memory, including those to clients that have gone."""
        return self._replies.under_way

    def turn(self) -> None:
        """Make the answers for which there is memory now."""
        self._replies.turn()

    def deadline_ns(self, now_ns: int) -> int | None:
        """Return the latest time at which `turn` must be called."""
        return self._replies.deadline_ns(now_ns)

    def close(self) -> None:
        """End the threads; one that hangs on a disk is waited for only briefly."""
        self._closed = True
        self._subjects.close()
        self._workers.close()

    # ---- reading ----------------------------------------------------------------------------------------------------

    def _read(self, asked: _Asked, place: Place) -> None:
        self._places.setdefault(place, _Reading(ready=deque())).ready.append(asked)
        self._go_on(place)

    def _go_on(self, place: Place) -> None:
        """Begin the next questions of a place."""
        reading = self._places.get(place)
        if reading is None:
            return
        while reading.ready and reading.threads < place.threads and not self._closed:
            asked = reading.ready.popleft()
            try:
                self._workers.begin(partial(self._look, asked, place))
            except RuntimeError as error:  # the system has no thread left
                text = f"a thread cannot be started: {error}"
                self._call(partial(self._refuse, asked, RefusedError(text, code="no-session")))
                continue
            reading.threads += 1
        if not reading.ready and not reading.threads:
            del self._places[place]

    def _look(self, asked: _Asked, place: Place) -> None:
        """Make an answer and pass it to the control thread; called in a thread of its own."""
        found: Told | RefusedError
        try:
            found = asked.work.make()
        except RefusedError as error:
            found = error
        except Exception as error:  # noqa: BLE001  # the client must get an answer
            _LOG.exception("%s: answering a question failed", asked.client.label)
            found = RefusedError(f"internal error while a question was answered: {error!r}", code="internal")
        if not self._closed:
            self._call(partial(self._found, asked, place, found))

    def _found(self, asked: _Asked, place: Place, found: Told | RefusedError) -> None:
        self._workers.ended()
        self._places[place].threads -= 1
        if isinstance(found, RefusedError):
            self._refuse(asked, found)
        elif not asked.dropped:
            self._answer(asked, lambda: found)
        self._go_on(place)

    # ---- answers ----------------------------------------------------------------------------------------------------

    def _answer(self, asked: _Asked, make: Callable[[], Told]) -> None:
        self._reply(asked.client, partial(self._hand_over, asked, make))

    def _hand_over(self, asked: _Asked, make: Callable[[], Told]) -> Answer:
        """Return the answer, which is sent now, and give the client's next question its turn."""
        self._open[asked.client.identity].remove(asked)
        asked.client.machine.answered(asked.question.number)
        self._end(asked)
        return Answer(number=asked.question.number, told=make())

    def _refuse(self, asked: _Asked, error: RefusedError) -> None:
        if not asked.dropped:
            self._carry_out(asked.client, asked.client.machine.refuse(error.code, str(error)))

    def _end(self, asked: _Asked) -> None:
        """Note that a question needs no answer any more."""
        self._quota.give_back(asked.client.owner)
        place, waiting = asked.work.place, self._waiting.get(asked.turn)
        if place is None or waiting is None:
            return
        had_turn = waiting[0] is asked
        waiting.remove(asked)
        reading = self._places.get(place)
        if reading is not None and asked in reading.ready:
            reading.ready.remove(asked)
        if not waiting:
            del self._waiting[asked.turn]
        elif had_turn:
            self._read(waiting[0], place)

    def _reply(self, client: Client, make: Callable[[], ControlMessage | bytes]) -> None:
        if not self._replies.add(client, make):
            text = f"a session may have at most {MOST_OPEN_QUESTIONS} unanswered requests, this rank sent another one"
            self._carry_out(client, client.machine.refuse("protocol", text))
