"""The hand-over to the user's thread of batches that are promised, and made by other threads meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Thread

import numpy as np
import pytest

from emlio.errors import PeerLostError
from emlio.receiver.batches.makers import Made
from emlio.receiver.batches.prefetch import MadeBatch, Prefetch
from emlio.receiver.placement.reorder import WholeBatch
from emlio.receiver.threads.promise import Promise

_LONG_NS = 20_000_000_000


def _batch(step: int) -> WholeBatch:
    return WholeBatch(epoch=0, step=step, count=3, ids=np.arange(3), size_bytes=100 + step)


class _Promises:
    """Gives promises, which the test keeps or breaks; tells when so many were given."""

    ahead = 2
    worked_ns = 0
    threads = ()

    def __init__(self) -> None:
        self.given: list[tuple[int, Promise]] = []
        self._changed = Condition()

    def make(self, batch: WholeBatch) -> Promise:
        promise: Promise = Promise()
        with self._changed:
            self.given.append((batch.step, promise))
            self._changed.notify_all()
        return promise

    def wait_for(self, count: int, timeout_s: float = 20) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: len(self.given) >= count, timeout_s)

    def keep(self, number: int) -> None:
        step, promise = self.given[number]
        promise.set_result(Made(value=step * 10, bad=0))

    def close(self, patience_s: float = 0) -> None:
        pass


@contextmanager
def _promised() -> Iterator[tuple[Prefetch, _Promises]]:
    maker = _Promises()
    prefetch = Prefetch(maker)
    prefetch.start()
    try:
        yield prefetch, maker
    finally:
        prefetch.close()


def _get(prefetch: Prefetch) -> MadeBatch:
    made = prefetch.first(_LONG_NS)
    assert made is not None
    assert prefetch.taken(made)
    return made


def test_what_is_ready_early_does_not_overtake_what_is_late() -> None:
    with _promised() as (prefetch, maker):
        for step in range(2):
            prefetch.put(0, _batch(step))
        assert maker.wait_for(2)
        maker.keep(1)
        assert not prefetch.ready
        assert prefetch.first(1_000_000) is None
        maker.keep(0)
        assert prefetch.ready
        assert [_get(prefetch).value, _get(prefetch).value] == [0, 10]


def test_a_batch_that_gets_ready_wakes_who_waits_for_it() -> None:
    with _promised() as (prefetch, maker):
        prefetch.put(0, _batch(7))
        assert maker.wait_for(1)
        keeper = Thread(target=maker.keep, args=(0,))
        keeper.start()
        assert _get(prefetch).value == 70
        keeper.join()


def test_no_more_batches_are_begun_than_are_wanted_ahead() -> None:
    with _promised() as (prefetch, maker):
        for step in range(5):
            prefetch.put(0, _batch(step))
        assert maker.wait_for(2)
        assert not maker.wait_for(3, 0.05)
        maker.keep(1)  # one that is ready and not taken counts
        assert not maker.wait_for(3, 0.05)
        maker.keep(0)
        assert _get(prefetch).step == 0
        assert maker.wait_for(3)
        assert not maker.wait_for(4, 0.05)


def test_it_says_whether_a_batch_waits_only_to_be_made() -> None:
    with _promised() as (prefetch, maker):
        assert not prefetch.making
        prefetch.put(0, _batch(0))
        assert prefetch.making
        assert maker.wait_for(1)
        assert prefetch.making
        maker.keep(0)
        _get(prefetch)
        assert not prefetch.making


def test_starting_over_cancels_what_is_being_made() -> None:
    with _promised() as (prefetch, maker):
        for step in range(3):
            prefetch.put(0, _batch(step))
        assert maker.wait_for(2)
        generation = prefetch.restart()
        assert [promise.cancelled() for _, promise in maker.given] == [True, True]
        prefetch.put(generation, _batch(8))
        assert maker.wait_for(3)
        maker.keep(2)
        assert _get(prefetch).value == 80


def test_behind_a_batch_that_could_not_be_made_nothing_is_made() -> None:
    with _promised() as (prefetch, maker):
        for step in range(4):
            prefetch.put(0, _batch(step))
        assert maker.wait_for(2)
        maker.given[0][1].set_exception(KeyError("label"))
        with pytest.raises(KeyError):
            prefetch.first(_LONG_NS)
        assert maker.given[1][1].cancelled()
        assert not maker.wait_for(4, 0.05)  # the third may have been begun when there was room, the fourth may not


def test_closing_cancels_what_is_being_made() -> None:
    with _promised() as (prefetch, maker):
        prefetch.put(0, _batch(0))
        assert maker.wait_for(1)
        prefetch.close()
        assert maker.given[0][1].cancelled()


def test_what_was_promised_before_a_failure_comes_before_it() -> None:
    with _promised() as (prefetch, maker):
        prefetch.put(0, _batch(4))
        assert maker.wait_for(1)
        prefetch.fail(PeerLostError("store1 is gone"))
        assert prefetch.first(1_000_000) is None
        maker.keep(0)
        assert _get(prefetch).value == 40
        with pytest.raises(PeerLostError, match="store1 is gone"):
            prefetch.first(_LONG_NS)
