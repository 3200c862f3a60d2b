"""The questions of other threads to the daemons: records, their sizes, files, clocks, energy.

Covers: passing them to the receive thread. Does not cover: asking (asker.py), the questions for records, files and energy
(record_questions.py, file_questions.py, energy_questions.py).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.clock import Clock
from emlio.clocks.exchange import Exchange
from emlio.clocks.fit import ClockFit, fit_clock
from emlio.energy.job.journal import StorageEnergy
from emlio.errors import EmlioError, PeerLostError
from emlio.planner.mixture.merged import own_name
from emlio.receiver.engine.asker import Asker, OpenQuestion
from emlio.receiver.engine.energy_questions import EnergyQuestion, Stretches, energy_questions
from emlio.receiver.engine.file_questions import RangesQuestion, TreeQuestion
from emlio.receiver.engine.record_questions import SoughtRecord, record_questions
from emlio.receiver.local.shard_reader import LocalShards
from emlio.receiver.machine.daemon_pool import DaemonPool
from emlio.receiver.machine.source import Source
from emlio.receiver.records.sizes import NO_SIZES, RecordSizes
from emlio.receiver.threads.promise import Promise
from emlio.wire.questions import AskSizes, Sizes, Told

__all__ = ["DaemonQuestions", "SizeQuestion"]

_ANSWER_S = 5.0


class SizeQuestion(OpenQuestion):
    """For the sizes of some records, by the daemon that sends their shard.

    Attributes:
        found: the sizes; none if no daemon tells them.
    """

    kind = AskSizes

    def __init__(self, pool: DaemonPool, shard: int, about: AskSizes) -> None:
        """Prepare the question about a shard of the catalog."""
        self._pool = pool
        self._shard = shard
        self._about = about
        self.found = NO_SIZES

    def source(self) -> Source | None:
        """Return the shard's owner."""
        source = self._pool.sources.number(int(self._pool.assignment.owners[self._shard]))
        return source if source is not None and source.is_here else None

    def about(self) -> AskSizes:
        """Return the question."""
        return self._about

    def hear(self, source: Source, told: Told) -> None:
        """Take the sizes."""
        assert isinstance(told, Sizes)  # as the session has checked
        self.found = RecordSizes(offset=told.offset, sizes=np.frombuffer(told.sizes, "<u4").astype(np.int64))
        self.done = True

    def end(self, error: EmlioError) -> None:
        """Leave it at no sizes."""
        self.done = True


