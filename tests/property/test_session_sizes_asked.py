"""Each question is answered once, in order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.session.instructions import AnswerCame, LookUp
from emlio.session.states import RankState
from emlio.wire.limits import MOST_QUESTIONS
from emlio.wire.questions import AskSizes, Sizes
from emlio_testing.clock import ManualClock
from emlio_testing.link import Link, LinkFaults
from emlio_testing.session_pair import SessionPair, SessionSettings, example_rows

_S = 1_000_000_000
_ROWS = example_rows(3)
_NAMES = [row.name for row in _ROWS] + ["nowhere"]


@given(
    st.lists(st.tuples(st.sampled_from(_NAMES), st.integers(0, 120), st.integers(1, 150)), max_size=MOST_QUESTIONS - 1),
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
        pair.ask(AskSizes(shard=shard, first=first, count=count))
    assert up.sent - before == len(questions)
    pair.run_until(clock.monotonic_ns() + 30 * _S)
    assert pair.rank.state is RankState.LISTED
    abouts = [AskSizes(shard=shard, first=first, count=count) for shard, first, count in questions]
    assert [event.question.about for event in pair.log if isinstance(event, LookUp)] == abouts
    came = [event for event in pair.log if isinstance(event, AnswerCame)]
    assert [event.about for event in came] == abouts
    for event, (shard, first, count) in zip(came, questions, strict=True):
        here = shard != "nowhere" and first < 100
        assert isinstance(event.told, Sizes)
        assert len(event.told.sizes) == (4 * min(count, 100 - first) if here else 0)
        assert event.told.offset == (50 * first if here else 0)
