"""From whole batches to what the user gets, by the makers themselves: threads, failures, what is dropped, what is kept."""

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Barrier, Event, Lock, get_ident
from typing import Any

import numpy as np
import pytest

from emlio.errors import ClosedError, ConfigError, CorruptRecordError
from emlio.example.columns import Piece
from emlio.receiver.batches.assemble import Assembler
from emlio.receiver.batches.makers import ColumnMaker, Made, PipeMaker, SampleMaker
from emlio.receiver.placement.reorder import WholeBatch
from emlio.receiver.records.bad_records import BadRecordPolicy, RecordPlace
from emlio.receiver.threads.promise import Promise

_LONG_S = 20.0
_THREADS = pytest.mark.parametrize("threads", [1, 2, 5])


def _locate(record: int) -> RecordPlace:
    return RecordPlace(shard=f"shard{record // 10}", record=record % 10, offset=100 * record)


def _batch(count: int = 6, first: int = 20) -> WholeBatch:
    """Records of one byte each, which is their id."""
    ids = np.arange(first, first + count)
    ends = np.arange(1, count + 1)
    piece = Piece(buffer=memoryview(bytes(ids.tolist())), starts=ends - 1, ends=ends, slots=ends - 1)
    return WholeBatch(epoch=0, step=0, count=count, ids=ids, pieces=[piece])


def _assembler(policy: BadRecordPolicy, collate_fn: "Callable[[Sequence[Any]], Any] | None" = None) -> Assembler:
    return Assembler(raw=True, fields=None, ids=True, seeder=None, policy=policy, to_tensor=None, collate_fn=collate_fn)


@contextmanager
def _maker(
    transform: Callable[[Any], Any],
    *,
    threads: int = 1,
    on_error: str = "raise",
    collate_fn: "Callable[[Sequence[Any]], Any] | None" = None,
    finish: Callable[[Any], Any] = lambda value: value,
    batch_size: int = 6,
) -> Iterator[SampleMaker]:
    policy = BadRecordPolicy(on_error, _locate)
    assembler = _assembler(policy, collate_fn)
    maker = SampleMaker(assembler, transform, policy, finish, threads=threads, batch_size=batch_size)
    try:
        yield maker
    finally:
        maker.close()


def _number(sample: dict[str, Any]) -> int:
    assert sample["record"][0] == sample["__id__"]
    return int(sample["__id__"])


def _fails_at(*ids: int) -> Callable[[dict[str, Any]], int]:
    def transform(sample: dict[str, Any]) -> int:
        if _number(sample) in ids:
            raise KeyError(f"record {_number(sample)} has no label")
        return _number(sample)

    return transform


# ---- threads ------------------------------------------------------------------------------------------------------


@_THREADS
def test_samples_come_at_their_places_whatever_thread_made_them(threads: int) -> None:
    with _maker(_number, threads=threads) as maker:
        for _ in range(20):
            made = [maker.make(_batch(6, first)) for first in (0, 30, 60)]
            assert [each.result(_LONG_S).value.tolist() for each in made] == [
                list(range(first, first + 6)) for first in (0, 30, 60)
            ]


def test_one_thread_ends_one_batch_while_the_others_begin_the_next() -> None:
    go_on = Event()

    def transform(sample: dict[str, Any]) -> int:
        if _number(sample) == 25:
            assert go_on.wait(_LONG_S)
        return _number(sample)

    with _maker(transform, threads=2) as maker:
        first, second = maker.make(_batch(6, 20)), maker.make(_batch(6, 40))
        assert second.result(_LONG_S).value.tolist() == list(range(40, 46))
        assert not first.done()
        go_on.set()
        assert first.result(_LONG_S).value.tolist() == list(range(20, 26))


