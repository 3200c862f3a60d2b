"""Slices of a mapped file: lent under a lease, waited for when somebody wants to write, and copied from then on."""

import ctypes
import errno
import gc
import mmap
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest

from emlio.index.opening import open_dataset
from emlio.store.opened.leases import Leaseholder, Leases
from emlio.store.opened.slices import Borrower, SliceLender
from emlio_testing.datasets import make_dataset
from emlio_testing.leases import Returned, gives_leases, leases_on
from emlio_testing.processes import settles
from emlio_testing.reading import page_cache

_FOR_EVER_S = 20.0
_SIZE = 3 << 20
_CONTENT = np.arange(_SIZE // 8, dtype=np.int64).tobytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    if not gives_leases(tmp_path):
        pytest.skip(f"the file system of {tmp_path} gives no leases")
    path = tmp_path / "shard"
    path.write_bytes(_CONTENT)
    return path


class _Stuck:
    """Collects who was to be stopped."""

    def __init__(self) -> None:
        self.named: list[list[Borrower]] = []
        self.heard = Event()

    def __call__(self, borrowers: Collection[Borrower]) -> None:
        self.named.append(list(borrowers))
        self.heard.set()


@contextmanager
def _lender(
    path: Path,
    *,
    leases: Leases | None = None,
    patience_s: float = 600.0,
    stuck: _Stuck | None = None,
    **options: Callable[[int, int, int], int],
) -> Iterator[SliceLender]:
    leases = leases if leases is not None else Leases(patience_s)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        mapping = mmap.mmap(descriptor, _SIZE, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        whole = np.frombuffer(mapping, np.uint8)
        yield SliceLender(descriptor, whole, leases, stuck if stuck is not None else _Stuck(), **options)
    finally:
        leases.close()
        os.close(descriptor)


@contextmanager
def _truncating(path: Path) -> Iterator[Event]:
    """Another thread makes the file shorter; the event says that it was let."""
    done = Event()

    def run() -> None:
        os.truncate(path, 10)
        done.set()

    thread = Thread(target=run)
    thread.start()
    try:
        yield done
    finally:
        thread.join(_FOR_EVER_S)
        assert not thread.is_alive()


@pytest.mark.parametrize(("start", "end"), [(0, _SIZE), (0, 1), (4095, 4097), (5000, 2_000_001), (_SIZE - 1, _SIZE)])
def test_a_slice_is_the_files_bytes_and_is_given_back_once(path: Path, start: int, end: int) -> None:
    rank = Returned()
    with _lender(path) as lender:
        view = lender.lend(start, end, rank)
        assert view is not None
        assert view.tobytes() == _CONTENT[start:end]
        assert not view.flags.writeable
        kept = view.data
        del view
        assert rank.back == []
        assert kept[:1] == _CONTENT[start : start + 1]
        kept.release()
        del kept
        assert rank.back == [end - start]


def test_a_writer_waits_for_the_last_slice_and_from_then_on_all_is_copied(path: Path) -> None:
    rank = Returned()
    with _lender(path) as lender:
        first, last = lender.lend(0, 1 << 20, rank), lender.lend(1 << 20, _SIZE, rank)
        assert first is not None
        assert last is not None
        with _truncating(path) as done:
            assert settles(lambda: lender.lend(0, 10, rank) is None, _FOR_EVER_S), "the news of the writer must come"
            del first
            assert not done.is_set()
            assert last.tobytes() == _CONTENT[1 << 20 :], "the bytes are there as long as somebody has them"
            assert leases_on(path) == ["BREAKING"]
            del last
            assert done.wait(_FOR_EVER_S)
        assert lender.lend(0, 10, rank) is None
        assert leases_on(path) == []
    assert sorted(rank.back)[-2:] == [1 << 20, 2 << 20]


def test_those_who_keep_slices_are_named_when_the_writer_has_waited_long_enough_and_no_others(path: Path) -> None:
    quick, slow, stuck = Returned(), Returned(), _Stuck()
    with _lender(path, patience_s=0.05, stuck=stuck) as lender:
        lent = {rank: [lender.lend(0, 100, rank), lender.lend(50, 200, rank)] for rank in (quick, slow)}
        del lent[quick]
        with _truncating(path) as done:
            assert stuck.heard.wait(_FOR_EVER_S)
            assert stuck.named[0] == [slow]
            assert not done.is_set()
            lent.clear()
            assert done.wait(_FOR_EVER_S)
    assert sorted(slow.back) == sorted(quick.back) == [100, 150]


def test_a_slice_outlives_lender_lease_and_descriptor(path: Path) -> None:
    rank = Returned()
    with _lender(path) as lender:
        view = lender.lend(10, 5000, rank)
        lender.close()
        lender.close()
        assert leases_on(path) == []
        assert lender.lend(10, 20, rank) is None
        del lender
    assert view is not None
    assert view.tobytes() == _CONTENT[10:5000]
    del view
    assert rank.back == [4990]


def test_a_file_that_somebody_has_open_to_write_is_copied(path: Path) -> None:
    with _lender(path) as lender, path.open("r+b"):
        assert lender.lend(0, 10, Returned()) is None
        assert leases_on(path) == []


def test_what_is_not_in_the_file_any_more_is_left_to_the_copy_to_complain_about(path: Path) -> None:
    rank = Returned()
    with _lender(path) as lender:
        os.truncate(path, 1 << 20)
        assert lender.lend(0, 2 << 20, rank) is None
        assert rank.back == [], "it was not lent, so it does not come back"
        view = lender.lend(0, 1 << 20, rank)
        assert view is not None
        assert view.tobytes() == _CONTENT[: 1 << 20]


@pytest.mark.parametrize(("number", "again"), [(errno.EINVAL, False), (errno.ENOSYS, False), (errno.ENOMEM, True)])
def test_a_kernel_that_cannot_fill_pages_for_us_is_asked_once_and_all_is_copied(
    path: Path, number: int, again: bool
) -> None:
    rank, asked = Returned(), list[tuple[int, int]]()

    def populate(address: int, length: int, advice: int) -> int:
        asked.append((address % mmap.PAGESIZE, length))
        ctypes.set_errno(number)
        return -1

    with _lender(path, populate=populate) as lender:
        assert lender.lend(5000, 6000, rank) is None
        assert lender.lend(5000, 6000, rank) is None
        assert asked == [(0, 6000 - 4096)] * (1 + again)
        assert rank.back == []
        with _truncating(path) as done:
            assert done.wait(_FOR_EVER_S), "nothing is in use"


class _InterruptedLeases(Leases):
    """Somebody wants to write as soon as the lease is had."""

    def take(self, descriptor: int, holder: Leaseholder) -> bool:
        taken = super().take(descriptor, holder)
        assert holder.withdraw()
        return taken


def test_a_writer_that_comes_while_the_lease_is_asked_for_is_not_forgotten(path: Path) -> None:
    with _lender(path, leases=_InterruptedLeases(600.0)) as lender:
        assert lender.lend(0, 10, Returned()) is None
        assert lender.lend(0, 10, Returned()) is None


class _ClosedMeanwhile(Leases):
    """The lender is closed while its lease is asked for."""

    def __init__(self, close: Callable[[], object]) -> None:
        super().__init__(600.0)
        self._close = close
        self.of: list[int] = []

    def take(self, descriptor: int, holder: Leaseholder) -> bool:
        self._close()
        self.of.append(os.fstat(descriptor).st_ino)
        return super().take(descriptor, holder)


def test_a_lender_that_is_closed_while_it_asks_keeps_the_descriptor_until_it_was_answered(path: Path) -> None:
    ended = list[str]()
    leases = _ClosedMeanwhile(lambda: lender.close(lambda: ended.append(str(leases_on(path)))))
    with _lender(path, leases=leases) as lender:
        assert lender.lend(0, 10, Returned()) is None
        assert ended == ["[]"], "the lease is let go first"
        assert not lender.only_copies, "nobody wanted to write"


def test_files_that_are_closed_while_a_lease_is_asked_for_leave_no_lease_on_another_file(path: Path) -> None:
    make_dataset(path.parent / "data", records=2, shards=1)
    with open_dataset("d", path.parent / "data") as dataset:
        leases = _ClosedMeanwhile(lambda: shards.close())
        shards = page_cache(dataset, leases)
        try:
            assert shards.files.lend(0, 0, 10, Returned()) is None
            assert leases.of == [dataset.shard_paths[0].stat().st_ino]
            assert leases_on(dataset.shard_paths[0]) == []
        finally:
            leases.close()


def test_a_lender_that_is_given_up_for_others_does_not_say_that_all_must_be_copied(path: Path) -> None:
    with _lender(path) as lender:
        assert lender.lend(0, 10, Returned()) is not None
        assert lender.retire()
        lender.close()
        assert lender.lend(0, 10, Returned()) is None
        assert not lender.only_copies
    with _lender(path) as lender, path.open("r+b"):
        assert lender.lend(0, 10, Returned()) is None
        lender.close()
        assert lender.only_copies, "somebody writes"


def test_a_slice_that_only_the_collector_finds_comes_back_too(path: Path) -> None:

    class Knot:
        def __init__(self, view: object) -> None:
            self.view, self.me = view, self

    rank = Returned()
    with _lender(path) as lender:
        Knot(lender.lend(0, 100, rank))
        with _truncating(path) as done:
            assert settles(lambda: lender.lend(0, 10, rank) is None, _FOR_EVER_S)
            gc.collect()
            assert done.wait(_FOR_EVER_S)
        assert 100 in rank.back


def test_many_threads_lend_and_give_back_while_writers_come(path: Path) -> None:
    ranks = [Returned() for _ in range(4)]
    lent = [0] * len(ranks)
    begun = Event()

    def use(number: int) -> None:
        while (view := lender.lend(number * 1000, number * 1000 + 5000, ranks[number])) is not None:
            if view[0] != _CONTENT[number * 1000] or view[-1] != _CONTENT[number * 1000 + 4999]:
                raise AssertionError("the file is shorter")
            lent[number] += 1
            if lent[number] == 100:
                begun.set()

    with _lender(path) as lender:
        threads = [Thread(target=use, args=(number,)) for number in range(len(ranks))]
        for thread in threads:
            thread.start()
        assert begun.wait(_FOR_EVER_S)
        with _truncating(path) as done:
            assert done.wait(_FOR_EVER_S)
        for thread in threads:
            thread.join(_FOR_EVER_S)
    assert [len(rank.back) for rank in ranks] == lent
    assert max(lent) >= 100
