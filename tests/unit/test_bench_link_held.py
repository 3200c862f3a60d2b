import pytest

from emlio.errors import ConfigError
from emlio_bench.link.contract import STRETCH_NS, Held, HeldGauge, Stretch, add_held

QUARTER = STRETCH_NS // 4


def stretch(number: int, mean: int, most: int) -> Stretch:
    return Stretch(number=number, mean_bytes=mean, most_bytes=most)


def test_a_stretch_has_the_mean_over_its_time_and_the_most_at_any_moment() -> None:
    gauge = HeldGauge(0)
    gauge.note(1000, QUARTER)
    gauge.note(4000, 2 * QUARTER)
    gauge.note(200, 2 * QUARTER + 1)
    gauge.note(0, 3 * QUARTER + 1)
    # A quarter nothing, a quarter 1000, a nanosecond 4000, a quarter 200.
    assert gauge.take(STRETCH_NS) == (stretch(0, (1200 * QUARTER + 4000) // STRETCH_NS, 4000),)


def test_what_is_held_goes_on_through_stretches_in_which_nothing_happens() -> None:
    gauge = HeldGauge(10 * STRETCH_NS)
    gauge.note(700, 10 * STRETCH_NS)
    assert gauge.take(13 * STRETCH_NS + 1) == (stretch(10, 700, 700), stretch(11, 700, 700), stretch(12, 700, 700))


def test_each_stretch_is_taken_once_and_only_when_it_is_over() -> None:
    gauge = HeldGauge(0)
    gauge.note(8, 0)
    assert gauge.take(STRETCH_NS - 1) == ()
    assert gauge.take(STRETCH_NS) == (stretch(0, 8, 8),)
    assert gauge.take(STRETCH_NS) == ()


def test_what_was_before_the_gauge_began_does_not_count_in_its_first_stretch() -> None:
    gauge = HeldGauge(3 * QUARTER)
    gauge.note(500, 3 * QUARTER)
    assert gauge.take(STRETCH_NS) == (stretch(0, 500, 500),)


def test_the_most_of_a_stretch_is_not_that_of_the_one_before() -> None:
    gauge = HeldGauge(0)
    gauge.note(900, QUARTER)
    gauge.note(100, 2 * QUARTER)
    assert [one.most_bytes for one in gauge.take(2 * STRETCH_NS)] == [900, 100]


def test_a_gauge_that_nobody_asks_any_more_forgets_the_oldest() -> None:
    gauge = HeldGauge(0)
    told = gauge.take(200_000 * STRETCH_NS)
    assert len(told) <= 90_000
    assert told[-1].number == 199_999
    assert [one.number for one in told] == list(range(told[0].number, 200_000))


def test_links_that_are_one_together_hold_what_each_holds() -> None:
    one = Held(to_training=(stretch(1, 10, 20), stretch(2, 1, 1)), to_storage=(stretch(1, 5, 5),))
    other = Held(to_training=(stretch(2, 30, 40), stretch(3, 7, 7)))
    assert add_held([one, other]) == Held(
        to_training=(stretch(1, 10, 20), stretch(2, 31, 41), stretch(3, 7, 7)), to_storage=(stretch(1, 5, 5),)
    )
    assert add_held([]) == Held()


@pytest.mark.parametrize(("mean", "most"), [(-1, 0), (2, 1)])
def test_a_mean_lies_between_nothing_and_the_most(mean: int, most: int) -> None:
    with pytest.raises(ConfigError, match="mean must be in"):
        stretch(0, mean, most)
