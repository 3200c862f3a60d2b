"""The comparison of ranks: which users a daemon holds, refuses and releases."""

from typing import Any

import msgspec
import pytest

from emlio.daemon.ranks.claims import End, Probe
from emlio.daemon.ranks.comparison import Agree, Comparison, Differ
from emlio.session.terms import STEPS_AHEAD
from emlio.wire.control import Limit, Made, Place
from emlio_testing.compared_loaders import Loader, made, terms

S = 1_000_000_000
TIMEOUT_NS = 10 * S
GRACE_NS = S
PATIENCE_NS = 2 * TIMEOUT_NS + GRACE_NS
HELD = Limit(0, 0, 0)


@pytest.fixture
def table() -> Comparison:
    return Comparison(heartbeat_timeout_ns=TIMEOUT_NS)


def test_equal_loaders_are_not_limited(table: Comparison) -> None:
    loaders = [made(table, rank, "a") for rank in range(2)]
    assert [loader.limit for loader in loaders] == [None, None]
    assert table.deadline_ns() is None


def test_the_user_of_an_unlike_loader_waits_until_the_other_is_heard_and_both_are_named(table: Comparison) -> None:
    first, second = made(table, 0, "a"), Loader(table, 1, "b")
    assert Probe(connection=second.connection) in second.offer(S)[:-1], "the limit is told before the plan is agreed"
    assert (first.limit, second.limit) == (None, HELD)
    first.use(S)
    assert first.heard(9 * S) == [], "nobody uses the second yet"
    second.use(10 * S)
    assert first.heard(10 * S + GRACE_NS - 1) == [], "it may have said that before it died"
    (refusal,) = first.heard(10 * S + GRACE_NS)
    assert refusal.connection == second.connection
    assert "rank 1 (h:2 (10.0.0.9)) has seed='b', rank 0 (h:1 (10.0.0.9)) has seed='a'" in refusal.text
    assert table.deadline_ns() is None
    assert first.heard(12 * S) == []


def test_where_nobody_uses_the_other_loader_it_takes_longer(table: Comparison) -> None:
    first, second = made(table, 0, "a"), made(table, 1, "b")
    second.use(S)
    assert first.heard(S + PATIENCE_NS - 1) == []
    assert len(first.heard(S + PATIENCE_NS)) == 1


def test_loaders_made_in_another_order_wait_for_nobody(table: Comparison) -> None:
    training = made(table, 0, "t")
    evaluation = made(table, 1, "e")
    assert evaluation.limit == HELD
    training.use(S)
    assert training.heard(99 * S) == [], "whatever time passes until the missing ones are made"
    other_training = made(table, 1, "t", 99 * S)
    assert (training.limit, evaluation.limit, other_training.limit) == (None, None, None)
    evaluation.use(100 * S)
    assert made(table, 0, "e", 101 * S).limit is None


def test_a_loader_that_the_other_rank_makes_meanwhile_may_be_what_was_lacking(table: Comparison) -> None:
    training = made(table, 0, "t")
    other = made(table, 1, "e")
    other.use(S)
    evaluation = Loader(table, 0, "e")
    verdicts = evaluation.offer(2 * S)
    assert Probe(connection=other.connection) in verdicts
    assert (training.limit, evaluation.limit, other.limit) == (None, None, None)


def test_once_the_other_rank_is_gone_the_user_goes_on(table: Comparison) -> None:
    first, second = made(table, 0, "a"), made(table, 1, "b", S, world_size=4)
    assert second.limit == HELD
    assert Probe(connection=second.connection) in first.leave(2 * S)
    assert second.limit is None


def test_it_waits_for_each_of_several_and_others_that_wait_are_no_reason(table: Comparison) -> None:
    dead = [made(table, rank, "a") for rank in range(2)]
    new = [made(table, rank, "b", S, pid=90 + rank) for rank in (2, 3)]
    dead[0].leave(2 * S)
    assert [one.limit for one in new] == [HELD, HELD]
    dead[1].leave(2 * S)
    assert [one.limit for one in new] == [None, None]


def test_a_connection_that_broke_ends_its_session_after_the_time_of_two_pings(table: Comparison) -> None:
    first, _ = made(table, 0, "a"), made(table, 1, "b")
    table.lost(first.connection, 0)
    assert not [one for one in table.tick(3 * S - 1) if isinstance(one, End)]
    (ending,) = [one for one in table.tick(3 * S) if isinstance(one, End)]
    assert ending.connection == first.connection


def test_a_session_that_is_waited_for_is_probed_again_and_again(table: Comparison) -> None:
    first, _ = made(table, 0, "a"), made(table, 1, "b")
    assert table.deadline_ns() == S
    assert table.tick(S - 1) == []
    assert table.tick(S) == [Probe(connection=first.connection)]


