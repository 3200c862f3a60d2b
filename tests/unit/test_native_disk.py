"""Transfers that the kernel carries out: what is read and written, what goes wrong, who waits for whom."""

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emlio import native
from emlio.native.disk import ALIGNMENT, ENDED_EARLY, Batch, DiskQueue, Pieces, TransferError, join_ranges

SIZE = (3 << 20) + 777
KINDS = ("io_uring", "aio")

pytestmark = pytest.mark.skipif(not native.is_used(), reason=f"the C library is not used: {native.why_not()}")


@pytest.fixture(scope="module")
def content() -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, SIZE, np.uint8)


@pytest.fixture
def file(tmp_path: Path, content: npt.NDArray[np.uint8]) -> Iterator[int]:
    (tmp_path / "file").write_bytes(content.tobytes())
    descriptor = os.open(tmp_path / "file", os.O_RDWR)
    yield descriptor
    os.close(descriptor)


@pytest.fixture(params=KINDS)
def queue(request: pytest.FixtureRequest) -> Iterator[DiskQueue]:
    try:
        made = DiskQueue(8, request.param)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS):  # denied by a sandbox, or absent
            raise
        pytest.skip(f"this system does not allow {request.param}: {error}")
    yield made
    made.close()


@pytest.fixture
def waiting_queue() -> Iterator[DiskQueue]:
    """A queue in which a transfer can wait, for a pipe."""
    queue = DiskQueue(4)
    if queue.kind != "io_uring":
        queue.close()
        pytest.skip("Linux AIO reads a pipe while it is given to the kernel, so nothing can wait for one")
    yield queue
    queue.close()


def ints(*numbers: int) -> npt.NDArray[np.int64]:
    return np.array(numbers, np.int64)


def memory_for(pieces: Pieces) -> npt.NDArray[np.uint8]:
    return np.zeros(pieces.memory_bytes, np.uint8)


def begin(queue: DiskQueue, pieces: Pieces, memory: npt.NDArray[np.uint8]) -> Batch:
    return queue.begin(pieces.files, pieces.starts, pieces.sizes, pieces.needed, pieces.at, memory)


RANGE = st.tuples(st.integers(0, 2), st.integers(0, 1 << 17), st.one_of(st.just(0), st.integers(0, 1 << 15)))


@given(st.lists(RANGE, max_size=40), st.sampled_from([0, 100, 4096, 1 << 16]), st.sampled_from([1, 2, 16]))
def test_pieces_hold_each_range_at_its_place(
    ranges: list[tuple[int, int, int]], gap_bytes: int, most_pages: int
) -> None:
    files, starts, sizes = (ints(*column) for column in zip(*ranges, strict=True)) if ranges else (ints(),) * 3
    pieces = join_ranges(files, starts, sizes, gap_bytes=gap_bytes, most_bytes=most_pages * ALIGNMENT)
    # A byte's value tells its file and its offset, so that a wrong place shows.
    memory = np.full((pieces.memory_bytes, 2), -1, np.int64)
    for file, start, size, needed, at in zip(
        pieces.files, pieces.starts, pieces.sizes, pieces.needed, pieces.at, strict=True
    ):
        assert start % ALIGNMENT == size % ALIGNMENT == at % ALIGNMENT == 0
        assert 0 < needed <= size <= most_pages * ALIGNMENT
        assert (memory[at : at + size] == -1).all(), "pieces must not share memory"
        memory[at : at + size, 0], memory[at : at + size, 1] = file, np.arange(start, start + size)
    for file, start, size, place in zip(files, starts, sizes, pieces.places, strict=True):
        assert (memory[place : place + size, 0] == file).all()
        assert (memory[place : place + size, 1] == np.arange(start, start + size)).all()
        inside = (
            (size > 0)
            & (pieces.files == file)
            & (pieces.starts < start + size)
            & (pieces.starts + pieces.sizes > start)
        )
        assert (
            np.minimum(pieces.starts + pieces.needed, start + size)
            >= np.minimum(pieces.starts + pieces.sizes, start + size)
        )[inside].all(), "what a range has in a piece is needed of it"
    assert (memory[:, 0] >= 0).all()


def test_neighbours_are_read_at_once_and_others_are_not() -> None:
    joined = join_ranges(
        ints(1, 1, 1, 2), ints(9000, 100, 40_000, 100), ints(10, 5, 1, 1), gap_bytes=4096, most_bytes=8192
    )
    assert joined.starts.tolist() == [0, 8192, 36_864, 0]
    assert joined.files.tolist() == [1, 1, 1, 2]
    assert joined.needed.tolist() == [8192, 818, 3137, 101]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="begin"):
        join_ranges(ints(1), ints(-1), ints(1), gap_bytes=0, most_bytes=8192)


