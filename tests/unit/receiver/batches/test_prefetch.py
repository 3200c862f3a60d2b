"""The hand-over to the user's thread: order, errors in their place, starting over, ending."""

import gc
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread, get_ident
from typing import Any

import numpy as np
import pytest

from emlio.errors import ClosedError, CorruptRecordError, PeerLostError
from emlio.receiver.batches.makers import Made
from emlio.receiver.batches.prefetch import MadeBatch, Prefetch
from emlio.receiver.placement.reorder import WholeBatch
from emlio.receiver.threads.promise import Promise

_LONG_NS = 20_000_000_000
_BOTH = pytest.mark.parametrize("ahead", [True, False], ids=["ahead", "when asked"])


def _batch(step: int) -> WholeBatch:
    return WholeBatch(epoch=0, step=step, count=3, ids=np.arange(3), size_bytes=100 + step)


class _Maker:
    """Makes batches with a function, at once."""

    worked_ns = 0
    threads = ()

    def __init__(self, assemble: Callable[[WholeBatch], Any], ahead: bool = True) -> None:
        self.ahead = 2 if ahead else 0
        self._assemble = assemble

    def make(self, batch: WholeBatch) -> Made:
        return Made(value=self._assemble(batch), bad=len(batch.bad))

    def close(self, patience_s: float = 0) -> None:
        pass


@contextmanager
def _prefetch(assemble: Callable[[WholeBatch], Any], ahead: bool = True) -> Iterator[Prefetch]:
    prefetch = Prefetch(_Maker(assemble, ahead))
    prefetch.start()
    try:
        yield prefetch
    finally:
        prefetch.close()


def _get(prefetch: Prefetch) -> MadeBatch:
    made = prefetch.first(_LONG_NS)
    assert made is not None
    assert prefetch.taken(made)
    return made


@_BOTH
def test_batches_come_out_in_the_order_they_went_in(ahead: bool) -> None:
    with _prefetch(lambda batch: batch.step * 10, ahead) as prefetch:
        for step in range(20):
            prefetch.put(0, _batch(step))
        made = [_get(prefetch) for _ in range(20)]
    assert [batch.value for batch in made] == list(range(0, 200, 10))
    assert (made[3].epoch, made[3].step, made[3].count, made[3].bad, made[3].size_bytes) == (0, 3, 3, 0, 103)


@_BOTH
def test_no_batch_within_the_time_is_none_and_not_an_error(ahead: bool) -> None:
    with _prefetch(lambda batch: batch, ahead) as prefetch:
        assert prefetch.first(1_000_000) is None


def test_what_is_made_when_asked_is_made_by_who_asks() -> None:
    with _prefetch(lambda _: get_ident(), ahead=False) as prefetch:
        prefetch.put(0, _batch(0))
        assert _get(prefetch).value == get_ident()
    with _prefetch(lambda _: get_ident(), ahead=True) as prefetch:
        prefetch.put(0, _batch(0))
        assert _get(prefetch).value != get_ident()


def test_only_two_batches_are_made_before_they_are_asked_for() -> None:
    made: list[int] = []
    third = Event()

    def assemble(batch: WholeBatch) -> int:
        made.append(batch.step)
        if len(made) == 3:
            third.set()
        return batch.step

    with _prefetch(assemble) as prefetch:
        for step in range(5):
            prefetch.put(0, _batch(step))
        assert not third.wait(0.05)
        assert _get(prefetch).step == 0
        assert third.wait(20)


def _fail_at(step: int) -> Callable[[WholeBatch], int]:
    def assemble(batch: WholeBatch) -> int:
        if batch.step == step:
            raise ZeroDivisionError(f"transform of batch {step}")
        return batch.step

    return assemble


