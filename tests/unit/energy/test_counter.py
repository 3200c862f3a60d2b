import pytest

from emlio.energy.values.counter import Counter, Event
from emlio.errors import ConfigError

SECOND = 1_000_000_000
M = 1_000_000
RANGE_UJ = 1_000 * M
WATTS = 100.0
SHORT, UNLIMITED = {"range_uj": 1_000, "most_watts": None}, {"range_uj": None, "most_watts": None}
NONE, WRAPPED, RESET, GLITCH, GAP = Event


def counter() -> Counter:
    return Counter(range_uj=RANGE_UJ, most_watts=WATTS)


@pytest.mark.parametrize(
    ("of", "raws", "totals", "events"),
    [
        pytest.param({}, [500, 700, 700, 1_000], [0, 200, 200, 500], [NONE] * 4, id="counting begins at the first"),
        pytest.param({}, [RANGE_UJ - 30, 20], [0, 50], [NONE, WRAPPED], id="a wrap loses nothing"),
        pytest.param({}, [500 * M, M, 3 * M], [0, 0, 2 * M], [NONE, RESET, NONE], id="no wrap explains a fall"),
        pytest.param(UNLIMITED, [900, 100, 150], [0, 0, 50], [NONE, RESET, NONE], id="without a range no wraps"),
        # Of the two ways to 950 the shorter one counts.
        pytest.param(
            SHORT, [900, 800, 950, 100], [0, 0, 50, 200], [NONE, RESET, NONE, WRAPPED], id="a long fall is a wrap"
        ),
        pytest.param(
            {},
            [0, 50 * M, 900 * M, 150 * M],
            [0, 50 * M, 50 * M, 150 * M],
            [NONE, NONE, GLITCH, NONE],
            id="bad reading",
        ),
        pytest.param(
            {}, [0, 500 * M, 550 * M, 600 * M], [0, 0, 50 * M, 100 * M], [NONE, GLITCH, NONE, NONE], id="a jump stays"
        ),
        pytest.param(
            {}, [400 * M, 450 * M, 0, 550 * M], [0, 50 * M, 50 * M, 150 * M], [NONE, NONE, RESET, NONE], id="a zero"
        ),
        pytest.param(
            {}, [0, 700 * M, 400 * M, 150 * M], [0, 0, 0, 150 * M], [NONE, GLITCH, RESET, NONE], id="two bad readings"
        ),
        pytest.param(
            {}, [1_000, None, None, 4_000], [0, 0, 0, 3_000], [NONE, GAP, GAP, NONE], id="counted after a gap"
        ),
        pytest.param({}, [None, 700, 800], [0, 0, 100], [GAP, NONE, NONE], id="unreadable at first"),
    ],
)
def test_a_total_has_what_was_used_and_marks_what_may_not_be(
    of: dict[str, int | None], raws: list[int | None], totals: list[int], events: list[Event]
) -> None:
    counts = Counter(**{"range_uj": RANGE_UJ, "most_watts": WATTS, **of})
    found = [counts.step(raw, number * SECOND) for number, raw in enumerate(raws)]
    assert [step.total_uj for step in found] == totals
    assert [step.event for step in found] == events


@pytest.mark.parametrize(
    ("first", "second", "after_ns", "used", "event"),
    [
        (RANGE_UJ - 1_000, 99 * M, 3 * SECOND, 99_001_000, WRAPPED),
        pytest.param(1_000, 5_000, 20 * SECOND, 4_000, GAP, id="it may have wrapped unseen"),
        # A GPU's counter shows 100 ms of work at once, however short the time since the last look.
        (0, 10 * M, 1_000_000, 10 * M, NONE),
    ],
)
def test_the_time_between_two_looks_says_what_can_be(
    first: int, second: int, after_ns: int, used: int, event: Event
) -> None:
    stalled = counter()
    stalled.step(first, 0)
    step = stalled.step(second, after_ns)
    assert (step.total_uj, step.event) == (used, event)


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
