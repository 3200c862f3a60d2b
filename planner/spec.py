"""The parameters of a plan, besides the dataset.

Covers: the spec and its limits. Does not cover: limits that depend on the dataset (plan.py).
"""

from dataclasses import dataclass, field
from typing import Final

from emlio.errors import ConfigError
from emlio.planner.order import Shuffle
from emlio.planner.sampling import EVERYTHING, Sampling

__all__ = ["PlanSpec"]

_MOST_SAMPLES: Final = 2**40
"""The most samples of one step of all ranks. With more, places would not fit 64 bits with a
margin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpec:
    """The parameters of order, ranks and batches. Both sides of a session have the same spec.

    Attributes:
        seed: the seed of the orders of all epochs, in [0, 2**63).
        shuffle: the shuffle mode.
        batch_size: samples per rank and step.
        world_size: the number of ranks that share the epoch.
        drop_last: whether to leave out the last step if it is not full.
        pad: whether to fill the last step by beginning the order again; not together with
            drop_last.
        sampling: which records an epoch consists of.
    """

    seed: int = 0
    shuffle: Shuffle = field(default_factory=Shuffle)
    batch_size: int
    world_size: int = 1
    drop_last: bool = False
    pad: bool = False
    sampling: Sampling = EVERYTHING

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed must be in [0, 2**63), got {self.seed}")
        if self.batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {self.batch_size}")
        if self.world_size < 1:
            raise ConfigError(f"world_size must be at least 1, got {self.world_size}")
        if self.batch_size * self.world_size > _MOST_SAMPLES:
            raise ConfigError(
                f"batch_size x world_size must be at most 2**40, got {self.batch_size} x {self.world_size}"
            )
        if self.drop_last and self.pad:
            raise ConfigError("drop_last and pad must not both be True: the last step is either dropped or filled")
