import pytest

from emlio.errors import ConfigError
from emlio_bench.harness.spread import Spread, Value, number, ratio, spread, text


def seen(*values: float, cut: tuple[float, ...] = ()) -> list[float | Value]:
    return [*values, *(Value(value=value, beyond=">") for value in cut)]


def test_the_median_of_runs_that_came_to_their_end_is_a_value() -> None:
    of = spread(seen(3.0, 1.0, 2.0))
    assert (of.median, of.least, of.most, of.bound, of.sign, of.count) == (2.0, 1.0, 3.0, False, "", 3)
    assert of.width == 1.0


def test_a_cut_run_is_the_slowest_and_leaves_the_median_known_where_most_came_to_their_end() -> None:
    of = spread(seen(40.0, 44.0, cut=(45.0,)))
    assert (of.median, of.bound, of.beyond) == (44.0, False, ">")
    assert text(of) == "44.0 (40.0..> 45.0)"


def test_the_median_is_a_bound_where_most_runs_were_cut() -> None:
    of = spread(seen(44.0, cut=(45.0, 45.0)))
    assert (of.median, of.bound, of.sign) == (45.0, True, ">")
    assert text(of, spread=False) == "> 45.0"
    assert text(spread(seen(cut=(45.0, 45.0)))) == "> 45.0"


def test_extremes_that_are_bounds_keep_their_sign() -> None:
    assert text(spread(seen(cut=(6.84, 8.73)))) == "> 7.79 (> 6.84..> 8.73)"
    assert text(spread(seen(6.84, cut=(8.73,)))) == "> 7.79 (6.84..> 8.73)"
    assert text(spread([Value(value=2.0, beyond="<"), Value(value=4.0, beyond="<")])) == "< 3.00 (< 2.00..< 4.00)"


def test_a_rate_that_is_a_bound_is_the_lowest() -> None:
    of = spread([Value(value=9.0), Value(value=2.0, beyond="<"), Value(value=8.0)])
    assert (of.median, of.bound, of.least) == (8.0, False, 2.0)
    assert text(of) == "8.00 (< 2.00..9.00)"


def test_bounds_of_both_kinds_are_refused_and_so_is_nothing() -> None:
    with pytest.raises(ConfigError, match="on one side"):
        spread([Value(value=1.0, beyond="<"), Value(value=2.0, beyond=">")])
    with pytest.raises(ConfigError, match="at least one value"):
        spread([])


def test_a_ratio_spreads_as_far_as_any_two_runs_allow() -> None:
    of = ratio(spread(seen(20.0, 30.0)), spread(seen(2.0, 4.0)))
    assert (of.median, of.least, of.most) == (25 / 3, 5.0, 15.0)


def test_nothing_is_divided_by_a_bound() -> None:
    with pytest.raises(ConfigError, match="must be known"):
        ratio(spread(seen(1.0)), spread(seen(cut=(45.0,))))


def test_a_scaled_spread_is_the_same_in_another_unit() -> None:
    of = spread(seen(cut=(0.5,))).scaled(1000)
    assert (of.median, of.least, of.most, of.bound) == (500.0, 500.0, 500.0, True)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.00001234, "0.000012"),
        (0.0301, "0.030"),
        (0.0997, "0.100"),
        (0.5, "0.500"),
        (1.0004, "1.00"),
        (99.96, "100"),
        (999.6, "1,000"),
        (12345, "12,345"),
    ],
)
def test_numbers_have_three_digits_and_no_exponent(value: float, shown: str) -> None:
    assert number(value) == shown


def test_what_is_not_known_is_no_zero() -> None:
    assert text(None) == "-"
    assert text(Spread(median=0.0, least=0.0, most=0.0)) == "0"
