"""Requests of other threads for single records.

A record is requested from the daemon that sends its shard, together with others from there. Of one
that is lost, or that cannot read a record, its records are requested from another daemon with the
same shard.

Covers: grouping records into requests, joining long records, asking again. Used by the receive thread
only. Does not cover: records on this host and checksums (emlio.receiver.looking.lookup).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from emlio.errors import EmlioError, LocalProtocolError, PeerLostError, RemoteProtocolError
from emlio.formats.notes import find_notes
from emlio.planner.mixture.merged import own_name
from emlio.receiver.machine.daemon_pool import DaemonPool
from emlio.receiver.machine.source import Source
from emlio.receiver.threads.promise import Promise
from emlio.session.faults import error_of
from emlio.wire.control import Fault, RecordRow, RecordsReply
from emlio.wire.limits import RECORDS_PER_REQUEST

__all__ = ["RecordQuestions", "SoughtRecord"]


@dataclass(slots=True, kw_only=True, eq=False)
class SoughtRecord:
    """A record that is looked for, and what was found of it.

    Attributes:
        shard, name, record: its shard's number and name, and its own number there.
        here: whether its shard is read on this host.
        stream: the stream that carries its shard when it is asked for.
        whole: whether it was found.
        data: its bytes as stored.
        crc: the CRC32C that they must have; None for framed records.
        notes: what is told of it beside its bytes.
        failed: the daemons that could not read it.
    """

    shard: int
    name: str
    record: int
    here: bool = False
    stream: int = -1
    whole: bool = False
    data: bytearray = field(default_factory=bytearray)
    crc: int | None = None
    notes: bytes = b""
    failed: set[str] = field(default_factory=set[str])


@dataclass(slots=True, kw_only=True, eq=False)
class _Question:
    """Records that one thread waits for; `left` are not found yet and not requested."""

    answer: Promise
    left: list[SoughtRecord]
    asked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Request:
    """Records requested from one daemon in one session."""

    question: _Question
    records: Sequence[SoughtRecord]
    number: int
    session: int


class RecordQuestions:
    """The open requests for records."""

    def __init__(self, pool: DaemonPool) -> None:
        """Begin without requests to these daemons."""
        self._pool = pool
        self._open: list[_Question] = []
        self._requests: dict[int, _Request] = {}
        self._next = 0
        self._ended = False
        self._error: EmlioError = PeerLostError("the loader has ended, so no daemon can be asked for records")

    def ask(self, sought: Sequence[SoughtRecord], answer: Promise) -> None:
        """Set `answer` once all these records were found, or are marked as being on this host."""
        agreement = self._pool.assignment.agreement
        if agreement is None or self._ended:
            answer.set_exception(self._error)
            return
        left: list[SoughtRecord] = []
        for one in sought:
            one.stream = int(self._pool.assignment.owners[one.shard])
            one.here = one.stream in self._pool.local_numbers
            if not one.here:
                left.append(one)
        if not left:
            answer.set_result(None)
            return
        self._open.append(_Question(answer=answer, left=left))
        self.renew()

    def hear(self, number: int, reply: RecordsReply) -> None:
        """Handle an answer of the daemon with this stream."""
        request = self._requests.get(reply.number)
        source = self._pool.sources.number(number)
        if request is None or request.number != number or source is None:
            return  # it was given up, with its session
        del self._requests[reply.number]
        question = request.question
        question.asked -= len(request.records)
        if reply.text:
            self._failed(request, source, reply)
        else:
            try:
                found = _take(request.records, reply)
            except RemoteProtocolError as error:  # of this answer alone: an epoch in progress goes on
                self._drop(question)
                question.answer.set_exception(error)
                return
            question.left.extend(request.records[found:])
        if question.answer.cancelled():
            self._drop(question)
        elif not question.left and not question.asked:
            self._open.remove(question)
            question.answer.set_result(None)
        self.renew()

    def renew(self) -> None:
        """Request what was not requested yet, and again what a lost daemon was asked for."""
        if not self._open:
            return
        for key, request in list(self._requests.items()):
            if not self._is_current(request.number, request.session):
                del self._requests[key]
                request.question.asked -= len(request.records)
                for one in request.records:
                    one.data.clear()  # another daemon begins anew
                request.question.left.extend(request.records)
        for question in list(self._open):
            if question.answer.cancelled():
                self._drop(question)
            elif question.left:
                self._request(question)

    def end(self, error: EmlioError | None) -> None:
        """End all requests: no daemon can be asked any more, because of this error if there is one."""
        self._ended, self._error = True, error or self._error
        self._requests.clear()
        while self._open:
            self._open.pop().answer.set_exception(self._error)

    def _is_current(self, number: int, session: int) -> bool:
        source = self._pool.sources.number(number)
        return source is not None and source.is_heard and source.conversation.session == session

    def _request(self, question: _Question) -> None:
        if not any(source.is_agreed and source.conversation.takes_records for source in self._pool.sources):
            return
        kept: list[SoughtRecord] = []
        by_source: dict[int, list[SoughtRecord]] = {}
        for one in question.left:
            source = self._source_of(one)
            if source is None or not source.conversation.takes_records:
                kept.append(one)
            else:
                by_source.setdefault(source.number, []).append(one)
        question.left = kept
        for number in by_source:
            records: list[SoughtRecord] = by_source[number]
            source = self._pool.sources.number(number)
            while records and source is not None and source.conversation.takes_records:
                # The rest of a long record is requested alone.
                begun = next((one for one in records if one.data), None)
                part = records[:RECORDS_PER_REQUEST] if begun is None else [begun]
                if not self._send(question, source, part):
                    break
                records = [one for one in records if one not in part]
            question.left.extend(records)

    def _send(self, question: _Question, source: Source, records: Sequence[SoughtRecord]) -> bool:
        mixed = self._pool.mixed
        rows = [RecordRow(shard=own_name(one.name) if mixed else one.name, record=one.record) for one in records]
        key, self._next = self._next, self._next + 1
        try:
            asks = source.conversation.ask_records(key, rows, len(records[0].data))
        except LocalProtocolError:
            return False  # the session has just ended; it or another daemon is asked later
        session = source.conversation.session
        self._requests[key] = _Request(question=question, records=records, number=source.number, session=session)
        question.asked += len(records)
        self._pool.carry_out(source, asks)
        return True

    def _source_of(self, one: SoughtRecord) -> Source | None:
        """Return the daemon to ask for a record; None while it is away."""
        assignment = self._pool.assignment
        owner = self._pool.sources.number(int(assignment.owners[one.shard]))
        if owner is not None and owner.peer_name not in one.failed:
            return owner if owner.is_agreed else None
        return next(iter(self._others(one)), None)

    def _others(self, one: SoughtRecord) -> list[Source]:
        agreement = self._pool.assignment.agreement
        holders = () if agreement is None else agreement.holders(one.shard)
        return [
            source
            for source in self._pool.sources
            if source.is_agreed and source.peer_name in holders and source.peer_name not in one.failed
        ]

    def _failed(self, request: _Request, source: Source, reply: RecordsReply) -> None:
        """Ask other daemons for the record that this one could not read; without any, the question fails."""
        question, blamed = request.question, request.records[0]
        blamed.failed.add(source.peer_name)
        blamed.data.clear()
        question.left.extend(request.records)
        if self._others(blamed):
            return
        fault = Fault(stream=0, code=reply.code, text=reply.text, shard=blamed.name, record=blamed.record)
        self._drop(question)
        question.answer.set_exception(error_of(fault, str(source.peer)))

    def _drop(self, question: _Question) -> None:
        """Give a question up; answers that are still on their way count for nothing."""
        if question in self._open:
            self._open.remove(question)
        self._requests = {key: one for key, one in self._requests.items() if one.question is not question}


def _take(records: Sequence[SoughtRecord], reply: RecordsReply) -> int:
    """Fill in the records of an answer; return how many of them are whole now."""
    sizes: list[int] = np.frombuffer(reply.sizes, "<u4").tolist()
    crcs: list[int] = np.frombuffer(reply.crcs, "<u4").tolist()
    at = 0
    for place, (one, size) in enumerate(zip(records, sizes, strict=False)):
        end = min(at + size - len(one.data), len(reply.payload))
        one.data += memoryview(reply.payload)[at:end]
        at = end
        one.crc = crcs[place] if crcs else None
        one.whole = len(one.data) == size
        if not one.whole:
            return place
    _take_notes(records[: len(sizes)], reply.notes)
    return len(sizes)


def _take_notes(records: Sequence[SoughtRecord], block: bytes) -> None:
    if not block:
        return
    bounds: list[list[int]] = find_notes(memoryview(block), len(block), len(records)).tolist()
    for one, (begin, end) in zip(records, bounds, strict=True):
        one.notes = block[begin:end]
