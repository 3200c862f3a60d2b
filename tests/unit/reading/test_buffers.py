"""Memory for messages: lent once, used again, given back by itself."""

import mmap
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from emlio.native.disk import ALIGNMENT
from emlio.reading.buffers import BufferPool, aligned

_SLAB = 4096


def _address(array: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> int:
    return int(array.ctypes.data)


def test_memory_comes_back_when_nobody_refers_to_it_and_is_used_again() -> None:
    released: list[int] = []
    pool = BufferPool(_SLAB, 4 * _SLAB)
    buffer = pool.take(3000, released.append)
    address = _address(buffer)
    assert buffer.nbytes == 3000
    assert (pool.lent, released) == (1, [])
    part = buffer.data[10:20]
    del buffer
    assert (pool.lent, released) == (1, []), "a view of it still needs it"
    del part
    assert (pool.lent, released) == (0, [3000])
    assert _address(pool.take(4000, released.append)) == address


def test_two_buffers_are_never_the_same_memory() -> None:
    pool = BufferPool(_SLAB, 4 * _SLAB)
    buffers = [pool.take(_SLAB, lambda _: None) for _ in range(6)]
    for number, buffer in enumerate(buffers):
        buffer[:] = number
    assert [int(buffer.max()) for buffer in buffers] == list(range(6))
    assert pool.lent == 6


def test_the_last_one_given_back_is_the_first_one_used() -> None:
    pool = BufferPool(_SLAB, 4 * _SLAB)
    first, second = pool.take(_SLAB, lambda _: None), pool.take(_SLAB, lambda _: None)
    address = _address(first)
    del second
    del first
    assert _address(pool.take(_SLAB, lambda _: None)) == address


@pytest.mark.parametrize("size", [_SLAB + 1, 3 * _SLAB, 100 * _SLAB + 7])
def test_what_is_larger_than_a_slab_is_lent_all_the_same(size: int) -> None:
    released: list[int] = []
    pool = BufferPool(_SLAB, 4 * _SLAB)
    buffer = pool.take(size, released.append)
    assert buffer.nbytes == size
    buffer[-1] = 1
    del buffer
    assert released == [size]


def test_small_pieces_take_no_slab_and_are_not_kept() -> None:
    slab = 1 << 22
    pool = BufferPool(slab, 4 * slab)
    tracemalloc.start()
    buffers = [pool.take(size, lambda _: None) for size in [10, 5000, 30_000] * 50]
    taken_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken_bytes < 2 * sum(buffer.nbytes for buffer in buffers)
    buffers.clear()
    assert (pool.lent, pool._kept_bytes) == (0, 0)


@pytest.mark.parametrize(("size", "piece"), [(70_000, 1 << 17), (1 << 18, 1 << 18), ((1 << 18) + 1, 1 << 19)])
def test_what_fits_into_a_part_of_a_slab_takes_the_part_and_is_used_again(size: int, piece: int) -> None:
    pool = BufferPool(1 << 22, 1 << 24)
    buffer = pool.take(size, lambda _: None)
    address = _address(buffer)
    del buffer
    assert pool._kept_bytes == piece
    assert _address(pool.take(piece, lambda _: None)) == address


def test_no_more_memory_is_kept_than_allowed() -> None:
    pool = BufferPool(_SLAB, 2 * _SLAB)
    buffers = [pool.take(_SLAB, lambda _: None) for _ in range(10)]
    buffers.clear()
    assert pool.lent == 0
    assert pool._kept_bytes == 2 * _SLAB
    pool.take(50 * _SLAB, lambda _: None)
    assert pool._kept_bytes == 2 * _SLAB


def test_less_is_kept_from_now_on() -> None:
    pool = BufferPool(1 << 20, 4 << 20)
    held = [pool.take(1 << 20, lambda _: None) for _ in range(4)]
    held.clear()
    assert pool._kept_bytes == 4 << 20
    pool.keep(2 << 20)
    assert pool._kept_bytes == 2 << 20
    held = [pool.take(1 << 20, lambda _: None) for _ in range(4)]
    held.clear()
    assert pool._kept_bytes == 2 << 20


def test_pieces_of_a_size_that_is_not_used_any_more_make_room_for_others() -> None:
    slab = 1 << 18
    pool = BufferPool(slab, 2 * slab)
    small = [pool.take(1 << 16, lambda _: None) for _ in range(8)]
    small.clear()
    assert pool._kept_bytes == 2 * slab
    large = pool.take(slab, lambda _: None)
    address = _address(large)
    del large
    assert pool._kept_bytes == 2 * slab
    assert _address(pool.take(slab, lambda _: None)) == address


@pytest.mark.parametrize("size", [1, 4095, (2 << 20) - 1, 2 << 20, (4 << 20) + 1])
def test_aligned_memory_begins_at_a_page_and_is_as_large_as_was_asked_for(size: int) -> None:
    memory = aligned(size)
    assert (memory.nbytes, _address(memory) % 4096) == (size, 0)
    memory[:] = 7
    view = memory[-1:]
    del memory
    assert view.tolist() == [7], "a view keeps it"


@pytest.mark.parametrize("size", [1 << 60, (1 << 63) - 1])
def test_memory_that_cannot_be_had_is_no_error_of_a_disk(size: int) -> None:
    with pytest.raises(MemoryError):
        aligned(size)


@pytest.mark.parametrize("size", [1, 70_000, 1 << 21, (2 << 20) + 1, (5 << 20) + 1])
def test_what_is_counted_for_aligned_memory_is_all_that_it_takes(size: int) -> None:
    pool = BufferPool(4 << 20, 64 << 20, aligned=True)
    counted = pool.rounded(size)
    assert size <= counted
    assert counted <= max(2 * size, 64 << 10) if size <= 2 << 20 else counted - size < 512 << 10
    before = _resident_bytes()
    taken = [pool.take(size, lambda _: None) for _ in range(20)]
    for buffer in taken:
        buffer[:] = 1
    assert _resident_bytes() - before <= 20 * (counted + 2 * ALIGNMENT) + (4 << 20)
    assert (pool._kept_bytes, pool.lent) == (0, 20)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
