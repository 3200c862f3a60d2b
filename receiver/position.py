"""Where the user is: the epoch, and how many of its batches were handed to him.

Covers: counting, going to another place, the state that a checkpoint keeps. Pure. Does not cover: what is read ahead, which
a position does not know.
"""

from collections.abc import Mapping
from copy import copy
from typing import Any, Protocol, TypeVar

from emlio.planner.plan import EpochPlan, Plan
from emlio.planner.state import PlanState

__all__ = ["Position", "moved"]


class _Movable(Protocol):
    def move_to(self, epoch: int) -> None: ...


_T = TypeVar("_T", bound=_Movable)


def moved(position: _T, epoch: int) -> _T:
    """A position at the beginning of an epoch; the one given stays where it is, for as long as it is the user's."""
    other = copy(position)
    other.move_to(epoch)
    return other


class Position:
    """A place in the epochs of a plan.

    Attributes:
        epoch: under way, or the next one.
        steps_done: batches of it handed out since `origin`.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.move_to(0)

    def move_to(self, epoch: int, origin: int = 0) -> None:
        """Go to an epoch, `origin` places of which were handed out before, over all ranks."""
        self._epoch_plan: EpochPlan = self._plan.epoch(epoch, origin)
        self.epoch = epoch
        self.steps_done = 0

    @property
    def flow(self) -> tuple[int, int]:
        """The epoch and origin that records must be received from."""
        return self.epoch, self._epoch_plan.origin

    @property
    def steps(self) -> int:
        """Batches of the epoch, or of its rest after a resume."""
        return self._epoch_plan.steps

    @property
    def whole_steps(self) -> int:
        """Batches of a whole epoch."""
        return self._epoch_plan.steps if not self._epoch_plan.origin else self._plan.epoch(self.epoch).steps

    @property
    def repeated(self) -> int:
        """Samples handed out for the second time in this epoch, over all ranks."""
        return self._epoch_plan.repeated

    @property
    def at_end(self) -> bool:
        """Whether all batches of the epoch were handed out."""
        return self.steps_done >= self.steps

    def step(self) -> None:
        """A batch was handed out."""
        self.steps_done += 1

    def state(self) -> dict[str, Any]:
        """For a checkpoint: the same on all ranks at the same step."""
        spec = self._plan.spec
        state = PlanState(
            fingerprint=self._plan.catalog.fingerprint,
            seed=spec.seed,
            shuffle=spec.shuffle,
            epoch=self.epoch,
            consumed=self._epoch_plan.consumed(self.steps_done),
        )
        return state.to_json()

    def load(self, state: Mapping[str, Any]) -> None:
        """Go to where `state` was made; of another dataset or order it is refused."""
        position = PlanState.from_json(state)
        position.check(self._plan.catalog, self._plan.spec)
        self.move_to(position.epoch, position.consumed)
