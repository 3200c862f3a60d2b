"""The questions of other threads to the daemons: records, their sizes, clocks, energy.

Covers: asking the receive thread, its turns with the open questions. Does not cover: the questions
themselves (emlio.receiver.engine.size_questions, emlio.receiver.engine.record_questions,
emlio.receiver.engine.energy_questions).
"""

from collections.abc import Callable, Mapping, Sequence

from emlio.clock import Clock
from emlio.clocks.fit import ClockFit
from emlio.energy.job.journal import StorageEnergy
from emlio.errors import EmlioError
from emlio.receiver.engine.energy_asker import EnergyAsker
from emlio.receiver.engine.energy_questions import EnergyQuestions
from emlio.receiver.engine.record_questions import RecordQuestions, SoughtRecord
from emlio.receiver.engine.size_questions import SizeQuestions
from emlio.receiver.local.shard_reader import LocalShards
from emlio.receiver.machine.daemon_pool import DaemonPool
from emlio.receiver.threads.promise import Promise
from emlio.session.instructions import EnergyCame, RecordsCame, SizesCame

__all__ = ["DaemonQuestions"]


class DaemonQuestions:
    """The questions to daemons. Any thread may ask; the receive thread does the rest.

    Attributes:
        local: the shards on this host, by the numbers of their streams.
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
        self._call = call
        self._sizes = SizeQuestions(pool, local)
        self._energy = EnergyQuestions(pool, clock)
        self._records = RecordQuestions(pool)
        self.local = local
        self._asker = EnergyAsker(pool, self._energy, call)

    # ---- for other threads ----------------------------------------------------------------------------------------

    def sizes(self, shard: int, first: int, count: int) -> Promise:
        """Return a promise of the offset of record `first` of a shard and the sizes from it on.

        At most `count` sizes are returned.
        """
        promise = Promise()
        self._call(lambda: self._sizes.ask(shard, first, count, promise))
        return promise

    def records(self, sought: Sequence[SoughtRecord]) -> Promise:
        """Return a promise of these records, each filled in; those on this host are only marked.

        The promise is cancelled by a caller that waits no longer.
        """
        promise = Promise()
        self._call(lambda: self._records.ask(sought, promise))
        return promise

    def clocks(self) -> dict[str, ClockFit]:
        """Return the daemons' clocks relative to this process's CLOCK_MONOTONIC, by address.

        Daemons whose clocks were never compared are left out.

        Raises:
            PeerLostError: the receive thread does not answer.
        """
        return self._asker.clocks()

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
        return self._asker.ask(from_ns, to_ns, timeout_ns)

    # ---- for the receive thread -----------------------------------------------------------------------------------

    def hear(self, source: int, came: SizesCame | RecordsCame | EnergyCame) -> None:
        """Handle the answer of a daemon."""
        if isinstance(came, SizesCame):
            self._sizes.hear(source, came)
        elif isinstance(came, RecordsCame):
            self._records.hear(source, came.reply)
        else:
            self._energy.hear(source, came)

    def tick(self) -> None:
        """Ask what is due, and again where a daemon was lost."""
        self._sizes.renew()
        self._records.renew()
        self._energy.tick()

    def deadline_ns(self) -> int | None:
        """The latest time at which `tick` must be called."""
        return self._energy.deadline_ns()

    def end(self, error: EmlioError | None = None) -> None:
        """End all questions: no daemon can be asked any more, because of this error if there is one."""
        self._sizes.end()
        self._records.end(error)
        self._energy.end()
