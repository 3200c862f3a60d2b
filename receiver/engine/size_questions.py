"""Questions of other threads for the sizes of records.

Covers: asking the daemon that sends the shard, or the directory on this host; asking again if that
daemon was lost; answering all at the end. Used by the receive thread only. Does not cover: the use
of sizes (emlio.receiver.records.sizes).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from emlio.errors import LocalProtocolError
from emlio.planner.mixture.merged import own_name
from emlio.receiver.local.shard_reader import LocalShards
from emlio.receiver.machine.daemon_pool import DaemonPool
from emlio.receiver.machine.source import Source
from emlio.receiver.records.sizes import NO_SIZES, RecordSizes
from emlio.receiver.threads.promise import Promise
from emlio.session.instructions import SizesCame

__all__ = ["SizeQuestions"]


@dataclass(slots=True, kw_only=True, eq=False)
class _Question:
    """A question without an answer yet.

    Attributes:
        shard, name, first, count: the question.
        answer: the promise of the answer.
        asked: the stream and session of the daemon that was asked, if any was.
    """

    shard: int
    name: str
    first: int
    count: int
    answer: Promise
    asked: tuple[int, int] | None = None


class SizeQuestions:
    """The open questions for sizes."""

    def __init__(self, pool: DaemonPool, local: Mapping[int, LocalShards]) -> None:
        """Begin without questions.

        Args:
            pool: the daemons.
            local: the shards on this host, by the numbers of their streams.
        """
        self._pool = pool
        self._local = local
        self._open: list[_Question] = []
        self._ended = False

    def ask(self, shard: int, first: int, count: int, answer: Promise) -> None:
        """Set `answer` to the sizes; to no sizes if no daemon can be asked any more."""
        agreement = self._pool.assignment.agreement
        if agreement is None or self._ended:
            answer.set_result(NO_SIZES)
            return
        name = agreement.plan.catalog.shards[shard].name
        local = self._local.get(int(self._pool.assignment.owners[shard]))
        if local is not None:
            found = local.sizes(name, first, count)
            answer.set_result(NO_SIZES if found is None else found)
            return
        name = own_name(name) if self._pool.mixed else name
        question = _Question(shard=shard, name=name, first=first, count=count, answer=answer)
        self._open.append(question)
        self._put(question)

    def hear(self, number: int, came: SizesCame) -> None:
        """Handle an answer of the daemon with this stream."""
        sizes = RecordSizes(offset=came.offset, sizes=np.frombuffer(came.sizes, "<u4").astype(np.int64))
        for question in self._open:
            asked_of = question.asked[0] if question.asked is not None else -1
            # Of two questions that begin at one record the first one asked is answered first.
            if (asked_of, question.name, question.first) == (number, came.shard, came.first):
                self._open.remove(question)
                question.answer.set_result(sizes)
                return

    def renew(self) -> None:
        """Ask again where the daemon was lost."""
        for question in self._open:
            if question.asked is None or not self._is_current(*question.asked):
                self._put(question)

    def end(self) -> None:
        """End all questions: no daemon can be asked any more."""
        self._ended = True
        while self._open:
            self._open.pop().answer.set_result(NO_SIZES)

    def _is_current(self, number: int, session: int) -> bool:
        source = self._pool.sources.number(number)
        return source is not None and source.is_here and source.conversation.session == session

    def _put(self, question: _Question) -> None:
        question.asked = None
        source: Source | None = self._pool.sources.number(int(self._pool.assignment.owners[question.shard]))
        if source is None or not source.is_here:
            return
        try:
            asks = source.conversation.ask_sizes(question.name, question.first, question.count)
        except LocalProtocolError:
            return  # the session has just ended; it or another daemon is asked later
        question.asked = (source.number, source.conversation.session)
        self._pool.carry_out(source, asks)
