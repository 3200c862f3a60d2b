"""Questions of other threads for single records.

Does not cover: records on this host and checksums (emlio.receiver.looking.lookup).
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from emlio.formats.notes import find_notes
from emlio.planner.mixture.merged import own_name
from emlio.receiver.engine.asker import OpenQuestion
from emlio.receiver.machine.daemon_pool import DaemonPool
from emlio.receiver.machine.source import Source
from emlio.session.faults import error_of
from emlio.wire.control import Fault
from emlio.wire.limits import RECORDS_PER_REQUEST
from emlio.wire.questions import Absent, AskRecords, RecordRow, Records, Told

__all__ = ["RecordQuestion", "SoughtRecord", "record_questions"]


class SoughtRecord(msgspec.Struct, kw_only=True, eq=False):
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
    data: bytearray = msgspec.field(default_factory=bytearray)
    crc: int | None = None
    notes: bytes = b""
    failed: set[str] = msgspec.field(default_factory=set[str])


def record_questions(pool: DaemonPool, sought: Sequence[SoughtRecord]) -> "list[RecordQuestion]":
    """Return the questions that fill these records in; those on this host are only marked."""
    by_stream: dict[int, list[SoughtRecord]] = {}
    for one in sought:
        one.stream = int(pool.assignment.owners[one.shard])
        one.here = one.stream in pool.local_numbers
        if not one.here:
            by_stream.setdefault(one.stream, []).append(one)
    return [
        RecordQuestion(pool, records[at : at + RECORDS_PER_REQUEST])
        for records in by_stream.values()
        for at in range(0, len(records), RECORDS_PER_REQUEST)
    ]


class RecordQuestion(OpenQuestion):
    """For a few records, the first of them by the daemon that sends its shard.

    A record whose daemon cannot read it is requested from another one with the same shard. An
    answer may end early, with a record that is not there: the next message begins with that one.
    """

    kind = AskRecords

    def __init__(self, pool: DaemonPool, records: Sequence[SoughtRecord]) -> None:
        """Prepare the question for at most RECORDS_PER_REQUEST records."""
        self._pool = pool
        self._left = records

    def source(self) -> Source | None:
        """Return the owner of the first record's shard, or another daemon if that could not read it."""
        first = self._left[0]
        owner = self._pool.sources.number(int(self._pool.assignment.owners[first.shard]))
        if owner is not None and owner.peer_name not in first.failed:
            return owner if owner.is_agreed else None
        return next(iter(self._others(first)), None)

    def about(self) -> AskRecords:
        """Return the message: for all records, or for the rest of the first one."""
        offset, mixed = len(self._left[0].data), self._pool.mixed
        asked = self._left[:1] if offset else self._left
        rows = [RecordRow(shard=own_name(one.name) if mixed else one.name, record=one.record) for one in asked]
        return AskRecords(records=rows, offset=offset)

    def hear(self, source: Source, told: Told) -> None:
        """Fill in the records; or have other daemons asked for the first one, if this one could not read it.

        Raises:
            EmlioError: no daemon can read it, or the answer makes no sense.
        """
        if isinstance(told, Absent):
            self._failed(source, told)
            return
        assert isinstance(told, Records)  # as the session has checked
        self._left = self._left[_take(self._left, told) :]
        self.done = not self._left

    def lost(self) -> None:
        """Forget the begun record: another daemon begins anew."""
        self._left[0].data.clear()

    def _others(self, one: SoughtRecord) -> list[Source]:
        agreement = self._pool.assignment.agreement
        holders = () if agreement is None else agreement.holders(one.shard)
        return [
            source
            for source in self._pool.sources
            if source.is_agreed and source.peer_name in holders and source.peer_name not in one.failed
        ]

    def _failed(self, source: Source, told: Absent) -> None:
        blamed = self._left[0]
        blamed.failed.add(source.peer_name)
        blamed.data.clear()
        if not self._others(blamed):
            fault = Fault(stream=0, code=told.code, text=told.text, shard=blamed.name, record=blamed.record)
            raise error_of(fault, str(source.peer))


def _take(records: Sequence[SoughtRecord], told: Records) -> int:
    """Fill in the records of an answer; return how many of them are whole now."""
    sizes: list[int] = np.frombuffer(told.sizes, "<u4").tolist()
    crcs: list[int] = np.frombuffer(told.crcs, "<u4").tolist()
    at = 0
    for place, (one, size) in enumerate(zip(records, sizes, strict=False)):
        end = min(at + size - len(one.data), len(told.payload))
        one.data += memoryview(told.payload)[at:end]
        at = end
        one.crc = crcs[place] if crcs else None
        one.whole = len(one.data) == size
        if not one.whole:
            return place
    _take_notes(records[: len(sizes)], told.notes)
    return len(sizes)


def _take_notes(records: Sequence[SoughtRecord], block: bytes) -> None:
    if not block:
        return
    bounds: list[list[int]] = find_notes(memoryview(block), len(block), len(records)).tolist()
    for one, (begin, end) in zip(records, bounds, strict=True):
        one.notes = block[begin:end]