def test_a_loader_that_calls_again_is_what_it_was_and_lives(table: Comparison) -> None:
    first, second = made(table, 0, "a"), made(table, 1, "b")
    first.use(0)
    second.use(0)
    before = first.caller
    table.lost(before.connection, 0)
    first.caller = msgspec.structs.replace(before, connection=b"again")
    (refusal,) = [one for one in table.call_again(first.caller, 2 * S) if isinstance(one, Differ)]
    assert refusal.connection == second.connection
    assert table.gone(before.connection, 2 * S) == []
    first.offer(2 * S)
    assert first.limit is None
    assert made(table, 1, "b", 3 * S).limit == HELD


def test_whatever_a_rank_made_before_its_loader_is_held_against_the_others(table: Comparison) -> None:
    for name in "xyz":
        peek = made(table, 0, name)
        peek.use()
        peek.leave(1, Place(0, 0, 8))
    made(table, 0, "a", 2)
    assert made(table, 1, "b", 3).limit == HELD


def test_what_was_refused_counts_as_never_made(table: Comparison) -> None:
    first, second = made(table, 0, "a"), made(table, 1, "b")
    first.use()
    second.use()
    assert len(first.heard(2 * S)) == 1
    first.leave(3 * S, Place(0, 0, 0))
    again = made(table, 0, "a", 4 * S)
    again.use(4 * S)
    assert made(table, 1, "b", 5 * S).limit == HELD
    assert made(table, 0, "b", 6 * S).limit is None


def test_a_daemon_that_knows_nothing_believes_what_processes_say(table: Comparison) -> None:
    ahead = Loader(table, 0, "b")
    ahead.offer(0, [Made(terms("a").digest, 0, 1, 2, 96)])
    ahead.use(0)
    behind = made(table, 1, "a")
    assert behind.limit == Limit(2, 96, STEPS_AHEAD)
    assert made(table, 1, "c").limit == HELD


def leave_for_another(table: Comparison) -> tuple[Loader, Loader]:
    """Rank 1 closes its loader after 64 samples and uses another one; rank 0 goes on with the first."""
    stays, leaves = made(table, 0, "a"), made(table, 1, "a")
    stays.use()
    leaves.use()
    leaves.leave(S, Place(0, 0, 64))
    other = made(table, 1, "b", 2 * S)
    other.use(2 * S)
    assert (stays.limit, other.limit) == (Limit(0, 64, STEPS_AHEAD), None)
    return stays, other


def test_a_rank_that_goes_on_with_a_loader_that_another_one_left_is_limited_and_both_are_told(
    table: Comparison,
) -> None:
    stays, other = leave_for_another(table)
    stays.use(3 * S, Place(0, 0, 192, True, True))
    assert other.heard(3 * S + GRACE_NS) == [], "it may be a look"
    other.use(5 * S, Place(0, 0, 32, True))
    told = other.heard(5 * S)
    assert {one.connection for one in told} == {stays.connection, other.connection}
    for one in told:
        assert (
            "rank 1 (h:2 (10.0.0.9)) closed its loader with seed='a' at sample 64 of epoch 0 and uses seed='b', "
            in one.text
        )
        assert "rank 0 (h:1 (10.0.0.9)) goes on with seed='a'" in one.text


@pytest.mark.parametrize("how", ["makes the other one, too", "leaves it", "the other rank ends"])
def test_the_limit_ends(table: Comparison, how: str) -> None:
    stays, other = leave_for_another(table)
    if how == "the other rank ends":
        other.leave(4 * S, Place(0, 0, 8))
        assert stays.limit is None
    elif how == "leaves it":
        stays.leave(4 * S, Place(0, 0, 72))
        mine = made(table, 0, "b", 5 * S)
        assert (mine.limit, other.limit) == (None, None)
    else:
        assert made(table, 0, "b", 5 * S).limit is None
        assert stays.limit is None


def test_a_rank_that_is_started_again_alone_is_let_in_where_it_was(table: Comparison) -> None:
    first, second = made(table, 0, "a"), made(table, 1, "a")
    first.use(0)
    second.use(0)
    second.leave(5 * S)
    again = made(table, 1, "a", 9 * S, pid=77)
    again.use(9 * S, Place(0, 64, 64))
    assert (first.limit, again.limit) == (None, None)


def test_a_rank_that_is_started_again_alone_is_let_in_a_stage_ahead_of_the_others(table: Comparison) -> None:
    first, second = made(table, 0, "a"), made(table, 1, "a")
    first.use(0)
    second.use(0)
    second.leave(S, Place(0, 0, 512, True))
    second = made(table, 1, "b", 2 * S)
    second.use(2 * S)
    second.leave(3 * S)
    again = made(table, 1, "b", 9 * S, pid=77)
    again.use(9 * S, Place(0, 64, 64))
    assert (again.limit, first.limit) == (None, None)


def test_a_job_that_is_started_again_as_a_whole_is_compared_anew(table: Comparison) -> None:
    for loader in [made(table, rank, "a") for rank in range(2)]:
        loader.use(0)
        loader.leave(S)
    first = made(table, 0, "a", 9 * S, pid=77)
    first.use(9 * S, Place(0, 64, 64))
    assert first.limit is None, "its own process had got that far"
    second = made(table, 1, "a", 9 * S + 1, pid=78)
    second.use(9 * S + 1)
    assert HELD in (first.limit, second.limit)


