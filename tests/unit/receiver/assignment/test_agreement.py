"""Who sends which shard while daemons come, go, fail and are slow."""

import pytest

from emlio.errors import DatasetError
from emlio.receiver.assignment.agreement import Agreement, Holding, agree
from emlio.wire.control import ShardRow
from emlio_testing.loader_config import loader_config

A, B, C = "a:1", "b:1", "c:1"
SHARDS = 6


def row(number: int, *, digest: str = "d") -> ShardRow:
    return ShardRow(name=f"s{number}", records=10, size_bytes=1000, digest=digest)


def holding(peer: str, *numbers: int, here: bool = False) -> Holding:
    return Holding(peer=peer, rows=tuple(row(number) for number in numbers), missing=(), missing_count=0, here=here)


def agreement(*holdings: Holding) -> Agreement:
    return agree(loader_config("emlio://a:1,b:1/data"), holdings)


EVERYTHING = tuple(range(SHARDS))


def both() -> Agreement:
    return agreement(holding(A, *EVERYTHING), holding(B, *EVERYTHING))


def test_while_all_are_here_each_sends_its_usual_share() -> None:
    agreed = both()
    assert agreed.share_out(()).tolist() == agreed.owners.tolist()
    assert sorted(agreed.owners.tolist()) == [0] * 3 + [1] * 3


def test_what_a_lost_one_owes_goes_to_the_other_and_back() -> None:
    agreed = both()
    assert agreed.share_out([A]).tolist() == [1] * SHARDS
    assert agreed.share_out([]).tolist() == agreed.owners.tolist()


def test_what_nobody_else_holds_waits_for_the_lost_one_and_the_rest_stays_where_it_was() -> None:
    agreed = agreement(holding(A, 0, 1, 2, 3), holding(B, 2, 3, 4, 5))
    owners = agreed.share_out([A]).tolist()
    assert owners == [0, 0, 1, 1, 1, 1]


def test_a_forbidden_shard_is_sent_by_another_and_all_others_stay() -> None:
    agreed = both()
    usual = agreed.share_out(()).tolist()
    mine = usual.index(0)
    now = agreed.share_out((), forbidden={(A, mine)}).tolist()
    assert now[mine] == 1
    assert [owner for shard, owner in enumerate(now) if shard != mine] == [
        owner for shard, owner in enumerate(usual) if shard != mine
    ]


def test_a_shard_forbidden_everywhere_is_asked_of_those_that_hold_it_all_the_same() -> None:
    agreed = both()
    assert agreed.share_out((), forbidden={(A, 0), (B, 0)}).tolist()[0] in (0, 1)


def test_what_is_lent_is_sent_by_the_other_as_long_as_that_one_can() -> None:
    agreed = both()
    mine = agreed.share_out(()).tolist().index(0)
    assert agreed.share_out((), lent={mine: B})[mine] == 1
    assert agreed.share_out([B], lent={mine: B}).tolist() == [0] * SHARDS
    assert agreed.share_out((), forbidden={(B, mine)}, lent={mine: B})[mine] == 0


def test_of_those_that_are_gone_the_one_that_may_come_back_is_waited_for() -> None:
    agreed = both()
    assert agreed.share_out([A, B], hopeless=[A]).tolist() == [1] * SHARDS
    assert agreed.share_out([A, B], hopeless=[B]).tolist() == [0] * SHARDS
    assert set(agreed.share_out([A, B], hopeless=[A, B]).tolist()) == {0, 1}


def test_one_that_is_added_gets_a_share_under_its_own_number() -> None:
    agreed = both().joined(holding(C, *EVERYTHING), 7)
    assert sorted(agreed.share_out(()).tolist()) == [0, 0, 1, 1, 7, 7]
    assert agreed.plan is not None
    assert set(agreed.share_out([A, B]).tolist()) == {7}


def test_one_that_is_added_may_hold_a_part_and_more_than_the_plan_knows() -> None:
    agreed = both().joined(holding(C, 0, 99), 7)
    assert [shard for shard, owner in enumerate(agreed.share_out([A, B]).tolist()) if owner == 7] == [0]


def test_what_lies_on_this_host_is_read_here_whoever_is_added() -> None:
    agreed = agreement(holding(A, *EVERYTHING), holding("/data", 0, 1, here=True)).joined(holding(C, *EVERYTHING), 7)
    assert agreed.share_out(()).tolist()[:2] == [1, 1]
    assert 7 in agreed.share_out(()).tolist()


@pytest.mark.parametrize(
    ("added", "message"),
    [
        (Holding(peer=C, rows=(row(0, digest="x"),), missing=(), missing_count=0), "'s0' must be the same"),
        (holding(C, 77), "must hold shards of the loader's dataset, c:1 holds none"),
    ],
)
def test_one_that_holds_something_else_is_not_added(added: Holding, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        both().joined(added, 7)


def test_one_may_leave_unless_it_alone_holds_a_shard() -> None:
    agreed = agreement(holding(A, 0, 1, 2, 3), holding(B, *EVERYTHING))
    left = agreed.left(A)
    assert left is not None
    assert left.share_out(()).tolist() == [1] * SHARDS
    assert left.plan.digest == agreed.plan.digest
    assert agreed.left(B) is None
