"""The cache of groups: what is kept, made ahead, given back; failures and the end."""

import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Event, Lock, get_ident
from time import sleep
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from emlio.errors import ClosedError, DatasetError
from emlio.reading.group_cache import GroupCache, KeptGroup
from emlio_testing.processes import settles

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
        cache.done(cache.use(key, 1, _counted(made, key)))

    for key in ("a", "b", "c", "a", "d", "a", "c", "b"):
        use(key)
    assert made == {"a": 1, "b": 2, "c": 1, "d": 1}
    assert cache.held_bytes == 3
    assert cache.made_bytes == 5


def test_what_is_used_stays_and_one_larger_than_all_is_made_and_dropped() -> None:
    cache, made = GroupCache(3), Counter[str]()
    kept = [cache.use(key, 1, _counted(made, key)) for key in ("a", "b", "c")]
    for group in kept:
        cache.done(group)
    cache.done(cache.use("d", 1, _counted(made, "d")))
    assert cache.held_bytes == 3
    cache.done(cache.use("big", 10, _counted(made, "big")))
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
    cache.done(failed)  # of the one that failed, not of its successor
    assert cache.held_bytes == 1
    assert good.made.result().size == 1
    cache.done(good)
    cache.forget(lambda key: key == "a")
    assert cache.held_bytes == 0


def test_after_closing_nobody_waits_for_ever() -> None:
    cache, go_on = GroupCache(100), Event()

    def make() -> Bytes:
        assert go_on.wait(10)
        return _bytes()

    kept = [cache.ahead(str(number), 1, make) for number in range(5)]
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
    cache.done(group)
    monkeypatch.undo()
    cache.close()


def test_a_large_group_that_is_gone_leaves_room_for_others() -> None:
    cache = GroupCache(1000)
    cache.done(cache.use("large", 1001, lambda: _bytes(1001)))
    group = cache.ahead("a", 10, _bytes)
    assert group is not None
    group.made.result(10)
    cache.close()


def test_a_group_may_be_given_back_at_any_place() -> None:
    cache = GroupCache(2)
    group = cache.use("a", 1, _bytes)
    with cache._locked():  # as by the garbage collector, in a thread that has the lock
        cache.done(group)
        assert group.users == 1
    assert cache.held_bytes == 1
    assert group.users == 0


def _in_line(pool: ThreadPoolExecutor, cache: GroupCache, *groups: tuple[str, int]) -> list[Future[KeptGroup]]:
    """Let a thread use each group, the first of which waits before the next one comes."""
    found: list[Future[KeptGroup]] = []
    for key, size_bytes in groups:
        found.append(pool.submit(cache.use, key, size_bytes, _bytes))
        assert settles(lambda: len(cache._waiting) == len(found), 10)
    return found


def test_a_thread_waits_for_room_and_goes_on_when_another_is_done() -> None:
    cache = GroupCache(3)
    first = cache.use("a", 2, _bytes)
    with ThreadPoolExecutor(2) as pool:
        large, small = _in_line(pool, cache, ("b", 2), ("c", 1))
        assert wait([large, small], 0.1).done == set()  # the small one does not overtake the large one
        cache.done(first)
        assert cache.held_bytes <= 3
        cache.done(large.result(10))
        cache.done(small.result(10))
    assert cache.held_bytes <= 3


def test_a_group_that_is_larger_than_the_limit_is_read_alone() -> None:
    cache = GroupCache(4)
    ahead = cache.ahead("soon", 2, _bytes)
    assert ahead is not None
    first = cache.use("a", 1, _bytes)
    with ThreadPoolExecutor(2) as pool:
        large, next_one = _in_line(pool, cache, ("large", 9), ("b", 1))
        assert wait([large, next_one], 0.1).done == set()
        cache.done(first)
        cache.done(large.result(10))
        cache.done(next_one.result(10))
    cache.give_back(ahead)
    cache.close()


def test_many_threads_stay_within_the_limit_and_all_get_done() -> None:
    cache, lock, reading, most = GroupCache(10), Lock(), Counter[int](), 0
    draw = random.Random(3)
    work = [[(number := draw.randrange(40), 1 + number % 7) for _ in range(150)] for _ in range(8)]

    def read(turns: list[tuple[int, int]]) -> None:
        nonlocal most
        for number, size in turns:
            group = cache.use(number, size, _bytes)
            group.made.result(10)
            with lock:
                reading[number] += 1
                most = max(most, sum(1 + one % 7 for one, users in reading.items() if users))
            with lock:
                reading[number] -= 1
            cache.done(group)

    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(read, turns) for turns in work]:
            future.result(30)
    assert 0 < most <= 10
    assert cache.held_bytes <= 10


def test_closing_ends_the_wait_for_room() -> None:
    cache = GroupCache(1)
    group = cache.use("a", 1, _bytes)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cache.use, "b", 1, _bytes)
        assert wait([waiting], 0.1).done == set()
        cache.close()
        with pytest.raises(ClosedError):
            waiting.result(10)
    cache.done(group)


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGUSR1 raises in the main thread, as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_while_waiting_for_room_holds_nothing_up() -> None:
    cache, main = GroupCache(1), get_ident()
    group = cache.use("a", 1, _bytes)

    def interrupt() -> None:
        while not cache._waiting:
            sleep(0.001)
        signal.pthread_kill(main, signal.SIGUSR1)

    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            cache.use("b", 1, _bytes)
        sent.result(10)
        cache.done(group)
        cache.done(pool.submit(cache.use, "c", 1, _bytes).result(10))
        cache.done(pool.submit(cache.use, "b", 1, _bytes).result(10))
    cache.close()


def test_an_interrupt_while_a_group_is_made_is_not_raised_by_others_that_wait_for_it() -> None:
    cache, made = GroupCache(2), Counter[str]()
    begun: Future[KeptGroup] = Future()

    def make() -> Bytes:
        made["a"] += 1
        if made["a"] == 1:
            begun.set_result(pool.submit(cache.use, "a", 1, make).result(10))
            raise KeyboardInterrupt
        return _bytes()

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(KeyboardInterrupt):
            cache.use("a", 1, make)
        group = begun.result(10)
        assert len(group.made.result(10)) == 1
        cache.done(group)
    assert made == {"a": 2}
    # One for which no other thread waits is made again when it is needed next.
    with pytest.raises(KeyboardInterrupt):
        cache.use("b", 1, _interrupted)
    cache.done(cache.use("b", 1, _bytes))
    assert cache.held_bytes == 2
    cache.close()


def _interrupted() -> Bytes:
    raise KeyboardInterrupt


def test_room_is_given_though_the_collector_gave_it_back_at_the_worst_place() -> None:
    cache = GroupCache(1)
    group = cache.use("a", 1, _bytes)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cache.use, "b", 1, _bytes)
        assert wait([waiting], 0.1).done == set()
        with cache._locked():
            cache.done(group)  # nobody takes the lock after this
        cache.done(waiting.result(10))