def test_what_one_rank_read_and_the_next_never_made_holds_it_until_the_first_is_back(table: Comparison) -> None:
    first = made(table, 0, "a")
    first.use(0)
    first.leave(S, Place(0, 0, 512, True))
    second = made(table, 1, "b", 2 * S)
    second.use(2 * S)
    assert second.limit == HELD
    again = made(table, 0, "b", 3 * S, pid=77)
    assert (second.limit, again.limit) == (None, None)


def test_of_one_that_is_not_back_the_text_says_what_it_had(table: Comparison) -> None:
    first = made(table, 0, "a")
    first.use(0)
    first.leave(S, Place(0, 0, 512, True))
    second = made(table, 1, "b", 2 * S)
    second.use(2 * S)
    assert [one for one in table.tick(2 * S + PATIENCE_NS - 1) if isinstance(one, Differ)] == []
    (refusal,) = [one for one in table.tick(2 * S + PATIENCE_NS) if isinstance(one, Differ)]
    assert "rank 0 (h:1 (10.0.0.9)) has seed='a'" in refusal.text


def test_a_large_job_comes_back_once_all_of_its_former_ranks_are_gone(table: Comparison) -> None:
    dead = [made(table, rank, "a") for rank in range(300)]
    new = [made(table, rank, "b", S) for rank in range(300, 500)]
    probed: set[bytes] = set()
    for second in range(2, 8):
        probed |= {one.connection for one in table.tick(second * S) if isinstance(one, Probe)}
    assert probed == {one.connection for one in dead}, "they are found out together, not in turns"
    for one in dead:
        assert {each.limit for each in new} == {HELD}, "one is left"
        one.leave(9 * S)
    assert {each.limit for each in new} == {None}


@pytest.mark.parametrize("other", [{"job": "k"}, {"dataset": "y"}, {"world_size": 1}])
def test_these_are_not_compared(table: Comparison, other: dict[str, Any]) -> None:
    made(table, 0, "a")
    assert made(table, 1, "b", **other).limit is None


def test_a_release_that_does_not_say_what_it_made_is_served_as_before(table: Comparison) -> None:
    made(table, 0, "a")
    second = Loader(table, 1, "b")
    assert second.offer(0, None) == [Agree(connection=second.connection)]
    assert second.limit is None


def test_of_ranks_without_a_session_those_that_have_had_none_longest_are_forgotten(
    table: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emlio.daemon.ranks.comparison._MOST_IDLE_RANKS", 2)
    for job in ("first", "second", "third"):
        made(table, 0, "a", job=job).leave(1)
    for job, knows in (("first", False), ("second", True), ("third", True)):
        made(table, 0, "b", 2, job=job)
        assert (made(table, 1, "a", 3, job=job).limit != HELD) is knows


def test_strangers_decide_nothing(table: Comparison) -> None:
    assert table.heard(b"?", 0) == []
    assert table.gone(b"?", 0) == []
    assert table.walked(b"?", Place(0, 0, 0), 0) == []
    assert table.call_again(Loader(table, 0, "a").caller, 0) == []
    assert table.limit(b"?") is None
    table.lost(b"?", 0)
    assert table.tick(0) == []
    assert table.deadline_ns() is None


def test_a_rank_that_made_the_missing_loader_after_closing_another_releases_the_one_that_waits(
    table: Comparison,
) -> None:
    train, held = made(table, 0, "train"), made(table, 1, "eval")
    train.use(0)
    held.use(0)
    train.use(S, Place(0, 0, 99, read=True))
    assert held.limit == HELD
    train.leave(S, Place(0, 0, 99, read=True))
    assert held.limit == HELD, "the last that rank 0 read stands for it"
    made(table, 0, "eval", 2 * S)
    assert held.limit is None
    assert table.tick(2 * S + PATIENCE_NS) == []


def test_what_a_killed_process_read_holds_nobody_who_comes_before_its_rank_is_back(table: Comparison) -> None:
    former = made(table, 1, "a")
    former.use(0)
    former.use(S, Place(0, 0, 512, True))
    former.leave(2 * S)
    changed = made(table, 0, "b", 9 * S)
    changed.use(9 * S, Place(0, 64, 64, False, True))
    assert changed.limit is None, "rank 1 may be slow to come back with the other options"
    assert table.tick(9 * S + PATIENCE_NS) == []
    assert made(table, 1, "b", 60 * S, pid=77).limit is None


def test_far_more_loaders_than_an_offer_names_are_known_of_a_rank_that_is_ahead(table: Comparison) -> None:
    for name in range(150):
        loader = made(table, 0, f"{name}")
        loader.use(name)
        loader.leave(name, Place(0, 0, 512, True))
    made(table, 0, "now", 200).use(200)
    assert made(table, 1, "0", 300).limit != HELD