@_BOTH
def test_a_transforms_error_comes_in_the_place_of_its_batch_and_stays(ahead: bool) -> None:
    with _prefetch(_fail_at(2), ahead) as prefetch:
        for step in range(6):
            prefetch.put(0, _batch(step))
        assert [_get(prefetch).value, _get(prefetch).value] == [0, 1]
        for _ in range(2):
            with pytest.raises(ZeroDivisionError, match="transform of batch 2"):
                prefetch.first(_LONG_NS)
        prefetch.put(0, _batch(6))  # comes too late: batch 2 would be missing and nobody would know
        with pytest.raises(ZeroDivisionError):
            prefetch.first(_LONG_NS)


@_BOTH
def test_after_a_transforms_error_a_new_beginning_works(ahead: bool) -> None:
    with _prefetch(_fail_at(0), ahead) as prefetch:
        prefetch.put(0, _batch(0))
        with pytest.raises(ZeroDivisionError):
            prefetch.first(_LONG_NS)
        generation = prefetch.restart()
        prefetch.put(generation, _batch(5))
        assert _get(prefetch).value == 5


def test_an_exit_from_a_transform_reaches_the_user_and_leaves_the_thread_alive() -> None:
    def assemble(batch: WholeBatch) -> int:
        if batch.step == 0:
            raise SystemExit(3)
        return batch.step

    with _prefetch(assemble) as prefetch:
        prefetch.put(0, _batch(0))
        with pytest.raises(SystemExit):
            prefetch.first(_LONG_NS)
        prefetch.put(prefetch.restart(), _batch(1))
        assert _get(prefetch).value == 1


def test_what_was_received_before_a_failure_still_goes_out() -> None:
    with _prefetch(lambda batch: batch.step) as prefetch:
        for step in range(4):
            prefetch.put(0, _batch(step))
        prefetch.fail(PeerLostError("store1 is gone"))
        prefetch.fail(PeerLostError("a later error says less"))
        assert [_get(prefetch).value for _ in range(4)] == [0, 1, 2, 3]
        with pytest.raises(PeerLostError, match="store1 is gone"):
            prefetch.first(_LONG_NS)
        prefetch.restart()
        with pytest.raises(PeerLostError, match="store1 is gone"):
            prefetch.first(_LONG_NS)


def test_starting_over_drops_what_is_there_what_is_being_made_and_what_comes_late() -> None:
    working, go_on = Event(), Event()

    def assemble(batch: WholeBatch) -> int:
        if batch.step == 1:
            working.set()
            assert go_on.wait(20)
        return batch.step

    with _prefetch(assemble) as prefetch:
        for step in range(4):
            prefetch.put(0, _batch(step))
        assert working.wait(20)
        generation = prefetch.restart()
        prefetch.put(0, _batch(7))
        go_on.set()
        prefetch.put(generation, _batch(8))
        assert _get(prefetch).value == 8
        assert prefetch.first(1_000_000) is None


def test_a_failing_transform_of_a_dropped_batch_is_nobodys_error() -> None:
    working, go_on = Event(), Event()

    def assemble(batch: WholeBatch) -> int:
        if batch.step == 0:
            working.set()
            assert go_on.wait(20)
            raise ZeroDivisionError("of a batch nobody wants any more")
        return batch.step

    with _prefetch(assemble) as prefetch:
        prefetch.put(0, _batch(0))
        assert working.wait(20)
        generation = prefetch.restart()
        go_on.set()
        prefetch.put(generation, _batch(1))
        assert _get(prefetch).value == 1


def test_closing_wakes_who_waits() -> None:
    raised: list[BaseException] = []
    waiting = Event()
    prefetch = Prefetch(_Maker(lambda batch: batch))
    prefetch.start()

    def wait() -> None:
        waiting.set()
        try:
            prefetch.first(_LONG_NS)
        except ClosedError as error:
            raised.append(error)

    thread = Thread(target=wait)
    thread.start()
    assert waiting.wait(20)
    prefetch.close()
    prefetch.close()
    thread.join(20)
    assert not thread.is_alive()
    assert "closed while it waited for a batch" in str(raised[0])


def test_one_that_was_never_started_can_be_closed() -> None:
    prefetch = Prefetch(_Maker(lambda batch: batch))
    prefetch.close()
    with pytest.raises(ClosedError):
        prefetch.first(1)


