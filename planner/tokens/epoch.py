"""One epoch in batches of tokens, divided among ranks.

Within a group of pools every rank sorts its own records and cuts them into the same number of
batches. Batch k of all ranks holds records of similar length, since each rank has a random sample
of the same group. Batches are handed out in an order drawn for the group, the same on all ranks, so
no rank waits for the long batch of another.

Covers: the number of batches, the pieces of records in each batch of a rank, the order of batches,
the state after any of them. Does not cover: continuing from a state (plan.py), filling arrays
(emlio.receiver.tokens.batches).
"""

import hashlib

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.planner.permutation import Permutation
from emlio.planner.sampling import sampling_mark
from emlio.planner.tokens.groups import TokenGroup, TokenGroups
from emlio.planner.tokens.handed_out import HandedOut
from emlio.planner.tokens.packed import Packed
from emlio.planner.tokens.padded import Padded
from emlio.planner.tokens.pools import Pools, Share
from emlio.planner.tokens.state import TOKEN_VERSION, TokenLayer, TokenState

__all__ = ["Reach", "TokenBatch", "TokenEpoch", "TokenShare"]


class TokenBatch(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The tokens in one batch of one rank. Arrays have one item for each piece, row by row.

    Attributes:
        height: the number of rows.
        width: the number of columns.
        records: the number of the piece's record in the share: 0 is the one at the share's first
            slot.
        begins: the piece's first token in its record.
        ends: one after its last token.
        rows: its row.
        columns: the column at which it begins.
    """

    height: int
    width: int
    records: npt.NDArray[np.int64]
    begins: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]

    @property
    def tokens(self) -> int:
        """The number of places with a token; height x width - tokens of them are padding."""
        return int((self.ends - self.begins).sum())


class TokenShare(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One rank's batches of one group.

    Attributes:
        group: the group.
        first_slot: the rank's first slot of the group; the records from here on must be available.
        end_slot: one after its last slot.
        ids: the record at each slot.
        batches: all batches of the group, in the order in which they are handed out.
    """

    group: TokenGroup
    first_slot: int
    end_slot: int
    ids: npt.NDArray[np.int64]
    batches: tuple[TokenBatch, ...]


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """A layer of an earlier run, and the place after the last one that it describes."""

    layer: TokenLayer
    end_place: int


class TokenEpoch:
    """One epoch of all ranks from `origin` on. Threads may share it.

    A step is a batch on every rank; step 0 is the next one to hand out, also if an interrupted
    group continues. A question about one group examines that group, and those before it if they
    were not examined yet; `steps` and `repeated` examine all records, once.
    """

    __slots__ = ("_cut", "_done", "_groups", "_pools", "_reaches", "_tokens")

    def __init__(
        self, pools: Pools, cut: Padded | Packed, *, tokens: int, done: int = 0, reaches: tuple[Reach, ...] = ()
    ) -> None:
        """See the class.

        Args:
            pools: the pools and what is left in them.
            cut: the rule.
            tokens: the tokens of the whole dataset.
            done: the batches of the first group that were handed out.
            reaches: the layers whose records were left out of the pools.
        """
        self._pools = pools
        self._cut = cut
        self._tokens = tokens
        self._done = done
        self._reaches = reaches
        self._groups = TokenGroups(pools, cut)

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self._pools.plan.epoch

    @property
    def origin(self) -> int:
        """The place of the epoch from which on records must be received."""
        return self._pools.plan.origin

    @property
    def steps(self) -> int:
        """The number of batches of every rank; the same for all."""
        return self._groups.batches - self._done

    @property
    def repeated(self) -> int:
        """The records or pieces handed out for the second time in this epoch, over all ranks."""
        return self._groups.repeated

    @property
    def first_group(self) -> TokenGroup | None:
        """The group that begins at the origin; None at the end of the epoch."""
        return self._groups.at(0)

    @property
    def is_whole(self) -> bool:
        """True if nothing of the epoch was handed out before."""
        return not self.origin and not self._done and not self._reaches

    def has(self, step: int) -> bool:
        """Return whether there is a batch at a step; unlike `steps`, examine no later groups."""
        return self._groups.at(step + self._done) is not None

    def group(self, step: int) -> TokenGroup:
        """Return the group of a step's batches; the batch is `step_in_group(step)` of it."""
        group = self._groups.at(step + self._done) if step >= 0 else None
        if group is None:
            raise ConfigError(f"step must be in [0, {self.steps}), got {step}")
        return group

    def step_in_group(self, step: int) -> int:
        """Return the number of a step's batch in its group, in the order of handing out."""
        return step + self._done - self.group(step).first_batch

    def batch(self, rank: int, step: int) -> TokenBatch:
        """Return one batch of one rank.

        To get all batches use `share`, which costs no more than one batch.
        """
        return self.share(rank, self.group(step)).batches[self.step_in_group(step)]

    def share(self, rank: int, group: TokenGroup) -> TokenShare:
        """Return the rank's batches of one group."""
        first_slot, end_slot = self._pools.slots(rank, group.first_pool, group.end_pool)
        share = self._pools.share(rank, group.first_pool, group.end_pool)
        return TokenShare(
            group=group,
            first_slot=first_slot,
            end_slot=end_slot,
            ids=share.ids,
            batches=self._batches(share, group),
        )

    def _batches(self, share: Share, group: TokenGroup) -> tuple[TokenBatch, ...]:
        wanted = group.batches
        spec = self._pools.plan.spec
        key = f"emlio.tokens/{TOKEN_VERSION}/{spec.seed}/{self.epoch}/{group.first_place}".encode()
        visits = Permutation(wanted, hashlib.sha256(key).digest())
        fresh = np.flatnonzero(share.lengths)
        left = share.lengths[fresh]
        own = min(wanted, int(self._cut.most(left[np.newaxis])[0])) if fresh.size else 0
        # A rank without enough records of its own repeats records that it has, one in each batch.
        again = np.arange(wanted - own, dtype=np.int64) % len(share.ids)
        zeros = np.zeros(len(again), dtype=np.int64)
        records, batches, rows, columns = again, np.arange(own, wanted, dtype=np.int64), zeros, zeros
        whole = self._pools.lengths[share.ids].astype(np.int64)
        lengths = np.minimum(whole[again], self._cut.piece_tokens)
        if own:
            cutting = self._cut.cut(left, own)
            records = np.concatenate((fresh[cutting.records], records))
            batches = np.concatenate((cutting.batches, batches))
            rows = np.concatenate((cutting.rows, rows))
            columns = np.concatenate((cutting.columns, columns))
            lengths = np.concatenate((cutting.lengths, lengths))
        times = visits.inverse(batches)
        order = np.lexsort((columns, rows, times))
        first_again = len(records) - len(again)
        begins = np.zeros(len(records), dtype=np.int64)
        begins[order] = _begins(records[order], np.where(order < first_again, lengths[order], 0), share.begun)
        begins[first_again:] = 0
        # A record without tokens counted as one token, so that it had a place.
        ends = np.minimum(begins + lengths, whole[records])
        return tuple(
            self._batch(records[of_batch], begins[of_batch], ends[of_batch], rows[of_batch], columns[of_batch])
            for of_batch in np.split(order, np.searchsorted(times[order], np.arange(1, wanted)))
        )

    def _batch(
        self,
        records: npt.NDArray[np.int64],
        begins: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int64],
        columns: npt.NDArray[np.int64],
    ) -> TokenBatch:
        height, width = self._cut.shape or (len(records), int((ends - begins).max()))
        return TokenBatch(
            height=height, width=width, records=records, begins=begins, ends=ends, rows=rows, columns=columns
        )

    # ---- position -------------------------------------------------------------------------------------------------

    def reach(self, step: int) -> int:
        """Return a number that grows with the steps, the same for all ranks, and by no less than the samples in them."""
        spec = self._pools.plan.spec
        return self.origin + self._done + step * spec.batch_size * spec.world_size

    def state(self, step: int) -> TokenState:
        """Return the state of all ranks after `step` steps."""
        plan = self._pools.plan
        group = self._groups.at(step + self._done) if step >= 0 else None
        if group is None and step != self.steps:
            raise ConfigError(f"step must be in [0, {self.steps}], got {step}")
        origin = group.first_place if group is not None else plan.length
        layers: list[TokenLayer] = []
        needed_from = origin
        for reach in reversed(self._reaches):
            # A layer is kept also if another kept layer cannot be computed without it.
            if reach.end_place > needed_from:
                layers.insert(0, reach.layer)
                needed_from = reach.layer.origin
        if group is not None and step + self._done > group.first_batch:
            layers.append(self._layer(group, step + self._done - group.first_batch))
        return TokenState(
            fingerprint=plan.catalog.fingerprint,
            seed=plan.spec.seed,
            shuffle=plan.spec.shuffle,
            sampling=sampling_mark(plan.spec.sampling),
            tokens=self._tokens,
            epoch=plan.epoch,
            consumed=origin,
            layers=tuple(layers),
        )

    def _layer(self, group: TokenGroup, batches: int) -> TokenLayer:
        spec = self._pools.plan.spec
        return TokenLayer(
            origin=group.first_place,
            world_size=spec.world_size,
            pool_records=spec.batch_size,
            cut=self._cut,
            batches=batches,
        )

    def handed_out(self, group: TokenGroup, batches: int, before: HandedOut) -> HandedOut:
        """Return what was handed out before, and by the first batches of a group on all ranks."""
        places: list[npt.NDArray[np.int64]] = []
        tokens: list[npt.NDArray[np.int64]] = []
        for rank in range(self._pools.plan.spec.world_size):
            share = self._pools.share(rank, group.first_pool, group.end_pool)
            for batch in self._batches(share, group)[:batches]:
                places.append(share.places[batch.records])
                # Nothing is left of a record that is not split, even if its end was cut off.
                whole = self._pools.lengths[share.ids[batch.records]]
                tokens.append(batch.ends if self._cut.splits else whole.astype(np.int64))
        return before.and_also(np.concatenate(places), np.concatenate(tokens))


def _begins(
    records: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], begun: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the begin of each piece in its record.

    A record's pieces go from its front to its end in this order.
    """
    by_record = np.argsort(records, kind="stable")
    ordered = records[by_record]
    before = np.cumsum(lengths[by_record]) - lengths[by_record]
    begins = np.empty(len(records), dtype=np.int64)
    begins[by_record] = before - before[np.searchsorted(ordered, ordered)] + begun[ordered]
    return begins
