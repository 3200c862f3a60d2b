from collections.abc import Callable, Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from emlio.clocks.exchange import Exchange
from emlio.clocks.fit import fit_clock

SECOND = 1_000_000_000
MILLISECOND = 1_000_000
OFFSETS = st.integers(-(10**16), 10**16)
DRIFTS = st.integers(-100_000, 100_000)  # ppb: 100 ppm, as a poor crystal has
DELAYS = st.integers(0, 40 * MILLISECOND)
TIMES = st.lists(st.integers(0, 600 * SECOND), min_size=1, max_size=60, unique=True).map(sorted)


class Link:
    """A link and the clock at its end. Nothing here knows how the fit is made."""

    def __init__(self, *, offset_ns: int, drift_ppb: int) -> None:
        self.offset_ns = offset_ns
        self.drift_ppb = drift_ppb

    def theirs(self, ours_ns: int) -> int:
        return ours_ns + self.offset_ns + ours_ns * self.drift_ppb // SECOND

    def exchange(self, sent_ns: int, out_ns: int, back_ns: int, thought_ns: int = 20_000) -> Exchange:
        left_ns = sent_ns + out_ns + thought_ns
        return Exchange(
            sent_ns=sent_ns,
            heard_ns=self.theirs(sent_ns + out_ns),
            answered_ns=max(self.theirs(left_ns), self.theirs(sent_ns + out_ns)),
            came_ns=left_ns + back_ns + 10,  # a link takes some time, which leaves room for drift while it thinks
        )


def _off_by(fit_at: Callable[[int], int], link: Link, ours_ns: int) -> int:
    return abs(fit_at(ours_ns) - link.theirs(ours_ns))


def _moments(times: Sequence[int]) -> list[int]:
    """At the exchanges, between them, and around them."""
    between = [(one + two) // 2 for one, two in pairwise(times)]
    return [*times, *between, times[0] - 30 * SECOND, times[-1] + 30 * SECOND]


@given(offset_ns=OFFSETS, drift_ppb=DRIFTS, times=TIMES, delay_ns=DELAYS)
def test_over_a_symmetric_link_the_offset_is_within_its_bound(
    offset_ns: int, drift_ppb: int, times: list[int], delay_ns: int
) -> None:
    link = Link(offset_ns=offset_ns, drift_ppb=drift_ppb)
    fit = fit_clock(link.exchange(at_ns, delay_ns, delay_ns) for at_ns in times)
    assert fit.jumps == 0
    for at_ns in _moments(times):
        assert _off_by(fit.theirs_at, link, at_ns) <= fit.error_at(at_ns)


@given(data=st.data(), offset_ns=OFFSETS, drift_ppb=DRIFTS, times=TIMES)
def test_whatever_each_way_takes_the_offset_is_within_its_bound_and_no_jump_is_claimed(
    data: st.DataObject, offset_ns: int, drift_ppb: int, times: list[int]
) -> None:
    """Jitter, one-sided delays, delays that grow: the worst that a link can do without losing the answer."""
    link = Link(offset_ns=offset_ns, drift_ppb=drift_ppb)
    fit = fit_clock(link.exchange(at_ns, data.draw(DELAYS), data.draw(DELAYS)) for at_ns in times)
    assert fit.jumps == 0
    for at_ns in _moments(times):
        assert _off_by(fit.theirs_at, link, at_ns) <= fit.error_at(at_ns)


@given(offset_ns=OFFSETS, drift_ppb=DRIFTS, minutes=st.integers(2, 10), delay_ns=DELAYS)
def test_a_few_minutes_over_a_symmetric_link_show_offset_and_drift_to_a_microsecond_or_so(
    offset_ns: int, drift_ppb: int, minutes: int, delay_ns: int
) -> None:
    link = Link(offset_ns=offset_ns, drift_ppb=drift_ppb)
    times = [number * 10 * SECOND for number in range(6 * minutes)]
    fit = fit_clock(link.exchange(at_ns, delay_ns, delay_ns) for at_ns in times)
    assert abs(fit.lines[0].drift_ppb - drift_ppb) <= 1
    for at_ns in _moments(times[:-5]):
        assert _off_by(fit.theirs_at, link, at_ns) <= delay_ns * 1e-4 + 200


@given(offset_ns=OFFSETS, drift_ppb=DRIFTS, minutes=st.integers(2, 10), one_sided_ns=DELAYS)
def test_a_delay_on_one_side_only_shows_as_a_bias_of_half_of_it_which_is_what_the_bound_says(
    offset_ns: int, drift_ppb: int, minutes: int, one_sided_ns: int
) -> None:
    link = Link(offset_ns=offset_ns, drift_ppb=drift_ppb)
    times = [number * 10 * SECOND for number in range(6 * minutes)]
    fit = fit_clock(link.exchange(at_ns, one_sided_ns, 0) for at_ns in times)
    for at_ns in (times[0], times[-1] // 2):
        bias_ns = fit.theirs_at(at_ns) - link.theirs(at_ns)
        assert abs(bias_ns - one_sided_ns / 2) <= one_sided_ns * 1e-4 + 200
        assert abs(bias_ns) <= fit.error_at(at_ns) <= one_sided_ns / 2 * 1.001 + 200


@given(
    jump_ns=st.integers(-(10**13), 10**13).filter(lambda jump: abs(jump) > 500 * MILLISECOND),
    drift_ppb=DRIFTS,
    before=st.integers(1, 12),
    after=st.integers(1, 12),
    delays=st.lists(st.tuples(DELAYS, DELAYS), min_size=24, max_size=24),
)
def test_a_clock_that_jumps_is_noticed_and_each_side_of_the_jump_has_its_own_line(
    jump_ns: int, drift_ppb: int, before: int, after: int, delays: list[tuple[int, int]]
) -> None:
    old = Link(offset_ns=7, drift_ppb=drift_ppb)
    new = Link(offset_ns=7 + jump_ns, drift_ppb=drift_ppb)
    times = [number * 10 * SECOND for number in range(before + after)]
    links = [old] * before + [new] * after
    fit = fit_clock(link.exchange(at_ns, *ways) for link, at_ns, ways in zip(links, times, delays, strict=False))
    assert fit.jumps == 1
    for link, at_ns in zip(links, times, strict=True):
        assert _off_by(fit.theirs_at, link, at_ns) <= fit.error_at(at_ns)
    # When it jumped nobody knows, so between the two exchanges either offset must be within the bound.
    unknown_ns = (times[before - 1] + times[before]) // 2
    for link in (old, new):
        assert _off_by(fit.theirs_at, link, unknown_ns) <= fit.error_at(unknown_ns)
