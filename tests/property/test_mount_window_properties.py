"""Windows ahead of readers, with a page cache and readers in memory: what is pushed, what is freed, what is never missed."""

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from emlio.files.mount.pieces import PAGE_BYTES, PIECE_BYTES, Pieces
from emlio.files.mount.sequences import SequenceDetector
from emlio.files.mount.window import LEAST_WINDOW_BYTES, Window
from emlio.files.mount.windows import Windows
from emlio_testing.window_cache import LIMIT, Cache, cut, moved, pages_of

_SMALL = st.integers(0, 3 * PAGE_BYTES)
_SIZES = st.lists(st.one_of(_SMALL, st.integers(0, 4 * PIECE_BYTES)), min_size=1, max_size=60)
_MANY_SIZES = st.builds(lambda sizes, times: (sizes * times)[:3000], _SIZES, st.integers(1, 60))


@given(_SIZES, st.data())
def test_pieces_cover_each_file_in_order(sizes: list[int], data: st.DataObject) -> None:
    order = np.array(data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=80)), np.int64)
    pieces = Pieces.of_files(order, np.array(sizes, np.int64))
    expected = cut(order, sizes)
    assert list(zip(pieces.entries.tolist(), pieces.offsets.tolist(), strict=True)) == expected
    assert pieces.ends[-1] == sum(pages_of(sizes[entry]) if sizes[entry] else 0 for entry in order.tolist())
    for entry, offset in expected:
        places = [place for place, one in enumerate(expected) if one == (entry, offset)]
        assert pieces.positions(entry, offset + PAGE_BYTES // 2).tolist() == places
    if expected:
        every = cut(np.arange(len(sizes)), sizes)
        entries, offsets = np.array(every, np.int64).T
        begin, end = data.draw(st.integers(0, len(expected))), data.draw(st.integers(0, len(expected)))
        wanted = [one in expected[begin:end] for one in every]
        assert pieces.are_between(entries, offsets, begin, end).tolist() == wanted


@pytest.mark.timeout(60)
def test_an_order_that_repeats_a_file_very_often_is_looked_up_as_fast() -> None:
    """Such as a table of labels that is read before each image."""
    pieces = Pieces.of_files(np.resize([0, 1, 0, 2], 1_000_000), np.array([1, 1, 1]))
    for begin in range(1000):
        found = pieces.are_between(np.arange(3), np.zeros(3, np.int64), begin, begin + 2)
        assert found.tolist() == [True, begin % 4 in (0, 1), begin % 4 in (2, 3)]


@given(_MANY_SIZES, st.integers(0, 2**32 - 1), st.integers(1, 3), st.booleans())
def test_a_reader_of_a_known_order_misses_nothing(sizes: list[int], seed: int, epochs: int, replaces: bool) -> None:
    windows = Windows(np.array(sizes, np.int64), LIMIT)
    cache = Cache(windows, sizes)
    random = np.random.default_rng(seed)
    name = 0
    for _ in range(epochs):
        order = random.permutation(len(sizes))
        if not replaces:
            windows.end(name)
        name = windows.begin(order, instead_of=[name])
        for entry, offset in cut(order, sizes)[: int(random.integers(2 * len(sizes)))]:
            cache.move()
            assert cache.read(entry, offset), (entry, offset)
    windows.end(name)
    cache.move()
    assert not cache.held
    assert not windows.held_bytes


@given(_MANY_SIZES)
def test_a_guessed_order_costs_little_before_it_is_confirmed(sizes: list[int]) -> None:
    windows = Windows(np.array(sizes, np.int64), 4 * LIMIT)
    cache = Cache(windows, sizes, limit=4 * LIMIT)
    windows.begin(np.arange(len(sizes)), guessed=True)
    cache.move()
    assert len(cache.held) <= 64
    assert windows.held_bytes <= LEAST_WINDOW_BYTES
    missed = 0
    for entry, offset in cut(np.arange(len(sizes)), sizes):
        missed += not cache.read(entry, offset)
        cache.move()
    assert missed <= 64


@given(_MANY_SIZES, st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_a_reader_that_overtakes_the_push_is_overtaken_again(sizes: list[int], seed: int, pause: int) -> None:
    windows = Windows(np.array(sizes, np.int64), LIMIT)
    cache = Cache(windows, sizes)
    random = np.random.default_rng(seed)
    order = random.permutation(len(sizes))
    windows.begin(order)
    pieces = cut(order, sizes)
    for place, (entry, offset) in enumerate(pieces):
        there = cache.read(entry, offset)
        if place >= len(pieces) // 2:
            cache.move()
            assert there or place < len(pieces) // 2 + 2
        elif random.integers(pause) == 0:
            cache.move(1)


@given(_MANY_SIZES, st.integers(0, 2**32 - 1), st.integers(2, 4), st.booleans())
def test_readers_with_orders_of_their_own_share_the_window(
    sizes: list[int], seed: int, readers: int, with_replacement: bool
) -> None:
    windows = Windows(np.array(sizes, np.int64), 2 * LIMIT)
    cache = Cache(windows, sizes, limit=2 * LIMIT)
    random = np.random.default_rng(seed)
    ways, missed, total = [], 0, 0
    for _ in range(readers):
        order = random.integers(len(sizes), size=len(sizes)) if with_replacement else random.permutation(len(sizes))
        windows.begin(order)
        ways.append((iter(cut(order, sizes)), len(ways)))
    while ways:
        cache.move()
        way, thread = chosen = ways[int(random.integers(len(ways)))]
        piece = next(way, None)
        if piece is None:
            ways.remove(chosen)
        else:
            missed += not cache.read(*piece, thread)
            total += 1
    event(f"{missed * 100 // max(total, 1)} % missed")


@given(_MANY_SIZES, st.lists(st.tuples(st.integers(0, 2999), st.integers(0, 3)), max_size=60))
def test_a_window_keeps_its_order_whatever_is_read(sizes: list[int], reads: list[tuple[int, int]]) -> None:
    pieces = Pieces.of_files(np.arange(len(sizes)), np.array(sizes, np.int64))
    window = Window(pieces, LEAST_WINDOW_BYTES)
    for entry, piece in reads:
        entry %= len(sizes) + 1
        inside = piece * PIECE_BYTES if entry < len(sizes) and piece * PIECE_BYTES < sizes[entry] else 0
        place = window.place(entry, inside)
        assert (place is None) == (entry == len(sizes))
        if place is not None:
            window.move(place)
        dropped, pushed = window.drop(), window.push()
        assert dropped.stop == window.dropped <= window.seen <= pushed.start <= window.pushed == pushed.stop
        assert window.pushed <= len(pieces)
        assert window.held_bytes <= LEAST_WINDOW_BYTES or not pushed
        behind = int(pieces.ends[window.seen] - pieces.ends[window.dropped])
        to_come = int(pieces.ends[-1] - pieces.ends[window.seen])
        assert behind <= max(LEAST_WINDOW_BYTES // 2, LEAST_WINDOW_BYTES - to_come)
        assert (window.withheld(pushed) <= pieces.sizes[pushed.start : pushed.stop]).all()


def test_a_reader_that_begins_its_order_again_is_followed() -> None:
    sizes = [1000] * 20_000
    windows = Windows(np.array(sizes, np.int64), LIMIT)
    cache = Cache(windows, sizes)
    windows.begin(np.arange(len(sizes)))
    for _ in range(2):
        missed = 0
        for entry in range(len(sizes)):
            cache.move()
            missed += not cache.read(entry, 0)
        assert missed <= 2


def test_one_stray_read_moves_no_window() -> None:
    sizes = [1000] * 20_000
    windows = Windows(np.array(sizes, np.int64), LIMIT)
    windows.begin(np.arange(len(sizes)))
    while moved(windows):
        pass
    held = windows.held_bytes
    assert windows.read(1, 15_000, 0)
    assert not moved(windows)
    assert windows.read(1, 15_001, 0)
    assert moved(windows)
    assert windows.held_bytes <= LIMIT
    assert held == LIMIT


def test_several_readers_that_are_far_ahead_are_followed() -> None:
    """They read what an earlier epoch left in the page cache, where nothing shows them."""
    sizes = [1000] * 20_000
    windows = Windows(np.array(sizes, np.int64), LIMIT)
    windows.begin(np.arange(len(sizes)))
    while moved(windows):
        pass
    for place in range(10_000, 10_016):
        assert windows.read(place % 8, place, 0)
    assert [window.seen for window in windows.all()] == [10_016]


def test_too_many_readers_end_the_window_that_was_there_longest() -> None:
    windows = Windows(np.full(10, 1000), 2 * LEAST_WINDOW_BYTES)
    first, second = windows.begin(np.arange(10)), windows.begin(np.arange(10))
    third = windows.begin(np.arange(10))
    assert [name in windows for name in (first, second, third)] == [False, True, True]
    windows.end(first)
    with pytest.raises(ValueError, match="at least"):
        Windows(np.full(10, 1000), LEAST_WINDOW_BYTES - 1)


@given(st.lists(st.integers(1, 500_000), min_size=9, max_size=40), st.integers(2, 9))
def test_a_sequence_is_found_in_any_mix_of_others(sizes: list[int], length: int) -> None:
    detector, found = SequenceDetector(length), []
    reads = [
        (file, offset, min(131_072, size - offset))
        for file, size in enumerate(sizes)
        for offset in range(0, size, 131_072)
    ]
    for place, (file, offset, size) in enumerate(reads):
        if detector.read(1, file, offset, size):
            found.append(place)
        assert not detector.read(2, place * 7919 % 1000 * 2, 0, 4096)
        assert not detector.read(3, file, offset, size) or length <= place + 1
    assert found[:1] == [length - 1]


@given(_MANY_SIZES, st.integers(0, 2**32 - 1))
def test_a_pool_costs_little_before_it_is_confirmed_and_holds_all_soon(sizes: list[int], seed: int) -> None:
    limit = sum(pages_of(size) for size in sizes) + 2 * LEAST_WINDOW_BYTES
    windows = Windows(np.array(sizes, np.int64), limit)
    cache = Cache(windows, sizes, limit=limit)
    windows.begin(np.arange(len(sizes)), guessed=True, is_order=False)
    cache.move()
    assert windows.held_bytes <= LEAST_WINDOW_BYTES
    assert all(windows.is_pooled(entry) for entry in range(len(sizes)))
    for entry, offset in map(cut(np.arange(len(sizes)), sizes).__getitem__, _shuffled(sizes, seed)):
        cache.read(entry, offset)
        cache.move()
    assert windows.held_bytes == limit - 2 * LEAST_WINDOW_BYTES


def _shuffled(sizes: list[int], seed: int) -> list[int]:
    order: list[int] = np.random.default_rng(seed).permutation(len(cut(np.arange(len(sizes)), sizes))).tolist()
    return order


def test_a_pool_of_small_files_is_there_after_few_reads() -> None:
    sizes = [1000] * 20_000
    windows = Windows(np.array(sizes, np.int64), 32 * LEAST_WINDOW_BYTES)
    cache = Cache(windows, sizes, limit=32 * LEAST_WINDOW_BYTES)
    windows.begin(np.arange(len(sizes)), guessed=True, is_order=False)
    missed = 0
    for entry, offset in map(cut(np.arange(len(sizes)), sizes).__getitem__, _shuffled(sizes, 0)):
        cache.move()
        missed += not cache.read(entry, offset)
    assert missed < 600
    assert not moved(windows)


def test_an_order_is_pushed_before_a_pool_and_takes_half_of_its_room() -> None:
    sizes = [1000] * 20_000
    windows = Windows(np.array(sizes, np.int64), LIMIT)
    assert windows.pool_bytes == LIMIT
    windows.begin(np.arange(10_000), guessed=True, is_order=False)
    for _ in range(12):
        moved(windows)
        windows.read(1, 0, 0)
    order = windows.begin(np.arange(10_000, 20_000))
    assert windows.pool_bytes == LIMIT // 2
    first = moved(windows)
    assert first.push[0].tolist()[:3] == [10_000, 10_001, 10_002]
    assert len(first.drop[0]) > 0, "of the pool, which had all"
    while moved(windows):
        pass
    assert windows.held_bytes <= LIMIT
    assert windows.read(1, 10_000, 0)
    assert not windows.read(1, 5, 0), "of the pool, in no order"
    windows.end(order)
    while moved(windows):
        pass
    assert windows.held_bytes > LIMIT // 2


def test_a_pool_ends_once_an_eighth_of_it_was_lost_and_an_order_pushes_again_what_it_left_to_it() -> None:
    sizes = [1000] * 2000
    windows = Windows(np.array(sizes, np.int64), 4 * LEAST_WINDOW_BYTES)
    cache = Cache(windows, sizes, limit=4 * LEAST_WINDOW_BYTES)
    windows.begin(np.arange(len(sizes)), guessed=True, is_order=False)
    cache.move()
    windows.begin(np.arange(len(sizes) - 1, -1, -1))
    cache.move()
    assert len(cache.held) == len(sizes)
    cache.held.clear()
    lost = 0
    while windows.is_pooled(0):
        assert windows.read(1, len(sizes) - 1 - lost, 0, lost_bytes=1000)
        lost += 1
    assert lost == len(sizes) // 8 + 9
    cache.move()
    assert len(cache.held) == len(sizes) - lost, "all that the reader has not come to"


def test_a_pool_leaves_to_orders_what_it_does_not_need() -> None:
    windows = Windows(np.full(20_000, 1000), 8 * LEAST_WINDOW_BYTES)
    windows.begin(np.arange(4000), guessed=True, is_order=False)
    for _ in range(2):
        windows.begin(np.arange(20_000))
    pool, *orders = windows.all()
    assert pool.limit_bytes == 4000 * PAGE_BYTES
    assert [order.limit_bytes for order in orders] == [4 * LEAST_WINDOW_BYTES - 2000 * PAGE_BYTES] * 2
    windows.begin(np.arange(10), guessed=True, is_order=False)
    assert sum(window.limit_bytes for window in windows.all()) == 8 * LEAST_WINDOW_BYTES


def test_no_order_ends_for_a_pool() -> None:
    windows = Windows(np.full(100, 1000), LIMIT)
    windows.begin(np.arange(50))
    assert windows.pool_bytes == LIMIT // 2
    windows.begin(np.arange(50))
    assert windows.pool_bytes == 0
    guessed = Windows(np.full(100, 1000), LIMIT)
    guessed.begin(np.arange(100), guessed=True)
    assert guessed.pool_bytes == LIMIT, "it is given up"


def test_a_read_far_away_in_a_guessed_order_was_not_foreseen() -> None:
    sizes, far = np.full(20_000, 1000), 10_000
    for guessed in (False, True):
        windows = Windows(sizes, LIMIT)
        windows.begin(np.arange(20_000), guessed=guessed)
        assert windows.read(1, 0, 0)
        assert windows.read(1, far, 0) is not guessed
        assert windows.read(1, far + 1, 0), "two agree"


@pytest.mark.parametrize("windows_of", [4, 32])
def test_a_wrong_order_costs_little(windows_of: int) -> None:
    """Such as that of another epoch. Where all of it fits it is pushed once."""
    sizes, random = [1000] * 20_000, np.random.default_rng(1)
    windows = Windows(np.array(sizes, np.int64), windows_of * LEAST_WINDOW_BYTES)
    cache = Cache(windows, sizes, limit=windows_of * LEAST_WINDOW_BYTES)
    windows.begin(random.permutation(len(sizes)))
    cache.move()
    pushed = len(cache.held)
    for entry in random.permutation(len(sizes))[:1000].tolist():
        cache.read(entry, 0)
        before = set(cache.held)
        cache.move()
        pushed += len(set(cache.held) - before)
    assert pushed <= len(sizes) + 40 * 1000


def test_reads_at_random_are_no_sequence() -> None:
    detector = SequenceDetector(4)
    random = np.random.default_rng(0)
    assert not any(detector.read(1, int(file), 0, 1000) for file in random.permutation(10_000) * 3)
    with pytest.raises(ValueError, match="at least 2"):
        SequenceDetector(1)


def test_readers_of_the_same_files_do_not_move_each_others_windows() -> None:
    sizes = [1000] * 30_000
    windows = Windows(np.array(sizes, np.int64), 2 * LIMIT)
    cache = Cache(windows, sizes, limit=2 * LIMIT)
    random = np.random.default_rng(3)
    orders = [random.permutation(len(sizes)) for _ in range(3)]
    for order in orders:
        windows.begin(order)
    missed = 0
    for place in range(len(sizes)):
        cache.move()
        missed += sum(not cache.read(int(order[place]), 0, thread) for thread, order in enumerate(orders))
    assert missed < len(sizes) // 100
