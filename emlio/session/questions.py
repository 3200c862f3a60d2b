"""A session's open questions, on both sides.

Does not cover: when a session may ask (emlio.session.states), what is done with answers.
"""

from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from emlio.errors import LocalProtocolError, RemoteProtocolError
from emlio.session.answers import fault_in, misfit
from emlio.session.contents import unpack
from emlio.session.instructions import AnswerCame
from emlio.wire.control import ShardRow
from emlio.wire.limits import MATCH_DIGEST_BYTES, MOST_QUESTIONS
from emlio.wire.questions import Answer, AskMatches, Matches, Question, Subject

__all__ = ["MatchesAsked", "QuestionsAnswered", "QuestionsAsked"]


class QuestionsAsked:
    """The open questions of a rank to one daemon."""

    def __init__(self) -> None:
        self._open: dict[int, Subject] = {}
        self._next = 0

    @property
    def takes_more(self) -> bool:
        """Return whether another question may be sent; a question for matches always may."""
        return len(self._open) < MOST_QUESTIONS - 1

    def ask(self, session: int, about: Subject) -> Question:
        """Return the message of a new question.

        Raises:
            LocalProtocolError: it is not valid, or too many are open.
        """
        fault = fault_in(about)
        if fault is not None:
            raise LocalProtocolError(fault)
        if not self.takes_more and not isinstance(about, AskMatches):
            raise LocalProtocolError(f"at most {MOST_QUESTIONS} questions may be open, of which one is for matches")
        number, self._next = self._next, self._next + 1
        self._open[number] = about
        return Question(session=session, number=number, about=about)

    def answered(self, session: int, answer: Answer) -> AnswerCame:
        """Return the answer, which must fit an open question."""
        about = self._open.pop(answer.number, None)
        if about is None:
            raise RemoteProtocolError(f"question {answer.number} must be open to be answered, it is not")
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
        if question.number in self._open or len(self._open) >= MOST_QUESTIONS:
            raise RemoteProtocolError(
                f"questions must have different numbers and at most {MOST_QUESTIONS} may be open, got question "
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
