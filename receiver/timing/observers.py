"""The hooks by which work on batches and passes over epochs are observed.

The classes here do nothing; observers override their hooks. Does not cover: the notes for energy
(emlio.receiver.timing.decode_times, emlio.receiver.timing.epoch_notes).
"""

from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

__all__ = ["UNOBSERVED_PASS", "UNOBSERVED_WORK", "EpochObserver", "PassObserver", "WorkObserver"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class WorkObserver:
    """Told when a thread works on batches. Any thread may call it."""

    def begin(self) -> None:
        """The calling thread begins to work."""

    def end(self) -> None:
        """The calling thread pauses or has finished."""

    def observed(self, work: Callable[_P, _T], **about: int) -> Callable[_P, _T]:
        """Return a function that does this work, of which `about` tells, between `begin` and `end`."""
        return work


class PassObserver:
    """Told of the batches of one pass over an epoch; `left` by any thread, the others by the user's."""

    def asked(self, at_ns: int) -> None:
        """The user requests a batch."""

    def handed(self, asked_ns: int, at_ns: int) -> None:
        """The user has the batch."""

    def failed(self) -> None:
        """The user got an error, or the end, instead of a batch."""

    def left(self) -> None:
        """The iteration was dropped."""


UNOBSERVED_WORK: Final = WorkObserver()
UNOBSERVED_PASS: Final = PassObserver()


class EpochObserver:
    """Told of the passes of a loader, in the user's thread."""

    def epoch_begun(self, epoch: int, *, resumes: bool) -> PassObserver:
        """A pass begins; return its observer.

        Args:
            epoch: its epoch.
            resumes: whether it does not begin with the epoch's first batch.
        """
        return UNOBSERVED_PASS

    def epoch_ended(self, *, whole: bool) -> None:
        """The pass ends, if there is one.

        Args:
            whole: whether it reached the epoch's last batch.
        """
