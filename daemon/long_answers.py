"""Answers that take much memory: lists of shards, sizes of records. A client that does not take them gets no more of them.

A question takes a few bytes and its answer up to a megabyte. So an answer is made only when what is under way to the same client
leaves room for it; until then its question waits here.

Covers: that memory, in bytes for each client; the waiting. Used by the control thread. Does not cover: the answers.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from emlio.daemon.client import Client
from emlio.daemon.limits import MOST_ANSWER_BYTES_EACH, MOST_OPEN_QUESTIONS
from emlio.daemon.transport import Sent
from emlio.wire.control import ControlMessage, encode_control

__all__ = ["LongAnswers"]

_LOOK_EVERY_NS = 20_000_000
"""libzmq tells nobody when a message has left. Looked for only while somebody waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    client: Client
    answer: Callable[[], ControlMessage | bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnderWay:
    sent: Sent
    size_bytes: int


class LongAnswers:
    """See the module."""

    def __init__(self, send: Callable[[Client, bytes], Sent], *, most_each: int = MOST_ANSWER_BYTES_EACH) -> None:
        """See the class.

        Args:
            send: hands an encoded message over.
            most_each: bytes under way to one client, before another answer is made.
        """
        self._send = send
        self._most_each = most_each
        self._waiting: dict[bytes, deque[_Question]] = {}
        self._under_way: dict[bytes, deque[_UnderWay]] = {}
        self._open: Counter[bytes] = Counter()

    @property
    def under_way(self) -> bool:
        """Whether answers to anybody, also to those who have gone, still take memory."""
        for owner, sent in list(self._under_way.items()):
            left = deque(one for one in sent if one.sent.under_way)
            if left:
                self._under_way[owner] = left
            else:
                del self._under_way[owner]
        return bool(self._under_way)

    def add(self, client: Client, answer: Callable[[], ControlMessage | bytes]) -> bool:
        """Answer with what `answer` makes, now or when there is room; False where too many questions of its session wait."""
        if self._open[client.identity] >= MOST_OPEN_QUESTIONS:
            return False
        self._open[client.identity] += 1
        self._waiting.setdefault(client.owner, deque()).append(_Question(client=client, answer=answer))
        self._go_on(client.owner)
        return True

    def turn(self) -> None:
        """Answer what there is room for now."""
        for owner in list(self._waiting):
            self._go_on(owner)

    def forget(self, client: Client) -> None:
        """Its session is over: nobody wants the answers that were not made."""
        waiting = self._waiting.get(client.owner)
        if waiting is not None:
            left = deque(one for one in waiting if one.client is not client)
            self._waiting[client.owner] = left
            if not left:
                del self._waiting[client.owner]
        self._open.pop(client.identity, None)

    def deadline_ns(self, now_ns: int) -> int | None:
        """When `turn` must be called at the latest."""
        return now_ns + _LOOK_EVERY_NS if self._waiting else None

    def _go_on(self, owner: bytes) -> None:
        left = deque(one for one in self._under_way.pop(owner, ()) if one.sent.under_way)
        # Sending may end the session, which then is forgotten here: so what waits is looked up each time.
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
