"""Questions of other threads for the daemons' clocks and for what their nodes used.

Covers: asking the receive thread and waiting for it, a stretch of time by each daemon's clock. Does not cover: the receive
thread's part (emlio.receiver.energy_questions).
"""

from collections.abc import Callable
from typing import Any

from emlio.energy.clocks import ClockFit, fit_clock
from emlio.energy.exchange import Exchange
from emlio.errors import PeerLostError
from emlio.receiver.crew import Crew
from emlio.receiver.daemon_energy import DaemonEnergy, Gathered, energy_of
from emlio.receiver.energy_questions import EnergyQuestions
from emlio.receiver.promise import Promise

__all__ = ["EnergyAsker"]

_ANSWER_S = 5.0


class EnergyAsker:
    """Used by any thread."""

    def __init__(self, crew: Crew, questions: EnergyQuestions, call: Callable[[Callable[[], None]], None]) -> None:
        """See the class.

        Args:
            crew: the daemons.
            questions: the receive thread's part.
            call: runs something in the receive thread.
        """
        self._crew = crew
        self._questions = questions
        self._call = call

    def clocks(self) -> dict[str, ClockFit]:
        """See `Engine.clocks`."""
        return {name: fit_clock(exchanges) for _, name, exchanges in self._compared()}

    def ask(self, from_ns: int, to_ns: int, timeout_ns: int) -> tuple[DaemonEnergy, ...]:
        """See `Engine.energy_of_daemons`."""
        stretches = {number: _stretch(fit, from_ns, to_ns) for number, fit in self._fits().items()}
        answer = Promise()
        self._call(lambda: self._questions.ask(stretches, timeout_ns, answer))
        gathered: tuple[Gathered, ...] = _told(answer, timeout_ns / 1e9 + _ANSWER_S)
        fits = self._fits()  # what was exchanged meanwhile makes them better
        return tuple(energy_of(one, fits.get(one.number)) for one in gathered)

    def _fits(self) -> dict[int, ClockFit]:
        return {number: fit_clock(exchanges) for number, _, exchanges in self._compared()}

    def _compared(self) -> list[tuple[int, str, tuple[Exchange, ...]]]:
        """The number, address and exchanges of each daemon that there were any with."""
        answer = Promise()
        self._call(lambda: answer.set_result(self._look()))
        compared: list[tuple[int, str, tuple[Exchange, ...]]] = _told(answer, _ANSWER_S)
        return [one for one in compared if one[2]]

    def _look(self) -> list[tuple[int, str, tuple[Exchange, ...]]]:
        return [(source.number, source.peer_name, source.machine.clocks.exchanges) for source in self._crew.sources]


def _told(answer: Promise, timeout_s: float) -> Any:
    try:
        return answer.result(timeout_s)
    except TimeoutError:
        raise PeerLostError(f"the receive thread must answer within {timeout_s:g} s, it did not") from None


def _stretch(clock: ClockFit, from_ns: int, to_ns: int) -> tuple[int, int]:
    """A stretch by the daemon's clock, longer by as much as that is not known."""
    begun_ns = max(clock.theirs_at(from_ns) - clock.error_at(from_ns), 0)
    return begun_ns, max(clock.theirs_at(to_ns) + clock.error_at(to_ns), begun_ns)
