import pytest

from emlio.energy.values.counter import Counter, Event, Step
from emlio.errors import ConfigError

SECOND = 1_000_000_000
RANGE_UJ = 1_000_000_000
WATTS = 100.0


def steps(counter: Counter, *raws: int | None, every_ns: int = SECOND) -> list[Step]:
    return [counter.step(raw, number * every_ns) for number, raw in enumerate(raws)]


def totals(found: list[Step]) -> list[int]:
    return [step.total_uj for step in found]


def events(found: list[Step]) -> list[Event]:
    return [step.event for step in found]


def counter() -> Counter:
    return Counter(range_uj=RANGE_UJ, most_watts=WATTS)


def test_the_first_value_is_where_counting_begins() -> None:
    found = steps(counter(), 500, 700, 700, 1_000)
    assert totals(found) == [0, 200, 200, 500]
    assert set(events(found)) == {Event.NONE}


def test_a_wrap_loses_nothing() -> None:
    found = steps(counter(), RANGE_UJ - 30, 20)
    assert found[1] == Step(total_uj=50, event=Event.WRAPPED)


def test_a_fall_that_no_wrap_explains_is_a_reset_and_adds_nothing() -> None:
    found = steps(counter(), 500_000_000, 1_000_000, 3_000_000)
    assert totals(found) == [0, 0, 2_000_000]
    assert events(found) == [Event.NONE, Event.RESET, Event.NONE]


def test_a_counter_without_a_range_never_wraps() -> None:
    found = steps(Counter(range_uj=None, most_watts=None), 900, 100, 150)
    assert totals(found) == [0, 0, 50]
    assert events(found) == [Event.NONE, Event.RESET, Event.NONE]


def test_without_a_known_power_a_short_fall_is_a_reset_and_a_long_one_a_wrap() -> None:
    unknown = Counter(range_uj=1_000, most_watts=None)
    found = steps(unknown, 900, 800, 950, 100)
    assert events(found) == [Event.NONE, Event.RESET, Event.NONE, Event.WRAPPED]
    assert totals(found) == [0, 0, 50, 200]  # of the two ways to 950 the shorter


def test_a_bad_reading_is_marked_and_the_counter_goes_on_from_before_it() -> None:
    found = steps(counter(), 0, 50_000_000, 900_000_000, 150_000_000)
    assert totals(found) == [0, 50_000_000, 50_000_000, 150_000_000]
    assert events(found) == [Event.NONE, Event.NONE, Event.GLITCH, Event.NONE]


def test_a_jump_that_stays_is_left_out() -> None:
    found = steps(counter(), 0, 500_000_000, 550_000_000, 600_000_000)
    assert totals(found) == [0, 0, 50_000_000, 100_000_000]
    assert events(found) == [Event.NONE, Event.GLITCH, Event.NONE, Event.NONE]


def test_one_reading_of_zero_is_not_counted_as_all_that_was_ever_used() -> None:
    found = steps(counter(), 400_000_000, 450_000_000, 0, 550_000_000)
    assert totals(found) == [0, 50_000_000, 50_000_000, 150_000_000]
    assert events(found)[2] is Event.RESET


def test_two_bad_readings_in_a_row_are_both_left_out() -> None:
    found = steps(counter(), 0, 700_000_000, 400_000_000, 150_000_000)
    assert totals(found) == [0, 0, 0, 150_000_000]
    assert events(found)[1:3] == [Event.GLITCH, Event.RESET]


def test_a_value_that_does_not_come_is_a_gap_and_what_was_used_is_counted_afterwards() -> None:
    found = steps(counter(), 1_000, None, None, 4_000)
    assert totals(found) == [0, 0, 0, 3_000]
    assert events(found) == [Event.NONE, Event.GAP, Event.GAP, Event.NONE]


def test_a_counter_that_cannot_be_read_at_first_begins_later() -> None:
    found = steps(counter(), None, 700, 800)
    assert totals(found) == [0, 0, 100]
    assert events(found) == [Event.GAP, Event.NONE, Event.NONE]


def test_a_stall_in_which_it_cannot_have_wrapped_twice_is_no_gap() -> None:
    stalled = counter()
    stalled.step(RANGE_UJ - 1_000, 0)
    assert stalled.step(99_000_000, 3 * SECOND) == Step(total_uj=99_001_000, event=Event.WRAPPED)


def test_a_stall_in_which_it_may_have_wrapped_unseen_is_a_gap() -> None:
    stalled = counter()
    stalled.step(1_000, 0)
    assert stalled.step(5_000, 20 * SECOND) == Step(total_uj=4_000, event=Event.GAP)


def test_a_counter_refreshed_just_before_a_second_look_is_believed() -> None:
    """A GPU's counter shows 100 ms of work at once, however short the time since the last look."""
    hasty = counter()
    hasty.step(0, 0)
    assert hasty.step(10_000_000, 1_000_000) == Step(total_uj=10_000_000, event=Event.NONE)


@pytest.mark.parametrize(
    ("raw", "at_ns", "message"), [(-1, 5, "must be at least 0, got -1"), (7, 1, "must not be older")]
)
def test_what_cannot_be_a_reading_is_refused(raw: int, at_ns: int, message: str) -> None:
    begun = counter()
    begun.step(5, 2)
    with pytest.raises(ConfigError, match=message):
        begun.step(raw, at_ns)


@pytest.mark.parametrize(("range_uj", "watts"), [(1, None), (None, 0.0), (None, -5.0)])
def test_a_counter_needs_a_range_and_a_power_that_can_be(range_uj: int | None, watts: float | None) -> None:
    with pytest.raises(ConfigError):
        Counter(range_uj=range_uj, most_watts=watts)
