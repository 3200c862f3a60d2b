from itertools import pairwise

import pytest

from emlio.clocks.exchange import Exchange
from emlio.clocks.log import ClockLog

SECOND = 1_000_000_000
MILLISECOND = 1_000_000


def _exchange(at_ns: int, trip_ns: int) -> Exchange:
    sent_ns = at_ns - trip_ns // 2
    return Exchange(sent_ns=sent_ns, heard_ns=at_ns, answered_ns=at_ns, came_ns=sent_ns + trip_ns)


def test_the_shortest_round_trips_of_each_ten_seconds_are_kept_in_the_order_of_time() -> None:
    log = ClockLog()
    for second in range(30):
        for number in range(4):
            log.add(_exchange(second * SECOND + number, (1 + number) * MILLISECOND))
    kept = log.exchanges
    assert len(kept) == 3 * 8
    assert [one.at_ns for one in kept] == sorted(one.at_ns for one in kept)
    assert {one.round_trip_ns for one in kept} == {MILLISECOND}
    assert {one.at_ns // (10 * SECOND) for one in kept} == {0, 1, 2}


def test_a_long_time_keeps_its_beginning_and_its_end_in_bounded_memory() -> None:
    log = ClockLog(most_windows=16)
    for second in range(0, 100_000, 10):
        log.add(_exchange(second * SECOND, MILLISECOND))
    kept = log.exchanges
    assert 16 <= len(kept) <= 16 * 8
    assert kept[0].at_ns == 0
    assert kept[-1].at_ns == 99_990 * SECOND
    apart = [after.at_ns - before.at_ns for before, after in pairwise(kept)]
    assert max(apart) < 30_000 * SECOND, "some are kept of what was in between"
    assert apart[-1] == 10 * SECOND, "what has just been is as fine as ever"


@pytest.mark.parametrize("first_ms", [1, 50])
def test_nothing_added_is_nothing_kept_and_one_is_kept_however_long_it_took(first_ms: int) -> None:
    log = ClockLog()
    assert log.exchanges == ()
    log.add(_exchange(0, first_ms * MILLISECOND))
    assert [one.round_trip_ns for one in log.exchanges] == [first_ms * MILLISECOND]
