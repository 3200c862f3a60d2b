"""Batches of tokens, cut from pools of records.

Covers: handing them out. Does not cover: making them (emlio.receiver.tokens.feed).
"""

from emlio.planner.plan import Plan
from emlio.receiver.batch_kinds.destination import Destination
from emlio.receiver.batches.patience import PatientBatches
from emlio.receiver.batches.prefetch import MadeBatch
from emlio.receiver.iteration.epoch_pass import Handed
from emlio.receiver.records.mixture import KnownContents, MixedContents
from emlio.receiver.records.sizes import Ask
from emlio.receiver.tokens.feed import TokenPosition, TokenWork

__all__ = ["TokenKind"]


class TokenKind:
    """Hands out token batches, each made when it is taken. See `BatchKind`.

    Attributes:
        maker: makes the pools.
    """

    waited_ns = 0

    def __init__(self, work: TokenWork, destination: Destination) -> None:
        """Hand out what this makes, at this destination."""
        self.maker = work.maker
        self._work = work
        self._destination = destination

    def know(self, contents: KnownContents) -> None:
        """See `BatchKind`."""
        if isinstance(contents, MixedContents):
            self._work.know(contents.alike("tokens="), contents)
        else:
            self._work.know(contents)

    def position(self, plan: Plan, ask: Ask) -> TokenPosition:
        """Find the lengths of all records. See `BatchKind`."""
        return self._work.begin(plan, ask)

    def next(self, batches: PatientBatches, handed: Handed, position: TokenPosition) -> MadeBatch:
        """See `BatchKind`."""
        return self._destination.brought(self._work.next(batches, position))

    def drop(self) -> None:
        """See `BatchKind`."""
        self._work.drop()

    def close(self) -> None:
        """See `BatchKind`."""
