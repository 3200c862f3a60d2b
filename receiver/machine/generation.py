"""The generation of the dataset that a rank reads, and what it says of it to daemons.

Covers: noticing that daemons gave different ones, the hello to those that must give another one, a
daemon that joins later. Does not cover: calling daemons (emlio.receiver.machine.daemon_pool).
"""

from collections.abc import Iterable, Sequence

import msgspec

from emlio.errors import DatasetError
from emlio.receiver.assignment.agreement import Agreement
from emlio.receiver.machine.source import Source
from emlio.wire.control import Hello

__all__ = ["GenerationsRead", "GivenGeneration", "common_generation"]

_NAMED = 8


class GivenGeneration(msgspec.Struct, frozen=True, kw_only=True):
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

    Daemons get a new generation one after the other, so for a while their newest ones differ. A daemon
    gives all ranks of a job the same generation, and names the others that it has. All ranks see the
    same, and must choose the same: the newest generation that every daemon has, and that is not newer
    than what any of them gave.

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


class GenerationsRead:
    """The generations that the rank reads, one of each dataset, as soon as its daemons have answered."""

    def __init__(self, datasets: Sequence[str]) -> None:
        """Know none yet.

        Args:
            datasets: the datasets as the address names them, one unless the loader mixes several.
        """
        self._datasets = datasets
        self._numbers: list[int | None] = [None] * len(datasets)

    def settle(self, sources: Iterable[Source]) -> list[Source]:
        """Choose the generations; return the daemons that gave another one and must be asked again.

        Raises:
            DatasetError: the daemons of a dataset have none in common.
        """
        known = list(sources)
        return [other for part in range(len(self._datasets)) for other in self._settle(part, known)]

    def _settle(self, part: int, sources: list[Source]) -> list[Source]:
        dataset = self._datasets[part]
        gave = {source: given for source in sources if source.peer.part == part and (given := _given(source))}
        number = self._numbers[part] = common_generation(dataset, list(gave.values()))
        others = [source for source, given in gave.items() if given.given != number]
        for source in others:
            if source.asked_generation == number:
                raise DatasetError(
                    f"the daemon at {source.peer} must give generation {number} of {dataset!r}, which it has, it gave "
                    f"{gave[source].given}"
                )
        return others

    def said_in(self, hello: Hello, source: Source, agreement: Agreement | None) -> Hello:
        """Return the hello with the generation that is read, and with what the daemon listed before."""
        number = self._numbers[source.peer.part]
        if number is not None:
            hello = msgspec.structs.replace(hello, generation=number)
            source.asked_generation = number
        if agreement is not None and source.holding is not None:
            held = source.holding.fingerprint(agreement.plan.catalog)
            hello = msgspec.structs.replace(hello, held=held)
        return hello

    def check_joining(self, source: Source) -> None:
        """Check a daemon that answers for the first time after the plan was made.

        Raises:
            DatasetError: it does not have the generation that the job reads.
        """
        given, number = _given(source), self._numbers[source.peer.part]
        if given is not None and number not in (None, given.given):
            raise DatasetError(
                f"the daemon at {source.peer} must have generation {number} of {self._datasets[source.peer.part]!r}, "
                f"which this job reads, it has {', '.join(map(str, given.available))}. Publish that generation there too"
            )


def _given(source: Source) -> GivenGeneration | None:
    """Return the generation that a daemon gave; None if it has not answered, or names none."""
    welcome = source.conversation.welcome
    if welcome is None or welcome.generation is msgspec.UNSET or welcome.generations is msgspec.UNSET:
        return None
    return GivenGeneration(peer=source.peer_name, given=welcome.generation, available=tuple(welcome.generations))
