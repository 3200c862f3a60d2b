"""How many connections a path gets."""

from itertools import pairwise

import pytest

from emlio.receiver.addresses.lane_count import lanes_each, lanes_for, lanes_of_rank
from emlio.wire.limits import MAX_LANES

_MS = 1_000_000
_STOCK = 4 << 20


@pytest.mark.parametrize("round_trip_ns", [0, 1, 90_000, 999_999])
@pytest.mark.parametrize("buffer", [4096, _STOCK, 64 << 20])
def test_a_short_path_takes_one_connection_whatever_the_buffers(round_trip_ns: int, buffer: int) -> None:
    assert lanes_for(round_trip_ns, buffer, buffer) == 1


def test_thirty_milliseconds_with_stock_buffers_take_about_eleven() -> None:
    assert 10 <= lanes_for(30 * _MS, _STOCK, 2 * _STOCK) <= 12


def test_a_long_path_with_small_buffers_is_bounded() -> None:
    assert lanes_for(10_000 * _MS, 4096, 4096) == MAX_LANES
    assert lanes_for(10_000 * _MS, 0, 0) == MAX_LANES


def test_longer_paths_never_take_fewer_and_larger_buffers_never_more() -> None:
    by_distance = [lanes_for(ms * _MS, _STOCK, 2 * _STOCK) for ms in range(200)]
    assert all(near <= far for near, far in pairwise(by_distance))
    assert set(by_distance) >= {1, 2, 16, MAX_LANES}
    by_buffer = [lanes_for(30 * _MS, kib << 10, kib << 11) for kib in range(64, 100_000, 97)]
    assert all(small >= large for small, large in pairwise(by_buffer))
    assert by_buffer[-1] == 1


def test_the_smaller_buffer_decides_and_half_of_the_receivers_is_bookkeeping() -> None:
    assert lanes_for(30 * _MS, _STOCK, 64 << 20) == lanes_for(30 * _MS, 64 << 20, 2 * _STOCK)
    assert lanes_for(30 * _MS, 64 << 20, _STOCK) > lanes_for(30 * _MS, _STOCK, 64 << 20)


def test_a_daemon_may_allow_fewer_lanes_but_one_there_always_is() -> None:
    assert lanes_for(100_000_000, 4 << 20, 32 << 20, most=5) == 5
    assert lanes_for(100_000_000, 4 << 20, 32 << 20, most=0) == 1
    assert lanes_for(100_000_000, 4 << 20, 32 << 20, most=10_000) <= 64


@pytest.mark.parametrize(
    ("lanes", "ranks", "each"), [(1, 1, 1), (1, 9, 1), (11, 1, 11), (11, 4, 3), (11, 64, 2), (0, 3, 0)]
)
def test_a_rank_connects_its_part_of_the_lanes_and_two_where_there_is_more_than_one(
    lanes: int, ranks: int, each: int
) -> None:
    assert lanes_of_rank(lanes, ranks) == each


@pytest.mark.parametrize("lanes", [1, 2, 11, MAX_LANES])
@pytest.mark.parametrize("daemons", [1, 2, 3, 4, 100])
def test_daemons_of_one_rank_have_together_what_one_would_have_and_each_at_least_one(lanes: int, daemons: int) -> None:
    each = lanes_each(lanes, daemons=daemons, ranks=1)
    assert each >= 1
    assert lanes <= daemons * each < lanes + daemons


@pytest.mark.parametrize(
    ("lanes", "daemons", "ranks", "asked"),
    [(11, 1, 3, 11), (11, 1, 64, 11), (11, 2, 3, 6), (11, 2, 6, 1), (11, 4, 2, 3), (11, 4, 3, 1), (38, 4, 3, 10)],
)
def test_a_rank_with_several_daemons_asks_for_one_lane_where_its_part_is_no_more(
    lanes: int, daemons: int, ranks: int, asked: int
) -> None:
    assert lanes_each(lanes, daemons=daemons, ranks=ranks) == asked


@pytest.mark.parametrize("daemons", [1, 4])
def test_where_no_lanes_are_wanted_none_are_of_any_daemon(daemons: int) -> None:
    assert lanes_each(0, daemons=daemons, ranks=3) == 0


def test_a_rank_that_knows_of_no_daemon_that_sends_counts_the_one_it_asks() -> None:
    assert lanes_each(11, daemons=0, ranks=1) == 11
