"""Who has a rank and who waits for it, said in words."""

import itertools

import pytest

from emlio.daemon.ranks.claims import Admit, Caller, Claims, Decision, End, Probe, TurnAway
from emlio.wire.control import Hello

S = 1_000_000_000
TIMEOUT_NS = 10 * S
GRACE_NS = 250_000_000
_numbers = itertools.count()


def caller(host: str, pid: int = 1, *, client: str = "a", **hello: object) -> Caller:
    """A loader that says hello over a connection of its own."""
    said: dict[str, object] = {"job": "j", "rank": 0, "world_size": 2, "dataset": "x", "software": "0"}
    said |= {"lane_secret": bytes(32), **hello}
    connection = next(_numbers).to_bytes(4, "big")
    # hello's values are of several kinds
    return Caller(connection=connection, hello=Hello(host=host, pid=pid, client=client, **said), address="10.0.0.9")  # type: ignore[arg-type]


def claims() -> Claims:
    return Claims(heartbeat_timeout_ns=TIMEOUT_NS)


def admitted(decisions: list[Decision]) -> list[Caller]:
    return [decision.caller for decision in decisions if isinstance(decision, Admit)]


def turned_away(decisions: list[Decision]) -> list[Caller]:
    return [decision.caller for decision in decisions if isinstance(decision, TurnAway)]


def test_who_comes_first_has_the_rank() -> None:
    first = caller("one")
    assert claims().say_hello(first, 0) == [Admit(caller=first)]


@pytest.mark.parametrize("other", [{"rank": 1}, {"job": "k"}, {"dataset": "y"}])
def test_another_rank_job_or_dataset_is_another_claim(other: dict[str, object]) -> None:
    table = claims()
    table.say_hello(caller("one"), 0)
    second = caller("two", **other)
    assert table.say_hello(second, 0) == [Admit(caller=second)]


def test_another_number_of_ranks_of_the_same_job_is_the_same_claim() -> None:
    table = claims()
    table.say_hello(caller("one", world_size=2), 0)
    second = caller("two", world_size=3)
    table.say_hello(second, 0)
    assert table.waits(second.connection)


def test_a_second_process_is_turned_away_once_the_first_is_heard_and_both_are_named() -> None:
    table = claims()
    first, second = caller("one", 11), caller("two", 22)
    table.say_hello(first, 0)
    assert table.say_hello(second, S) == [Probe(connection=first.connection)]
    assert table.waits(second.connection)
    (refusal,) = table.heard(first.connection, 2 * S)
    assert isinstance(refusal, TurnAway)
    assert (refusal.caller, refusal.code) == (second, "rank-claimed")
    assert "rank 0 of job 'j' on dataset 'x' is held by one:11 (10.0.0.9), and two:22 (10.0.0.9)" in refusal.text
    assert "EMLIO_JOB" in refusal.text
    assert not table.waits(second.connection)
    assert table.deadline_ns() is None


def test_what_a_holder_may_have_said_before_it_died_does_not_count() -> None:
    table = claims()
    first, second = caller("one"), caller("two")
    table.say_hello(first, 0)
    table.say_hello(second, S)
    assert table.heard(first.connection, S + GRACE_NS - 1) == []
    assert turned_away(table.heard(first.connection, S + GRACE_NS)) == [second]


def test_when_the_first_process_is_over_the_next_that_waits_has_the_rank() -> None:
    table = claims()
    first, second, third = caller("one"), caller("two"), caller("three")
    table.say_hello(first, 0)
    table.say_hello(second, S)
    table.say_hello(third, S)
    assert table.gone(first.connection) == [Admit(caller=second)]
    assert turned_away(table.heard(second.connection, 3 * S)) == [third]


def test_who_went_away_while_it_waited_is_not_admitted() -> None:
    table = claims()
    first, second, third = caller("one"), caller("two"), caller("three")
    for number, each in enumerate((first, second, third)):
        table.say_hello(each, number)
    assert table.gone(second.connection) == []
    assert table.gone(first.connection) == [Admit(caller=third)]


def test_nobody_waits_for_ever() -> None:
    table = claims()
    second = caller("two")
    table.say_hello(caller("one"), 0)
    table.say_hello(second, 0)
    last_ns = 2 * TIMEOUT_NS + GRACE_NS
    assert turned_away(table.tick(last_ns - 1)) == []
    assert turned_away(table.tick(last_ns)) == [second]


