import pytest

from emlio.clocks.exchange import Exchange
from emlio.clocks.fit import ClockFit, fit_clock
from emlio.errors import ConfigError

SECOND = 1_000_000_000
MILLISECOND = 1_000_000


def _exchange(at_ns: int, *, offset_ns: int, out_ns: int = MILLISECOND, back_ns: int = MILLISECOND) -> Exchange:
    heard_ns = at_ns + out_ns + offset_ns
    return Exchange(
        sent_ns=at_ns, heard_ns=heard_ns, answered_ns=heard_ns + 1_000, came_ns=at_ns + out_ns + 1_000 + back_ns
    )


def test_an_exchange_says_its_offset_round_trip_and_bound() -> None:
    exchange = Exchange(sent_ns=100, heard_ns=5_130, answered_ns=5_140, came_ns=170)
    assert (exchange.at_ns, exchange.offset_ns, exchange.round_trip_ns) == (135, 5_000, 60)
    assert exchange.error_ns == 32  # half of it, and rounding


@pytest.mark.parametrize(
    ("heard_ns", "answered_ns", "came_ns"),
    [(10, 20, 5), (20, 10, 30), (10, 50, 30)],
    ids=["came before it was sent", "answered before it was heard", "thought about for longer than all of it took"],
)
def test_an_exchange_that_cannot_have_been_is_refused(heard_ns: int, answered_ns: int, came_ns: int) -> None:
    with pytest.raises(ConfigError, match="must take at least as long as"):
        Exchange(sent_ns=6, heard_ns=heard_ns, answered_ns=answered_ns, came_ns=came_ns)


def test_the_order_of_the_exchanges_does_not_matter() -> None:
    exchanges = [_exchange(number * SECOND, offset_ns=70 + number) for number in range(90)]
    assert fit_clock(reversed(exchanges)) == fit_clock(exchanges)


def test_the_shortest_round_trips_decide_and_a_congested_minute_is_passed_over() -> None:
    calm = [_exchange(number * SECOND, offset_ns=0) for number in (0, 1, 2, 3, 120, 121, 122, 123)]
    late = [_exchange(number * SECOND, offset_ns=0, out_ns=80 * MILLISECOND) for number in (4, 5, 60, 61, 62, 63)]
    (line,) = fit_clock(calm + late).lines
    assert (line.round_trip_ns, line.exchanges) == (2 * MILLISECOND, 3)
    assert line.offset_at(61 * SECOND) == 0
    assert line.error_ns < 1.01 * MILLISECOND


def test_the_bound_grows_away_from_the_exchanges_by_what_clocks_may_drift() -> None:
    fit = fit_clock([_exchange(0, offset_ns=0)])
    near, far = fit.error_at(MILLISECOND), fit.error_at(1_001 * MILLISECOND)
    assert far - near == pytest.approx(500_000, rel=1e-3)


def test_between_two_jumps_each_exchange_has_its_own_line_and_the_gap_has_the_jump_in_its_bound() -> None:
    fit = fit_clock([_exchange(0, offset_ns=0), _exchange(10 * SECOND, offset_ns=9 * SECOND)])
    assert fit.jumps == 1
    assert fit.theirs_at(SECOND) == SECOND
    assert fit.theirs_at(9 * SECOND) == 18 * SECOND
    assert fit.error_at(5 * SECOND) > 9 * SECOND
    assert fit.error_at(0) < 2 * MILLISECOND
    assert fit.error_between(0, 10 * SECOND) > 9 * SECOND
    assert fit.error_between(11 * SECOND, 12 * SECOND) < 3 * MILLISECOND


def test_a_jump_within_half_a_round_trip_is_not_claimed_but_stays_within_the_bound() -> None:
    """It cannot be told from a way that became slower."""
    exchanges = [_exchange(number * 10 * SECOND, offset_ns=0 if number < 6 else MILLISECOND) for number in range(12)]
    fit = fit_clock(exchanges)
    assert fit.jumps == 0
    assert abs(fit.theirs_at(0) - 0) <= fit.error_at(0)
    assert abs(fit.theirs_at(110 * SECOND) - (110 * SECOND + MILLISECOND)) <= fit.error_at(110 * SECOND)


def test_a_clock_that_was_never_asked_has_no_line() -> None:
    with pytest.raises(ConfigError, match="at least once"):
        fit_clock([])
    with pytest.raises(ConfigError, match="at least one line"):
        ClockFit(lines=())
