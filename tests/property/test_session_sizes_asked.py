"""However many questions for sizes there are, each is answered once, in order, and few are on the way."""

from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.session.instructions import LookUpSizes, SizesCame
from emlio.session.states import RankState
from emlio_testing.clock import ManualClock
from emlio_testing.link import Link, LinkFaults
from emlio_testing.session_pair import SessionPair, SessionSettings, example_rows

_S = 1_000_000_000
_ROWS = example_rows(3)
_NAMES = [row.name for row in _ROWS] + ["nowhere"]


@given(
    st.lists(st.tuples(st.sampled_from(_NAMES), st.integers(0, 120), st.integers(1, 150)), max_size=60),
    st.integers(0, 200_000_000),
    st.integers(0, 200_000_000),
    st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_each_question_is_answered_once_and_in_the_order_asked(
    questions: list[tuple[str, int, int]], delay_ns: int, jitter_ns: int, seed: int
) -> None:
    clock = ManualClock()
    faults = LinkFaults(delay_ns=delay_ns, jitter_ns=jitter_ns)
    up, down = Link(clock, faults, seed=seed), Link(clock, faults, seed=seed + 1)
    pair = SessionPair(clock, SessionSettings(rows=_ROWS), up=up, down=down)
    pair.greet()
    pair.run_until(5 * _S)
    before = up.sent
    for shard, first, count in questions:
        pair.ask_sizes(shard, first, count)
    assert up.sent - before == min(len(questions), 16)
    pair.run_until(clock.monotonic_ns() + 30 * _S)
    assert pair.rank.state is RankState.LISTED
    asked = [(event.shard, event.first, event.count) for event in pair.log if isinstance(event, LookUpSizes)]
    assert asked == questions
    came = [event for event in pair.log if isinstance(event, SizesCame)]
    assert [(event.shard, event.first) for event in came] == [(shard, first) for shard, first, _ in questions]
    for event, (shard, first, count) in zip(came, questions, strict=True):
        here = shard != "nowhere" and first < 100
        assert len(event.sizes) == (4 * min(count, 100 - first) if here else 0)
        assert event.offset == (50 * first if here else 0)
