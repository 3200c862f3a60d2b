"""One rank's question to a daemon for the records that match a predicate, and the parts of the answer.

Covers: which part is asked for next, putting the parts together. Does not cover: the session (emlio.session.rank), the
meaning of the bits (emlio.receiver.assignment.agreement).
"""

from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from emlio.errors import LocalProtocolError, RemoteProtocolError
from emlio.session.contents import unpack
from emlio.session.instructions import Matched, RankInstruction, Send
from emlio.wire.contents import MatchReply, MatchRequest
from emlio.wire.control import ShardRow
from emlio.wire.limits import MATCH_DIGEST_BYTES

__all__ = ["MatchesAsked"]


class MatchesAsked:
    """The open question, if there is one."""

    def __init__(self) -> None:
        """Begin without a question."""
        self._open: MatchRequest | None = None
        self._total = 0
        self._size = 0
        self._parts: list[bytes] = []

    @property
    def is_open(self) -> bool:
        """Return whether an answer must still come."""
        return self._open is not None

    def ask(self, session: int, predicate: str, rows: Sequence[ShardRow], *, digests: bool) -> list[RankInstruction]:
        """Return the message that asks; without records, the answer."""
        if self._open is not None:
            raise LocalProtocolError("matches must not be requested before the last request was answered")
        total = MATCH_DIGEST_BYTES * len(rows) if digests else -(-sum(row.records for row in rows) // 8)
        self._total, self._size, self._parts = total, 0, []
        if not self._total:
            return [Matched(told=b"")]
        self._open = MatchRequest(session=session, predicate=predicate, digests=digests or UNSET)
        return [Send(message=self._open)]

    def answered(self, reply: MatchReply) -> list[RankInstruction]:
        """Return what follows from a part of the answer: a question for the next one, or the whole."""
        question, self._open = self._open, None
        if question is None:
            raise RemoteProtocolError("matches must only be sent on request, got a reply without a request")
        if reply.total != self._total or reply.first != self._size or reply.first + reply.size > reply.total:
            raise RemoteProtocolError(
                f"matches must continue at byte {self._size} of {self._total}, got byte {reply.first} of {reply.total} with "
                f"{reply.size} bytes"
            )
        self._parts.append(unpack(reply.data, reply.size))
        self._size += reply.size
        if self._size == self._total:
            told, self._parts = b"".join(self._parts), []
            return [Matched(told=told)]
        self._open = replace(question, first=self._size)
        return [Send(message=self._open)]
