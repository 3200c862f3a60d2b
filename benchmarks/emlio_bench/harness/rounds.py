"""The order of measurements.

The machines are shared and their speed varies, so figures taken minutes apart cannot be compared.
Subjects therefore take turns: each is measured once in a round, and each round begins with another
subject. Ratios are taken within a round.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from emlio.errors import ConfigError
from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.results import Run, run_of
from emlio_bench.harness.scenario import Scenario, Window

__all__ = ["Subject", "rotated", "run_rounds"]


class Subject(Protocol):
    """One way to carry bytes from one process to another."""

    @property
    def name(self) -> str:
        """A short stable name for results."""
        ...

    def measure(self, scenario: Scenario, directory: Path, window: Window) -> Measurement:
        """Take one sample: start a sending and a receiving process, and end both before returning.

        Args:
            scenario: the scenario.
            directory: the dataset, in the page cache.
            window: the window of the sample.

        Raises:
            TransportError: a process failed or stayed silent for too long.
        """
        ...


_Turn = TypeVar("_Turn")


def rotated(subjects: Sequence[_Turn], round_number: int) -> list[_Turn]:
    """Return the subjects in the order of one round.

    The order rotates, so that no subject always comes first.
    """
    turn = round_number % max(len(subjects), 1)
    return [*subjects[turn:], *subjects[:turn]]


def run_rounds(
    scenario: Scenario,
    directory: Path,
    subjects: Sequence[Subject],
    *,
    rounds: int,
    window: Window,
) -> Iterator[Run]:
    """Measure one scenario, and yield each sample as soon as it is taken.

    Args:
        scenario: the scenario.
        directory: its dataset, in the page cache.
        subjects: the subjects to measure.
        rounds: the number of samples of each subject.
        window: the window of every sample.
    """
    names = [subject.name for subject in subjects]
    if not names or len(set(names)) != len(names) or rounds < 1:
        raise ConfigError(f"a run must have subjects of different names and a round, got {names} and {rounds} rounds")
    for number in range(rounds):
        for place, subject in enumerate(rotated(subjects, number)):
            measured = subject.measure(scenario, directory, window)
            yield run_of(scenario.name, subject.name, number, place, measured)
