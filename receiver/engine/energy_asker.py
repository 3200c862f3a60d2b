"""Questions of other threads for the daemons' clocks and for the energy of their nodes.

Covers: asking the receive thread and waiting for it, translating an interval to each daemon's
clock. Does not cover: the receive thread's part (emlio.receiver.engine.energy_questions).
"""

from collections.abc import Callable
from typing import Any

from emlio.clocks.exchange import Exchange
from emlio.clocks.fit import ClockFit, fit_clock
from emlio.energy.job.journal import StorageEnergy
from emlio.errors import PeerLostError
from emlio.receiver.engine.daemon_energy import Gathered, energy_of
from emlio.receiver.engine.energy_questions import EnergyQuestions
from emlio.receiver.machine.daemon_pool import DaemonPool
from emlio.receiver.threads.promise import Promise

__all__ = ["EnergyAsker"]

_ANSWER_S = 5.0


class EnergyAsker:
    """Asks the receive thread. Thread-safe."""

    def __init__(
        self, pool: DaemonPool, questions: EnergyQuestions, call: Callable[[Callable[[], None]], None]
    ) -> None:
        """Prepare for questions.

        Args:
            pool: the daemons.
            questions: the receive thread's part.
            call: runs a function in the receive thread.
        """
        self._pool = pool
        self._questions = questions
        self._call = call

    def clocks(self) -> dict[str, ClockFit]:
        """See `DaemonQuestions`."""
        return {name: fit_clock(exchanges) for _, name, exchanges in self._compared()}

    def ask(self, from_ns: int, to_ns: int, timeout_ns: int) -> tuple[StorageEnergy, ...]:
        """See `DaemonQuestions.energy`."""
        stretches = {number: _stretch(fit, from_ns, to_ns) for number, fit in self._fits().items()}
        answer = Promise()
        self._call(lambda: self._questions.ask(stretches, timeout_ns, answer))
        gathered: tuple[Gathered, ...] = _told(answer, timeout_ns / 1e9 + _ANSWER_S)
        fits = self._fits()  # exchanges made meanwhile make them better
        return tuple(energy_of(one, fits.get(one.number)) for one in gathered)

    def _fits(self) -> dict[int, ClockFit]:
        return {number: fit_clock(exchanges) for number, _, exchanges in self._compared()}

    def _compared(self) -> list[tuple[int, str, tuple[Exchange, ...]]]:
        """Return the number, address and clock exchanges of each daemon that has any."""
        answer = Promise()
        self._call(lambda: answer.set_result(self._look()))
        compared: list[tuple[int, str, tuple[Exchange, ...]]] = _told(answer, _ANSWER_S)
        return [one for one in compared if one[2]]

    def _look(self) -> list[tuple[int, str, tuple[Exchange, ...]]]:
        return [
            (source.number, source.peer_name, source.conversation.clocks.exchanges) for source in self._pool.sources
        ]


def _told(answer: Promise, timeout_s: float) -> Any:
    try:
        return answer.result(timeout_s)
    except TimeoutError:
        raise PeerLostError(f"the receive thread did not answer within {timeout_s:g} s") from None


def _stretch(clock: ClockFit, from_ns: int, to_ns: int) -> tuple[int, int]:
    """Return the interval by the daemon's clock, widened by the clock's uncertainty."""
    begun_ns = max(clock.theirs_at(from_ns) - clock.error_at(from_ns), 0)
    return begun_ns, max(clock.theirs_at(to_ns) + clock.error_at(to_ns), begun_ns)
