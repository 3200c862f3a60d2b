"""What the other threads want to know of records' sizes, and whom that was asked.

Covers: asking the daemon that sends the shard, or the directory on this host; asking again when that daemon was lost; answers to
all at the end. Used by the receive thread only. Does not cover: what is done with sizes (emlio.receiver.record_sizes).
"""

from dataclasses import dataclass

import numpy as np

from emlio.errors import LocalProtocolError
from emlio.receiver.crew import Crew
from emlio.receiver.local import LocalShards
from emlio.receiver.promise import Promise
from emlio.receiver.record_sizes import NO_SIZES, RecordSizes
from emlio.receiver.source import Source
from emlio.session.instructions import SizesCame

__all__ = ["Questions"]


@dataclass(slots=True, kw_only=True, eq=False)
class _Question:
    """One that has no answer yet.

    Attributes:
        shard, name, first, count: what is asked.
        answer: for whoever asks.
        asked: the stream and session of the daemon that was asked, if any was.
    """

    shard: int
    name: str
    first: int
    count: int
    answer: Promise
    asked: tuple[int, int] | None = None


class Questions:
    """See the module."""

    def __init__(self, crew: Crew, local: LocalShards | None) -> None:
        """See the class.

        Args:
            crew: the daemons.
            local: what lies on this host.
        """
        self._crew = crew
        self._local = local
        self._open: list[_Question] = []
        self._ended = False

    def ask(self, shard: int, first: int, count: int, answer: Promise) -> None:
        """Have `answer` told; no sizes are told where nobody can be asked any more."""
        agreement = self._crew.flow.agreement
        if agreement is None or self._ended:
            answer.set_result(NO_SIZES)
            return
        name = agreement.plan.catalog.shards[shard].name
        if self._crew.flow.owners[shard] == self._crew.local_number:
            found = None if self._local is None else self._local.sizes(name, first, count)
            answer.set_result(NO_SIZES if found is None else found)
            return
        question = _Question(shard=shard, name=name, first=first, count=count, answer=answer)
        self._open.append(question)
        self._put(question)

    def hear(self, number: int, came: SizesCame) -> None:
        """The daemon of this stream answered."""
        sizes = RecordSizes(offset=came.offset, sizes=np.frombuffer(came.sizes, "<u4").astype(np.int64))
        for question in self._open:
            asked_of = question.asked[0] if question.asked is not None else -1
            # Of two that begin at one record the first one asked is answered first.
            if (asked_of, question.name, question.first) == (number, came.shard, came.first):
                self._open.remove(question)
                question.answer.set_result(sizes)
                return

    def renew(self) -> None:
        """Ask again what was asked of daemons that were lost."""
        for question in self._open:
            if question.asked is None or not self._is_current(*question.asked):
                self._put(question)

    def end(self) -> None:
        """Nobody can be asked any more."""
        self._ended = True
        while self._open:
            self._open.pop().answer.set_result(NO_SIZES)

    def _is_current(self, number: int, session: int) -> bool:
        source = self._crew.sources.number(number)
        return source is not None and source.is_here and source.machine.session == session

    def _put(self, question: _Question) -> None:
        question.asked = None
        source: Source | None = self._crew.sources.number(int(self._crew.flow.owners[question.shard]))
        if source is None or not source.is_here:
            return
        try:
            asks = source.machine.ask_sizes(question.name, question.first, question.count)
        except LocalProtocolError:
            return  # the conversation is just over; it is asked again once the daemon is back, or of another
        question.asked = (source.number, source.machine.session)
        self._crew.carry_out(source, asks)
