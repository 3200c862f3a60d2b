"""Orders that follow each other, and their readers: what one leaves to the next, who is late, and what was lost."""

from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.files.mount.pieces import PAGE_BYTES, PIECE_BYTES
from emlio.files.mount.window import LEAST_WINDOW_BYTES
from emlio.files.mount.windows import Windows
from emlio_testing.window_cache import LIMIT, Cache, cut, moved, pages_of

_REQUEST_BYTES = PIECE_BYTES // 4
"""Of the kernel's reads."""


def test_an_order_takes_over_what_another_one_left_if_all_has_room() -> None:
    sizes, random = [1000] * 1500 + [0] * 10, np.random.default_rng(2)
    windows = Windows(np.array(sizes, np.int64), LIMIT)
    cache = Cache(windows, sizes)
    first = windows.begin(np.arange(1000))
    cache.move()
    second = windows.begin(random.permutation(1510), instead_of=[first])
    cache.move()
    assert cache.pushed <= 1500 + 9, "something else than a few tripwires is pushed again"
    assert set(range(1500)) == {entry for entry, _ in cache.held}
    windows.begin(random.permutation(1200), instead_of=[second])
    cache.move()
    assert set(range(1200)) == {entry for entry, _ in cache.held}
    windows.begin(np.arange(1510))
    windows.begin(np.arange(1510))  # now the first one has no room for all
    cache.move()


def test_pages_that_were_kept_but_lost_are_pushed_again() -> None:
    sizes = [1000] * 2000
    windows = Windows(np.array(sizes, np.int64), LIMIT)
    cache = Cache(windows, sizes)
    first = windows.begin(np.arange(2000))
    cache.move()
    windows.begin(np.arange(2000), instead_of=[first])
    cache.move()
    cache.held.clear()  # the kernel was short of memory
    cache.lost = True
    missed = 0
    for entry in range(2000):
        lost = 0 if (entry, 0) in cache.held else 4096
        missed += bool(lost)
        if lost or (entry, 0) in cache.wires:
            windows.read(1, entry, 0, lost_bytes=lost)
        cache.move()
    assert missed <= 2000 // 8 + 9


def test_orders_of_the_same_files_of_which_one_is_replaced_before_all_is_pushed_are_pushed_whole() -> None:
    sizes, random = [1000] * 4000, np.random.default_rng(1)
    windows = Windows(np.array(sizes, np.int64), 2 * LIMIT)
    cache = Cache(windows, sizes, limit=2 * LIMIT)
    first = windows.begin(random.permutation(4000))
    cache.move(1)
    windows.begin(random.permutation(4000), instead_of=[first])
    windows.begin(random.permutation(4000))
    cache.move()
    assert len(cache.held) == 4000


def test_what_was_jumped_over_or_freed_is_pushed_for_the_next_order() -> None:
    """A reader that resumes its epoch, and one beside whom another one begins and ends, both where all has room."""
    sizes = [1000] * 4000
    windows = Windows(np.array(sizes, np.int64), LIMIT)
    cache = Cache(windows, sizes)
    name = windows.begin(np.arange(4000))
    for entry in range(3000, 4000):
        cache.read(entry, 0)
        cache.held.pop((entry, 0), None)
        windows.left(np.array([entry]), np.array([0]))
    other = windows.begin(np.arange(10))
    cache.move()
    windows.end(other)
    windows.begin(np.arange(4000), instead_of=[name])
    for entry in range(4000):
        cache.move()
        assert cache.read(entry, 0)


