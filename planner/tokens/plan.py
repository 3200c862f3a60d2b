"""All epochs of one dataset in batches of tokens, and continuing in the middle of one.

A state written with the same layout continues with the next batch. With another layout, the state's
layers tell which records of the interrupted groups were handed out; those are left out of the pools
that now hold them.

Covers: requirements of plan and lengths, an epoch from its beginning or from a state. Does not
cover: the batches (epoch.py).
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError, PlanError
from emlio.planner.epoch import EpochPlan
from emlio.planner.plan import Plan
from emlio.planner.tokens.epoch import Reach, TokenEpoch
from emlio.planner.tokens.groups import TokenGroup
from emlio.planner.tokens.handed_out import HandedOut
from emlio.planner.tokens.lengths import name_record
from emlio.planner.tokens.packed import Packed
from emlio.planner.tokens.padded import Padded
from emlio.planner.tokens.pools import Pools
from emlio.planner.tokens.state import TokenLayer, TokenState

__all__ = ["TokenPlan"]


class TokenPlan:
    """Token batches made from the pools of a plan. Immutable, so threads may share it.

    Attributes:
        plan: gives each rank `batch_size` records per pool; without drop_last and pad.
        cut: the rule by which a rank makes batches of them; the same on all ranks.
        tokens: the tokens of the whole dataset.
    """

    __slots__ = ("_lengths", "cut", "plan", "tokens")

    def __init__(
        self,
        plan: Plan,
        cut: Padded | Packed,
        lengths: npt.NDArray[np.int32],
        *,
        name: Callable[[int], str] | None = None,
    ) -> None:
        """See the class.

        Args:
            plan: the plan.
            cut: the rule.
            lengths: the tokens of every record, by record id.
            name: names a record in errors; by default `name_record`.
        """
        if plan.spec.drop_last or plan.spec.pad:
            raise ConfigError(
                "drop_last and pad cannot be used with token batches, of which all ranks have the same number"
            )
        if lengths.dtype != np.int32 or lengths.shape != (plan.catalog.records,):
            raise ConfigError(
                f"lengths must be int32, one for each of {plan.catalog.records} records, got {lengths.dtype} {lengths.shape}"
            )
        if int(lengths.min()) < 0:
            raise ConfigError(f"lengths must not be negative, got {int(lengths.min())}")
        longest = int(lengths.argmax())
        if cut.accepted_tokens is not None and int(lengths[longest]) > cut.accepted_tokens:
            named = name(longest) if name is not None else name_record(plan.catalog, longest)
            raise DatasetError(
                f"{named}: it must have at most max_tokens={cut.accepted_tokens} "
                f"tokens, got {int(lengths[longest])}; {int(np.count_nonzero(lengths > cut.accepted_tokens))} of "
                f"{plan.catalog.records} records are longer. Pass truncate=True to cut them"
            )
        self.plan = plan
        self.cut = cut
        self.tokens = int(lengths.sum(dtype=np.int64))
        self._lengths = lengths

    def epoch(self, epoch: int) -> TokenEpoch:
        """Return an epoch from its beginning."""
        return self._from(self.plan.epoch(epoch), self.cut, HandedOut())

    def resume(self, state: TokenState) -> TokenEpoch:
        """Return the rest of the epoch that the state is in.

        Raises:
            PlanError: the state is of another dataset, seed, shuffle or width of tokens, or is
                impossible.
        """
        state.check_tokens(self.plan, self.tokens)
        layers = state.layers
        under_way = layers[-1] if layers and self._is_of_this_layout(layers[-1], state.consumed) else None
        handed_out = HandedOut()
        reaches: list[Reach] = []
        for layer in layers if under_way is None else layers[:-1]:
            spec = dataclasses.replace(self.plan.spec, batch_size=layer.pool_records, world_size=layer.world_size)
            plan = EpochPlan(catalog=self.plan.catalog, spec=spec, epoch=state.epoch, origin=layer.origin)
            before = self._from(plan, layer.cut, handed_out)
            group = _interrupted(before, layer)
            handed_out = before.handed_out(group, layer.batches, handed_out)
            reaches.append(Reach(layer=layer, end_place=group.end_place))
        found = self._from(
            self.plan.epoch(state.epoch, state.consumed),
            self.cut,
            handed_out,
            done=under_way.batches if under_way is not None else 0,
            reaches=tuple(reaches),
        )
        if under_way is not None:
            _interrupted(found, under_way)
        return found

    def _is_of_this_layout(self, layer: TokenLayer, consumed: int) -> bool:
        spec = self.plan.spec
        mine = (consumed, spec.world_size, spec.batch_size, self.cut)
        return (layer.origin, layer.world_size, layer.pool_records, layer.cut) == mine

    def _from(
        self,
        plan: EpochPlan,
        cut: Padded | Packed,
        handed_out: HandedOut,
        *,
        done: int = 0,
        reaches: tuple[Reach, ...] = (),
    ) -> TokenEpoch:
        pools = Pools(plan, self._lengths, handed_out)
        return TokenEpoch(pools, cut, tokens=self.tokens, done=done, reaches=reaches)


def _interrupted(epoch: TokenEpoch, layer: TokenLayer) -> TokenGroup:
    """Return the first group, in the middle of which the layer ends."""
    group = epoch.first_group
    if group is None or layer.batches >= group.batches:
        raise PlanError(
            f"a layer must end before its group, which has {group.batches if group is not None else 0} batches at "
            f"place {layer.origin}, got {layer.batches}"
        )
    return group
