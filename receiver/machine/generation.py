"""The generation of the dataset that a rank reads, and what it says of it to daemons.

Covers: noticing that daemons gave different ones, the hello to those that must give another one, a
daemon that joins later. Does not cover: the choice (emlio.receiver.assignment.generations), calling
daemons (emlio.receiver.machine.daemon_pool).
"""

from collections.abc import Iterable, Sequence

import msgspec

from emlio.errors import DatasetError
from emlio.receiver.assignment.agreement import Agreement
from emlio.receiver.assignment.generations import GivenGeneration, common_generation
from emlio.receiver.machine.source import Source
from emlio.wire.control import Hello

__all__ = ["GenerationRead", "GenerationsRead"]


class GenerationsRead:
    """The generations that the rank reads, one of each dataset."""

    def __init__(self, datasets: Sequence[str]) -> None:
        """Know none yet.

        Args:
            datasets: the datasets as the address names them, one unless the loader mixes several.
        """
        self._each = [GenerationRead(dataset) for dataset in datasets]

    def settle(self, sources: Iterable[Source]) -> list[Source]:
        """Choose the generations; return the daemons that gave another one and must be asked again.

        Raises:
            DatasetError: the daemons of a dataset have none in common.
        """
        known = list(sources)
        return [
            other
            for part, one in enumerate(self._each)
            for other in one.settle(source for source in known if source.peer.part == part)
        ]

    def said_in(self, hello: Hello, source: Source, agreement: Agreement | None) -> Hello:
        """Return the hello with the generation that is read, and with what the daemon listed before."""
        return self._each[source.peer.part].said_in(hello, source, agreement)

    def check_joining(self, source: Source) -> None:
        """Check a daemon that answers for the first time after the plan was made.

        Raises:
            DatasetError: it does not have the generation that the job reads.
        """
        self._each[source.peer.part].check_joining(source)


class GenerationRead:
    """The generation of one dataset, as soon as its daemons have answered. See `GenerationsRead`."""

    def __init__(self, dataset: str) -> None:
        self._dataset = dataset
        self._number: int | None = None

    def settle(self, sources: Iterable[Source]) -> list[Source]:
        """See `GenerationsRead`."""
        gave = {source: given for source in sources if (given := _given(source)) is not None}
        self._number = common_generation(self._dataset, list(gave.values()))
        others = [source for source, given in gave.items() if given.given != self._number]
        for source in others:
            if source.asked_generation == self._number:
                raise DatasetError(
                    f"the daemon at {source.peer} must give generation {self._number} of {self._dataset!r}, which it "
                    f"has, it gave {gave[source].given}"
                )
        return others

    def said_in(self, hello: Hello, source: Source, agreement: Agreement | None) -> Hello:
        """See `GenerationsRead`."""
        if self._number is not None:
            hello = msgspec.structs.replace(hello, generation=self._number)
            source.asked_generation = self._number
        if agreement is not None and source.holding is not None:
            held = source.holding.fingerprint(agreement.plan.catalog)
            hello = msgspec.structs.replace(hello, held=held)
        return hello

    def check_joining(self, source: Source) -> None:
        """See `GenerationsRead`."""
        given = _given(source)
        if given is not None and self._number not in (None, given.given):
            raise DatasetError(
                f"the daemon at {source.peer} must have generation {self._number} of {self._dataset!r}, which this job "
                f"reads, it has {', '.join(map(str, given.available))}. Publish that generation there too"
            )


def _given(source: Source) -> GivenGeneration | None:
    """Return the generation that a daemon gave; None if it has not answered, or names none."""
    welcome = source.conversation.welcome
    if welcome is None or welcome.generation is msgspec.UNSET or welcome.generations is msgspec.UNSET:
        return None
    return GivenGeneration(peer=source.peer_name, given=welcome.generation, available=tuple(welcome.generations))
