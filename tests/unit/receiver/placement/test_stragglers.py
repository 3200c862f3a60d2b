"""When a daemon is waited for too often, and how long its work is lent."""

from emlio.receiver.placement.stragglers import Stragglers

SECOND = 1_000_000_000


def relieved_after(stragglers: Stragglers, samples: list[int | None]) -> list[int]:
    return [number for number, sample in enumerate(samples) if stragglers.note(sample) is not None]


def test_one_that_is_always_waited_for_is_relieved_soon_and_then_judged_anew() -> None:
    relieved = relieved_after(Stragglers(), [1] * 30)
    assert len(relieved) == 2
    assert relieved[1] - relieved[0] == relieved[0] + 1


def test_being_waited_for_now_and_then_is_no_reason() -> None:
    assert relieved_after(Stragglers(), [1, None] * 100) == []
    assert relieved_after(Stragglers(), [1, 0] * 100) == []
    assert relieved_after(Stragglers(), [1, 1, 0] * 100) == []


def test_a_moment_of_other_waiting_does_not_save_a_slow_one() -> None:
    assert relieved_after(Stragglers(), [1, 1, 1, 1, 0] * 4) != []


def test_the_relieved_one_is_the_one_to_blame() -> None:
    stragglers = Stragglers()
    assert {stragglers.note(2) for _ in range(20)} == {None, 2}


def test_each_loan_is_twice_as_long_as_the_one_before_but_an_hour_at_most() -> None:
    stragglers = Stragglers()
    lengths = [stragglers.loan_ns(1) for _ in range(10)]
    assert lengths[:3] == [30 * SECOND, 60 * SECOND, 120 * SECOND]
    assert lengths[-1] == 3600 * SECOND
    assert stragglers.loan_ns(0) == 30 * SECOND


def test_what_was_seen_before_the_streams_were_opened_does_not_count() -> None:
    stragglers = Stragglers()
    for _ in range(10):
        stragglers.note(1)
    stragglers.forget()
    assert relieved_after(stragglers, [1] * 10) == []
