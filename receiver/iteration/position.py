"""The user's position: the epoch, and how many of its batches were handed out.

Covers: counting, moving, the state that a checkpoint keeps. Pure. Does not cover: read-ahead, which
a position does not include.
"""

from collections.abc import Mapping
from copy import copy
from typing import Any, Protocol, TypeVar

from emlio.planner.plan import EpochPlan, Plan
from emlio.planner.sampling import sampling_mark
from emlio.planner.state import PlanState
from emlio.receiver.threads.rank_gate import Walker
from emlio.session.terms import STEPS_AHEAD

__all__ = ["Position", "UserPosition", "moved"]


class UserPosition(Walker, Protocol):
    """A position in the epochs of a plan."""

    @property
    def flow(self) -> tuple[int, int]:
        """The epoch and origin from which records must be received."""
        ...

    @property
    def steps(self) -> int:
        """The number of batches in the epoch, or in its rest after a resume."""
        ...

    @property
    def whole_steps(self) -> int:
        """The number of batches in a whole epoch."""
        ...

    @property
    def repeated(self) -> int:
        """The number of records handed out a second time in this epoch, over all ranks."""
        ...

    def move_to(self, epoch: int) -> None:
        """Go to the beginning of an epoch."""
        ...

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint: the same on all ranks at the same step."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Go to the position of `state`; a state of another dataset or order is refused."""
        ...


_T = TypeVar("_T", bound=UserPosition)


def moved(position: _T, epoch: int) -> _T:
    """Return a position at the beginning of an epoch; the given one does not change."""
    other = copy(position)
    other.move_to(epoch)
    return other


class Position:
    """A position in the epochs of a plan.

    Attributes:
        epoch: the current epoch, or the next one.
        steps_done: batches of it handed out since `origin`.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.move_to(0)

    def move_to(self, epoch: int, origin: int = 0) -> None:
        """Go to an epoch of which `origin` places, over all ranks, were handed out before."""
        self._epoch_plan: EpochPlan = self._plan.epoch(epoch, origin)
        self.epoch = epoch
        self.steps_done = 0

    @property
    def flow(self) -> tuple[int, int]:
        """The epoch and origin from which records must be received."""
        return self.epoch, self._epoch_plan.origin

    @property
    def steps(self) -> int:
        """The number of batches in the epoch, or in its rest after a resume."""
        return self._epoch_plan.steps

    @property
    def whole_steps(self) -> int:
        """The number of batches in a whole epoch."""
        return self._epoch_plan.steps if not self._epoch_plan.origin else self._plan.epoch(self.epoch).steps

    @property
    def repeated(self) -> int:
        """The number of samples handed out a second time in this epoch, over all ranks."""
        return self._epoch_plan.repeated

    @property
    def at_end(self) -> bool:
        """Return whether all batches of the epoch were handed out."""
        return self.steps_done >= self.steps

    @property
    def few(self) -> int:
        """The number of batches that are no more than a look: a quarter of the epoch at most."""
        return min(STEPS_AHEAD, max(self.whole_steps // 4, 1))

    @property
    def is_fixed(self) -> bool:
        """Return whether all epochs have the same batches."""
        return self._plan.spec.sampling.is_fixed(self._plan.spec.shuffle)

    def reach(self, steps: int) -> int:
        """Return the samples consumed, over all ranks, after so many batches of this pass. Any thread may ask."""
        epoch_plan = self._epoch_plan
        return epoch_plan.consumed(min(steps, epoch_plan.steps))

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint: the same on all ranks at the same step."""
        spec = self._plan.spec
        state = PlanState(
            fingerprint=self._plan.catalog.fingerprint,
            seed=spec.seed,
            shuffle=spec.shuffle,
            sampling=sampling_mark(spec.sampling),
            epoch=self.epoch,
            consumed=self._epoch_plan.consumed(self.steps_done),
        )
        return state.to_json()

    def load(self, state: Mapping[str, Any]) -> None:
        """Go to the position of `state`; a state of another dataset or order is refused."""
        position = PlanState.from_json(state)
        position.check(self._plan)
        self.move_to(position.epoch, position.consumed)