def test_ranges_are_copied_in_the_order_asked_for(queue: DiskQueue, file: int, content: npt.NDArray[np.uint8]) -> None:
    rng = np.random.default_rng(1)
    for count in (0, 1, 7, 200):
        sizes = rng.integers(0, 50_000, count)
        starts = rng.integers(0, SIZE - sizes + 1) if count else ints()
        pieces = join_ranges(np.full(count, file), starts, sizes, gap_bytes=4096, most_bytes=1 << 16)
        out = np.zeros(int(sizes.sum()), np.uint8)
        queue.finish(begin(queue, pieces, memory_for(pieces)), pieces.places, sizes, out)
        assert out.tobytes() == b"".join(
            content[a : a + n].tobytes() for a, n in zip(starts.tolist(), sizes.tolist(), strict=True)
        )


def test_more_batches_than_the_queue_is_deep_are_finished_in_any_order(
    queue: DiskQueue, file: int, content: npt.NDArray[np.uint8]
) -> None:
    pieces = join_ranges(np.full(1, file), ints(0), ints(SIZE), gap_bytes=0, most_bytes=1 << 16)
    batches = [begin(queue, pieces, memory_for(pieces)) for _ in range(6)]
    for batch in (batches[i] for i in (5, 0, 3)):
        queue.finish(batch)
        assert (batch.memory[:SIZE] == content).all()
    queue.drop(batches[1])


def test_written_bytes_are_in_the_file(queue: DiskQueue, file: int) -> None:
    data = np.random.default_rng(3).integers(0, 256, 1 << 16, np.uint8)
    starts, sizes = ints(0, 1 << 20), ints(1 << 15, 1 << 15)
    queue.finish(queue.begin(np.full(2, file), starts, sizes, sizes, ints(0, 1 << 15), data, writes=True))
    assert os.pread(file, 1 << 15, 0) + os.pread(file, 1 << 15, 1 << 20) == data.tobytes()


def test_a_file_that_is_too_short_is_told_with_the_piece(queue: DiskQueue, file: int) -> None:
    pieces = join_ranges(np.full(2, file), ints(0, SIZE - 5), ints(10, 6), gap_bytes=0, most_bytes=1 << 16)
    with pytest.raises(TransferError) as caught:
        queue.finish(begin(queue, pieces, memory_for(pieces)))
    assert (caught.value.errno, caught.value.place) == (ENDED_EARLY, 1)
    os.ftruncate(file, 4096)
    behind = join_ranges(np.full(1, file), ints(8192), ints(1), gap_bytes=0, most_bytes=1 << 16)
    with pytest.raises(TransferError) as caught:
        queue.finish(begin(queue, behind, memory_for(behind)))
    assert caught.value.errno == ENDED_EARLY


def test_an_error_of_the_system_fails_one_batch_and_no_other(
    queue: DiskQueue, file: int, content: npt.NDArray[np.uint8]
) -> None:
    missing = os.dup(file)
    os.close(missing)
    bad = join_ranges(np.full(1, missing), ints(0), ints(SIZE), gap_bytes=0, most_bytes=1 << 16)
    good = join_ranges(np.full(1, file), ints(0), ints(SIZE), gap_bytes=0, most_bytes=1 << 16)
    failing, fine = begin(queue, bad, memory_for(bad)), begin(queue, good, memory_for(good))
    with pytest.raises(TransferError) as caught:
        queue.finish(failing)
    assert caught.value.errno == errno.EBADF
    queue.finish(fine)
    assert (fine.memory[:SIZE] == content).all()


