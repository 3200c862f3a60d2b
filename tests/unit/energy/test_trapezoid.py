import pytest

from emlio.energy.sources.trapezoid import Trapezoid
from emlio.errors import ConfigError

SECOND = 1_000_000_000


def test_between_two_samples_power_goes_in_a_line() -> None:
    sum_of = Trapezoid()
    sum_of.add(0, 0)
    assert sum_of.add(100_000_000, SECOND) == 50_000_000


def test_a_million_fine_samples_lose_nothing() -> None:
    """7 nW over 1 ns is far below a microjoule; the sum still is what it must be."""
    sum_of = Trapezoid()
    for at_ns in range(1_000_001):
        sum_of.add(3_000_000, at_ns)
    assert sum_of.total_uj == 3_000


def test_a_long_stretch_without_samples_is_marked_and_left_out() -> None:
    sum_of = Trapezoid(longest_ns=2 * SECOND)
    sum_of.add(10_000_000, 0)
    assert sum_of.add(10_000_000, SECOND) == 10_000_000
    assert sum_of.add(10_000_000, 4 * SECOND) is None
    assert sum_of.add(10_000_000, 5 * SECOND) == 20_000_000


def test_a_sample_that_fails_is_bridged_by_the_next() -> None:
    sum_of = Trapezoid()
    sum_of.add(10_000_000, 0)
    assert sum_of.add(None, SECOND) is None
    assert sum_of.add(10_000_000, 2 * SECOND) == 20_000_000


@pytest.mark.parametrize(("power_uw", "at_ns"), [(-1, 10), (1, 4)])
def test_what_cannot_be_a_sample_is_refused(power_uw: int, at_ns: int) -> None:
    sum_of = Trapezoid()
    sum_of.add(1, 5)
    with pytest.raises(ConfigError, match=r"must be at least 0, got -1|must not be older"):
        sum_of.add(power_uw, at_ns)
