"""The generation of a dataset that a job reads, when its daemons do not give the same one.

Daemons get a new generation one after the other, so for a while their newest ones differ. A daemon
gives all ranks of a job the same generation, and names the others that it has. All ranks see the
same, and must choose the same: the newest generation that every daemon has, and that is not newer
than what any of them gave.

Covers: that choice. Pure. Does not cover: what a daemon gives (emlio.daemon.datasets.generations),
asking for another generation (emlio.receiver.machine.generation).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from emlio.errors import DatasetError

__all__ = ["GivenGeneration", "common_generation"]

_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenGeneration:
    """The answer of one daemon.

    Attributes:
        peer: the daemon.
        given: the generation that it gave.
        available: all that it has.
    """

    peer: str
    given: int
    available: tuple[int, ...]


def common_generation(dataset: str, answers: Sequence[GivenGeneration]) -> int | None:
    """Return the generation to read; None if no daemon names any.

    Args:
        dataset: the dataset's name, for the error.
        answers: those of all daemons that name generations.

    Raises:
        DatasetError: there is none that all daemons have.
    """
    if not answers:
        return None
    given = {answer.given for answer in answers}
    if len(given) == 1:
        return given.pop()
    oldest = min(given)
    usable = {generation for generation in (answers[0].given, *answers[0].available) if generation <= oldest}
    for answer in answers[1:]:
        usable &= {answer.given, *answer.available}
    if not usable:
        has = ", ".join(
            f"{answer.peer} has {', '.join(map(str, sorted({answer.given, *answer.available})[-_NAMED:]))}"
            for answer in answers
        )
        raise DatasetError(
            f"all daemons must have one generation of {dataset!r} in common: {has}. Publish the same generation at "
            "each of them, or name daemons that have it"
        )
    return max(usable)
