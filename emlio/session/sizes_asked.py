"""A rank's open questions for the sizes of records.

Covers: how many are in flight, matching answers to questions. Does not cover: when a question is
allowed (emlio.session.rank).
"""

from collections import deque

from emlio.errors import RemoteProtocolError
from emlio.session.instructions import RankInstruction, Send, SizesCame
from emlio.wire.control import SizesReply, SizesRequest
from emlio.wire.limits import RECORDS_PER_SIZES

__all__ = ["SizesAsked"]

_MOST_OPEN = 16
"""Enough to hide the round trip, but few: the daemon keeps each answer (1 MiB) until this side
reads it."""


class SizesAsked:
    """The size questions of one session."""

    def __init__(self) -> None:
        self._unsent: deque[SizesRequest] = deque()
        self._open: list[SizesRequest] = []

    def ask(self, question: SizesRequest) -> list[RankInstruction]:
        """Add a question. It is sent when fewer than the limit are in flight."""
        self._unsent.append(question)
        return self._send()

    def answered(self, reply: SizesReply) -> list[RankInstruction]:
        """Return the answer, which must match an open question, and send the next question."""
        named = (reply.shard, reply.first)
        question = next((asked for asked in self._open if (asked.shard, asked.first) == named), None)
        if question is None:
            raise RemoteProtocolError(
                f"sizes must only be sent on request, got sizes from record {reply.first} of {reply.shard!r} without "
                "a request"
            )
        most = 4 * min(question.count, RECORDS_PER_SIZES)
        if len(reply.sizes) % 4 or len(reply.sizes) > most:
            raise RemoteProtocolError(
                f"sizes of {question.count} records from record {reply.first} of {reply.shard!r} on must have 4 "
                f"bytes each and at most {most} bytes, got {len(reply.sizes)}"
            )
        self._open.remove(question)
        came = SizesCame(shard=reply.shard, first=reply.first, offset=reply.offset, sizes=reply.sizes)
        return [came, *self._send()]

    def _send(self) -> list[RankInstruction]:
        sent: list[RankInstruction] = []
        while self._unsent and len(self._open) < _MOST_OPEN:
            self._open.append(self._unsent.popleft())
            sent.append(Send(message=self._open[-1]))
        return sent
