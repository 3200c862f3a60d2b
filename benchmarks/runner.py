"""The order of measuring.

These machines are shared and their speed wanders, so figures taken minutes apart say little about each other. Subjects take
turns: all of them once, then all of them again, beginning with another one each time. Ratios are taken within a round.

Covers: the turns. Does not cover: a single sample (the subjects), ratios (emlio.benchmarks.report).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from emlio.benchmarks.results import Sample
from emlio.benchmarks.scenario import Scenario, Window
from emlio.benchmarks.subject import Subject
from emlio.errors import ConfigError

__all__ = ["rotated", "run_rounds"]


def rotated(subjects: Sequence[Subject], round_number: int) -> list[Subject]:
    """The subjects in the order of one round: none always comes first, or always after the same warmed-up machine."""
    turn = round_number % len(subjects)
    return [*subjects[turn:], *subjects[:turn]]


def run_rounds(
    scenario: Scenario,
    directory: Path,
    subjects: Sequence[Subject],
    *,
    rounds: int,
    window: Window,
) -> Iterator[Sample]:
    """Measure one scenario; each sample is handed out when it is taken.

    Args:
        scenario: what is sent.
        directory: its data, in the page cache.
        subjects: who sends it.
        rounds: how often each.
        window: of every sample.
    """
    names = [subject.name for subject in subjects]
    if not names or len(set(names)) != len(names) or rounds < 1:
        raise ConfigError(f"a run must have subjects of different names and a round, got {names} and {rounds} rounds")
    for number in range(rounds):
        for place, subject in enumerate(rotated(subjects, number)):
            yield Sample(
                scenario=scenario.name,
                subject=subject.name,
                round=number,
                place=place,
                measured=subject.measure(scenario, directory, window),
            )
