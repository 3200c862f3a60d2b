"""A session's open questions, on both sides.

Does not cover: when a session may ask (emlio.session.states), what is done with answers.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec import UNSET
from msgspec.structs import replace

from emlio.errors import LocalProtocolError, RemoteProtocolError
from emlio.session.contents import unpack
from emlio.session.instructions import AnswerCame
from emlio.wire.control import ShardRow
from emlio.wire.limits import (
    MATCH_DIGEST_BYTES,
    MOST_QUESTIONS,
    MOST_RANGE_QUESTIONS,
    RECORD_BYTES_PER_REPLY,
    RECORDS_PER_REQUEST,
    RECORDS_PER_SIZES,
)
from emlio.wire.questions import (
    RANGE_BYTES,
    Absent,
    Answer,
    AskEnergy,
    AskMatches,
    AskRanges,
    AskRecords,
    AskSizes,
    AskTree,
    Energy,
    Matches,
    Question,
    Ranges,
    Records,
    Sizes,
    Subject,
    Told,
    TreePart,
)

__all__ = [
    "RANGE",
    "SHORT_ANSWER_BYTES",
    "MatchesAsked",
    "QuestionsAnswered",
    "QuestionsAsked",
    "answer_bytes",
    "fault_in",
    "misfit",
]

SHORT_ANSWER_BYTES = 128 << 10
"""An answer of at most so many bytes goes before longer ones: a program waits for it, as for a page or a record. It is what
the kernel reads ahead of a file."""

_RECORD_BYTES = 16 << 10
"""A single record is taken to have so many bytes: its size is not known before."""

RANGE = np.dtype([("file", "<u4"), ("length", "<u4"), ("offset", "<u8")])
"""A range of a file, by its number in the tree, as a question for ranges has it."""


def fault_in(about: Subject) -> str | None:
    """Return the rule that a question breaks; None if it breaks none."""
    match about:
        case AskSizes() if about.first < 0 or about.count < 1:
            return (
                f"sizes must be requested for at least 1 record from 0 on, got {about.count} from record {about.first} of "
                f"{about.shard}"
            )
        case AskRecords() if not 1 <= len(about.records) <= (1 if about.offset else RECORDS_PER_REQUEST):
            return (
                f"records must be requested 1 to {RECORDS_PER_REQUEST} at once, and alone from a byte above 0, got "
                f"{len(about.records)} records from byte {about.offset}"
            )
        case AskEnergy() if not 0 <= about.from_ns <= about.to_ns:
            return (
                f"energy must be requested for a time that ends after it begins, got {about.from_ns} ns to "
                f"{about.to_ns} ns"
            )
        case AskTree() if about.first and not about.tree:
            return f"the entries of a tree must be requested from 0 on before its digest is known, got {about.first}"
        case AskRanges() if len(about.ranges) % RANGE_BYTES or not _lengths(about).all():
            return (
                f"ranges must have {RANGE_BYTES} bytes each and be of at least 1 byte of a file, got "
                f"{len(about.ranges)} bytes"
            )
        case _:
            return None


def answer_bytes(about: Subject) -> int:
    """Return about how many bytes the answer to a question has, if it is one for bytes."""
    match about:
        case AskRanges():
            return int(_lengths(about).sum())
        case AskRecords():
            return RECORD_BYTES_PER_REPLY if about.offset else _RECORD_BYTES * len(about.records)
        case _:
            return 0


def misfit(about: Subject, told: Told) -> str | None:
    """Return the rule that an answer breaks; None if it fits its question."""
    match about, told:
        case AskSizes(), Sizes():
            return _of_sizes(about, told)
        case AskMatches(), Matches():
            if told.first == about.first and told.first + told.size <= told.total:
                return None
            return (
                f"matches must continue at byte {about.first}, got byte {told.first} of {told.total} with "
                f"{told.size} bytes"
            )
        case AskRecords(), Records():
            fault = _of_records(about, told)
            return None if fault is None else f"an answer to a request for {len(about.records)} records must {fault}"
        case AskEnergy(), Energy():
            fault = _of_energy(about, told)
            return None if fault is None else f"an answer with energy must {fault}"
        case AskTree(), TreePart():
            fits = (
                about.tree in (b"", told.tree) and told.first == about.first and told.first + told.count <= told.total
            )
            return None if fits else f"a tree must continue at entry {about.first}, got {told.first} of {told.total}"
        case AskRanges(), Ranges():
            fault = _of_ranges(about, told)
            return None if fault is None else f"an answer to a request for ranges must {fault}"
        case AskRecords() | AskEnergy() | AskTree() | AskRanges(), Absent():
            return None
        case _:
            asked, got = (type(one).__struct_config__.tag for one in (about, told))
            return f"a question for {asked} must be answered with {asked}, got {got}"


def _of_sizes(about: AskSizes, told: Sizes) -> str | None:
    most = 4 * min(about.count, RECORDS_PER_SIZES)
    if len(told.sizes) % 4 == 0 and len(told.sizes) <= most:
        return None
    return (
        f"sizes of {about.count} records from record {about.first} of {about.shard!r} on must have 4 bytes each and "
        f"at most {most} bytes, got {len(told.sizes)}"
    )


def _of_records(about: AskRecords, told: Records) -> str | None:
    sizes: list[int] = np.frombuffer(told.sizes[: len(told.sizes) // 4 * 4], "<u4").tolist()
    if len(told.sizes) % 4 or not 1 <= len(sizes) <= len(about.records):
        return f"have sizes of 4 bytes each for 1 record or more, and no others, got {len(told.sizes)} bytes"
    if told.crcs and len(told.crcs) != len(told.sizes):
        return f"have as many checksums as sizes or none, got {len(told.crcs)} bytes for {len(told.sizes)}"
    got = len(told.payload)
    if len(sizes) == 1:
        left = sizes[0] - about.offset
        # A part must bring something, or the rest would be requested for ever.
        if 0 < got <= left or got == left:
            return None
        return f"hold 1 to {left} bytes of the rest of its record, got {got}"
    if got != sum(sizes):
        return f"hold its {len(sizes)} records of {sum(sizes)} bytes, got {got}"
    return None


def _lengths(about: AskRanges) -> npt.NDArray[np.int64]:
    """Return the length of each range."""
    return np.frombuffer(about.ranges[: len(about.ranges) // RANGE_BYTES * RANGE_BYTES], RANGE)["length"].astype(
        np.int64
    )


def _of_ranges(about: AskRanges, told: Ranges) -> str | None:
    ends = np.cumsum(_lengths(about))
    count, got = len(told.crcs) // 4, len(told.payload)
    if len(told.crcs) % 4 or not 1 <= count <= len(ends):
        return f"have checksums of 4 bytes each for 1 to {len(ends)} ranges, got {len(told.crcs)} bytes"
    least = int(ends[count - 2]) if count > 1 else 0
    most = int(ends[count - 1])
    if not least < got <= most:
        return f"hold {least + 1} to {most} bytes for {count} ranges, got {got}"
    # It may end inside a range only where it is full, or a range would be requested in ever smaller parts.
    return None if got == most or got >= RECORD_BYTES_PER_REPLY else f"hold {most} bytes of {count} ranges, got {got}"


def _of_energy(about: AskEnergy, told: Energy) -> str | None:
    if about.recording and told.recording != about.recording:
        return f"continue recording {about.recording}, got recording {told.recording}"
    if told.more and not told.readings:
        return "have readings if it is incomplete, got none"
    for row in told.readings:
        if len(row.totals) != len(told.devices) or len(row.events) not in (0, len(told.devices)):
            return f"have a total for each of {len(told.devices)} devices, got {len(row.totals)} in {row.seq}"
        if row.seq < about.first:
            return f"begin at reading {about.first}, got {row.seq}"
    for before, after in pairwise(told.readings):
        if after.seq <= before.seq or after.mono_ns <= before.mono_ns:
            return f"have its readings in order of time, got {after.seq} after {before.seq}"
    return None


class QuestionsAsked:
    """The open questions of a rank to one daemon."""

    def __init__(self) -> None:
        self._open: dict[int, Subject] = {}
        self._ranges = 0  # of them, those for ranges
        self._next = 0

    def takes_more(self, kind: type[Subject]) -> bool:
        """Return whether another question may be sent; a question for matches always may."""
        if kind is AskRanges:
            return self._ranges < MOST_RANGE_QUESTIONS
        return kind is AskMatches or len(self._open) - self._ranges < MOST_QUESTIONS - 1

    def ask(self, session: int, about: Subject) -> Question:
        """Return the message of a new question.

        Raises:
            LocalProtocolError: it is not valid, or too many are open.
        """
        fault = fault_in(about)
        if fault is not None:
            raise LocalProtocolError(fault)
        if not self.takes_more(type(about)):
            raise LocalProtocolError(
                f"at most {MOST_QUESTIONS} questions may be open, of which one is for matches, and "
                f"{MOST_RANGE_QUESTIONS} for ranges"
            )
        number, self._next = self._next, self._next + 1
        self._open[number] = about
        self._ranges += isinstance(about, AskRanges)
        return Question(session=session, number=number, about=about)

    def answered(self, session: int, answer: Answer) -> AnswerCame:
        """Return the answer, which must fit an open question."""
        about = self._open.pop(answer.number, None)
        if about is None:
            raise RemoteProtocolError(f"question {answer.number} must be open to be answered, it is not")
        self._ranges -= isinstance(about, AskRanges)
        fault = misfit(about, answer.told)
        if fault is not None:
            raise RemoteProtocolError(fault)
        return AnswerCame(session=session, number=answer.number, about=about, told=answer.told)


class QuestionsAnswered:
    """The open questions of a rank, as its daemon sees them."""

    def __init__(self) -> None:
        self._open: dict[int, Subject] = {}

    def ask(self, question: Question) -> None:
        """Note a question.

        Raises:
            RemoteProtocolError: it is not valid, or too many are open.
        """
        fault = fault_in(question.about)
        if fault is not None:
            raise RemoteProtocolError(fault)
        for_ranges = isinstance(question.about, AskRanges)
        alike = sum(isinstance(one, AskRanges) is for_ranges for one in self._open.values())
        most, what = (MOST_RANGE_QUESTIONS, " for ranges") if for_ranges else (MOST_QUESTIONS, "")
        if question.number in self._open or alike >= most:
            raise RemoteProtocolError(
                f"questions must have different numbers and at most {most}{what} may be open, got question "
                f"{question.number} while {sorted(self._open)} are open"
            )
        if isinstance(question.about, AskMatches) and any(isinstance(one, AskMatches) for one in self._open.values()):
            raise RemoteProtocolError("matches must not be requested before the last request was answered")
        self._open[question.number] = question.about

    def answered(self, number: int) -> bool:
        """Note that a question is answered; return False if it is not open."""
        return self._open.pop(number, None) is not None


class MatchesAsked:
    """A rank's question for the records that match a predicate, and the parts of the answer."""

    def __init__(self) -> None:
        """Begin without a question."""
        self._total = 0
        self._size = 0
        self._parts: list[bytes] = []
        self.is_open = False

    def ask(self, predicate: str, rows: Sequence[ShardRow], *, digests: bool) -> AskMatches | None:
        """Return the question for the first part; None if there are no records."""
        if self.is_open:
            raise LocalProtocolError("matches must not be requested before the last request was answered")
        self._total = MATCH_DIGEST_BYTES * len(rows) if digests else -(-sum(row.records for row in rows) // 8)
        self._size, self._parts = 0, []
        self.is_open = bool(self._total)
        return AskMatches(predicate=predicate, digests=digests or UNSET) if self._total else None

    def take(self, about: AskMatches, part: Matches) -> AskMatches | bytes:
        """Take a part; return the question for the next one, or the whole."""
        if part.total != self._total:
            raise RemoteProtocolError(f"matches must have {self._total} bytes, got {part.total}")
        self._parts.append(unpack(part.data, part.size))
        self._size += part.size
        if self._size < self._total:
            return replace(about, first=self._size)
        self.is_open = False
        told, self._parts = b"".join(self._parts), []
        return told
