"""The configuration of one loader.

Covers: the frozen options, checked. Does not cover: reading the environment
(emlio.receiver.setup.world), the plan's own limits (emlio.planner).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from emlio.arguments import as_whole, flag, instance, whole
from emlio.errors import ConfigError
from emlio.planner.order import Shuffle
from emlio.planner.sampling import EVERYTHING, Sampling
from emlio.planner.spec import PlanSpec
from emlio.receiver.addresses.address import Address
from emlio.receiver.addresses.trust import Trust
from emlio.receiver.setup.recovery import Recovery
from emlio.receiver.tuning.choice import TuneChoice
from emlio.receiver.tuning.tuning import BOUNDS, LARGEST_WINDOW_BYTES, SMALLEST_AUTO_BYTES, Tuning
from emlio.units import SIZE_UNITS, parse_size

__all__ = ["LoaderConfig", "PrefetchBound"]


class PrefetchBound(msgspec.Struct, frozen=True, kw_only=True):
    """The bound on what is held and in flight before the user asks for it.

    Attributes:
        most_bytes: the bound.
        follows_path: whether it is less if the path does not need that much, and the loader is tuned.
    """

    most_bytes: int
    follows_path: bool = False

    @classmethod
    def parse(cls, given: Any) -> Self:
        """Return what the user gave: "auto", or a size."""
        if isinstance(given, str) and given == "auto":
            return cls(most_bytes=LARGEST_WINDOW_BYTES, follows_path=True)
        try:
            size_bytes = parse_size(given)
        except ConfigError:
            size_bytes = 0
        low, high = BOUNDS["window_bytes"]
        if not low <= size_bytes <= high:
            raise ConfigError(f'must be "auto", or a size from 1 MiB to 1 TiB in {SIZE_UNITS}, got {given!r}')
        return cls(most_bytes=size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderConfig:
    """The configuration of one loader.

    Attributes:
        address: the dataset and its daemons.
        batch_size: samples of this rank per step of the plan.
        rows: the user's batch_size: with packed tokens the rows of a batch, None with a bound on
            tokens.
        shuffle: how far records move.
        seed: determines the order.
        drop_last: leave out a last step that is not full.
        pad: fill it instead.
        rank: the number of this process.
        world_size: how many processes share the epoch.
        job: names the training run.
        in_order: hand out batches in the plan's order.
        prefetch: the bound on what is held and in flight before the user asks for it.
        tune: who decides about the settings that can change while the loader runs.
        recovery: the settings for failures.
        trust: this host's keys, and how data may be protected.
        epochs: the total number of epochs, counted from epoch 0; None if not known.
        streams: whether records are streamed; otherwise single ones are requested, over the control
            connection alone.
        options: options that are no part of the plan and that ranks must agree on, with their values in words.
        sampling: which records an epoch consists of.
        replay: so many batches are repeated; None for batches as planned.
        traced: whether daemons tell when they read each message.
    """

    address: Address
    batch_size: int
    rows: int | None
    shuffle: Shuffle
    seed: int
    drop_last: bool
    pad: bool
    rank: int
    world_size: int
    job: str
    in_order: bool
    prefetch: PrefetchBound
    tune: TuneChoice = field(default_factory=TuneChoice)
    recovery: Recovery = field(default_factory=Recovery)
    trust: Trust = field(default_factory=Trust)
    epochs: int | None = None
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    sampling: Sampling = EVERYTHING
    streams: bool = True
    replay: int | None = None
    traced: bool = False

    def __post_init__(self) -> None:
        # NumPy's scalars become plain ones: messages and JSON documents cannot hold them.
        for name in ("drop_last", "pad", "in_order"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))
        object.__setattr__(self, "batch_size", whole("batch_size", self.batch_size, least=1))
        if self.rows is not None:
            object.__setattr__(self, "rows", whole("batch_size", self.rows, least=1))
        seed = as_whole(self.seed)
        if seed is None:
            raise ConfigError(f"seed must be a whole number in [0, 2**63), got {self.seed!r}")
        object.__setattr__(self, "seed", seed)
        if self.world_size < 1:
            raise ConfigError(f"world_size must be at least 1, got {self.world_size}")
        if not 0 <= self.rank < self.world_size:
            raise ConfigError(f"rank must be in [0, {self.world_size}), got {self.rank}")
        instance("recovery", self.recovery, Recovery)
        if self.epochs is not None:
            object.__setattr__(self, "epochs", whole("epochs", self.epochs, least=1, otherwise=", or None"))
        if self.replay is not None:
            object.__setattr__(self, "replay", whole("replay", self.replay, least=1, otherwise=", or None"))
        _ = self.spec  # an impossible plan is refused before anything is connected

    @property
    def spec(self) -> PlanSpec:
        """The options that the plan follows from, besides the dataset."""
        return PlanSpec(
            seed=self.seed,
            shuffle=self.shuffle,
            batch_size=self.batch_size,
            world_size=self.world_size,
            drop_last=self.drop_last,
            pad=self.pad,
            sampling=self.sampling,
        )

    @property
    def tuning(self) -> Tuning:
        """The settings that it begins with."""
        most_bytes, frozen = self.prefetch.most_bytes, self.tune.frozen
        if frozen is not None:
            return msgspec.structs.replace(frozen, window_bytes=min(frozen.window_bytes, most_bytes))
        begins = SMALLEST_AUTO_BYTES if self.tune.is_on and self.prefetch.follows_path else most_bytes
        return Tuning(window_bytes=min(begins, most_bytes))

    def check_epoch(self, epoch: int) -> None:
        """Refuse an epoch after the last one."""
        if self.epochs is not None and epoch >= self.epochs:
            raise ConfigError(
                f"an epoch must be below {self.epochs}, as epochs={self.epochs} was given and they count from 0, got {epoch}. "
                "Give a larger epochs=, or go back with set_epoch"
            )
