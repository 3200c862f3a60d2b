"""The number of records of each figure, so that the slowest baseline ends within the time given.

A loader that waits for each request takes about the same number of round trips for each record,
whatever their length. That number was measured over sshfs for records of 100 kB and of 2 MB, and
lies on a line between.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from emlio.errors import ConfigError
from emlio.units import format_duration
from emlio_bench.paper.figures import HALF_LOCAL, RESNET, VGG, Figure, Task
from emlio_bench.race.records.corpus import CORPORA

__all__ = ["Scale", "expected_ns", "limit_ns", "records_of", "rounds_of", "too_short"]


class Scale(StrEnum):
    """The number of records."""

    TINY = "tiny"
    """Two batches: shows that all works, measures nothing."""
    FIT = "fit"
    """As many as fit into the time given."""
    FULL = "full"
    """As many as the paper's baseline made requests."""


_TINY_BATCHES: Final = 2
_START_NS: Final = 9_000_000_000
"""Imports, the link, and the server of a run."""
_LEAST_NS: Final = 5_000_000
"""A record over a mount without a round trip."""
_DECODE_NS: Final = 3_000_000
"""A record decoded by one thread."""
_LEARN_NS: Final = 5_000_000
"""A picture that a model learns from, with one thread."""
_ROUND_TRIPS: Final[Mapping[str, tuple[float, float]]] = {
    "pytorch-files": (1.1, 2.6),
    "dali-file": (3.2, 1.8),
    "dali-tfrecord": (0.75, 2.0),
}
"""Round trips of a record, and more of them for each megabyte.

sshfs keeps what it knows of a file for 20 seconds, so in a long epoch each file costs a round trip or
two more than in a short one.
"""
_PATIENCE: Final = 4
_LEAST_LIMIT_NS: Final = 60_000_000_000
_FULL: Final = {
    "read": RESNET,
    "decode": RESNET,
    "resnet": RESNET,
    "resnet-long": RESNET,
    "resnet-real": RESNET,
    "vgg": VGG,
    "vgg-long": VGG,
    "vgg-real": VGG,
    "halves": HALF_LOCAL,
}


def records_of(
    figures: Sequence[Figure], rtts_ns: Sequence[int], scale: Scale, *, within_ns: int, rounds: int
) -> dict[Task, int]:
    """Return the records of each task of these figures.

    Args:
        figures: the figures.
        rtts_ns: the round trips.
        scale: how many.
        within_ns: time for all of it, for `Scale.FIT`.
        rounds: rounds of everything.
    """
    wanted = {task: task.fit_records for figure in figures for task in figure.tasks}
    if scale is Scale.TINY:
        return {task: _TINY_BATCHES * task.batch for task in wanted}
    if scale is Scale.FULL:
        return {
            task: round(_FULL[task.name].requests) if task.name in _FULL else records
            for task, records in wanted.items()
        }
    turns = [(task, rtt_ns, rounds_of(task, rounds)) for task in wanted for rtt_ns in task.rtts_ns or rtts_ns]
    runs = sum(len(task.subjects) * times for task, _, times in turns)
    reading_ns = sum(expected_ns(task, wanted[task], rtt_ns) * times for task, rtt_ns, times in turns)
    needed_ns = sum(
        expected_ns(task, task.least_records, rtt_ns) * times for task, rtt_ns, times in turns if task.least_records
    )
    left_ns = within_ns - runs * _START_NS - needed_ns
    if left_ns <= 0:
        fewer = "choose fewer figures by --figure, or give more time" if len(figures) > 1 else "give more time"
        raise ConfigError(
            f"--within must leave time for {runs} runs, which need {format_duration(runs * _START_NS + needed_ns)} at least, got "
            f"{format_duration(within_ns)}; {fewer}"
        )
    part = left_ns / max(reading_ns - needed_ns, 1)
    return {task: _enough(task, int(records * part)) for task, records in wanted.items()}


def too_short(records: Mapping[Task, int], scale: Scale) -> str | None:
    """Return a warning if the time given leaves some tasks no more records than the least, else None.

    Args:
        records: the records of each task, as `records_of` returned them.
        scale: how many were wanted.
    """
    least = [task.name for task, count in records.items() if count == _TINY_BATCHES * task.batch]
    if scale is not Scale.FIT or not least:
        return None
    return (
        f"--within is too short for more than {_TINY_BATCHES} batches of {', '.join(least)}, which measure little and may end "
        "late; give more time, or choose fewer figures or round trips"
    )


def _enough(task: Task, records: int) -> int:
    """Return whole batches of about so many records, within the bounds of the task."""
    if task.most_records:
        records = min(records, task.most_records)
    records = max(records, task.least_records)
    return max(records // task.batch, _TINY_BATCHES) * task.batch


def rounds_of(task: Task, rounds: int) -> int:
    """Return the rounds of a task where so many were asked for."""
    return max(task.rounds, rounds)


def expected_ns(task: Task, records: int, rtt_ns: int) -> int:
    """Return about how long one epoch of all subjects takes."""
    return sum(_epoch_ns(task, subject, records, rtt_ns) for subject, _ in task.subjects)


def limit_ns(task: Task, records: int, rtt_ns: int) -> int:
    """Return the time limit of an epoch, several times what the slowest should take."""
    slowest = max(_epoch_ns(task, subject, records, rtt_ns) for subject, _ in task.subjects)
    return max(_PATIENCE * slowest, _LEAST_LIMIT_NS)


def _epoch_ns(task: Task, subject: str, records: int, rtt_ns: int) -> int:
    step_ns = task.step_ns // task.batch if task.step_ns else 0
    held_ns = max(step_ns, _DECODE_NS if task.decode else 0, _LEARN_NS if task.train else 0)
    if subject in _ROUND_TRIPS:
        each, megabyte = _ROUND_TRIPS[subject]
        trips = each + megabyte * CORPORA[task.corpus] / 1e6
        waits_ns = round(trips * rtt_ns) + _LEAST_NS
        # Half of the shards are not read over the link where they lie on the training host.
        held_ns = max(held_ns, waits_ns // 2 if task.halves else waits_ns)
    return records * held_ns
