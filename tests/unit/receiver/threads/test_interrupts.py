"""Signals whose handlers raise in the user's thread: nothing is lost, counted twice or left held."""

import dis
import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread, get_ident
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader
from emlio.errors import ConfigError, DatasetError
from emlio.interrupts import interrupt_behind, is_interrupt
from emlio.receiver.addresses.address import Peer
from emlio.receiver.addresses.host_names import NameWatch, daemons_at
from emlio.receiver.batches.makers import Made
from emlio.receiver.batches.prefetch import MadeBatch, Prefetch
from emlio.receiver.batches.workers import Workers
from emlio.receiver.iteration.epoch_pass import Handed, Iteration
from emlio.receiver.iteration.tally import Tally
from emlio.receiver.own_loaders import OWN_LOADERS
from emlio.receiver.placement.reorder import WholeBatch
from emlio.receiver.threads.bell import Bell
from emlio.receiver.threads.interrupts import raises_interrupts
from emlio.receiver.threads.promise import Promise
from emlio.receiver.threads.unended import running
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import settles

_LONG_NS, _LONG_S = 20_000_000_000, 20.0
_enter: Callable[[Handed], None] = lambda _: None  # noqa: E731  # a pass may always go on


class _AlarmError(Exception):
    """Out of nowhere."""


def _raise(*_: object) -> None:
    raise _AlarmError("ring")


@contextmanager
def _handler(handle: Callable[..., object] = _raise) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def _batch(step: int) -> WholeBatch:
    return WholeBatch(epoch=0, step=step, count=3, ids=np.arange(3), size_bytes=100 + step)


def _made(step: int) -> MadeBatch:
    return MadeBatch(epoch=0, step=step, count=3, bad=0, size_bytes=100, value=step)


class _Maker:
    """Makes batches when asked, of which some do not succeed at once."""

    ahead = 0
    worked_ns = 0
    threads = ()

    def __init__(self, *errors: BaseException | None) -> None:
        self._errors = list(errors)

    def make(self, batch: WholeBatch) -> Made:
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error
        return Made(value=batch.step, bad=0)

    def close(self, patience_s: float = 0) -> None:
        pass


class _Counted:
    steps_done = 0


# ---- handing out --------------------------------------------------------------------------------------------------


def test_between_the_first_count_and_the_return_python_looks_for_no_signal() -> None:
    """It does where a call ends, where a loop goes round and where a function begins; see CPython's bpo-29988."""
    codes = list(dis.get_instructions(Iteration.__next__))
    first = next(at for at, code in enumerate(codes) if code.opname == "STORE_ATTR" and code.argval == "steps_done")
    last = next(at for at, code in enumerate(codes) if at > first and code.opname == "RETURN_VALUE")
    assert _looks(codes[first : last + 1]) == []
    stored = {code.argval for code in codes[first:last] if code.opname == "STORE_ATTR"}
    assert stored >= {"steps_done", "count", "furthest", "batches", "records", "bad", "wait_ns", "ready"}


def _looks(codes: list[dis.Instruction]) -> list[str]:
    """Where Python may handle a signal, or go on with another thread."""
    names = [code.opname for code in codes]
    return [name for name in names if "CALL" in name or "BACKWARD" in name or name in ("RESUME", "FOR_ITER", "SEND")]


def test_python_changes_no_thread_between_the_look_for_another_one_and_the_mark_for_it() -> None:
    codes = list(dis.get_instructions(Iteration.__next__))
    looked = next(at for at, code in enumerate(codes) if code.opname == "LOAD_ATTR" and code.argval == "_inside")
    marked = next(at for at, code in enumerate(codes) if code.opname == "STORE_ATTR" and code.argval == "_inside")
    raised = next(at for at in range(looked, marked) if codes[at].opname == "RAISE_VARARGS")
    refuses = next(at for at in range(looked, marked) if codes[at].argval == "ConfigError")
    assert _looks(codes[looked:refuses] + codes[raised + 1 : marked + 1]) == []


def test_a_second_thread_inside_next_gets_an_error_at_once_and_the_first_one_its_batch() -> None:
    entered, goes_on = Event(), Event()

    def take(handed: Handed, _: object) -> MadeBatch:
        entered.set()
        assert goes_on.wait(20)
        return _made(handed.count)

    position, got = _Counted(), list[int]()
    iteration = Iteration(_enter, take, position, Tally(skips=False), None)
    first = Thread(target=lambda: got.append(next(iteration)))
    first.start()
    assert entered.wait(20)
    for _ in range(2):
        with pytest.raises(ConfigError, match="another thread is inside next"):
            next(iteration)
    goes_on.set()
    first.join(20)
    assert (got, position.steps_done) == ([0], 1)
    assert next(iteration) == 1, "one thread after another may take batches"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), _AlarmError()])
