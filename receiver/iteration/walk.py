"""A loader's walk through the epochs: its position, the pass in progress, and where records flow.

A signal handler may raise in the user's thread in any call. So what belongs together changes
together, between calls: Python handles signals where a call ends, not between assignments.

Covers: beginning, continuing, leaving and ending passes; epochs and states that the user sets. Does
not cover: counting the batches of a pass (emlio.receiver.iteration.epoch_pass), receiving.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Protocol

from emlio.errors import ClosedError, ConfigError
from emlio.progress import Progress
from emlio.receiver.batches.prefetch import MadeBatch
from emlio.receiver.iteration.epoch_pass import Handed, Iteration
from emlio.receiver.iteration.position import UserPosition, moved
from emlio.receiver.iteration.tally import Tally
from emlio.receiver.records.bad_records import BadRecordPolicy
from emlio.receiver.setup.config import LoaderConfig
from emlio.receiver.timing.observers import EpochObserver
from emlio.units import counted

__all__ = ["BatchFlow", "EpochWalk"]

_LOG = logging.getLogger("emlio.receiver")


class BatchFlow(Protocol):
    """The flow of batches to a loader."""

    def go_to(self, epoch: int, origin: int) -> None:
        """Drop everything on its way, and receive this epoch from `origin` on."""
        ...

    def check_usable(self) -> None:
        """Raise `ClosedError` if the loader is closed, or belongs to another process."""
        ...

    def enter(self, position: UserPosition) -> None:
        """Wait until the batch at this position may be handed out.

        Raises:
            EmlioError: it never may.
        """
        ...

    @property
    def next(self) -> Callable[[Handed, Any], MadeBatch]:
        """Returns the next batch at a position with the user's value; the same one until it is counted."""
        ...


class EpochWalk:
    """The walk of one loader. Used by the user's thread only.

    Attributes:
        position: the user's position.
        tick: called before each batch.
    """

    def __init__(
        self,
        position: UserPosition,
        flow: BatchFlow,
        config: LoaderConfig,
        tally: Tally,
        observer: EpochObserver,
        *,
        progress: bool,
        policy: BadRecordPolicy,
        name: Callable[[int], str] = str,
    ) -> None:
        """Begin at a position.

        Args:
            position: the beginning of the first epoch.
            flow: brings the batches.
            config: the loader's configuration.
            tally: counts the batches handed out.
            observer: told of passes.
            progress: whether each pass shows a progress bar.
            policy: how bad records are handled.
            name: returns the place of a record in words, by its global id.
        """
        self.position = position
        self.tick: Callable[[], None] = lambda: None
        self._flow = flow
        self._config = config
        self._tally = tally
        self._observer = observer
        self._shows_progress = progress
        self._policy = policy
        self._name = name
        self._handed: Handed | None = None  # the pass in progress
        self._flows_at: tuple[int, int] | None = None

    @property
    def remaining(self) -> int:
        """The number of batches left in the current epoch."""
        return self.position.steps - self.position.steps_done

    def begin(self, owner: object = None) -> Iteration:
        """Begin a pass over the next epoch, or the rest of a resumed one. A pass in progress ends.

        Args:
            owner: the loader, which lives as long as the pass.
        """
        if self._handed is not None:
            self._leave()
        epoch = self.position.epoch
        self._config.check_epoch(epoch)
        bar = Progress(f"epoch {epoch}", self.remaining, stream=sys.stderr) if self._shows_progress else None
        observer = self._observer.epoch_begun(epoch, resumes=self.remaining < self.position.whole_steps)
        iteration = Iteration(self.enter, self._flow.next, self.position, self._tally, bar, observer, owner)
        if self._flows_at != self.position.flow:
            self._flows_at = None
            self._flow.go_to(*self.position.flow)
        # Where the flow stands is unknown until the pass ends; then it stands at the next epoch.
        self._flows_at, self._handed = None, iteration.handed
        return iteration

    def enter(self, handed: Handed) -> None:
        """Wait until a pass may have its next batch.

        Raises:
            StopIteration: the epoch is over.
            ClosedError: another pass began, or the loader is closed.
        """
        self.tick()
        self._flow.check_usable()
        if handed is not self._handed:
            raise ClosedError("this iteration ended when another one of the same loader began")
        position = self.position
        if position.at_end:
            self.end()
            following = moved(position, position.epoch + 1)
            flow = following.flow
            self.position, self._flows_at, self._handed = following, flow, None
            handed.ended = True
            raise StopIteration
        self._flow.enter(position)

    def _leave(self) -> None:
        """Give up the rest of the epoch, unless no batch of it was taken yet: the user began anew."""
        self.end()
        position, flows_at = self.position, self._flows_at
        if position.steps_done:
            position = moved(position, position.epoch + 1)
            # A loop that counts batches never asks for the one after the last: the next epoch is on its way then.
            if self.position.at_end:
                flows_at = position.flow
        self.position, self._flows_at, self._handed = position, flows_at, None

    def end(self) -> None:
        """Tell the observer that the pass in progress ends, if there is one, and the user of bad records in it."""
        handed = self._handed
        if handed is not None:
            self._observer.epoch_ended(whole=self.position.at_end)
            self._tell_of_bad(handed)

    def _tell_of_bad(self, handed: Handed) -> None:
        if not handed.bad or handed.told:
            return
        handed.told = True
        fault = handed.fault
        place = "not known" if fault is None else self._name(fault.record)
        _LOG.warning("epoch %d: %s", self.position.epoch, _bad_records(handed, self._policy, place))

    def set_epoch(self, epoch: int) -> None:
        """Begin this epoch with the next pass. If it is the one that comes anyway, a resumed one continues."""
        if self._handed is not None:
            self._leave()
        if epoch != self.position.epoch:
            self.position = moved(self.position, epoch)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        if not self._config.in_order and self._handed is not None and not self._handed.is_prefix:
            raise ConfigError(
                "a position in the middle of an epoch needs in_order=True: later batches were handed out before earlier ones"
            )
        replay = self._config.replay
        return self.position.state() | ({} if replay is None else {"replay": replay})

    def load(self, state: Mapping[str, Any]) -> None:
        """Go to the position of a state."""
        position = copy(self.position)
        position.load(state)
        if "replay" in state:
            raise ConfigError(
                f"a state must be of a loader that trains, got one with replay={state['replay']}: it handed out the same batches "
                "again and again, so the records up to this position were never seen"
            )
        if self._handed is not None:
            self._tell_of_bad(self._handed)
        self.position, self._handed = position, None


def _bad_records(handed: Handed, policy: BadRecordPolicy, place: str) -> str:
    """Return how many records of a pass were bad, and the first of them, which is at `place`."""
    fault, one = handed.fault, handed.bad == 1
    done = "bad"
    if policy.skips:
        done = "left out"
    elif policy.replaces:
        done = f"replaced by {'another record of its batch' if one else 'other records of their batches'}"
    reason = "" if fault is None else f": {fault.reason}"
    advice = "`emlio inspect --verify --decode DIR` lists such records"
    if fault is not None and fault.of_transform:
        advice = f"`loader.get({fault.record})` repeats this error with its traceback"
    are, were = ("is", "was") if one else ("are", "were")
    records = f"{handed.bad:,} of {counted(handed.records, 'record')}"
    return f"{records} {are} bad and {were} {done}. The first is {place}{reason}. {advice}"