def test_the_same_loader_takes_its_own_place_at_once() -> None:
    table = claims()
    before, after = caller("one"), caller("one")
    table.say_hello(before, 0)
    assert table.say_hello(after, 1) == [
        End(connection=before.connection, reason="the same loader started a new session"),
        Admit(caller=after),
    ]
    assert table.gone(before.connection) == []
    second = caller("two")
    table.say_hello(second, 2)
    assert table.waits(second.connection)


def test_loaders_of_one_process_have_the_rank_together() -> None:
    table = claims()
    training, evaluation, second = caller("one"), caller("one", client="b"), caller("two")
    table.say_hello(training, 0)
    assert table.say_hello(evaluation, 0) == [Admit(caller=evaluation)]
    table.say_hello(second, 0)
    assert table.gone(training.connection) == []
    assert turned_away(table.heard(evaluation.connection, S)) == [second]


def test_loaders_of_one_process_are_admitted_together() -> None:
    table = claims()
    first = caller("one")
    training, other, evaluation = caller("two"), caller("three"), caller("two", client="b")
    for each in (first, training, other, evaluation):
        table.say_hello(each, 0)
    assert admitted(table.gone(first.connection)) == [training, evaluation]
    assert table.waits(other.connection)


def test_a_process_of_the_same_number_on_another_host_is_another() -> None:
    table = claims()
    table.say_hello(caller("one", 7), 0)
    second = caller("two", 7)
    table.say_hello(second, 0)
    assert table.waits(second.connection)


def test_who_waits_and_calls_again_keeps_its_place() -> None:
    table = claims()
    first, second, third, again = caller("one"), caller("two"), caller("three"), caller("two")
    for number, each in enumerate((first, second, third)):
        table.say_hello(each, number)
    (answer,) = table.say_hello(again, 3)
    assert isinstance(answer, TurnAway)
    assert (answer.caller, answer.code) == (second, "no-session")
    assert table.gone(second.connection) == []
    assert table.gone(first.connection) == [Admit(caller=again)]


def test_a_holder_whose_connection_broke_has_the_time_of_two_pings_to_call_again() -> None:
    table = claims()
    first, second = caller("one"), caller("two")
    table.say_hello(first, 0)
    (probe,) = table.say_hello(second, 0)
    assert probe == Probe(connection=first.connection)
    table.lost(first.connection, 0)
    assert not [each for each in table.tick(3 * S - 1) if isinstance(each, End)]
    table.lost(first.connection, 3 * S - 1)
    (ending,) = [each for each in table.tick(3 * S) if isinstance(each, End)]
    assert ending.connection == first.connection
    assert table.gone(first.connection) == [Admit(caller=second)]


def test_a_holder_that_calls_again_in_time_keeps_the_rank() -> None:
    table = claims()
    first, second, again = caller("one"), caller("two"), caller("one")
    table.say_hello(first, 0)
    table.say_hello(second, 0)
    table.lost(first.connection, 0)
    decisions = table.say_hello(again, 2 * S)
    assert admitted(decisions) == [again]
    assert turned_away(decisions) == [second]


def test_a_silent_holder_is_probed_again_and_again_while_somebody_waits() -> None:
    table = claims()
    first, second = caller("one"), caller("two")
    table.say_hello(first, 0)
    table.say_hello(second, 0)
    assert table.deadline_ns() == S
    assert table.tick(S - 1) == []
    assert table.tick(S) == [Probe(connection=first.connection)]
    assert table.deadline_ns() == 2 * S


def test_how_many_may_wait_for_one_rank_is_bounded() -> None:
    table = claims()
    table.say_hello(caller("one"), 0)
    many = [caller("many", pid) for pid in range(100)]
    answers = [table.say_hello(each, 0) for each in many]
    waiting = [each for each in many if table.waits(each.connection)]
    assert 0 < len(waiting) < 10
    refused = [caller for decisions in answers for caller in turned_away(decisions)]
    assert refused == many[len(waiting) :]


def test_when_the_daemon_leaves_all_who_wait_are_answered() -> None:
    table = claims()
    table.say_hello(caller("one"), 0)
    waiting = [caller("two"), caller("three")]
    for each in waiting:
        table.say_hello(each, 0)
    answers = table.dismiss("draining", "leaving")
    assert turned_away(answers) == waiting
    assert {answer.code for answer in answers if isinstance(answer, TurnAway)} == {"draining"}
    assert not any(table.waits(each.connection) for each in waiting)


def test_strangers_decide_nothing() -> None:
    table = claims()
    assert table.heard(b"?", 0) == []
    assert table.gone(b"?") == []
    table.lost(b"?", 0)
    assert table.tick(0) == []
