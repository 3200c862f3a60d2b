"""Whatever a link does to pings and pongs, the rank's idea of the daemon's clock is within its own bound."""

from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.clocks.fit import fit_clock
from emlio_testing.clock import ManualClock
from emlio_testing.link import Link, LinkFaults
from emlio_testing.session_pair import SessionPair, SessionSettings

_S = 1_000_000_000
_DELAYS = st.integers(1_000_000, 100_000_000)
_DAY = 86_400 * _S


@given(
    up=st.tuples(_DELAYS, _DELAYS),
    down=st.tuples(_DELAYS, _DELAYS),
    ahead_ns=st.integers(0, 10_000 * _DAY),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_the_daemons_clock_is_found_within_its_bound(
    up: tuple[int, int], down: tuple[int, int], ahead_ns: int, seed: int
) -> None:
    clock = ManualClock()
    links = [
        Link(clock, LinkFaults(delay_ns=delay_ns, jitter_ns=jitter_ns), seed=seed + number)
        for number, (delay_ns, jitter_ns) in enumerate((up, down))
    ]
    pair = SessionPair(clock, SessionSettings(ahead_ns=ahead_ns), up=links[0], down=links[1])
    pair.greet()
    pair.run_until(40 * _S)
    assert not pair.failed
    fit = fit_clock(pair.rank.clocks.exchanges)
    assert fit.jumps == 0
    for at_ns in (0, 5 * _S, 40 * _S, 100 * _S):
        assert abs(fit.theirs_at(at_ns) - (at_ns + ahead_ns)) <= fit.error_at(at_ns)
    slowest_ns = sum((*up, *down))
    drift_ns = 20_000_000  # of 40 seconds, where only the first exchange was quick
    assert fit.error_at(20 * _S) <= slowest_ns + drift_ns
