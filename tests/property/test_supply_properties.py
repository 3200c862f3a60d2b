"""The batches a loader that saves energy keeps ready: a user who takes less than can come does not wait for them."""

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from emlio.receiver.placement.energy_pace import Need, Supply, Taken

BATCH = 6_400_000
MS = 1_000_000


@dataclass(kw_only=True)
class Told:
    """What a user saw."""

    waits: list[int]
    waited_ms: int
    bursts: int
    most_bytes: float
    need: Need


def run(work_ms: Callable[[int], int], *, batches: int, per_ms: float, away_ms: int) -> Told:
    """A user who works so long on each batch; what is asked for comes `per_ms` bytes a millisecond after `away_ms`."""
    supply, now, whole, hungers = Supply(least_batches=2), 0, 0.0, 0
    told = Told(waits=[], waited_ms=0, bursts=0, most_bytes=0, need=supply.need)
    coming_from: int | None = None
    free_at, taken = 0, 0
    while taken < batches:
        if supply.asks_for_more(int(whole)) or whole < BATCH:
            if coming_from is None:
                coming_from, told.bursts = now + away_ms, told.bursts + 1
            if now >= coming_from:
                whole += per_ms
        else:
            coming_from = None
        told.most_bytes = max(told.most_bytes, whole)
        if now >= free_at:
            if whole >= BATCH:
                whole -= BATCH
                supply.took(BATCH, now * MS, hungers, lambda: away_ms * MS)
                free_at, taken = now + work_ms(taken), taken + 1
            else:
                told.waited_ms += 1
                if not told.waits or told.waits[-1] != taken:
                    hungers += 1
                    told.waits.append(taken)
        now += 1
    told.need = supply.need
    return told


@settings(max_examples=30, deadline=None)
@given(st.integers(10, 200), st.floats(1.5, 20), st.integers(1, 60))
@example(50, 10.0, 1)
@example(50, 1.5, 60)
def test_a_steady_user_waits_at_the_beginning_only(work_ms: int, faster: float, away_ms: int) -> None:
    told = run(lambda _: work_ms, batches=200, per_ms=faster * BATCH / work_ms, away_ms=away_ms)
    assert [batch for batch in told.waits if batch > 60] == []
    assert len(told.waits) <= 4


@settings(max_examples=30, deadline=None)
@given(st.integers(10, 50), st.booleans())
def test_a_pace_that_changes_tenfold_is_followed(work_ms: int, rises: bool) -> None:
    slow, fast = 10 * work_ms, work_ms
    before, after = (slow, fast) if rises else (fast, slow)
    batches = 200
    told = run(lambda batch: before if batch < 60 else after, batches=batches, per_ms=3 * BATCH / work_ms, away_ms=20)
    assert len([batch for batch in told.waits if batch >= 60]) <= 2
    rate = 1000 * BATCH / after
    assert 0.8 * rate <= told.need.rate <= 2 * rate


def test_less_is_kept_than_a_window_would_hold_and_it_comes_in_bursts_of_several_batches() -> None:
    told = run(lambda _: 50, batches=400, per_ms=1e6, away_ms=1)
    assert told.most_bytes < 10 * BATCH
    assert told.bursts < 400 / 3


@given(st.lists(st.tuples(st.integers(1, 10**9), st.integers(1, 1 << 30), st.booleans()), max_size=30))
def test_marks_are_in_order_and_hold_two_batches_whatever_was_seen(looks: list[tuple[int, int, bool]]) -> None:
    need = Need(batch_bytes=1)
    for elapsed_ns, size_bytes, waited in looks:
        need = need.after(
            Taken(
                elapsed_ns=elapsed_ns,
                size_bytes=size_bytes,
                batch_bytes=size_bytes,
                waited=waited,
                round_trip_ns=0,
            )
        )
        low, high = need.marks
        assert 2 * need.batch_bytes <= low <= high
        assert waited <= (need.race_ns > 0)
