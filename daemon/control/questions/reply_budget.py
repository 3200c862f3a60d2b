"""A memory limit for long answers: lists of shards, sizes of records.

A question takes a few bytes and its answer up to a megabyte. So an answer is made only when there
is memory left beside the answers that are under way to the same client. Until then the question
waits here: a client that reads no answers gets no more of them.

Covers: bytes under way for each client, waiting questions. Used by the control thread.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from emlio.daemon.control.client import Client
from emlio.daemon.limits import MOST_ANSWER_BYTES_EACH, MOST_OPEN_QUESTIONS
from emlio.daemon.network.transport import Sent
from emlio.wire.control import ControlMessage, encode_control

__all__ = ["ReplyBudget"]

_LOOK_EVERY_NS = 20_000_000
"""libzmq does not report when a message has left. This is checked only while a question waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    client: Client
    answer: Callable[[], ControlMessage | bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnderWay:
    sent: Sent
    size_bytes: int


class ReplyBudget:
    """The long answers under way, and the questions that wait for memory."""

    def __init__(self, send: Callable[[Client, bytes], Sent], *, most_each: int = MOST_ANSWER_BYTES_EACH) -> None:
        """See the class.

        Args:
            send: sends an encoded message.
            most_each: the bytes under way to one client from which on no further answer is made.
        """
        self._send = send
        self._most_each = most_each
        self._waiting: dict[bytes, deque[_Question]] = {}
        self._under_way: dict[bytes, deque[_UnderWay]] = {}
        self._open: Counter[bytes] = Counter()

    @property
    def under_way(self) -> bool:
        """True if answers still take memory, including those to clients that have gone."""
        for owner, sent in list(self._under_way.items()):
            left = deque(one for one in sent if one.sent.under_way)
            if left:
                self._under_way[owner] = left
            else:
                del self._under_way[owner]
        return bool(self._under_way)

    def add(self, client: Client, answer: Callable[[], ControlMessage | bytes]) -> bool:
        """Send what `answer` returns, now or when there is memory.

        Returns:
            False if too many questions of the session wait.
        """
        if self._open[client.identity] >= MOST_OPEN_QUESTIONS:
            return False
        self._open[client.identity] += 1
        self._waiting.setdefault(client.owner, deque()).append(_Question(client=client, answer=answer))
        self._go_on(client.owner)
        return True

    def turn(self) -> None:
        """Make the answers for which there is memory now."""
        for owner in list(self._waiting):
            self._go_on(owner)

    def forget(self, client: Client) -> None:
        """Drop the waiting questions of a session that is over."""
        waiting = self._waiting.get(client.owner)
        if waiting is not None:
            left = deque(one for one in waiting if one.client is not client)
            self._waiting[client.owner] = left
            if not left:
                del self._waiting[client.owner]
        self._open.pop(client.identity, None)

    def deadline_ns(self, now_ns: int) -> int | None:
        """Return the latest time at which `turn` must be called."""
        return now_ns + _LOOK_EVERY_NS if self._waiting else None

    def _go_on(self, owner: bytes) -> None:
        left = deque(one for one in self._under_way.pop(owner, ()) if one.sent.under_way)
        # Sending may end the session, which is then forgotten here: so look up the queue each time.
        while (waiting := self._waiting.get(owner)) and sum(one.size_bytes for one in left) < self._most_each:
            question = waiting.popleft()
            if not waiting:
                del self._waiting[owner]
            self._open[question.client.identity] -= 1
            answer = question.answer()
            data = answer if isinstance(answer, bytes) else encode_control(answer)
            sent = self._send(question.client, data)
            if sent.under_way:
                left.append(_UnderWay(sent=sent, size_bytes=len(data)))
        if left:
            self._under_way[owner] = left
