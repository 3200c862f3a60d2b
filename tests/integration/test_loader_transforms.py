"""Transforms in a pool of threads, through a whole loader: order, bounds, seeds, errors in their place, ends in the middle."""

import gc
import hashlib
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from threading import Event, Lock, Thread, current_thread, main_thread
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader
from emlio.errors import ClosedError
from emlio.planner.sample_seeds import sample_seeds
from emlio.tfrecord import frame
from emlio_testing.datasets import make_dataset
from emlio_testing.serving import raw_loader, served

_RECORDS = 60
_BATCH = 8
_LONG_S = 20.0
_WAYS = pytest.mark.parametrize("way", ["daemon", "directory"])

_Address = Callable[[str], "str | Path"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "numbers"
    make_dataset(folder, records=_RECORDS, shards=2)
    return folder


@pytest.fixture
def address(folder: Path) -> Iterator[_Address]:
    """The dataset through a daemon, or as a directory of this host."""
    with served(folder, message_size=4096, memory=1 << 20) as url:
        yield lambda way: url if way == "daemon" else folder


def _loader(address: "str | Path", **options: Any) -> EmlioLoader:
    return raw_loader(address, **({"batch_size": _BATCH, "seed": 4} | options))


def _id(sample: dict[str, Any]) -> int:
    number = int(sample["__id__"])
    assert int.from_bytes(sample["record"][:8], "little") == number
    return number


def _digest(sample: dict[str, Any]) -> tuple[int, "np.ndarray[Any, Any]"]:
    """Something that takes differently long from record to record and depends on every byte and on the seed."""
    made = hashlib.pbkdf2_hmac("sha256", bytes(sample["record"]), b"%d" % sample["__seed__"], 1 + _id(sample) * 20)
    return _id(sample), np.frombuffer(made, np.uint8)


class _Gate:
    """A transform that waits at certain records until it is let go on, and tells what it has seen."""

    def __init__(self, *ids: int) -> None:
        self.seen: list[int] = []
        self.reached = Event()
        self.go_on = Event()
        self._ids = ids

    def __call__(self, sample: dict[str, Any]) -> int:
        number = _id(sample)
        self.seen.append(number)
        if not self._ids or number in self._ids:
            self.reached.set()
            assert self.go_on.wait(_LONG_S)
        return number


# ---- order and bounds ---------------------------------------------------------------------------------------------


@_WAYS
def test_neither_order_nor_content_depends_on_the_number_of_threads(address: _Address, way: str) -> None:
    runs: list[list[tuple[list[int], bytes]]] = []
    for threads in (1, 2, 5):
        with _loader(address(way), transform=_digest, seeds=True, threads=threads) as loader:
            runs.append([(ids.tolist(), made.tobytes()) for _ in range(2) for ids, made in loader])
    assert runs[0] == runs[1] == runs[2]
    assert sorted(number for ids, _ in runs[0][:_BATCH] for number in ids) == list(range(_RECORDS))


def test_a_sample_that_takes_long_is_not_overtaken(address: _Address) -> None:
    gate = _Gate(3)
    with _loader(address("daemon"), transform=gate, threads=3, shuffle=False) as loader:
        taken: list[list[int]] = []
        user = Thread(target=lambda: taken.extend(batch.tolist() for batch in loader))
        user.start()
        assert gate.reached.wait(_LONG_S)
        user.join(0.1)
        assert taken == []
        gate.go_on.set()
        user.join(_LONG_S)
    assert [number for batch in taken for number in batch] == list(range(_RECORDS))


@pytest.mark.parametrize(("threads", "batch_size", "ahead"), [(1, 8, 3), (2, 8, 3), (4, 2, 4), (3, 1, 5)])
def test_no_more_batches_are_begun_than_the_user_will_soon_take(
    address: _Address, threads: int, batch_size: int, ahead: int
) -> None:
    lock, enough, too_many = Lock(), Event(), Event()
    seen: list[int] = []

    def transform(sample: dict[str, Any]) -> int:
        with lock:
            seen.append(_id(sample))
            if len(seen) == ahead * batch_size:
                enough.set()
            if len(seen) > ahead * batch_size:
                too_many.set()
        return _id(sample)

    options: dict[str, Any] = {"transform": transform, "threads": threads, "batch_size": batch_size}
    with _loader(address("daemon"), **options) as loader:
        batches = iter(loader)
        assert enough.wait(_LONG_S)
        assert not too_many.wait(0.1)
        next(batches)
        assert too_many.wait(_LONG_S)


def test_a_transform_may_take_longer_than_a_daemon_may_be_silent(folder: Path) -> None:
    def transform(sample: dict[str, Any]) -> int:
        if _id(sample) == 0:
            Event().wait(0.3)
        return _id(sample)

    with _loader(folder, transform=transform, shuffle=False, timeout="20ms", threads=1) as loader:
        assert next(iter(loader)).tolist() == list(range(_BATCH))


# ---- errors -------------------------------------------------------------------------------------------------------


def _frame_at(folder: Path, note: str) -> bytes:
    """The frame that lies in the file where the note says."""
    words = note.split()
    shard, offset = words[words.index("shard") + 1], int(words[-1])
    data = (folder / shard).read_bytes()
    size = int.from_bytes(data[offset : offset + 8], "little")
    return data[offset : offset + 16 + size]


@_WAYS
@pytest.mark.parametrize("bad", [0, 29, 30, 41])
def test_an_error_comes_in_its_place_and_says_where_the_record_lies(
    address: _Address, folder: Path, way: str, bad: int
) -> None:
    records: list[bytes] = []

    def transform(sample: dict[str, Any]) -> int:
        if _id(sample) == bad:
            records.append(bytes(sample["record"]))
            raise ValueError(f"no label in {bad}")
        return _id(sample)

    with _loader(address(way), transform=transform, threads=2, shuffle=False) as loader:
        batches = iter(loader)
        good = [batch.tolist()[0] for batch in islice(batches, bad // _BATCH)]
        with pytest.raises(ValueError, match=f"no label in {bad}") as raised:
            next(batches)
    assert good == list(range(0, bad - bad % _BATCH, _BATCH))
    (note,) = raised.value.__notes__
    assert note.startswith(
        f"in the transform of record {bad % 30} of shard train-0000{bad // 30}-of-00002.tfrecord at byte"
    )
    assert _frame_at(folder, note) == frame(records[0])


@pytest.mark.parametrize(("on_error", "records"), [("skip", _RECORDS - 6), ("replace", _RECORDS)])
def test_failures_are_counted_and_all_ranks_have_as_many_batches(
    address: _Address, on_error: str, records: int, caplog: pytest.LogCaptureFixture
) -> None:
    def transform(sample: dict[str, Any]) -> int:
        if _id(sample) % 10 == 3:
            raise ValueError("not this one")
        return _id(sample)

    lengths, handed, bad = [], 0, 0
    with ExitStack() as stack:
        for rank in range(2):
            options: dict[str, Any] = {"rank": rank, "world_size": 2, "transform": transform, "on_error": on_error}
            loader = stack.enter_context(_loader(address("daemon"), batch_size=10, threads=2, **options))
            batches = [batch.tolist() for batch in loader]
            assert len(batches) == len(loader) == 3
            assert all(number % 10 != 3 for batch in batches for number in batch)
            lengths += [len(batch) for batch in batches]
            stats = loader.stats()
            handed += stats.records
            bad += stats.skipped_records if on_error == "skip" else stats.replaced_records
            assert stats.bad_records == 0  # the bytes were good
            named = re.findall(r"`loader\.get\((\d+)\)` repeats this error", caplog.text)
            assert len(named) == rank + 1
            with pytest.raises(ValueError, match="not this one"):
                loader.get(int(named[-1]))
    assert sum(lengths) == handed == records
    assert bad == 6
    assert on_error == "skip" or lengths == [10] * 6


@pytest.mark.parametrize("what", ["transform", "collate_fn"])
def test_stop_iteration_from_the_users_function_does_not_end_the_epoch_in_silence(address: _Address, what: str) -> None:
    def exhausted(_: Any) -> Any:
        return next(iter(()))

    with _loader(address("daemon"), **{what: exhausted}) as loader:
        for _ in range(2):
            with pytest.raises(RuntimeError, match=f"{what} must not raise StopIteration"):
                list(loader)
        assert loader.epoch == 0


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_an_exit_from_a_transform_ends_the_users_loop_at_once(address: _Address, on_error: str) -> None:
    def transform(sample: dict[str, Any]) -> int:
        if _id(sample) == 20:
            raise SystemExit(3)
        return _id(sample)

    with (
        _loader(address("daemon"), transform=transform, threads=2, on_error=on_error) as loader,
        pytest.raises(SystemExit),
    ):
        list(loader)


# ---- seeds --------------------------------------------------------------------------------------------------------


def _seeds(loaders: list[EmlioLoader], most: int | None = None) -> dict[int, int]:
    return {
        int(number): int(seed)
        for loader in loaders
        for numbers, seeds in islice(loader, most)
        for number, seed in zip(numbers, seeds, strict=True)
    }


def _with_seed(sample: dict[str, Any]) -> tuple[int, int]:
    return _id(sample), int(sample["__seed__"])


def test_a_records_seed_is_the_same_for_any_world_thread_count_and_resume(address: _Address) -> None:
    options: dict[str, Any] = {"transform": _with_seed, "seeds": True}
    drawn = sample_seeds(4, 0, np.arange(_RECORDS)).tolist()
    expected = {number: seed % (1 << 63) for number, seed in enumerate(drawn)}
    for threads, world in ((1, 1), (3, 1), (2, 3)):
        with ExitStack() as stack:
            ranks = [{"rank": rank, "world_size": world, "threads": threads} for rank in range(world)]
            loaders = [stack.enter_context(_loader(address("daemon"), **options, **rank)) for rank in ranks]
            assert _seeds(loaders) == expected
    with _loader(address("directory"), **options) as loader:
        first = _seeds([loader], 3)
        state = loader.state_dict()
    with _loader(address("daemon"), batch_size=5, **options) as loader:
        loader.load_state_dict(state)
        assert first | _seeds([loader]) == expected
        second = _seeds([loader])
    assert second.keys() == expected.keys()
    assert not set(second.values()) & set(expected.values())


# ---- ends in the middle -------------------------------------------------------------------------------------------


def test_who_breaks_off_while_transforms_run_gets_the_next_epoch_and_waits_for_nothing_of_the_last(
    address: _Address,
) -> None:
    gate = _Gate(10)
    with _loader(address("daemon"), transform=gate, threads=1, shuffle=False) as loader:
        next(iter(loader))
        assert gate.reached.wait(_LONG_S)
        batches = iter(loader)
        assert loader.epoch == 1
        gate.go_on.set()
        handed = [batch.tolist() for batch in batches]
    assert [number for batch in handed for number in batch] == list(range(_RECORDS))
    # Of the batch that was in work when it became unwanted, nothing is done behind the record under way.
    assert gate.seen[:11] == list(range(11))
    assert gate.seen[11] != 11


def test_closing_while_transforms_run_waits_for_these_records_only(address: _Address) -> None:
    gate = _Gate()
    loader = _loader(address("daemon"), transform=gate, threads=2)
    batches = iter(loader)
    assert gate.reached.wait(_LONG_S)
    closer = Thread(target=loader.close)
    closer.start()
    with pytest.raises(ClosedError):
        next(batches)
    gate.go_on.set()
    closer.join(_LONG_S)
    assert not closer.is_alive()
    assert len(gate.seen) <= 3 * _BATCH


def test_a_transform_may_close_its_loader(address: _Address) -> None:
    closed = Event()

    def transform(sample: dict[str, Any]) -> int:
        if not closed.is_set():
            closed.set()
            loader.close()
        return _id(sample)

    loader = _loader(address("daemon"), transform=transform, threads=2)
    with pytest.raises(ClosedError):
        list(loader)
    assert closed.is_set()
    loader.close()


@pytest.mark.parametrize("taken", [0, 2])
def test_a_loader_dropped_in_the_middle_of_an_epoch_is_gone_at_once(address: _Address, taken: int) -> None:
    gc.disable()  # its threads and memory must not wait for a collector that may not run for long
    try:
        loader = _loader(address("daemon"), transform=_id, threads=2)
        batches = iter(loader)
        assert len(list(islice(batches, taken))) == taken
        gone = weakref.ref(loader)
        del loader
        assert gone() is not None  # an iteration keeps its loader
        del batches
        assert gone() is None
    finally:
        gc.enable()


def test_a_loader_that_the_collector_finds_in_its_own_thread_ends(address: _Address) -> None:
    dropped, collected = Event(), Event()

    def transform(sample: dict[str, Any]) -> int:
        assert current_thread() is not main_thread()
        if dropped.wait(_LONG_S) and not collected.is_set():
            gc.collect()
            collected.set()
        return _id(sample)

    gc.disable()  # so that no other thread finds it
    try:
        loader = _loader(address("daemon"), transform=transform, threads=1)
        gone = weakref.ref(loader)
        circle: list[Any] = [loader, iter(loader)]
        circle.append(circle)
        del loader, circle
        dropped.set()
        assert collected.wait(_LONG_S)
        assert gone() is None
    finally:
        gc.enable()


def _fail(loader: EmlioLoader) -> None:
    with pytest.raises(ZeroDivisionError):
        list(loader)


def test_a_loader_that_failed_and_was_dropped_ends(address: _Address) -> None:
    def transform(_: Any) -> Any:
        raise ZeroDivisionError

    loader = _loader(address("daemon"), transform=transform, threads=2)
    _fail(loader)
    gone = weakref.ref(loader)
    del loader
    gc.collect()
    assert gone() is None