class DaemonQuestions:
    """The questions to daemons. Any thread may ask; the receive thread does the rest.

    Attributes:
        local: the shards on this host, by the numbers of their streams.
        asker: asks them; only for the receive thread.
    """

    def __init__(
        self,
        pool: DaemonPool,
        local: Mapping[int, LocalShards],
        clock: Clock,
        call: Callable[[Callable[[], None]], None],
    ) -> None:
        """Begin without questions.

        Args:
            pool: the daemons.
            local: the shards on this host, by the numbers of their streams.
            clock: the receive thread's.
            call: runs a function in the receive thread.
        """
        self.local = local
        self._pool = pool
        self._clock = clock
        self._call = call
        self.asker = Asker(pool, clock)

    # ---- for other threads ----------------------------------------------------------------------------------------

    def sizes(self, shard: int, first: int, count: int) -> Promise:
        """Return a promise of the offset of record `first` of a shard and the sizes from it on.

        At most `count` sizes are returned; none if no daemon can be asked any more.
        """
        promise = Promise()
        self._call(lambda: self._ask_sizes(shard, first, count, promise))
        return promise

    def records(self, sought: Sequence[SoughtRecord]) -> Promise:
        """Return a promise of these records, each filled in; those on this host are only marked.

        The promise is cancelled by a caller that waits no longer.
        """
        promise = Promise()
        self._call(lambda: self._ask_records(sought, promise))
        return promise

    def tree(self) -> tuple[TreeQuestion, Promise]:
        """Return a question for the tree of the dataset's folder, and a promise that it is answered."""
        question, promise = TreeQuestion(self._pool), Promise()
        self._call(lambda: self.asker.ask([question], promise))
        return question, promise

    def ranges(self, tree: bytes, parts: Iterable[npt.NDArray[np.void]]) -> list[tuple[RangesQuestion, Promise]]:
        """Return questions for ranges of files of a tree, and promises that they are answered; see `RangesQuestion`.

        All are passed on at once: the receive thread is woken once.
        """
        asked = [(RangesQuestion(self._pool, tree, ranges), Promise()) for ranges in parts]
        self._call(lambda: self.asker.ask_each(asked))
        return asked

    def clocks(self) -> dict[str, ClockFit]:
        """Return the daemons' clocks relative to this process's CLOCK_MONOTONIC, by address.

        Daemons whose clocks were never compared are left out.

        Raises:
            PeerLostError: the receive thread does not answer.
        """
        return {name: fit_clock(exchanges) for _, name, exchanges in self._compared()}

    def clocks_by_stream(self) -> dict[int, tuple[str, ClockFit]]:
        """Return the same with the addresses, by the numbers of daemons' streams."""
        return {number: (name, fit_clock(exchanges)) for number, name, exchanges in self._compared()}

    def energy(self, from_ns: int, to_ns: int, timeout_ns: int) -> tuple[StorageEnergy, ...]:
        """Return the energy of the daemons' nodes, each by its own clock, or why it is absent.

        Waits for the answers.

        Args:
            from_ns: by this process's CLOCK_MONOTONIC.
            to_ns: not before `from_ns`. If it is now, recorders take a second or two to have
                written it.
            timeout_ns: daemons that have not answered by then have no energy in the result.

        Raises:
            PeerLostError: the receive thread does not answer.
        """
        stretches = {number: _stretch(fit, from_ns, to_ns) for number, fit in self._fits().items()}
        answer = Promise()
        self._call(lambda: self._ask_energy(stretches, timeout_ns, answer))
        asked: list[EnergyQuestion] = _told(answer, timeout_ns / 1e9 + _ANSWER_S)
        fits = self._fits()  # exchanges made meanwhile make them better
        return tuple(one.energy(fits) for one in asked)

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _ask_sizes(self, shard: int, first: int, count: int, answer: Promise) -> None:
        agreement = self._pool.assignment.agreement
        if agreement is None or self.asker.ended:
            answer.set_result(NO_SIZES)
            return
        name = agreement.plan.catalog.shards[shard].name
        local = self.local.get(int(self._pool.assignment.owners[shard]))
        if local is not None:
            found = local.sizes(name, first, count)
            answer.set_result(NO_SIZES if found is None else found)
            return
        about = AskSizes(shard=own_name(name) if self._pool.mixed else name, first=first, count=count)
        question = SizeQuestion(self._pool, shard, about)
        self.asker.ask([question], answer, lambda: question.found)

    def _ask_records(self, sought: Sequence[SoughtRecord], answer: Promise) -> None:
        if self._pool.assignment.agreement is None or self.asker.ended:
            answer.set_exception(self.asker.error)
        else:
            self.asker.ask(record_questions(self._pool, sought), answer)

    def _ask_energy(self, stretches: Stretches, timeout_ns: int, answer: Promise) -> None:
        questions = energy_questions(self._pool, self._clock, stretches, timeout_ns)
        self.asker.ask(questions, answer, lambda: questions)

    def _fits(self) -> dict[int, ClockFit]:
        return {number: fit_clock(exchanges) for number, _, exchanges in self._compared()}

    def _compared(self) -> list[tuple[int, str, tuple[Exchange, ...]]]:
        """Return the number, address and clock exchanges of each daemon that has any."""
        answer = Promise()
        self._call(lambda: answer.set_result(self._look()))
        compared: list[tuple[int, str, tuple[Exchange, ...]]] = _told(answer, _ANSWER_S)
        return [one for one in compared if one[2]]

    def _look(self) -> list[tuple[int, str, tuple[Exchange, ...]]]:
        clocks = self._pool.sources.clocks()
        return [(number, name, log.exchanges) for number, (name, log) in clocks.items()]


def _told(answer: Promise, timeout_s: float) -> Any:
    try:
        return answer.result(timeout_s)
    except TimeoutError:
        raise PeerLostError(f"the receive thread did not answer within {timeout_s:g} s") from None


def _stretch(clock: ClockFit, from_ns: int, to_ns: int) -> tuple[int, int]:
    """Return the interval by the daemon's clock, widened by the clock's uncertainty."""
    begun_ns = max(clock.theirs_at(from_ns) - clock.error_at(from_ns), 0)
    return begun_ns, max(clock.theirs_at(to_ns) + clock.error_at(to_ns), begun_ns)