def test_memory_of_a_batch_is_not_held_after_it_was_handed_out() -> None:
    with _prefetch(lambda batch: batch.ids * 2) as prefetch:
        batch = _batch(0)
        ids = weakref.ref(batch.ids)
        prefetch.put(0, batch)
        del batch
        made = _get(prefetch)
        value = weakref.ref(made.value)
        del made
        # The thread lets go of the batch before the user can have it, but of its last loop's name a moment later.
        prefetch.put(0, _batch(1))
        _get(prefetch)
        assert value() is None
        assert ids() is None


@_BOTH
def test_who_makes_batches_cannot_end_the_users_loop_by_raising_stop_iteration(ahead: bool) -> None:
    def assemble(_: WholeBatch) -> Any:
        return next(iter(()))

    with _prefetch(assemble, ahead) as prefetch:
        prefetch.put(0, _batch(0))
        for _ in range(2):
            with pytest.raises(RuntimeError, match="must not raise StopIteration"):
                prefetch.first(_LONG_NS)


def test_who_makes_a_batch_may_close_it_all() -> None:
    closed = Event()
    prefetch: Prefetch

    def assemble(batch: WholeBatch) -> int:
        prefetch.close()
        closed.set()
        return batch.step

    prefetch = Prefetch(_Maker(assemble))
    prefetch.start()
    prefetch.put(0, _batch(0))
    assert closed.wait(20)
    with pytest.raises(ClosedError):
        prefetch.first(_LONG_NS)


class _DemandingError(Exception):
    """An error that cannot be made from its arguments."""

    def __new__(cls, *, record: int) -> "_DemandingError":
        return super().__new__(cls)

    def __init__(self, *, record: int) -> None:
        super().__init__(f"record {record}")


@_BOTH
@pytest.mark.parametrize(
    "make",
    [
        lambda: KeyError("label"),
        lambda: OSError(2, "No such file", "x.jpg"),
        lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        lambda: CorruptRecordError("record 3 is bad", shard="s", record=3, offset=70),
        lambda: _DemandingError(record=3),
    ],
)
def test_an_error_raised_again_says_the_same_and_keeps_nothing_of_who_met_it_first(
    ahead: bool, make: Callable[[], Exception]
) -> None:
    error = make()

    def assemble(_: WholeBatch) -> Any:
        raise error

    class Users:
        """Something in a variable of the user."""

    def use(prefetch: Prefetch) -> "weakref.ref[Users]":
        users = Users()
        with pytest.raises(type(error)):
            prefetch.first(_LONG_NS)
        return weakref.ref(users)

    error.add_note("in the transform of record 3")
    with _prefetch(assemble, ahead) as prefetch:
        prefetch.put(0, _batch(0))
        gone = use(prefetch)
        error.__traceback__ = None  # the test itself keeps the error; the loader must not
        gc.collect()
        assert gone() is None
        for _ in range(2):
            with pytest.raises(Exception, match=re.escape(str(error))) as again:
                prefetch.first(_LONG_NS)
            assert (again.value is not error) == ahead  # when asked, it is made again, by a function that keeps it
            if not isinstance(error, _DemandingError | UnicodeDecodeError):
                assert type(again.value) is type(error)
                assert again.value.__notes__ == ["in the transform of record 3"]


def test_a_close_between_the_look_for_a_batch_and_its_outcome_says_so() -> None:
    class ClosedWhileLookedAt(Promise):
        def done(self) -> bool:
            if get_ident() == user and not super().done():
                prefetch.close()
            return super().done()

    class Unfinished(_Maker):
        def make(self, batch: WholeBatch) -> Any:
            return ClosedWhileLookedAt()

    user = get_ident()
    prefetch = Prefetch(Unfinished(lambda batch: batch))
    prefetch.start()
    prefetch.put(0, _batch(0))
    with pytest.raises(ClosedError, match="closed"):
        prefetch.first(_LONG_NS)