def test_threads_share_a_queue(queue: DiskQueue, file: int, content: npt.NDArray[np.uint8]) -> None:
    wrong: list[object] = []

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(40):
            sizes = rng.integers(1, 20_000, 20)
            starts = rng.integers(0, SIZE - sizes)
            pieces = join_ranges(np.full(20, file), starts, sizes, gap_bytes=4096, most_bytes=1 << 16)
            out = np.zeros(int(sizes.sum()), np.uint8)
            queue.finish(begin(queue, pieces, memory_for(pieces)), pieces.places, sizes, out)
            if any(
                (part != content[a : a + len(part)]).any()
                for a, part in zip(starts, np.split(out, np.cumsum(sizes)[:-1]), strict=True)
            ):
                wrong.append(seed)

    threads = [Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_batch_may_begin_where_another_one_was_just_freed(
    queue: DiskQueue, file: int, content: npt.NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = join_ranges(ints(file), ints(5), ints(100), gap_bytes=0, most_bytes=4096)
    first, second = (begin(queue, pieces, memory_for(pieces)) for _ in range(2))
    own_address = second.address

    class Library:  # in which another thread begins a batch while one returns from its finish: the allocator may choose so
        def emlio_disk_finish(self, *arguments: object) -> int:
            result = library.emlio_disk_finish(*arguments)
            queue._begun[first.address] = queue._begun.pop(own_address)
            second.address = first.address
            return int(result)

    library = queue._library
    with monkeypatch.context() as patched:
        patched.setattr(queue, "_library", Library())
        queue.finish(first)
    assert queue._begun == {first.address: second}
    queue._begun[own_address] = queue._begun.pop(first.address)
    second.address = own_address
    out = np.zeros(100, np.uint8)
    queue.finish(second, pieces.places, ints(100), out)
    assert (out == content[5:105]).all()


def test_a_batch_is_finished_once(queue: DiskQueue, file: int) -> None:
    pieces = join_ranges(ints(file), ints(5), ints(100), gap_bytes=0, most_bytes=4096)
    batch = begin(queue, pieces, memory_for(pieces))
    queue.finish(batch)
    with pytest.raises(ValueError, match="once"):
        queue.finish(batch)
    queue.close()  # does not wait for it


def test_closing_wakes_who_waits_and_then_nothing_can_be_begun(waiting_queue: DiskQueue) -> None:
    queue = waiting_queue
    reading, writing = os.pipe()
    raised: list[BaseException] = []
    memory = np.zeros(4096, np.uint8)
    batch = queue.begin(ints(reading), ints(0), ints(4096), ints(4096), ints(0), memory)

    def wait() -> None:
        try:
            queue.finish(batch)
        except OSError as error:
            raised.append(error)

    waiting = Thread(target=wait)
    waiting.start()
    closing = Thread(target=queue.close)
    closing.start()
    while True:
        with queue._lock:  # which closing holds until it has told those who wait
            if queue._queue is None:
                break
    os.write(writing, b"x")  # the kernel holds the memory until its transfer ends
    closing.join()
    waiting.join()
    assert [type(error) for error in raised] == [OSError]
    with pytest.raises(OSError, match="closed"):
        queue.begin(ints(reading), ints(0), ints(1), ints(1), ints(0), memory)
    os.close(reading)
    os.close(writing)


def test_the_time_of_a_wait_is_told_while_it_goes_on_and_counted_once(waiting_queue: DiskQueue) -> None:
    queue = waiting_queue
    reading, writing = os.pipe()
    batch = queue.begin(ints(reading), ints(0), ints(1), ints(1), ints(0), np.zeros(4096, np.uint8))
    assert queue.waited_ns() == 0
    begun_ns = time.monotonic_ns()
    waiting = Thread(target=queue.finish, args=[batch])
    waiting.start()
    told: list[int] = []
    while not told or told[-1] < 50_000_000:
        assert time.monotonic_ns() - begun_ns < 60_000_000_000, "it is told at last"
        told.append(queue.waited_ns())
    assert told == sorted(told)
    os.write(writing, b"x")
    waiting.join()
    assert told[-1] <= queue.waited_ns() <= time.monotonic_ns() - begun_ns
    queue.close()
    assert queue.waited_ns() == 0
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_thread_gave_the_kernel_is_read_though_it_ends(tmp_path: Path, kind: str) -> None:
    # Reads through the page cache are carried out in part by the thread that gave them to the kernel.
    content = np.random.default_rng(1).integers(0, 256, 16 << 20, np.uint8)
    (tmp_path / "cold").write_bytes(content.tobytes())
    descriptor = os.open(tmp_path / "cold", os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    queue, found, size = DiskQueue(32, kind), np.zeros_like(content), content.nbytes // 32
    starts, sizes = np.arange(32) * size, np.full(32, size)
    batch = queue.begin(np.full(32, descriptor), starts, sizes, sizes, starts, found)
    thread = Thread(target=queue.push)
    thread.start()
    thread.join()
    queue.finish(batch)
    assert (found == content).all()
    queue.close()
    os.close(descriptor)


def test_the_garbage_collector_may_drop_a_batch_while_others_are_forgotten(
    queue: DiskQueue, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one() -> Batch:
        return queue.begin(ints(file), ints(0), ints(SIZE), ints(SIZE), ints(0), np.zeros(SIZE, np.uint8))

    library, forgotten, late = queue._library, list[int](), one()

    class Library:  # in which the collector runs a finalizer, which drops `late`
        def emlio_disk_drop(self, number: int, address: int) -> int:
            forgotten.append(address)
            if len(forgotten) == 1:
                queue.drop(late)
            return int(library.emlio_disk_drop(number, address))

    first, second = one(), one()
    with monkeypatch.context() as patched:
        patched.setattr(queue, "_library", Library())
        queue._dropped.append(first)
        queue.drop(second)
    assert sorted(forgotten) == sorted(batch.address for batch in (first, second, late))
    assert queue._begun == {}
