"""The questions of ranks, and when they are answered.

A question takes a few bytes and its answer up to a megabyte, and a disk may hang. So an answer is
made only when there is memory beside the answers that are under way to the same client. And the
control thread reads nothing: threads do, for each client one answer at a time from one place, or a
few. A disk that hangs holds up neither other datasets nor streams.

Does not cover: how a question is answered (subjects.py).
"""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from threading import Thread, current_thread
from typing import TypeVar

from emlio.daemon.access.client_quota import ClientQuota
from emlio.daemon.control.client import Client
from emlio.daemon.control.questions.subjects import Subjects
from emlio.daemon.control.questions.work import Asked, Place, Work
from emlio.daemon.datasets.served import ServedDataset
from emlio.daemon.limits import MOST_ANSWER_BYTES_EACH, MOST_OPEN_QUESTIONS, MOST_QUESTIONS_EACH
from emlio.daemon.network.transport import Sent
from emlio.errors import RefusedError
from emlio.session.instructions import DaemonInstruction
from emlio.wire.control import ShardsReply, encode_control
from emlio.wire.questions import Answer, Question, Told

__all__ = ["QuestionService", "UnderWay", "Workers"]

_LOG = logging.getLogger("emlio.daemon")
_T = TypeVar("_T")

_LOOK_EVERY_NS = 20_000_000
"""libzmq does not report when a message has left. This is checked only while a question waits for that."""

_Turn = tuple[bytes, Place | None]
"""The client and the place from which answers are read for it."""


_MOST_IDLE = 4
_ENDING_S = 1.0


class Workers:
    """As many threads as there are tasks; a few are kept for the next ones. One thread calls the methods.

    A disk may hang, and a thread that waits for it must not keep the process from ending. So these are
    no `concurrent.futures` threads, which are waited for.
    """

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: set[Thread] = set()
        self._idle = 0

    def begin(self, task: Callable[[], None]) -> None:
        """Run a task now.

        Raises:
            RuntimeError: the system has no thread left.
        """
        if self._idle:
            self._idle -= 1
        else:
            thread = Thread(target=self._run, name="emlio-questions", daemon=True)
            thread.start()
            self._threads.add(thread)
        self._tasks.put(task)

    def ended(self) -> None:
        """Note that a task has ended."""
        if self._idle < _MOST_IDLE:
            self._idle += 1
        else:
            self._tasks.put(None)

    def close(self) -> None:
        """End the threads; one that waits for a disk is left to end when the disk answers."""
        threads = list(self._threads)
        for _ in threads:
            self._tasks.put(None)
        deadline_s = time.monotonic() + _ENDING_S
        for thread in threads:
            thread.join(max(deadline_s - time.monotonic(), 0))

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            del task  # its answer must not live until the next task
        self._threads.discard(current_thread())


class UnderWay:
    """The answers under way to each client. Used by the control thread."""

    def __init__(self, most_each: int) -> None:
        """Begin without answers; `most_each` is the most bytes of one client's."""
        self._most_each = most_each
        self._sent: dict[bytes, deque[tuple[Sent, int]]] = {}

    @property
    def any(self) -> bool:
        """True if answers still take memory, including those to clients that have gone."""
        return any(self._bytes(owner) for owner in list(self._sent))

    def has_room(self, owner: bytes) -> bool:
        """Return whether another answer may be made for this client."""
        return self._bytes(owner) < self._most_each

    def add(self, owner: bytes, sent: Sent, size_bytes: int) -> None:
        """Note an answer."""
        if sent.under_way:
            self._sent.setdefault(owner, deque()).append((sent, size_bytes))

    def _bytes(self, owner: bytes) -> int:
        left = deque(one for one in self._sent.pop(owner, ()) if one[0].under_way)
        if left:
            self._sent[owner] = left
        return sum(size_bytes for _, size_bytes in left)


