"""The cache of groups: what is kept, made ahead, given back; failures and the end.

Covers: the cache alone. Does not cover: groups of files (test_reading_groups).
"""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from emlio.errors import ClosedError, DatasetError
from emlio.reading.group_cache import GroupCache

Bytes = npt.NDArray[np.uint8]


def _bytes(count: int = 1) -> Bytes:
    return np.zeros(count, np.uint8)


def _counted(made: Counter[str], key: str) -> Callable[[], Bytes]:
    def make() -> Bytes:
        made[key] += 1
        return _bytes()

    return make


def test_what_was_not_used_for_longest_goes_first() -> None:
    cache, made = GroupCache(3), Counter[str]()

    def use(key: str) -> None:
        cache.give_back(cache.use(key, 1, _counted(made, key)))

    for key in ("a", "b", "c", "a", "d", "a", "c", "b"):
        use(key)
    assert made == {"a": 1, "b": 2, "c": 1, "d": 1}
    assert cache.held_bytes == 3
    assert cache.made_bytes == 5


def test_what_is_used_stays_and_one_larger_than_all_is_made_and_dropped() -> None:
    cache, made = GroupCache(3), Counter[str]()
    kept = [cache.use(key, 1, _counted(made, key)) for key in ("a", "b", "c", "d")]
    assert cache.held_bytes == 4
    for group in kept:
        cache.give_back(group)
    assert cache.held_bytes == 3
    cache.give_back(cache.use("big", 10, _counted(made, "big")))
    assert cache.held_bytes == 0
    assert made == dict.fromkeys(("a", "b", "c", "d", "big"), 1)


def test_groups_are_made_ahead_in_half_of_the_memory() -> None:
    cache, made = GroupCache(4), Counter[str]()
    first, second = (cache.ahead(key, 1, _counted(made, key)) for key in ("a", "b"))
    assert first is not None
    assert second is not None
    assert cache.ahead("c", 1, _counted(made, "c")) is None
    again = cache.ahead("a", 1, _counted(made, "a"))
    assert again is first
    cache.give_back(second)
    third = cache.ahead("c", 1, _counted(made, "c"))
    assert third is not None
    assert third.made.result(10).size == 1
    assert first.made.result(10).size == 1
    cache.close()
    assert made["a"] == 1


def test_several_threads_make_a_group_once() -> None:
    cache, made, begun, go_on = GroupCache(4), Counter[str](), Event(), Event()

    def make() -> Bytes:
        made["a"] += 1
        begun.set()
        assert go_on.wait(10)
        return _bytes()

    with ThreadPoolExecutor(4) as pool:
        users = [pool.submit(cache.use, "a", 1, make) for _ in range(4)]
        assert begun.wait(10)
        go_on.set()
        assert {id(user.result(10).made.result(10)) for user in users} == {id(users[0].result().made.result())}
    assert made["a"] == 1


def test_a_group_that_failed_is_tried_again_and_each_one_waiting_gets_the_error() -> None:
    cache = GroupCache(4)

    def fail() -> Bytes:
        raise DatasetError("gone")

    failed = cache.use("a", 1, fail)
    with pytest.raises(DatasetError, match="gone"):
        failed.made.result()
    good = cache.use("a", 1, _bytes)
    cache.give_back(failed)  # of the one that failed, not of its successor
    assert cache.held_bytes == 1
    assert good.made.result().size == 1
    cache.give_back(good)
    cache.forget(lambda key: key == "a")
    assert cache.held_bytes == 0


def test_after_closing_nobody_waits_for_ever() -> None:
    cache, go_on = GroupCache(100), Event()

    def wait() -> Bytes:
        assert go_on.wait(10)
        return _bytes()

    kept = [cache.ahead(str(number), 1, wait) for number in range(5)]
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(cache.close)
        for group in kept:
            assert group is not None
            with pytest.raises(ClosedError):
                group.made.result(10)
            cache.give_back(group)
        go_on.set()
        closing.result(10)
    cache.close()
    assert cache.held_bytes == 0
    assert cache.ahead("a", 1, _bytes) is None
    with pytest.raises(ClosedError):
        cache.use("a", 1, _bytes)


def test_a_system_without_threads_makes_groups_where_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = GroupCache(100)

    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    assert cache.ahead("a", 1, _bytes) is None
    group = cache.use("a", 1, _bytes)
    assert group.made.result(1).size == 1
    cache.give_back(group)
    monkeypatch.undo()
    cache.close()


def test_a_large_group_that_is_gone_leaves_room_for_others() -> None:
    cache = GroupCache(1000)
    cache.give_back(cache.use("large", 1001, lambda: _bytes(1001)))
    group = cache.ahead("a", 10, _bytes)
    assert group is not None
    group.made.result(10)
    cache.close()


def test_a_group_may_be_given_back_at_any_place() -> None:
    cache = GroupCache(2)
    group = cache.use("a", 1, _bytes)
    with cache._locked():  # as by the garbage collector, in a thread that has the lock
        cache.give_back(group)
        assert group.users == 1
    assert cache.held_bytes == 1
    assert group.users == 0
