"""Whose plans a daemon agrees to, said in words."""

import itertools

import pytest
from msgspec import UNSET

from emlio.daemon.ranks.claims import Caller, End, Probe
from emlio.daemon.ranks.comparison import Agree, Comparison, Differ, Verdict
from emlio.session.terms import Terms
from emlio.wire.control import Hello

S = 1_000_000_000
TIMEOUT_NS = 10 * S
GRACE_NS = S
_numbers = itertools.count()


def caller(rank: int, ordinal: object = 0, *, pid: int | None = None, client: str = "a", **hello: object) -> Caller:
    """A loader that says hello over a connection of its own, by default of a process of its own."""
    said: dict[str, object] = {"job": "j", "world_size": 2, "dataset": "x", "software": "0", "host": "h", **hello}
    said |= {"rank": rank, "ordinal": ordinal, "client": client, "pid": rank + 1 if pid is None else pid}
    said["lane_secret"] = bytes(32)
    connection = next(_numbers).to_bytes(4, "big")
    return Caller(connection=connection, hello=Hello(**said), address="10.0.0.9")  # type: ignore[arg-type]  # of several kinds


def terms(name: str) -> Terms:
    return Terms((("seed", name),))


def comparison() -> Comparison:
    return Comparison(heartbeat_timeout_ns=TIMEOUT_NS)


def agrees(verdicts: list[Verdict], *callers: Caller) -> bool:
    return [one.connection for one in verdicts if isinstance(one, Agree)] == [each.connection for each in callers]


def differing(verdicts: list[Verdict]) -> list[Differ]:
    return [one for one in verdicts if isinstance(one, Differ)]


def test_equal_plans_are_agreed_to_at_once() -> None:
    table = comparison()
    for rank in range(2):
        one = caller(rank)
        assert table.offer(one, terms("a"), 0) == [Agree(connection=one.connection)]
    assert table.deadline_ns() is None


def test_an_unlike_plan_waits_until_the_other_rank_is_heard_and_both_are_named() -> None:
    table = comparison()
    first, second = caller(0), caller(1)
    table.offer(first, terms("a"), 0)
    assert table.offer(second, terms("b"), S) == [Probe(connection=first.connection)]
    assert table.heard(first.connection, S + GRACE_NS - 1) == [], "it may have said that before it died"
    (refusal,) = table.heard(first.connection, S + GRACE_NS)
    assert isinstance(refusal, Differ)
    assert refusal.connection == second.connection
    assert "rank 1 (h:2 (10.0.0.9)) has seed='b', rank 0 (h:1 (10.0.0.9)) has seed='a'" in refusal.text
    assert table.deadline_ns() is None
    assert table.heard(first.connection, 3 * S) == []


def test_once_the_other_rank_is_gone_the_plan_is_agreed_to() -> None:
    table = comparison()
    first, second = caller(0), caller(1, world_size=4)
    table.offer(first, terms("a"), 0)
    table.offer(second, terms("b"), S)
    assert agrees(table.gone(first.connection, 2 * S), second)


def test_it_waits_for_each_of_several_and_others_that_wait_are_no_reason() -> None:
    table = comparison()
    dead = [caller(rank) for rank in range(2)]
    for one in dead:
        table.offer(one, terms("a"), 0)
    new = [caller(rank, pid=90 + rank) for rank in (2, 3)]
    for one in new:
        assert not agrees(table.offer(one, terms("b"), S), one)
    assert table.gone(dead[0].connection, 2 * S) == []
    assert agrees(table.gone(dead[1].connection, 2 * S), *new)


def test_of_two_that_wait_for_a_third_and_differ_one_is_agreed_to_and_the_other_refused_in_the_end() -> None:
    table = comparison()
    dead, second, third = caller(0), caller(1), caller(2)
    table.offer(dead, terms("a"), 0)
    table.offer(second, terms("b"), S)
    table.offer(third, terms("c"), S)
    assert agrees(table.gone(dead.connection, 9 * S), second)
    assert table.heard(second.connection, 9 * S) == [], "what it may have said before it died does not count"
    (refusal,) = differing(table.heard(second.connection, 10 * S))
    assert refusal.connection == third.connection


def test_a_connection_that_broke_ends_its_session_after_the_time_of_two_pings() -> None:
    table = comparison()
    first, second = caller(0), caller(1)
    table.offer(first, terms("a"), 0)
    table.offer(second, terms("b"), 0)
    table.lost(first.connection, 0)
    assert not [one for one in table.tick(3 * S - 1) if isinstance(one, End)]
    (ending,) = [one for one in table.tick(3 * S) if isinstance(one, End)]
    assert ending.connection == first.connection


def test_a_session_that_is_waited_for_is_probed_again_and_again() -> None:
    table = comparison()
    first = caller(0)
    table.offer(first, terms("a"), 0)
    table.offer(caller(1), terms("b"), 0)
    assert table.deadline_ns() == S
    assert table.tick(S - 1) == []
    assert table.tick(S) == [Probe(connection=first.connection)]


def test_a_loader_that_calls_again_is_what_it_was_and_lives() -> None:
    table = comparison()
    before, after, second = caller(0), caller(0), caller(1)
    table.offer(before, terms("a"), 0)
    table.offer(second, terms("b"), 0)
    table.lost(before.connection, 0)
    (refusal,) = differing(table.call_again(after, 2 * S))
    assert refusal.connection == second.connection
    assert table.gone(before.connection, 2 * S) == []
    assert table.offer(after, terms("a"), 2 * S) == [Agree(connection=after.connection)]
    third = caller(1)
    assert not agrees(table.offer(third, terms("b"), 3 * S), third)