@pytest.mark.parametrize(("threads", "batch_size"), [(4, 1), (4, 3), (2, 256)])
def test_as_many_batches_are_wanted_ahead_as_keep_every_thread_busy(threads: int, batch_size: int) -> None:
    busy, go_on = Barrier(threads + 1), Event()

    def transform(sample: dict[str, Any]) -> int:
        if not go_on.is_set():
            busy.wait(_LONG_S)
            assert go_on.wait(_LONG_S)
        return _number(sample)

    with _maker(transform, threads=threads, batch_size=batch_size) as maker:
        batches = [
            maker.make(_batch(min(batch_size, 9))) for _ in range(maker.ahead - 1)
        ]  # one stands ready for the user
        busy.wait(_LONG_S)  # passes only once every thread has a record
        go_on.set()
        for batch in batches:
            batch.result(_LONG_S)


def test_the_last_step_collates_and_finishes_in_a_thread_of_the_maker() -> None:
    threads: list[int] = []

    def collate(samples: Sequence[int]) -> list[int]:
        threads.append(get_ident())
        return list(samples)

    def finish(batch: list[int]) -> tuple[str, list[int]]:
        threads.append(get_ident())
        return "finished", batch

    with _maker(_number, collate_fn=collate, finish=finish) as maker:
        assert maker.make(_batch(2, 7)).result(_LONG_S) == Made(value=("finished", [7, 8]), bad=0)
    assert len(threads) == 2
    assert get_ident() not in threads


def test_the_time_of_decoding_and_transforming_is_counted() -> None:
    with _maker(_number) as maker:
        assert maker.worked_ns == 0
        maker.make(_batch()).result(_LONG_S)
    assert maker.worked_ns > 0


# ---- failures -----------------------------------------------------------------------------------------------------


@_THREADS
def test_a_failure_is_raised_with_a_note_that_says_which_record_it_was(threads: int) -> None:
    with _maker(_fails_at(23), threads=threads) as maker:
        with pytest.raises(KeyError, match="record 23 has no label") as raised:
            maker.make(_batch()).result(_LONG_S)
        assert raised.value.__notes__ == [
            "in the transform of record 3 of shard shard2 at byte 2300; the sample has 'record', '__id__'"
        ]
        assert maker.make(_batch(3, 40)).result(_LONG_S).value.tolist() == [40, 41, 42]


def test_of_several_failures_the_first_in_the_batchs_order_is_raised_though_a_later_one_came_first() -> None:
    later_failed = Event()

    def transform(sample: dict[str, Any]) -> int:
        if _number(sample) == 21:
            assert later_failed.wait(_LONG_S)
            raise KeyError("21")
        if _number(sample) == 24:
            later_failed.set()
            raise KeyError("24")
        return _number(sample)

    with _maker(transform, threads=2) as maker, pytest.raises(KeyError, match="21"):
        maker.make(_batch()).result(_LONG_S)


def test_after_a_failure_that_will_be_raised_the_rest_of_the_batch_is_left() -> None:
    seen: list[int] = []

    def transform(sample: dict[str, Any]) -> int:
        seen.append(_number(sample))
        return _fails_at(22)(sample)

    with _maker(transform) as maker, pytest.raises(KeyError):
        maker.make(_batch()).result(_LONG_S)
    assert seen == [20, 21, 22]


@_THREADS
@pytest.mark.parametrize(("on_error", "left"), [("skip", [21, 23, 24]), ("replace", [21, 21, 23, 23, 24, 24])])
def test_failures_are_dealt_with_by_the_policy_and_counted(threads: int, on_error: str, left: list[int]) -> None:
    with _maker(_fails_at(20, 22, 25), threads=threads, on_error=on_error) as maker:
        made = maker.make(_batch()).result(_LONG_S)
    assert made.value.tolist() == left
    assert made.bad == 3


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_transform_that_fails_for_all_records_is_an_error_that_shows_its_own(on_error: str) -> None:
    with (
        _maker(_fails_at(*range(100)), on_error=on_error) as maker,
        pytest.raises(CorruptRecordError, match="all 6 records of the batch are bad") as raised,
    ):
        maker.make(_batch()).result(_LONG_S)
    assert "record 0 of shard shard2 at byte 2000: its transform failed: KeyError" in str(raised.value)
    assert isinstance(raised.value.__cause__, KeyError)


