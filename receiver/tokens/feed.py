"""Token batches for the user's thread: which comes next, and its records.

Covers: the position in epochs of token batches, fetching the pools a batch is cut from, keeping one
group of them. Does not cover: the cutting (emlio.planner.tokens.epoch), filling arrays
(emlio.receiver.tokens.batches).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.arguments import whole
from emlio.errors import ConfigError, DatasetError, EmlioError
from emlio.formats.contents import TFRECORD
from emlio.formats.record_form import slotted_views
from emlio.formats.token_form import stored_tokens
from emlio.formats.whole_file import with_path
from emlio.planner.plan import Plan
from emlio.planner.tokens.epoch import TokenEpoch, TokenShare
from emlio.planner.tokens.groups import TokenGroup
from emlio.planner.tokens.lengths import token_lengths
from emlio.planner.tokens.packed import Packed
from emlio.planner.tokens.padded import Padded
from emlio.planner.tokens.plan import TokenPlan
from emlio.planner.tokens.state import TokenState
from emlio.receiver.batches.makers import Made, Maker
from emlio.receiver.batches.patience import PatientBatches
from emlio.receiver.batches.prefetch import MadeBatch
from emlio.receiver.iteration.epoch_pass import Handed
from emlio.receiver.placement.reorder import WholeBatch
from emlio.receiver.records.bad_records import BadRecordPolicy, RecordFault, first_fault
from emlio.receiver.records.decoded import IDS, SOURCES
from emlio.receiver.records.mixture import KnownContents, MixedContents
from emlio.receiver.records.sizes import Ask, gather_sizes, name_record
from emlio.receiver.setup.config import LoaderConfig
from emlio.receiver.tokens.batches import TokenAssembler
from emlio.session.terms import STEPS_AHEAD
from emlio.tokens import TokenBatches

__all__ = ["PoolMaker", "TokenBatchKind", "TokenPosition", "plan_batch_size"]


class TokenPosition:
    """A position in the epochs of a plan of token batches.

    See `emlio.receiver.iteration.position.Position`.
    """

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
        """The current epoch, or the next one."""
        return self.batches.epoch

    @property
    def flow(self) -> tuple[int, int]:
        """The epoch and origin from which records must be received."""
        return self.epoch, self.batches.origin

    @property
    def steps(self) -> int:
        """The number of batches in the epoch, or in its rest after a resume."""
        return self.batches.steps

    @property
    def whole_steps(self) -> int:
        """The number of batches in a whole epoch."""
        return self.steps if self.batches.is_whole else self._plan.epoch(self.epoch).steps

    @property
    def repeated(self) -> int:
        """The number of records handed out a second time in this epoch, over all ranks."""
        return self.batches.repeated

    @property
    def at_end(self) -> bool:
        """Return whether all batches of the epoch were handed out; does not count them all."""
        return not self.batches.has(self.steps_done)

    @property
    def few(self) -> int:
        """The number of batches that are no more than a look: a quarter of the epoch at most."""
        return STEPS_AHEAD if self.batches.has(4 * STEPS_AHEAD - 1) else max(self.whole_steps // 4, 1)

    @property
    def is_fixed(self) -> bool:
        """Return whether all epochs have the same batches."""
        return self._plan.plan.spec.sampling.is_fixed(self._plan.plan.spec.shuffle)

    def reach(self, steps: int) -> int:
        """Return a number that grows with the batches, the same on all ranks that began at one place. Any thread may ask."""
        return self.batches.reach(steps)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint: the same on all ranks at the same step."""
        return self.batches.state(self.steps_done).to_json()

    def load(self, state: Mapping[str, Any]) -> None:
        """Go to the position of `state`; a state of another dataset or order is refused."""
        self._go(self._plan.resume(TokenState.from_json(state)))


