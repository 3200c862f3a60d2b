"""Token batches of pools that come late, or not at once."""

from typing import Any

import numpy as np
import pytest

from emlio import TokenBatches
from emlio.errors import EmlioError, PeerLostError
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.receiver.addresses.address import Address
from emlio.receiver.batches.prefetch import MadeBatch
from emlio.receiver.iteration.epoch_pass import Handed
from emlio.receiver.records.bad_records import BadRecordPolicy
from emlio.receiver.records.sizes import RecordSizes
from emlio.receiver.setup.config import LoaderConfig, PrefetchBound
from emlio.receiver.setup.recovery import Recovery
from emlio.receiver.threads.promise import Promise
from emlio.receiver.tokens.feed import TokenBatchKind, TokenPosition
from emlio.tfrecord import FRAME_BYTES
from emlio_testing.planning import catalog_of
from emlio_testing.token_records import count_tokens, read_padded, token_record

_LENGTHS = [1 + number % 9 for number in range(64)]


def _plan(world: int, pool: int) -> Plan:
    catalog = catalog_of(len(_LENGTHS))
    return Plan(catalog, PlanSpec(seed=1, batch_size=pool, world_size=world))


def _work(world: int, pool: int) -> tuple[TokenBatchKind, TokenPosition]:
    config = LoaderConfig(
        address=Address.parse("emlio://a/x"),
        batch_size=pool,
        rows=None,
        shuffle=Shuffle(),
        seed=1,
        drop_last=False,
        pad=False,
        rank=0,
        world_size=world,
        job="j",
        in_order=True,
        prefetch=PrefetchBound(most_bytes=1 << 20),
        recovery=Recovery(timeout="1s", heartbeat="1s"),
    )
    tokens = TokenBatches(max_tokens=40, pool=pool)
    work = TokenBatchKind(tokens, BadRecordPolicy("raise"), config, None, None, lambda made: made, ids=False)
    return work, work.position(_plan(world, pool), _tell_sizes)


def _tell_sizes(shard: int, first: int, count: int) -> Promise:
    told: Promise = Promise()
    sizes = np.array(_LENGTHS[first : first + count], np.int64) * 4 + FRAME_BYTES
    told.set_result(RecordSizes(offset=0, sizes=sizes))
    return told


class _Pools:
    """The pools of rank 0, of which some come only at the second time of asking."""

    def __init__(self, position: TokenPosition, world: int, pool: int) -> None:
        self._epoch = _plan(world, pool).epoch(*position.flow)
        self._next = 0
        self.asked = 0

    ready = False

    def first(self) -> MadeBatch:
        self.asked += 1
        if self.asked % 2:
            raise PeerLostError("not yet")
        ids: list[int] = self._epoch.ids(0, *self._epoch.batch_slots(0, self._next)).tolist()
        records = [np.frombuffer(token_record(identity, _LENGTHS[identity]), "<i4") for identity in ids]
        return _pool(self._epoch.epoch, self._next, records)

    def taken(self, made: MadeBatch) -> None:
        assert made.step == self._next
        self._next += 1


class _Given:
    """Those that are given."""

    ready = True

    def __init__(self, *batches: MadeBatch) -> None:
        self.left = list(batches)

    def first(self) -> MadeBatch:
        return self.left[0]

    def taken(self, made: MadeBatch) -> None:
        assert made is self.left.pop(0)


def _pool(epoch: int, step: int, records: list[Any]) -> MadeBatch:
    return MadeBatch(epoch=epoch, step=step, count=len(records), bad=0, size_bytes=0, value=records)


def _patiently(work: TokenBatchKind, pools: _Pools, position: TokenPosition) -> MadeBatch:
    while True:
        try:
            return work.next(pools, Handed(), position)
        except PeerLostError:
            continue


def test_a_pool_that_did_not_come_in_time_is_asked_for_again_and_those_that_did_are_kept() -> None:
    work, position = _work(1, 64)
    pools = _Pools(position, 1, 64)
    seen = count_tokens([])
    while position.steps - position.steps_done > 1:
        seen += count_tokens(read_padded(_patiently(work, pools, position).value))
        position.steps_done += 1
    # Now there are many pools of which nothing is left, which are taken together with those of which something is.
    state = position.state()
    work, position = _work(1, 2)
    position.load(state)
    groups = [position.batches.group(step) for step in range(position.steps)]
    assert max(group.end_pool - group.first_pool for group in groups) > 1
    pools = _Pools(position, 1, 2)
    made = 0
    while not position.at_end:
        batch = _patiently(work, pools, position)
        seen += count_tokens(read_padded(batch.value))
        made += batch.count
        position.steps_done += 1
    assert pools.asked == 2 * groups[-1].end_pool
    assert made > 0
    assert sorted(seen) == sorted((record, at) for record, length in enumerate(_LENGTHS) for at in range(length))
    assert set(seen.values()) == {1}


def test_what_is_left_of_the_epoch_before_is_passed_over_and_a_pool_too_early_is_a_defect() -> None:
    work, position = _work(1, 16)
    position.move_to(2)
    early = _Given(_pool(1, 3, []), _pool(2, 1, []))
    with pytest.raises(EmlioError, match="pool 0 of epoch 2 must come next, got pool 1 of epoch 2"):
        work.next(early, Handed(), position)
    assert [pool.epoch for pool in early.left] == [2]