@_THREADS
@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_an_exit_from_a_transform_is_no_matter_of_a_record_and_no_policy_swallows_it(
    threads: int, on_error: str
) -> None:
    def transform(sample: dict[str, Any]) -> int:
        if _number(sample) == 23:
            raise SystemExit(3)
        return _fails_at(21, 22)(sample) if on_error != "raise" else _number(sample)

    with _maker(transform, threads=threads, on_error=on_error) as maker:
        with pytest.raises(SystemExit):
            maker.make(_batch()).result(_LONG_S)
        assert maker.make(_batch(3, 40)).result(_LONG_S).value.tolist() == [40, 41, 42]  # its threads are alive


def test_a_transform_that_raises_stop_iteration_does_not_look_like_the_end_of_the_epoch() -> None:
    def transform(_: Any) -> Any:
        return next(iter(()))

    with (
        _maker(transform) as maker,
        pytest.raises(RuntimeError, match="a transform must not raise StopIteration") as raised,
    ):
        maker.make(_batch()).result(_LONG_S)
    assert isinstance(raised.value.__cause__, StopIteration)
    assert "record 0 of shard shard2" in raised.value.__notes__[0]


def test_a_failing_collate_fn_is_an_error_under_every_policy() -> None:
    def collate(_: Any) -> Any:
        raise ZeroDivisionError

    for on_error in ("raise", "skip", "replace"):
        with _maker(_number, on_error=on_error, collate_fn=collate) as maker, pytest.raises(ZeroDivisionError):
            maker.make(_batch()).result(_LONG_S)


# ---- what is not wanted any more ----------------------------------------------------------------------------------


def test_of_a_cancelled_batch_no_further_record_is_transformed() -> None:
    begun, go_on = Event(), Event()
    seen: list[int] = []

    def transform(sample: dict[str, Any]) -> int:
        seen.append(_number(sample))
        begun.set()
        assert go_on.wait(_LONG_S)
        return _number(sample)

    with _maker(transform) as maker:
        unwanted = maker.make(_batch(6, 20))
        assert begun.wait(_LONG_S)
        unwanted.cancel()
        wanted = maker.make(_batch(2, 40))
        go_on.set()
        assert wanted.result(_LONG_S).value.tolist() == [40, 41]
    assert seen == [20, 40, 41]
    assert unwanted.cancelled()


def test_closing_drops_what_is_not_done_and_ends_what_is_under_way() -> None:
    begun, go_on = Event(), Event()

    def transform(sample: dict[str, Any]) -> int:
        begun.set()
        assert go_on.wait(_LONG_S)
        return _number(sample)

    with _maker(transform) as maker:
        batches = [maker.make(_batch()), maker.make(_batch())]
        assert begun.wait(_LONG_S)
        dropped = _CountedDown(batches)
        batches[1].add_done_callback(lambda _: go_on.set())  # by closing, while the first record is in work
        maker.close()
        maker.close()
        assert dropped.all_done.wait(_LONG_S)
        assert [batch.cancelled() for batch in batches] == [True, True]
        with pytest.raises(ClosedError):
            maker.make(_batch())


class _CountedDown:
    def __init__(self, futures: Sequence[Promise]) -> None:
        self.all_done = Event()
        self._left = len(futures)
        self._lock = Lock()
        for future in futures:
            future.add_done_callback(self._down)

    def _down(self, _: Promise) -> None:
        with self._lock:
            self._left -= 1
            if not self._left:
                self.all_done.set()


# ---- memory -------------------------------------------------------------------------------------------------------


class _Sample:
    """What a transform makes, which can be referred to weakly."""

    def __init__(self, number: int) -> None:
        self.number = number


