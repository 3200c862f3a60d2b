"""Token batches for the user's thread: which comes next, and the records it is made of.

Covers: the position in epochs of token batches, fetching the pools a batch is cut from, keeping one group of them. Does not
cover: the cutting (emlio.planner.token_epoch), filling arrays (emlio.receiver.token_batches).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, EmlioError
from emlio.planner.packed import Packed
from emlio.planner.padded import Padded
from emlio.planner.plan import Plan
from emlio.planner.token_epoch import TokenEpoch, TokenShare
from emlio.planner.token_lengths import token_lengths
from emlio.planner.token_plan import TokenPlan
from emlio.planner.token_state import TokenState
from emlio.receiver.bad_records import BadRecordPolicy
from emlio.receiver.config import LoaderConfig
from emlio.receiver.decoded import slotted_views
from emlio.receiver.making import Made
from emlio.receiver.prefetch import MadeBatch
from emlio.receiver.record_sizes import Ask, gather_sizes
from emlio.receiver.reorder import WholeBatch
from emlio.receiver.token_batches import TokenAssembler
from emlio.tokens import TokenBatches

__all__ = ["PoolMaker", "TokenPosition", "TokenWork", "plan_batch_size"]


class TokenPosition:
    """A place in the epochs of a plan of token batches. See `emlio.receiver.position.Position`."""

    def __init__(self, plan: TokenPlan) -> None:
        self._plan = plan
        self.move_to(0)

    def move_to(self, epoch: int) -> None:
        """Go to the beginning of an epoch."""
        self._go(self._plan.epoch(epoch))

    def _go(self, epoch: TokenEpoch) -> None:
        self.batches = epoch
        self.steps_done = 0

    @property
    def epoch(self) -> int:
        """Under way, or the next one."""
        return self.batches.epoch

    @property
    def flow(self) -> tuple[int, int]:
        """The epoch and origin that records must be received from."""
        return self.epoch, self.batches.origin

    @property
    def steps(self) -> int:
        """Batches of the epoch, or of its rest after a resume."""
        return self.batches.steps

    @property
    def repeated(self) -> int:
        """Records handed out for the second time in this epoch, over all ranks."""
        return self.batches.repeated

    @property
    def at_end(self) -> bool:
        """Whether all batches of the epoch were handed out; does not count them all."""
        return not self.batches.has(self.steps_done)

    def step(self) -> None:
        """A batch was handed out."""
        self.steps_done += 1

    def state(self) -> dict[str, Any]:
        """For a checkpoint: the same on all ranks at the same step."""
        return self.batches.state(self.steps_done).to_json()

    def load(self, state: Mapping[str, Any]) -> None:
        """Go to where `state` was made; of another dataset or order it is refused."""
        self._go(self._plan.resume(TokenState.from_json(state)))


class PoolMaker:
    """Records of a pool as arrays of tokens, None in the place of a bad one. See `emlio.receiver.making.Maker`."""

    def __init__(self, assembler: TokenAssembler, policy: BadRecordPolicy) -> None:
        self.ahead = 0
        self.worked_ns = 0
        self._assembler = assembler
        self._policy = policy

    def make(self, batch: WholeBatch) -> Made:
        """See `Maker`."""
        reasons = {record.slot: record.reason for record in batch.bad}
        if reasons:
            self._policy.settle(batch.ids, reasons)
        views = slotted_views(batch.pieces, batch.count)
        decode = self._assembler.decode
        return Made(value=[None if view is None else decode(view) for view in views], bad=len(reasons))

    def close(self) -> None:
        """See `Maker`."""


class TokenWork:
    """What a loader makes token batches with. But for the maker, used by the user's thread only.

    Attributes:
        maker: makes pools of whole batches.
    """

    def __init__(
        self,
        tokens: TokenBatches,
        policy: BadRecordPolicy,
        config: LoaderConfig,
        collate_fn: Callable[[Sequence[Any]], Any] | None,
        to_tensor: Callable[[Any], Any] | None,
        *,
        ids: bool,
    ) -> None:
        """See the class.

        Args:
            tokens: how records become batches.
            policy: what becomes of bad records.
            config: what else the loader was told.
            collate_fn: makes batches of lists of arrays.
            to_tensor: makes a tensor of an array; None leaves arrays.
            ids: whether to add the records' ids.
        """
        if policy.on_error == "replace":
            raise ConfigError(
                'on_error must be "raise" or "skip" for tokens: another record would not have the same length'
            )
        if not config.in_order:
            raise ConfigError(
                "in_order must be True for tokens: batches are made of pools of records, one after the other"
            )
        self._tokens = tokens
        self._config = config
        self._ids = ids
        self._cut: Padded | Packed
        if tokens.pack is not None:
            self._cut = Packed(rows=config.rows or 0, row_tokens=tokens.pack)
        else:
            self._cut = Padded(max_tokens=tokens.max_tokens or 0, truncate=tokens.truncate)
        self._assembler = TokenAssembler(
            tokens=tokens.dtype,
            packed=tokens.pack is not None,
            pad_id=tokens.pad_id,
            collate_fn=collate_fn,
            to_tensor=to_tensor,
        )
        self.maker = PoolMaker(self._assembler, policy)
        self._position: TokenPosition | None = None
        self._share: TokenShare | None = None
        self._of: TokenEpoch | None = None
        self._records: list[Any] = []

    def begin(self, plan: Plan, ask: Ask) -> TokenPosition:
        """Find out how long all records are, and return the position they are handed out from."""
        sizes = gather_sizes(plan.catalog, ask, self._config.timeout_ns)
        lengths = token_lengths(plan.catalog, sizes, self._tokens.token_bytes)
        self._position = TokenPosition(TokenPlan(plan, self._cut, lengths))
        return self._position

    def next(self, fetch: Callable[[], MadeBatch]) -> tuple[MadeBatch, Any]:
        """The next batch; `fetch` gives the next pool, waiting for it."""
        position = self._position
        if position is None:
            raise AssertionError("a batch is asked for only after the plan")
        epoch, step = position.batches, position.steps_done
        group = epoch.group(step)
        share = self._share
        if share is None or self._of is not epoch or share.group.first_pool != group.first_pool:
            share = epoch.share(self._config.rank, group)
            self._load(epoch, share, fetch)
        batch = share.batches[epoch.step_in_group(step)]
        value = self._assembler(self._records, batch, share.ids if self._ids else None)
        places: npt.NDArray[np.int64] = np.unique(batch.records)
        bad = sum(self._records[place] is None for place in places.tolist())
        made = MadeBatch(epoch=epoch.epoch, step=step, count=len(places), bad=bad, size_bytes=0, value=None)
        return made, value

    def _load(self, epoch: TokenEpoch, share: TokenShare, fetch: Callable[[], MadeBatch]) -> None:
        """Fetch the pools of a group. Those before them hold nothing that was not handed out in an earlier run."""
        self._share, self._records = None, []
        records: list[Any] = []
        wanted = share.group.first_pool
        while wanted < share.group.end_pool:
            pool = fetch()
            if (pool.epoch, pool.step) < (epoch.epoch, wanted):
                continue
            if (pool.epoch, pool.step) != (epoch.epoch, wanted):
                raise EmlioError(
                    f"internal error: pool {wanted} of epoch {epoch.epoch} must come next, "
                    f"got pool {pool.step} of epoch {pool.epoch}"
                )
            records.extend(_of(pool))
            wanted += 1
        self._share, self._of, self._records = share, epoch, records

    def drop(self) -> None:
        """What was fetched is not wanted any more."""
        self._share, self._of, self._records = None, None, []


def plan_batch_size(batch_size: int | None, tokens: TokenBatches | None) -> int:
    """How many records a rank gets per step of the plan: a batch, or a pool of which batches of tokens are made."""
    if tokens is None and batch_size is None:
        raise ConfigError("batch_size must be given: samples per step of this rank")
    if tokens is not None and (tokens.pack is None) != (batch_size is None):
        raise ConfigError(
            "batch_size must be given with packed tokens, as rows of a batch, and not with max_tokens, which bounds it; "
            f"got batch_size={batch_size} with {tokens}"
        )
    return tokens.pool if tokens is not None else batch_size or 0


def _of(pool: MadeBatch) -> Sequence[Any]:
    records: Sequence[Any] = pool.value
    return records
