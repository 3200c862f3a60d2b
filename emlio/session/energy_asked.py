"""A rank's open question for the energy that a daemon's node used.

Covers: one question at a time, checking answers against it. Does not cover: when a question is
allowed (emlio.session.rank), the use of the answers.
"""

from itertools import pairwise

from emlio.errors import LocalProtocolError, RemoteProtocolError
from emlio.session.instructions import EnergyCame, Send
from emlio.wire.control import EnergyReply, EnergyRequest

__all__ = ["EnergyAsked"]


class EnergyAsked:
    """The energy question of one session; at most one is open."""

    def __init__(self) -> None:
        self._open: EnergyRequest | None = None

    @property
    def is_open(self) -> bool:
        """Return whether an answer is still to come. Another question must wait for it."""
        return self._open is not None

    def ask(self, question: EnergyRequest) -> Send:
        """Return the message that asks; no other question may be open."""
        if self._open is not None:
            raise LocalProtocolError("energy must not be requested before the last request was answered")
        if not 0 <= question.from_ns <= question.to_ns:
            raise LocalProtocolError(
                f"energy must be requested for a time that ends after it begins, got {question.from_ns} ns to "
                f"{question.to_ns} ns"
            )
        self._open = question
        return Send(message=question)

    def answered(self, reply: EnergyReply) -> EnergyCame:
        """Return the answer, which must match the open question."""
        question, self._open = self._open, None
        if question is None:
            raise RemoteProtocolError("energy must only be sent on request, got a reply without a request")
        wrong = _wrong(question, reply)
        if wrong is not None:
            raise RemoteProtocolError(f"a reply with energy {wrong}")
        return EnergyCame(reply=reply)


def _wrong(question: EnergyRequest, reply: EnergyReply) -> str | None:
    """Return what is wrong with the reply as the predicate of a sentence; None if nothing is."""
    if reply.absent:
        both = "must not have both readings and a reason for their absence"
        return both if reply.readings or reply.more else None
    if question.recording and reply.recording != question.recording:
        return f"must continue recording {question.recording}, got recording {reply.recording}"
    if reply.more and not reply.readings:
        return "must have readings if it is incomplete, got none"
    for row in reply.readings:
        if len(row.totals) != len(reply.devices) or len(row.events) not in (0, len(reply.devices)):
            return f"must have a total for each of {len(reply.devices)} devices, got {len(row.totals)} in {row.seq}"
        if row.seq < question.first:
            return f"must begin at reading {question.first}, got {row.seq}"
    for before, after in pairwise(reply.readings):
        if after.seq <= before.seq or after.mono_ns <= before.mono_ns:
            return f"must have its readings in order of time, got {after.seq} after {before.seq}"
    return None
