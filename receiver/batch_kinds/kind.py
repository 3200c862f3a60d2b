"""The contract that all kinds of batches fulfil.

Covers: the contract. Does not cover: choosing the kind (emlio.receiver.batch_kinds.choose).
"""

from typing import Protocol, TypeVar

from emlio.planner.plan import Plan
from emlio.receiver.batches.makers import Maker
from emlio.receiver.batches.patience import PatientBatches
from emlio.receiver.batches.prefetch import MadeBatch
from emlio.receiver.iteration.epoch_pass import Handed
from emlio.receiver.iteration.position import UserPosition
from emlio.receiver.records.mixture import KnownContents
from emlio.receiver.records.sizes import Ask

__all__ = ["BatchKind"]

_P = TypeVar("_P", bound=UserPosition)


class BatchKind(Protocol[_P]):
    """Makes the batches of a loader and finishes each one when the user takes it.

    Except for `maker`, which its owner closes, and `close`, it is used by the user's thread only.
    """

    @property
    def maker(self) -> Maker:
        """Makes batches from complete ones."""
        ...

    @property
    def waited_ns(self) -> int:
        """Time that the user's thread spent waiting for batches whose records were here."""
        ...

    def know(self, contents: KnownContents) -> None:
        """Learn what the dataset holds, once and before anything is made.

        Raises:
            ConfigError: the options do not fit it.
            DatasetError: its format is not known here.
        """
        ...

    def position(self, plan: Plan, ask: Ask) -> _P:
        """Return the beginning of the plan's first epoch; `ask` returns the sizes of records."""
        ...

    def next(self, batches: PatientBatches, handed: Handed, position: _P) -> MadeBatch:
        """Return the next batch with the user's value; the same one until it is counted.

        Args:
            batches: the batches that were made.
            handed: keeps the batch until it is counted.
            position: the user's position.
        """
        ...

    def drop(self) -> None:
        """Drop the work in progress."""
        ...

    def close(self) -> None:
        """Free what is not the maker's. A second call does nothing."""
        ...
