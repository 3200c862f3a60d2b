"""Daemons that are asked questions: real sessions and a real asker, without connections."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np

from emlio.receiver.engine.asker import Asker
from emlio.receiver.machine.daemon_pool import DaemonPool
from emlio.receiver.threads.promise import Promise
from emlio.session.instructions import AnswerCame, RankInstruction, Send
from emlio.session.states import RankState
from emlio.wire.questions import Answer, Question, Subject, Told
from emlio_testing.clock import ManualClock
from emlio_testing.session_states import rank_in

__all__ = ["AskedDaemon", "AskedDaemons"]


class AskedDaemon:
    """A daemon as questions see it; see `Source`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.peer_name = self.peer = f"store{number}:5555"
        self.conversation = rank_in(RankState.STREAMING)
        self.is_here = True

    @property
    def is_heard(self) -> bool:
        return self.is_here

    @property
    def is_agreed(self) -> bool:
        return self.is_here

    def lost(self) -> None:
        """End the session."""
        self.is_here = False

    def come_back(self) -> None:
        """Begin session 8."""
        self.conversation = rank_in(RankState.READY)
        self.conversation.session = 8
        self.is_here = True


class _Sources:
    def __init__(self, count: int) -> None:
        self.all = [AskedDaemon(number) for number in range(count)]

    def __iter__(self) -> Iterator[AskedDaemon]:
        return iter(self.all)

    def number(self, number: int) -> AskedDaemon | None:
        return next((source for source in self.all if source.number == number), None)


class AskedDaemons:
    """Daemons that all hold all shards; daemon s sends shard s, and this host has the shard after theirs. See `DaemonPool`.

    Attributes:
        sent: the questions so far, each with the daemon's number.
    """

    mixed = False

    def __init__(self, count: int = 1, now_ns: int = 0) -> None:
        self.sources = _Sources(count)
        self.local_numbers = {count}
        self.assignment = self.agreement = self
        self.owners = np.arange(count + 1)
        self.sent: list[tuple[int, Question]] = []
        self.clock = ManualClock(now_ns)
        self.asker = Asker(self.pool, self.clock)
        self._answered: set[int] = set()

    @property
    def pool(self) -> DaemonPool:
        """These daemons by the type that product code expects."""
        return cast("DaemonPool", self)

    def holders(self, _: int) -> set[str]:
        """Return the names of all daemons."""
        return {source.peer_name for source in self.sources}

    def carry_out(self, source: AskedDaemon, instructions: list[RankInstruction]) -> None:
        """Note questions, and hand answers to the asker."""
        for instruction in instructions:
            if isinstance(instruction, AnswerCame):
                self.asker.hear(source.number, instruction)
            elif isinstance(instruction, Send) and isinstance(instruction.message, Question):
                self.sent.append((source.number, instruction.message))

    def ask(self, questions: Sequence[Any], found: Callable[[], Any] = lambda: None) -> Promise:
        """Ask, and return the promise of what was found."""
        answer = Promise()
        self.asker.ask(questions, answer, found)
        return answer

    def asked(self) -> list[tuple[int, Subject]]:
        """Return what the questions so far are about."""
        return [(number, question.about) for number, question in self.sent]

    def answer(self, told: Told, at: int = -1) -> None:
        """Answer one of the questions that were sent, the last one by default."""
        number, question = self.sent[at]
        self._answered.add(at % len(self.sent))
        source = self.sources.all[number]
        answer = Answer(number=question.number, told=told)
        self.carry_out(source, source.conversation.receive(answer, self.clock.monotonic_ns()))

    def answer_next(self, told: Told, number: int = 0, *, later: int = 0) -> None:
        """Answer the first open question of a daemon, or a later one; then time passes."""
        session = self.sources.all[number].conversation.session
        unanswered = [at for at in range(len(self.sent)) if at not in self._answered]
        asked = [at for at in unanswered if (self.sent[at][0], self.sent[at][1].session) == (number, session)]
        self.answer(told, asked[later])
        self.asker.tick()

    def advance(self, duration_ns: int) -> None:
        """Let time pass."""
        self.clock.advance(duration_ns)
        self.asker.tick()
