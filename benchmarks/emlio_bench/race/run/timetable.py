"""The progress of a race and its remaining time."""

import statistics
from collections.abc import Callable

from emlio.units import format_duration
from emlio_bench.harness.contest import Contest
from emlio_bench.harness.results import Run
from emlio_bench.race.quantity import Quantity

__all__ = ["Timetable"]


class Timetable:
    """The timetable of one race. Used by one thread."""

    def __init__(self, runs: int, *, clock_ns: Callable[[], int]) -> None:
        """Start the timetable; nothing has run.

        Args:
            runs: number of planned runs.
            clock_ns: returns the time.
        """
        self._left = runs
        self._total = runs
        self._clock_ns = clock_ns
        self._begun_ns = clock_ns()
        self._taken: dict[tuple[str, str], list[int]] = {}

    def add(self, who: tuple[str, str], elapsed_ns: int) -> None:
        """Record a completed run.

        Args:
            who: system and setting of the run.
            elapsed_ns: duration of its consumer.
        """
        self._left -= 1
        self._taken.setdefault(who, []).append(elapsed_ns)

    def leave_out(self) -> None:
        """Record that a planned run is left out."""
        self._left -= 1

    @property
    def left_ns(self) -> int:
        """Estimate of the remaining time.

        It assumes that the remaining runs take as long as the completed ones, with the time between
        them.
        """
        ended = sum(map(len, self._taken.values()))
        if not ended:
            return 0
        passed_ns = self._clock_ns() - self._begun_ns
        typical_ns = statistics.median(one for taken in self._taken.values() for one in taken)
        return round(self._left * min(passed_ns / ended, 4 * typical_ns + 1e9))

    def line(self, contest: Contest, run: Run) -> str:
        """Return the progress line of a completed run."""
        place = f"[{self._total - self._left}/{self._total}"
        place += f", about {format_duration(self.left_ns)} left]" if self._left else "]"
        return f"{place} {contest.name}: {run.subject}, {run.setting}: {_words(run)}"


def _words(run: Run) -> str:
    if run.failure is not None:
        return f"failed: {run.failure.splitlines()[0]}"
    seconds, bits = run.values.get(Quantity.FIRST_EPOCH), run.values.get(Quantity.BIT_RATE)
    rate = "" if bits is None else f"{bits.value / 1e9:.2f} Gbit/s{' at most' if bits.beyond else ''}"
    if seconds is None:
        return rate
    if seconds.beyond:
        return f"cut after {seconds.value:.1f} s with {run.value(Quantity.RECORDS):,.0f} records read, {rate}"
    return f"{seconds.value:.2f} s, {rate}"
