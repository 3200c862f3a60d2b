"""A paced stream and its rank: who takes less than can be made never waits for long, whatever happens to the rate."""

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from emlio.daemon.reading.pace import Look, Marks, Pace, Room
from emlio.daemon.reading.pace_keeper import PaceKeeper
from emlio_testing.clock import ManualClock

MESSAGE = 1 << 20
ROOM = Room(message_bytes=MESSAGE, least_bytes=2 * MESSAGE, most_bytes=16 * MESSAGE)
MS = 1_000_000

Rate = Callable[[int], float]


@dataclass(kw_only=True)
class Told:
    """What became of a stream, millisecond by millisecond."""

    wanted_bytes: float
    taken_bytes: float
    wakes: int
    marks: list[Marks]
    paces: list[Pace]


def run(rate: Rate, *, making_ms: int, delay_ms: int, lasts_ms: int) -> Told:
    """A stream whose lanes take `rate(ms)` bytes a millisecond, and nothing in between buffers anything."""
    clock = ManualClock()
    keeper = PaceKeeper(clock, message_bytes=MESSAGE, least_bytes=ROOM.least_bytes)
    told = Told(wanted_bytes=0, taken_bytes=0, wakes=0, marks=[], paces=[])
    in_flight = sendable = 0
    under_way = 0.0  # of the message that is being taken
    ready_at: int | None = None
    parked_at: int | None = None
    marks = keeper.marks(ROOM.most_bytes)
    for now in range(lasts_ms):
        if ready_at == now:
            keeper.made()
            sendable, ready_at = sendable + MESSAGE, None
        if parked_at is None and ready_at is None:
            marks = keeper.marks(ROOM.most_bytes)
            if in_flight and in_flight + MESSAGE > marks.high_bytes:
                parked_at = marks.low_bytes
            else:
                in_flight, ready_at = in_flight + MESSAGE, now + making_ms
        takes = min(rate(now), sendable - under_way)
        told.wanted_bytes, told.taken_bytes = told.wanted_bytes + rate(now), told.taken_bytes + takes
        under_way += takes
        while under_way >= MESSAGE:
            under_way, sendable, in_flight = under_way - MESSAGE, sendable - MESSAGE, in_flight - MESSAGE
            keeper.taken(MESSAGE, dry=sendable == 0)
        if parked_at is not None and in_flight <= parked_at:
            parked_at, told.wakes = None, told.wakes + 1
            keeper.taken(0, dry=False, woken=True)
            in_flight, ready_at = in_flight + MESSAGE, now + delay_ms + making_ms
        told.marks.append(marks)
        told.paces.append(keeper.pace)
        clock.advance(MS)
    return told


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 0.5), st.integers(1, 10), st.integers(0, 20))
@example(0.5, 1, 0)
@example(0.5, 10, 20)
@example(0.01, 10, 20)
def test_who_takes_less_than_can_be_made_is_not_kept_waiting(share: float, making_ms: int, delay_ms: int) -> None:
    per_ms = share * MESSAGE / making_ms
    told = run(lambda _: per_ms, making_ms=making_ms, delay_ms=delay_ms, lasts_ms=8000)
    beginning = 2 * MESSAGE + per_ms * 50
    assert told.taken_bytes >= 0.98 * told.wanted_bytes - beginning


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 0.3), st.integers(1, 5), st.integers(0, 5))
def test_a_steady_rank_is_soon_read_for_at_a_steady_pace(share: float, making_ms: int, delay_ms: int) -> None:
    per_ms = share * MESSAGE / making_ms
    told = run(lambda _: per_ms, making_ms=making_ms, delay_ms=delay_ms, lasts_ms=20_000)
    late = told.marks[-4000:]
    assert not any(pace.racing for pace in told.paces[-4000:])
    assert max(mark.high_bytes for mark in late) < ROOM.most_bytes
    lows = [mark.low_bytes for mark in late]
    assert max(lows) - min(lows) <= max(lows) / 2 + MESSAGE


@settings(max_examples=40, deadline=None)
@given(st.floats(0.003, 0.05), st.integers(1, 5), st.integers(0, 10), st.booleans())
def test_a_rate_that_changes_tenfold_is_followed(share: float, making_ms: int, delay_ms: int, rises: bool) -> None:
    low = share * MESSAGE / making_ms
    before, after = (low, 10 * low) if rises else (10 * low, low)
    told = run(lambda now: before if now < 5000 else after, making_ms=making_ms, delay_ms=delay_ms, lasts_ms=25_000)
    assert told.taken_bytes >= 0.98 * told.wanted_bytes - 4 * MESSAGE - 100 * max(before, after)
    # A look at a slow rank sees one message or none: so over many looks.
    seen = [pace.rate / 1000 for pace in told.paces[-5000:]]
    assert after / 2 <= sum(seen) / len(seen) <= 3 * after + MESSAGE / 1000


@given(st.integers(0, 1 << 40), st.integers(0, 10**10), st.integers(0, 10**10), st.integers(1, 10**10))
def test_marks_lie_within_the_room_whatever_was_seen(taken: int, dry_ns: int, delay_ns: int, elapsed_ns: int) -> None:
    look = Look(elapsed_ns=elapsed_ns, taken_bytes=taken, dry_ns=min(dry_ns, elapsed_ns), delay_ns=delay_ns)
    pace = Pace()
    for _ in range(6):
        pace = pace.after(look)
        marks = pace.marks(ROOM)
        assert ROOM.least_bytes <= marks.high_bytes <= ROOM.most_bytes
        assert 0 <= marks.low_bytes <= marks.high_bytes - MESSAGE
        if look.ran_dry:
            assert pace.racing
            assert marks.high_bytes == ROOM.most_bytes


def test_a_rank_that_takes_all_there_is_is_raced_for() -> None:
    told = run(lambda _: MESSAGE, making_ms=4, delay_ms=1, lasts_ms=5000)
    assert all(pace.racing for pace in told.paces)
    assert told.taken_bytes >= 0.98 * 5000 / 4 * MESSAGE