@pytest.mark.parametrize("failing", [[], [21, 23]])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_nothing_of_a_batch_is_kept_once_the_user_dropped_it(on_error: str, failing: list[int]) -> None:
    made_of: list[weakref.ref[_Sample]] = []

    def transform(sample: dict[str, Any]) -> _Sample:
        made = _Sample(_fails_at(*failing)(sample))
        made_of.append(weakref.ref(made))
        return made

    gc.disable()  # what only the collector frees would be kept in a training job, too
    try:
        with _maker(transform, on_error=on_error) as maker:
            batch = _batch()
            ids = weakref.ref(batch.ids)
            made = maker.make(batch)
            assert len(made.result(_LONG_S).value) == (6 if on_error == "replace" else 6 - len(failing))
            assert len(made_of) == 6 - len(failing)
            del batch, made
            maker.make(_batch(1)).result(_LONG_S)  # the thread lets go of a job before it takes the next one
            assert ids() is None
            assert [sample() for sample in made_of[:-1]] == [None] * (6 - len(failing))
    finally:
        gc.enable()


# ---- columns, and columns for a pipeline --------------------------------------------------------------------------


def test_columns_are_made_by_who_asks_and_finished_where_that_is_wanted() -> None:
    policy = BadRecordPolicy("raise", _locate)
    maker = ColumnMaker(_assembler(policy), lambda batch: (get_ident(), batch["__id__"].tolist()), ahead=0)
    assert maker.make(_batch(2, 5)) == Made(value=(get_ident(), [5, 6]), bad=0)
    assert maker.worked_ns > 0
    maker.close()


def _images(*images: bytes) -> WholeBatch:
    ends = np.cumsum([len(image) for image in images])
    starts = ends - np.array([len(image) for image in images])
    slots = np.arange(len(images))
    piece = Piece(buffer=memoryview(b"".join(images)), starts=starts, ends=ends, slots=slots)
    return WholeBatch(epoch=0, step=0, count=len(images), ids=slots + 20, pieces=[piece])


_WHOLE = b"P5\n2 1\n255\nab"
_CUT = _WHOLE[:-1]


def _pipe(on_error: str, *images: str) -> PipeMaker:
    policy = BadRecordPolicy(on_error, _locate)
    return PipeMaker(_assembler(policy), images or ("record",), policy)


def test_whole_images_pass_to_a_pipeline_as_columns() -> None:
    made = _pipe("raise").make(_images(_WHOLE, _WHOLE))
    assert [bytes(image) for image in made.value.columns["record"]] == [_WHOLE, _WHOLE]
    assert made.value.ids.tolist() == [20, 21]
    assert made.bad == 0


def test_an_image_that_is_cut_off_is_an_error_that_names_record_and_feature() -> None:
    with pytest.raises(CorruptRecordError, match="record 1 of shard shard2 at byte 2100: record: ") as raised:
        _pipe("raise").make(_images(_WHOLE, _CUT, _WHOLE, b""))
    assert (raised.value.shard, raised.value.record, raised.value.offset) == ("shard2", 1, 2100)
    assert "(1 more in the same batch)" in str(raised.value)


@pytest.mark.parametrize(("on_error", "ids"), [("skip", [20, 22]), ("replace", [20, 20, 22])])
def test_an_image_that_is_cut_off_is_left_out_or_replaced_with_all_its_columns(on_error: str, ids: list[int]) -> None:
    made = _pipe(on_error).make(_images(_WHOLE, _CUT, _WHOLE))
    assert made.value.ids.tolist() == made.value.columns["__id__"].tolist() == ids
    assert [bytes(image) for image in made.value.columns["record"]] == [_WHOLE] * len(ids)
    assert made.bad == made.value.bad == 1


def test_a_feature_of_numbers_is_no_image() -> None:
    with pytest.raises(ConfigError, match="feature '__id__' must hold images, got int64"):
        _pipe("raise", "__id__").make(_images(_WHOLE))