@pytest.mark.parametrize("batch", [32, 64])
def test_workers_that_read_batches_in_turns_are_readers_of_one_order(batch: int) -> None:
    """As those of a DataLoader: eight, each two batches ahead at most; some are late, and the order is right."""
    workers, prefetch = 8, 2
    sizes, random = [100_000] * 4000, np.random.default_rng(1)
    limit = 32 * LEAST_WINDOW_BYTES
    windows = Windows(np.array(sizes, np.int64), limit)
    cache = Cache(windows, sizes, limit=limit)
    order = random.permutation(len(sizes)).tolist()
    windows.begin(np.array(order))
    cache.move()
    batches = [order[begin : begin + batch][::-1] for begin in range(0, len(order), batch)]
    now, done, missed = list(range(workers)), 0, 0
    while done < len(batches):
        worker = int(random.integers(workers))
        if now[worker] >= min(len(batches), done + workers * prefetch):
            continue
        missed += not cache.read(batches[now[worker]].pop(), 0, worker)
        cache.move(1)
        if not batches[now[worker]]:
            now[worker] += workers
        while done < len(batches) and not batches[done]:
            done += 1
    assert not any(window.is_guess for window in windows.all())
    assert missed < len(sizes) // 8
    assert cache.pushed < 2 * len(sizes)


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.sampled_from([100_000, 2_000_000]), st.booleans())
def test_what_late_readers_got_is_freed_whoever_reads_in_whatever_order_and_if_the_answer_comes_later(
    seed: int, readers: int, largest: int, is_one_thread: bool
) -> None:
    random = np.random.default_rng(seed)
    sizes: list[int] = random.integers(1, largest, 12 * LIMIT // largest).tolist()
    windows = Windows(np.array(sizes, np.int64), LIMIT)
    cache = Cache(windows, sizes)
    order = random.permutation(len(sizes))
    windows.begin(order)
    pieces = cut(order, sizes)
    for piece in pieces:
        cache.move()
        cache.read(*piece)
    reads = [
        (entry, offset + part)
        for entry, offset in pieces
        for part in range(0, min(sizes[entry] - offset, PIECE_BYTES), _REQUEST_BYTES)
    ]
    ways = {number: iter(_way(reads, random)) for number in range(readers)}
    threads = count(2)
    fixed = {number: next(threads) for number in ways}
    waiting: list[tuple[int, int]] = []
    while ways or waiting:
        if ways and (not waiting or random.random() < 0.6):
            number = int(random.choice(list(ways)))
            piece = next(ways[number], None)
            thread = fixed[number] if is_one_thread else next(threads)
            if piece is None:
                del ways[number]
            elif piece not in cache.got and not cache.read(*piece, thread):
                waiting.append(piece)
        else:
            random.shuffle(waiting)
            some = int(random.integers(1, len(waiting) + 1))
            cache.answer(waiting[:some])
            del waiting[:some]
        cache.move()
        held = {pieces[place] for window in windows.all() for place in window.held}
        apart = sum(
            pages_of(min(sizes[entry] - offset, _REQUEST_BYTES))
            for entry, offset in cache.got
            if (entry, offset // PIECE_BYTES * PIECE_BYTES) not in held
        )
        asked = {(entry, offset // PIECE_BYTES) for entry, offset in waiting}
        assert apart <= LIMIT // 8 + (1 + len(asked)) * PIECE_BYTES  # a piece that is asked for is not freed


def _way(reads: list[tuple[int, int]], random: np.random.Generator) -> list[tuple[int, int]]:
    """Return how one reads: in order, backwards, or here and there."""
    if random.random() < 0.4:
        return reads
    if random.random() < 0.5:
        return reads[::-1]
    return [reads[place] for place in random.permutation(len(reads))]


def test_an_order_goes_on_past_pieces_that_are_all_there() -> None:
    size, limit = 1 << 20, 32 * LEAST_WINDOW_BYTES
    windows = Windows(np.full(200, size), limit)
    first = windows.begin(np.arange(100))
    while moved(windows):
        pass
    windows.begin(np.arange(200), instead_of=[first])
    pushed = 0
    while moves := moved(windows):
        pushed += moves.push.shape[1]
    assert pushed >= 100
    assert windows.there_bytes == 200 * size


@pytest.mark.parametrize("parts", [2, 8, 32])
def test_pages_that_stay_leave_no_room_to_others_that_come(parts: int) -> None:
    """Most of what is freed first is held by the next order."""
    limit, size = parts * LEAST_WINDOW_BYTES, 100_000
    half = limit // 2 // pages_of(size)
    sizes = [size] * (3 * half)
    windows = Windows(np.array(sizes, np.int64), limit)
    cache = Cache(windows, sizes, limit=limit)
    first = windows.begin(np.arange(2 * half))
    cache.move()
    stays = [entry for entry in range(half) if entry % 100]
    windows.begin(np.array([*range(2 * half, 3 * half), *stays]), instead_of=[first])
    cache.move()  # which looks at the limit after each move
    assert {entry for entry, _ in cache.held} == {*range(2 * half, 3 * half), *stays}


def test_positions_that_a_reader_jumps_over_cost_nothing() -> None:
    windows = Windows(np.full(200_000, 4096), LIMIT)
    windows.begin(np.arange(200_000))
    while moved(windows):
        pass
    there = windows.there_bytes // PAGE_BYTES
    for entry in (170_000, 170_001):
        windows.read(1, entry, 0)
    dropped = windows.late_drops().shape[1]
    while moves := moved(windows):
        dropped += moves.drop.shape[1] - np.count_nonzero(moves.push[3])
    assert dropped <= there + 2


def test_what_comes_for_an_order_that_ended_takes_room_until_it_is_freed() -> None:
    windows = Windows(np.full(4000, 4096), LIMIT)
    name = windows.begin(np.arange(2000))
    coming = windows.moves().push[:2]
    windows.end(name)
    windows.begin(np.arange(2000, 4000))
    held = windows.moves()
    assert not held.drop[:, np.isin(held.drop[0], coming[0])].size
    assert windows.there_bytes == (coming.shape[1] + held.push.shape[1]) * PAGE_BYTES
    assert windows.landed(*coming).tolist() == coming.tolist()
    assert windows.there_bytes == held.push.shape[1] * PAGE_BYTES