def test_a_loader_that_calls_again_keeps_its_partner_though_another_has_the_same_options() -> None:
    table = comparison()
    first = caller(0, 0, client="first")
    table.offer(first, terms("b"), 0)
    late = caller(1, 0)
    assert not agrees(table.offer(late, terms("a"), 0), late)
    table.offer(caller(1, 1, client="x"), terms("a"), 0)
    table.offer(caller(1, 2, client="y"), terms("b"), 0)
    assert late.connection in {
        one.connection for one in table.offer(caller(0, 1, client="x"), terms("a"), 0) if isinstance(one, Agree)
    }
    more = caller(0, 3, client="y")
    assert agrees(table.offer(more, terms("b"), 0), more)
    again = caller(0, 0, client="first")
    table.call_again(again, 1)
    assert agrees(table.offer(again, terms("b"), 1), again), "it pairs with rank 1's third, as it did before"


def test_a_loader_that_calls_again_and_is_gone_is_gone() -> None:
    table = comparison()
    before, after, second = caller(0), caller(0), caller(1)
    table.offer(before, terms("a"), 0)
    table.offer(second, terms("b"), 0)
    assert table.call_again(after, 1) == []
    assert table.gone(before.connection, 1) == []
    assert agrees(table.gone(after.connection, 2), second)


def test_who_went_away_while_it_waited_is_forgotten() -> None:
    table = comparison()
    first, second = caller(0), caller(1)
    table.offer(first, terms("a"), 0)
    table.offer(second, terms("b"), 0)
    assert table.gone(second.connection, 1) == []
    assert table.heard(first.connection, 2 * S) == []
    assert table.deadline_ns() is None


def test_a_loader_that_the_other_rank_makes_meanwhile_may_be_what_was_lacking() -> None:
    table = comparison()
    training, evaluation = caller(0, 0), caller(0, 1, client="b")
    table.offer(training, terms("t"), 0)
    other = caller(1, 0)
    assert not agrees(table.offer(other, terms("e"), 0), other)
    assert agrees(table.offer(evaluation, terms("e"), 1), evaluation, other)


def test_a_large_job_comes_back_once_all_of_its_former_ranks_are_gone() -> None:
    table = comparison()
    dead, new = [caller(rank) for rank in range(300)], [caller(rank) for rank in range(300, 500)]
    for one in dead:
        assert agrees(table.offer(one, terms("a"), 0), one)
    probed: set[bytes] = set()
    for one in new:
        assert not agrees(table.offer(one, terms("b"), S), one)
    for second in range(2, 8):
        probed |= {one.connection for one in table.tick(second * S) if isinstance(one, Probe)}
    assert probed == {one.connection for one in dead}, "they are found out together, not in turns"
    agreed: list[bytes] = []
    for one in dead:
        assert agreed == [], "one is left"
        agreed += [each.connection for each in table.gone(one.connection, 9 * S) if isinstance(each, Agree)]
    assert sorted(agreed) == sorted(one.connection for one in new)


@pytest.mark.parametrize("other", [{"job": "k"}, {"dataset": "y"}, {"world_size": 1}, {"ordinal": UNSET}])
def test_these_are_not_compared(other: dict[str, object]) -> None:
    table = comparison()
    table.offer(caller(0), terms("a"), 0)
    second = caller(1, **other)
    assert agrees(table.offer(second, terms("b"), 0), second)


def test_what_a_process_made_before_counts_though_its_job_had_no_session_for_a_while() -> None:
    table = comparison()
    ahead = caller(0, 0)
    table.offer(ahead, terms("a"), 0)
    table.gone(ahead.connection, 1)
    table.offer(caller(0, 1, client="b"), terms("b"), 2)
    peek, behind = caller(1, 0), caller(1, 1, client="b")
    assert agrees(table.offer(peek, terms("peek"), 3), peek)
    table.gone(peek.connection, 4)
    assert agrees(table.offer(behind, terms("a"), 5), behind), "the other rank had that once"


def test_of_ranks_without_a_session_those_that_have_had_none_longest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("emlio.daemon.ranks.comparison._MOST_IDLE_RANKS", 2)
    table = comparison()
    for job in ("first", "second", "third"):
        one = caller(0, 0, job=job)
        table.offer(one, terms("a"), 0)
        table.gone(one.connection, 1)
    for job, knows in (("first", False), ("second", True), ("third", True)):
        table.offer(caller(0, 1, client="b", job=job), terms("b"), 2)
        behind = caller(1, 1, client="b", job=job)
        assert agrees(table.offer(behind, terms("a"), 3), behind) is knows


def test_another_process_with_the_same_rank_begins_with_a_clean_sheet() -> None:
    table = comparison()
    first = caller(0)
    table.offer(first, terms("a"), 0)
    table.offer(caller(1), terms("a"), 0)
    table.gone(first.connection, 1)
    again = caller(0, pid=99)
    assert not agrees(table.offer(again, terms("b"), 2), again), "the other rank is there still"


def test_strangers_decide_nothing() -> None:
    table = comparison()
    assert table.heard(b"?", 0) == []
    assert table.gone(b"?", 0) == []
    assert table.call_again(caller(0), 0) == []
    table.lost(b"?", 0)
    assert table.tick(0) == []
    assert table.deadline_ns() is None