def test_a_batch_that_was_fetched_and_not_handed_out_is_not_counted_and_comes_next(error: BaseException) -> None:
    """As where a copy to a device fails, or a pipeline behind the fetch."""
    errors = [error]

    def take(handed: Handed, _: object) -> MadeBatch:
        handed.ready = handed.ready or _made(handed.count)
        if handed.count == 1 and errors:
            raise errors.pop()
        return handed.ready

    position, tally = _Counted(), Tally(skips=False)
    iteration = Iteration(_enter, take, position, tally, None)
    assert next(iteration) == 0
    with pytest.raises(type(error)):
        next(iteration)
    assert (position.steps_done, tally.batches, tally.records, iteration.handed.count) == (1, 1, 3, 1)
    assert [next(iteration), next(iteration)] == [1, 2]
    assert (position.steps_done, tally.batches, iteration.handed.is_prefix) == (3, 3, True)


def test_a_pass_that_ended_stays_ended() -> None:
    def enter(handed: Handed) -> None:
        handed.ended = True
        raise KeyboardInterrupt  # after the end was noted, and before the user was told

    iteration = Iteration(enter, lambda handed, _: _made(handed.count), _Counted(), Tally(skips=False), None)
    with pytest.raises(KeyboardInterrupt):
        next(iteration)
    assert list(iteration) == []


# ---- the queue ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt(), _AlarmError()])
def test_an_interrupt_while_a_batch_is_made_does_not_come_again_and_the_batch_does(error: BaseException) -> None:
    prefetch = Prefetch(_Maker(error))
    prefetch.put(0, _batch(0))
    with pytest.raises(type(error)):
        prefetch.first(_LONG_NS)
    prefetch.put(0, _batch(1))
    first = prefetch.first(_LONG_NS)
    assert first is not None
    assert (first.step, prefetch.first(_LONG_NS)) == (0, first), "it stays, and is not made twice"
    assert [prefetch.taken(first), prefetch.taken(first)] == [True, False]
    assert list(prefetch.delivered) == [(0, first.held_bytes)]
    second = prefetch.first(_LONG_NS)
    assert second is not None
    assert second.step == 1
    prefetch.close()


def test_who_is_interrupted_while_he_waits_is_not_hungry_any_more() -> None:
    prefetch, main = Prefetch(_Maker()), get_ident()
    waits = Event()

    def strike() -> None:
        if settles(lambda: prefetch.hungry, _LONG_S):
            waits.set()
            signal.pthread_kill(main, signal.SIGUSR1)

    thread = Thread(target=strike)
    with _handler():
        thread.start()
        with pytest.raises(_AlarmError):
            prefetch.first(_LONG_NS)
    thread.join()
    assert waits.is_set()
    assert not prefetch.hungry
    prefetch.put(0, _batch(0))  # nobody holds a lock
    assert prefetch.first(_LONG_NS) is not None
    prefetch.close()


def test_a_ring_is_heard_by_who_waits_later_and_several_are_one() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    assert [bell.wait(_LONG_S), bell.wait(0)] == [True, False]
    Thread(target=bell.ring).start()
    assert bell.wait(_LONG_S)


def test_a_promise_tells_all_who_ask_once() -> None:
    promise, told = Promise(), list[int]()
    promise.add_done_callback(lambda _: told.append(1))
    with pytest.raises(TimeoutError, match="within 0"):
        promise.result(0)
    promise.set_result(7)
    promise.cancel()
    promise.add_done_callback(lambda _: told.append(2))
    assert (promise.result(), promise.done(), promise.cancelled(), told) == (7, True, True, [1, 2])


# ---- whose exception it is ----------------------------------------------------------------------------------------


class _Handler:
    def method(self, *_: object) -> None:
        _raise()

    def __call__(self, *_: object) -> None:
        _raise()


@pytest.mark.parametrize("handle", [_raise, _Handler().method, _Handler()], ids=["function", "method", "object"])
def test_what_a_handler_raised_is_told_from_what_a_call_raised(handle: Callable[..., object]) -> None:
    with _handler(handle):
        with pytest.raises(_AlarmError) as caught:
            signal.raise_signal(signal.SIGUSR1)
        assert is_interrupt(caught.value)
        wrapped = ValueError("made of it")
        wrapped.__context__ = caught.value
        assert not is_interrupt(wrapped)
        assert interrupt_behind(wrapped) is caught.value
        with pytest.raises(ZeroDivisionError) as other:
            1 / 0  # noqa: B018  # it raises
        assert interrupt_behind(other.value) is None
    assert is_interrupt(KeyboardInterrupt())


