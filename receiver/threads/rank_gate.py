"""The gate between a loader's user and its batches, which daemons close where ranks differ.

The user's thread passes it for each batch; the receive thread reads from it where the user is, and
keeps the limit that daemons give.
"""

import logging
import time
from collections.abc import Callable
from typing import Protocol

from msgspec import UNSET, UnsetType

from emlio.errors import ClosedError, EmlioError
from emlio.receiver.threads.bell import Bell
from emlio.wire.control import Limit, Place

__all__ = ["RankGate", "Walker"]

_LOG = logging.getLogger("emlio.receiver")
_NOTHING = Limit(0, 0, 0)
_SAID_AFTER_S = 1.0


class Walker(Protocol):
    """A position of the user, see `emlio.receiver.iteration.position`.

    Attributes:
        steps_done: batches of the current pass that were handed out.
    """

    steps_done: int

    @property
    def epoch(self) -> int:
        """The current epoch, or the next one."""
        ...

    @property
    def few(self) -> int:
        """The number of batches that are no more than a look: a quarter of the epoch at most."""
        ...

    @property
    def at_end(self) -> bool:
        """Return whether all batches of the epoch were handed out."""
        ...

    @property
    def is_fixed(self) -> bool:
        """Return whether all epochs have the same batches."""
        ...

    def reach(self, steps: int) -> int:
        """Return the samples consumed, over all ranks, after so many batches of this pass. Any thread may ask."""
        ...


class RankGate:
    """See the module.

    Attributes:
        tell: has the daemons told where the user is, soon.
    """

    def __init__(self, tell: Callable[[], None] = lambda: None, *, compared: bool = True, name: str = "") -> None:
        """Begin open, with a user who has not come yet. Where ranks are not `compared` it stays so.

        `name` is the loader in words.
        """
        self._name = name
        self.tell = tell
        self._compared = compared
        self._pass: tuple[Walker, int] | None = None  # with its `few`
        self._left: tuple[int, int] | None = None
        self._read = self._asks = self._moved = self._closed = self._untold = False
        self._limit: Limit | None = None
        self._error: EmlioError | None = None
        self._bell = Bell()

    def place(self) -> Place | UnsetType:
        """Return where the user is, if it has asked for a batch."""
        if self._pass is None:
            return UNSET
        walker, few = self._pass
        done = walker.steps_done
        self._read = self._read or done >= few
        return Place(walker.epoch, walker.reach(0), walker.reach(done), self._read, self._asks, self._moved, self._left)

    def keep(self, limit: Limit | None, is_known: bool = True) -> None:
        """Let the user go as far as this from now on; no limit counts once daemons know where it is."""
        if limit is None and (self._untold or not is_known):
            return
        self._limit = limit
        self._bell.ring()

    def told(self) -> None:
        """Note that daemons are told now where the user is."""
        self._untold = False

    @property
    def differs(self) -> bool:
        """Return whether a daemon refused the loader because it differs from those of other ranks."""
        return getattr(self._error, "code", "") == "ranks-differ"

    def fail(self, error: EmlioError) -> None:
        """Let no thread wait any longer, since the receive thread ended with this error."""
        self._error = error
        self._bell.ring()

    def close(self) -> None:
        """Let no thread wait any longer, since the loader is closed."""
        self._closed, self.tell = True, lambda: None  # what it refers to may be freed
        self._bell.ring()

    def wait(self, walker: Walker) -> EmlioError | None:
        """Wait until the next batch of this pass may be handed out; return an error where it never may."""
        said_at_s: float | None = None
        while not self.opens(walker):
            if self._error is not None:
                return self._error
            if self._closed:
                raise ClosedError("the loader was closed while it waited for other ranks")
            now_s = time.monotonic()
            if said_at_s is None:
                said_at_s = now_s + _SAID_AFTER_S
            elif now_s >= said_at_s:
                said_at_s = float("inf")
                _LOG.warning("%s", self._in_words())
            self._bell.wait(said_at_s - now_s)
        return None

    def _in_words(self) -> str:
        """Return what the user waits for."""
        limit = self._limit
        if self._untold or limit is None:
            return f"{self._name} waits for the daemon's answer before its first batch"
        if limit == _NOTHING:
            return (
                f"{self._name} waits: another rank uses a loader with other options, or began elsewhere. It goes on once "
                "that rank makes the same loader or ends its own, and fails otherwise"
            )
        return (
            f"{self._name} waits: another rank left such a loader, or this epoch, at sample {limit.reach:,} of epoch "
            f"{limit.epoch} for another one. Have all ranks change at the same step"
        )

    def opens(self, walker: Walker) -> bool:
        """Return whether the next batch of this pass may be handed out now; if not, daemons are told that it is wanted."""
        if not self._compared:
            return True
        if self._pass is None or self._pass[0] is not walker:
            self._begin(walker)
        elif not self._read and walker.steps_done >= self._pass[1]:
            self._read = True
            self.tell()
        limit = self._limit
        if self.differs:
            return False  # whatever is here already
        if limit is None or self._allows(walker, limit):
            self._asks = False
            return True
        if not self._asks:
            self._asks = True
            self.tell()
        return False

    def _begin(self, walker: Walker) -> None:
        before = self._pass
        goes_on = before is not None and (walker.epoch, walker.reach(0)) == (before[0].epoch + 1, 0)
        if not goes_on:
            self._untold, self._limit = True, _NOTHING  # until daemons have said that other ranks are there, too
        if before is not None:
            self._read = self._read or before[0].steps_done >= before[1]
            self._moved = self._moved or not (goes_on or self._read)
            self._leave(before[0], walker)
        self._pass = walker, walker.few
        self.tell()

    def _leave(self, before: Walker, walker: Walker) -> None:
        """Note whether the pass before was left for another epoch, whose records are others."""
        if before.epoch != walker.epoch and not before.at_end and not walker.is_fixed:
            self._left = before.epoch, before.reach(before.steps_done)
        elif self._left is not None and self._left[0] == walker.epoch:
            self._left = None

    def _allows(self, walker: Walker, limit: Limit) -> bool:
        few = self._pass[1] if self._pass is not None else 0
        steps, epoch = min(limit.steps, few), walker.epoch
        beyond = walker.steps_done + 1 - steps
        if epoch == limit.epoch:
            return beyond <= 0 or walker.reach(beyond) <= limit.reach
        return epoch < limit.epoch or beyond <= 0