class QuestionService:
    """Answers the questions of all ranks. The control thread calls its methods."""

    def __init__(
        self,
        subjects: Subjects,
        send: Callable[[Client, bytes | memoryview], Sent],
        call: Callable[[Callable[[], None]], None],
        carry_out: Callable[[Client, Sequence[DaemonInstruction]], None],
        *,
        most_bytes_each: int = MOST_ANSWER_BYTES_EACH,
    ) -> None:
        """See the class.

        Args:
            subjects: say how questions are answered.
            send: sends an encoded message.
            call: runs a function in the control thread.
            carry_out: carries out what a session's machine asks for.
            most_bytes_each: the bytes under way to one client from which on no further answer is made.
        """
        self._subjects = subjects
        self._send = send
        self._call = call
        self._carry_out = carry_out
        self._under_way = UnderWay(most_bytes_each)
        self._quota = ClientQuota(most=2 * MOST_QUESTIONS_EACH, most_each=MOST_QUESTIONS_EACH)
        self._open: dict[bytes, list[Asked]] = {}  # by connection
        self._waiting: dict[_Turn, deque[Asked]] = {}  # not begun; those that waited longest come first
        self._busy: Counter[_Turn] = Counter()
        self._reading: Counter[Place] = Counter()
        self._workers = Workers()
        self._has_news = self._lacks_memory = False
        self._closed = False

    def list_shards(self, client: Client, reply: ShardsReply) -> None:
        """Send a part of the list of shards when there is memory."""
        self._add(Asked(client=client, work=Work(make=partial(client.served.encoded, reply))))

    def look_up(self, client: Client, question: Question) -> None:
        """Answer a question when there is memory, and a thread."""
        try:
            work = self._subjects.find(client.served, question.about)
        except RefusedError as error:
            self._refuse(client, error)
        else:
            self._add(Asked(client=client, work=work, number=question.number))

    def turn(self) -> None:
        """Begin the answers for which there is memory now, and a thread."""
        if self._has_news or self._lacks_memory:
            self._has_news = self._lacks_memory = False
            for turn in list(self._waiting):
                self._go_on(turn)

    def deadline_ns(self, now_ns: int) -> int | None:
        """Return the latest time at which `turn` must be called."""
        return now_ns + _LOOK_EVERY_NS if self._lacks_memory else None

    @property
    def under_way(self) -> bool:
        """True if answers still take memory, including those to clients that have gone."""
        return self._under_way.any

    def forget(self, client: Client) -> None:
        """Drop the questions of a session that is over."""
        for asked in self._open.pop(client.identity, ()):
            asked.dropped = True
            self._quota.give_back(client.owner)
        for turn in [turn for turn in self._waiting if turn[0] == client.owner]:
            left = deque(asked for asked in self._waiting[turn] if not asked.dropped)
            if left:
                self._waiting[turn] = left
            else:
                del self._waiting[turn]

    def forget_dataset(self, served: ServedDataset) -> bool:
        """Drop what is known of a dataset that is closed; return False while it is read."""
        if any(place.dataset == served.key for place in self._reading):
            return False
        self._subjects.forget(served)
        return True

    def close(self) -> None:
        """End the threads; one that hangs on a disk is waited for only briefly."""
        self._closed = True
        self._subjects.close()
        self._workers.close()

    def _add(self, asked: Asked) -> None:
        client = asked.client
        mine = self._open.setdefault(client.identity, [])
        if len(mine) >= MOST_OPEN_QUESTIONS:
            text = f"a session may have at most {MOST_OPEN_QUESTIONS} unanswered requests, this rank sent another one"
            self._refuse(client, RefusedError(text, code="protocol"))
        elif not self._quota.take(client.owner):
            text = f"a client may have at most {self._quota.most_each} open questions; retry later"
            self._refuse(client, RefusedError(text, code="no-session"))
        else:
            self._has_news = True
            mine.append(asked)
            self._waiting.setdefault((client.owner, asked.work.place), deque()).append(asked)

    def _go_on(self, turn: _Turn) -> None:
        owner, place = turn
        # Sending may end the session, which is then forgotten here: so look up the queue each time.
        while turn in self._waiting and (place is None or self._busy[turn] < place.each):
            if not self._under_way.has_room(owner):
                self._lacks_memory = True
                return
            if place is not None and self._reading[place] >= place.threads:
                return
            waiting = self._waiting.pop(turn)
            asked = waiting.popleft()
            if waiting:
                self._waiting[turn] = waiting  # as the last one: others come first next time
            if place is None:
                self._answer(asked, asked.made())
            else:
                self._read(asked, place)

    def _read(self, asked: Asked, place: Place) -> None:
        try:
            self._workers.begin(partial(self._look, asked, place))
        except RuntimeError as error:  # the system has no thread left
            self._refuse(asked.client, RefusedError(f"a thread cannot be started: {error}", code="no-session"))
            return
        self._busy[asked.client.owner, place] += 1
        self._reading[place] += 1

    def _look(self, asked: Asked, place: Place) -> None:
        """Make an answer and pass it to the control thread; called in a thread of its own."""
        found: Told | bytes | memoryview | RefusedError
        try:
            found = asked.made()
        except RefusedError as error:
            found = error
        except Exception as error:  # noqa: BLE001  # the client must get an answer
            _LOG.exception("%s: answering a question failed", asked.client.label)
            found = RefusedError(f"internal error while a question was answered: {error!r}", code="internal")
        if not self._closed:
            self._call(partial(self._found, asked, place, found))

    def _found(self, asked: Asked, place: Place, found: Told | bytes | memoryview | RefusedError) -> None:
        self._has_news = True
        self._workers.ended()
        _count_down(self._busy, (asked.client.owner, place))
        _count_down(self._reading, place)
        if asked.dropped:
            return
        if isinstance(found, RefusedError):
            self._refuse(asked.client, found)
        else:
            self._answer(asked, found)

    def _answer(self, asked: Asked, told: Told | bytes | memoryview) -> None:
        client = asked.client
        self._open[client.identity].remove(asked)
        self._quota.give_back(client.owner)
        if asked.number >= 0:
            client.machine.answered(asked.number)
        data = told if isinstance(told, bytes | memoryview) else encode_control(Answer(number=asked.number, told=told))
        self._under_way.add(client.owner, self._send(client, data), len(data))

    def _refuse(self, client: Client, error: RefusedError) -> None:
        self._carry_out(client, client.machine.refuse(error.code, str(error)))


def _count_down(counter: Counter[_T], key: _T) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