def test_an_error_that_was_made_of_an_interrupt_gives_way_to_it() -> None:
    @raises_interrupts
    def work(what: Callable[[], object]) -> object:
        try:
            return what()
        except (OSError, ZeroDivisionError) as error:
            raise DatasetError("cannot be read") from error

    def alarm(*_: object) -> None:
        raise TimeoutError("the user's")

    assert work(lambda: 7) == 7
    with pytest.raises(DatasetError):
        work(lambda: 1 / 0)
    with _handler(alarm), pytest.raises(TimeoutError, match="the user's"):
        work(lambda: signal.raise_signal(signal.SIGUSR1))


def _alarm_at(*_: object, **__: object) -> int:
    """What a call does in whose midst a signal comes."""
    signal.raise_signal(signal.SIGUSR1)
    return 0


class _Alarm(TimeoutError):  # noqa: N818  # as a user's own
    """An `OSError`, which code may take for a failure of what it called."""


def _alarm(*_: object) -> None:
    raise _Alarm("the user's")


def test_an_alarm_while_a_name_is_looked_up_is_no_unknown_name() -> None:
    look_up: Callable[[str], Sequence[str]] = lambda host: [str(_alarm_at(host))]  # noqa: E731  # it has a type
    with _handler(_alarm), pytest.raises(_Alarm):
        daemons_at([Peer(host="store.example", port=5555)], look_up)
    known = NameWatch(lambda _: None, look_up=look_up)
    known._known["store.example"] = ("10.0.0.1",)
    with _handler(_alarm), pytest.raises(_Alarm):
        known.look([Peer(host="store.example", port=5555)])
    known.close()


def test_an_alarm_while_a_loader_is_made_reaches_the_user_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dataset(data := tmp_path / "alarmed", records=20, shards=2)  # by this name loaders are known

    def make() -> EmlioLoader:
        return EmlioLoader(data, batch_size=5, raw=True, to="numpy", rank=0, world_size=2)

    make().close()
    for place in (
        "emlio.index.indexed._indexed",
        "emlio.receiver.engine.engine.keep_freed_memory",
        "emlio.receiver.engine.engine.RankMachine",
    ):
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        with monkeypatch.context() as patch, _handler(_alarm):
            patch.setattr(place, _wrapped_alarm if place.endswith("_indexed") else _alarm_at)
            with pytest.raises(_Alarm):
                make()
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) == before, place
    with make() as loader:
        kind = loader._others._group_kind
        (known,) = OWN_LOADERS.made(kind)
        assert (known.living, known.closed) == (1, 1), "those that were not made are not counted"


def test_an_alarm_before_a_loader_has_an_owner_leaves_no_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dataset(tmp_path / "data", records=20, shards=2)
    monkeypatch.setattr("emlio.receiver.shell.Prefetch", _alarm_at)
    with _handler(_alarm), pytest.raises(_Alarm):
        EmlioLoader(tmp_path / "data", batch_size=5, raw=True, to="numpy", transform=lambda sample: sample, threads=2)
    assert not any(thread.name.startswith("emlio-transform") for thread in threading.enumerate())


def _wrapped_alarm(*_: object, **__: object) -> None:
    try:
        _alarm_at()
    except OSError as error:
        raise DatasetError("cannot be read") from error


# ---- functions that do not return ---------------------------------------------------------------------------------


def test_a_step_that_does_not_return_is_named_and_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    begun, go_on = Event(), Event()

    def blur_for_ever(_: Any) -> None:
        begun.set()
        assert go_on.wait(_LONG_S)

    workers = Workers(2, "test-worker")
    workers.add(blur_for_ever, 1, partial(pytest.fail, "it was begun"))
    assert begun.wait(_LONG_S)
    assert [name.partition(":")[0] for name in running(workers.threads)] == [
        f"{blur_for_ever.__qualname__} (test_interrupts.py"
    ], "the other thread waits for work"
    with caplog.at_level(logging.WARNING):
        begun_s = time.monotonic()
        workers.close(0.02)
        assert time.monotonic() - begun_s < _LONG_S / 2
    (record,) = caplog.records
    assert "blur_for_ever (test_interrupts.py:" in record.message
    assert "still runs in a thread" in record.message
    go_on.set()
    workers.close(_LONG_S)
    assert not any(thread.name.startswith("test-worker") for thread in threading.enumerate())