class PoolMaker(Maker):
    """Makes pools: the records as arrays of tokens, None for a bad one."""

    def __init__(self, assembler: TokenAssembler, policy: BadRecordPolicy) -> None:
        self._assembler = assembler
        self._policy = policy

    def make(self, batch: WholeBatch) -> Made:
        """See `Maker`."""
        begun_ns = time.monotonic_ns()
        reasons = {record.slot: with_path(record.note, record.reason) for record in batch.bad}
        value: list[Any] = []
        for slot, view in enumerate(slotted_views(batch.pieces, batch.count)):
            try:
                value.append(None if view is None else self._assembler.decode(view))
            except DatasetError as error:
                value.append(None)
                reasons[slot] = str(error)
        if reasons:
            self._policy.settle(batch.ids, reasons)
        made = Made(value=value, bad=len(reasons), fault=first_fault(batch.ids, reasons))
        self.worked(begun_ns)
        return made


class TokenBatchKind:
    """Makes the token batches of a loader, each when it is taken. See `emlio.receiver.batch_kinds.kind.BatchKind`.

    Attributes:
        maker: makes pools from complete batches.
    """

    waited_ns = 0

    def __init__(
        self,
        tokens: TokenBatches,
        policy: BadRecordPolicy,
        config: LoaderConfig,
        collate_fn: Callable[[Sequence[Any]], Any] | None,
        to_tensor: Callable[[Any], Any] | None,
        bring: Callable[[MadeBatch], MadeBatch],
        *,
        ids: bool,
    ) -> None:
        """Configure the batches.

        Args:
            tokens: how records become batches.
            policy: how bad records are handled.
            config: the loader's configuration.
            collate_fn: makes batches of lists of arrays.
            to_tensor: makes a tensor of an array; None leaves arrays.
            bring: brings a batch to its destination.
            ids: whether to add the records' ids.
        """
        if policy.replaces:
            raise ConfigError(
                'on_error must be "raise" or "skip" for tokens, since a replacement would have another length'
            )
        if not config.in_order:
            raise ConfigError(
                "in_order must be True for tokens, whose batches are made from consecutive pools of records"
            )
        self._tokens = tokens
        self._config = config
        self._bring = bring
        self._ids = ids
        self._cut: Padded | Packed
        if tokens.pack is not None:
            self._cut = Packed(rows=config.rows or 0, row_tokens=tokens.pack)
        else:
            self._cut = Padded(max_tokens=tokens.max_tokens or 0, truncate=tokens.truncate)
        self._assembler = TokenAssembler(
            tokens=tokens.batch_type,
            packed=tokens.pack is not None,
            stored=tokens.record_type,
            recipe=tokens.recipe,
            pad_id=tokens.pad_id,
            collate_fn=collate_fn,
            to_tensor=to_tensor,
        )
        self._frame_bytes = TFRECORD.frame_bytes
        self.maker = PoolMaker(self._assembler, policy)
        self._mixture: MixedContents | None = None
        self._share: TokenShare | None = None
        self._of: TokenEpoch | None = None
        self._pools_here = 0  # the first pool of the share that is not among the records yet
        self._records: list[Any] = []
        self._fault: RecordFault | None = None  # the first among the records

    def know(self, contents: KnownContents) -> None:
        """See `BatchKind`.

        Raises:
            ConfigError: the dataset's tokens are of another type than was said.
            DatasetError: the records are not arrays of tokens.
        """
        if isinstance(contents, MixedContents):
            self._mixture, contents = contents, contents.alike("tokens=")
        self._frame_bytes = contents.frame_bytes
        stored, said = stored_tokens(contents), self._tokens.stored
        if stored is None:
            if contents.schema:
                raise DatasetError(
                    "tokens= must be given for records that are tokens, those of the dataset are tf.train.Example with "
                    f"the features {', '.join(map(repr, sorted(contents.schema)))}. Convert the data again: "
                    "emlio convert --from tokens, or --tokenizer"
                )
            return
        if said is not None and np.dtype(said) != stored.newbyteorder("="):
            raise ConfigError(f"stored must be the type of the dataset's tokens, {stored.name}, got {said!r}")
        self._assembler.know(stored)

    def position(self, plan: Plan, ask: Ask) -> TokenPosition:
        """Find the lengths of all records; return the position at which handing out begins."""
        sizes = gather_sizes(plan.catalog, ask, self._config.recovery.timeout_ns)
        name = partial(name_record, plan.catalog, datasets=self._config.address.mixed_names)
        lengths = token_lengths(plan.catalog, sizes, self._assembler.token_bytes, self._frame_bytes, name=name)
        return TokenPosition(TokenPlan(plan, self._cut, lengths, name=name))

    def next(self, batches: PatientBatches, handed: Handed, position: TokenPosition) -> MadeBatch:
        """Return the batch at a position; a call after an interrupt or an error continues."""
        epoch, step = position.batches, position.steps_done
        begun_ns = time.monotonic_ns()
        group = epoch.group(step)
        share = self._share
        if share is None or self._of is not epoch or share.group != group:
            share = self._begin_group(epoch, group)
        self.maker.worked(begun_ns)
        self._receive(epoch, group, batches)
        begun_ns = time.monotonic_ns()
        batch = share.batches[epoch.step_in_group(step)]
        try:
            value = self._assembler(self._records, batch, self._added(share.ids[batch.records]))
        except StopIteration as error:
            # It would end the user's loop silently in the middle of the epoch.
            raise RuntimeError(f"collate_fn must not raise StopIteration, raised {error!r}") from error
        # A record counts where its first piece is, so that a record in several rows or batches
        # counts once.
        begun: list[int] = batch.records[batch.begins == 0].tolist()
        whole = [record.nbytes for place in begun if (record := self._records[place]) is not None]
        bad = len(begun) - len(whole)
        made = MadeBatch(
            epoch=epoch.epoch,
            step=step,
            count=len(begun),
            bad=bad,
            by_dataset=0 if self._mixture is None else self._mixture.counts(share.ids[begun]),
            size_bytes=sum(whole) + self._frame_bytes * len(begun),
            value=value,
            fault=self._fault if bad else None,
        )
        self.maker.worked(begun_ns)
        return self._bring(made)

    def _added(self, ids: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.int64]]:
        if not self._ids:
            return {}
        return {IDS: ids} if self._mixture is None else {IDS: ids, SOURCES: self._mixture.datasets(ids)}

    def _begin_group(self, epoch: TokenEpoch, group: TokenGroup) -> TokenShare:
        """Return the rank's share of a group, after freeing the records of the previous group."""
        self.drop()
        share = epoch.share(self._config.rank, group)
        self._share, self._of, self._pools_here = share, epoch, group.first_pool
        return share

    def _receive(self, epoch: TokenEpoch, group: TokenGroup, pools: PatientBatches) -> None:
        """Fetch the missing pools of a group.

        After an error, continue with the pool that did not come.

        Pools before the group belong to an epoch whose last records were handed out in an earlier
        run.
        """
        while self._pools_here < group.end_pool:
            pool, wanted = pools.first(), (epoch.epoch, self._pools_here)
            if (pool.epoch, pool.step) < wanted:
                pools.taken(pool)  # or it is here, and an interrupt came before this call
                continue
            if (pool.epoch, pool.step) != wanted:
                raise EmlioError(
                    f"internal error: pool {wanted[1]} of epoch {wanted[0]} must come next, "
                    f"got pool {pool.step} of epoch {pool.epoch}"
                )
            records, self._fault = pool.value, self._fault or pool.fault
            # Python handles signals where a call ends, so not between these lines.
            self._records += records
            self._pools_here += 1
            pools.taken(pool)

    def drop(self) -> None:
        """Drop what was fetched."""
        self._share, self._of, self._fault, self._records = None, None, None, []

    def close(self) -> None:
        """See `BatchKind`."""


def plan_batch_size(batch_size: int | None, tokens: TokenBatches | None) -> int:
    """Return how many records a rank gets per step of the plan: a batch, or a pool of records."""
    if tokens is None:
        if batch_size is None:
            raise ConfigError("batch_size must be given: samples per step of this rank, got None")
        return whole("batch_size", batch_size, least=1)
    if tokens.pack is not None and batch_size is None:
        raise ConfigError(f"batch_size must be given with pack={tokens.pack}: rows per batch, got None")
    if tokens.pack is None and batch_size is not None:
        raise ConfigError(
            f"batch_size must not be given with max_tokens={tokens.max_tokens}, which limits a batch, got {batch_size!r}"
        )
    if batch_size is not None:
        whole("batch_size", batch_size, least=1, otherwise=", rows of packed tokens")
    return tokens.pool
