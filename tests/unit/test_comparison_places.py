"""The comparison of ranks: where they begin, and epochs that one of them leaves."""

import pytest

from emlio.daemon.ranks.claims import Probe
from emlio.daemon.ranks.comparison import Comparison
from emlio.session.terms import STEPS_AHEAD
from emlio.wire.control import Limit, Place
from emlio_testing.compared_loaders import Loader, made

S = 1_000_000_000
TIMEOUT_NS = 10 * S
GRACE_NS = S
HELD = Limit(0, 0, 0)


@pytest.fixture
def table() -> Comparison:
    return Comparison(heartbeat_timeout_ns=TIMEOUT_NS)


def test_ranks_that_begin_at_different_places_are_both_refused(table: Comparison) -> None:
    first, second = made(table, 0, "a"), made(table, 1, "a")
    first.use(0, Place(0, 128, 128))
    second.use(1, Place(0, 0, 0, False, True))
    assert (first.limit, second.limit) == (HELD, HELD)
    first.use(1, Place(0, 128, 128, False, True))
    told = first.heard(2 * S) + second.heard(2 * S)
    assert {one.connection for one in told} == {first.connection, second.connection}
    text = next(one.text for one in told if one.connection == second.connection)
    assert "rank 1 (h:2 (10.0.0.9)) begins at sample 0 of epoch 0, rank 0 (h:1 (10.0.0.9)) at sample 128" in text


def test_ranks_that_begin_at_one_place_go_on(table: Comparison) -> None:
    loaders = [made(table, rank, "a") for rank in range(2)]
    for loader in loaders:
        loader.use(0, Place(2, 128, 128))
    assert [loader.limit for loader in loaders] == [None, None]


def test_a_look_on_one_rank_before_it_loads_the_state_of_all_is_no_beginning(table: Comparison) -> None:
    looks, begins = made(table, 0, "a"), made(table, 1, "a")
    looks.use(0, Place(0, 0, 8))
    begins.use(S, Place(5, 128, 128, False, True))
    assert begins.heard(9 * S) + looks.heard(9 * S) == [], "its state is read for some seconds"
    told = looks.use(10 * S, Place(5, 128, 128, moved=True))
    assert Probe(connection=begins.connection) in told
    assert (looks.limit, begins.limit) == (None, None)


def look_at_an_epoch(table: Comparison) -> tuple[Loader, Loader]:
    """Rank 0 takes a batch of epoch 4 and begins epoch 5, rank 1 is in epoch 4."""
    looks, stays = made(table, 0, "a"), made(table, 1, "a")
    for loader in (looks, stays):
        loader.use(0)
        loader.use(S, Place(3, 0, 512, True))
    stays.use(2 * S, Place(4, 0, 8, True))
    looks.use(2 * S, Place(5, 0, 0, True, left=(4, 8)))
    assert (stays.limit, looks.limit) == (Limit(4, 8, STEPS_AHEAD), None)
    return looks, stays


def test_a_rank_that_goes_on_with_an_epoch_that_another_left_is_limited_and_both_are_told(table: Comparison) -> None:
    looks, stays = look_at_an_epoch(table)
    stays.use(3 * S, Place(4, 0, 136, True, True))
    told = looks.heard(5 * S)
    assert {one.connection for one in told} == {stays.connection, looks.connection}
    for one in told:
        assert "rank 0 (h:1 (10.0.0.9)) left epoch 4 at sample 8 and is in epoch 5" in one.text


@pytest.mark.parametrize(
    "how", ["goes on with it", "goes back", "leaves it, too", "is there no more", "has another one"]
)
def test_the_limit_of_an_epoch_ends(table: Comparison, how: str) -> None:
    looks, stays = look_at_an_epoch(table)
    if how == "goes on with it":
        looks.use(3 * S, Place(4, 0, 0, True))
    elif how == "goes back":
        looks.use(3 * S, Place(1, 0, 0, True, left=(4, 8)))
    elif how == "leaves it, too":
        stays.use(3 * S, Place(5, 0, 0, True, left=(4, 16)))
    elif how == "is there no more":
        looks.leave(3 * S, Place(5, 0, 8, True, left=(4, 8)))
    else:
        made(table, 1, "a", 3 * S)
    assert stays.limit is None


def test_a_rank_that_is_started_again_alone_goes_on_where_its_first_process_began(table: Comparison) -> None:
    first, second = made(table, 0, "a"), made(table, 1, "a")
    first.use(0, Place(0, 64, 64))
    first.leave(S)
    second.use(3 * S, Place(0, 0, 0, False, True))
    again = made(table, 0, "a", 9 * S, pid=77)
    again.use(9 * S, Place(0, 96, 96, False, True))
    assert len(again.heard(11 * S)) == 2, "the first process began at sample 64, the other rank at 0"


def test_a_rank_that_is_started_again_before_it_began_may_have_the_state_of_another(table: Comparison) -> None:
    first, second = made(table, 0, "a"), made(table, 1, "a")
    first.use(0)
    second.leave(S)
    for pid, place in ((77, Place(1, 0, 0, False, True)), (78, Place(2, 208, 208, False, True))):
        again = made(table, 1, "a", pid * S, pid=pid)
        again.use(pid * S, place)
        assert (first.limit, again.limit) == (None, None)
        again.leave(pid * S)
