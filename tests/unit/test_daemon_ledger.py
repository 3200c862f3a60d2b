"""The bytes that all streams of a daemon hold together.

Covers: the bound, and what is set aside of it. Does not cover: streams (test_daemon_stream).
"""

from emlio.daemon.reading.session_memory import MemoryBudget


def test_what_is_held_stays_within_the_bound_but_for_what_is_taken_always() -> None:
    budget = MemoryBudget(100)
    assert budget.take(60, always=False)
    assert not budget.take(41, always=False)
    assert budget.take(41, always=True)
    assert budget.held_bytes == 101
    budget.give_back(60)
    assert budget.take(59, always=False)
    assert budget.held_bytes == 100


def test_what_connections_take_is_not_there_for_records() -> None:
    budget = MemoryBudget(800)
    budget.set_aside(300)
    assert budget.bound_bytes == 500
    assert not budget.take(501, always=False)
    assert budget.take(500, always=False)
    budget.set_aside(0)
    assert budget.take(300, always=False)


def test_a_quarter_is_always_there() -> None:
    budget = MemoryBudget(800)
    budget.set_aside(10_000)
    assert budget.bound_bytes == 200
    assert budget.take(200, always=False)
    assert not budget.take(1, always=False)
