"""Files open at once: how many, which go, and that none goes while it is in use."""

import errno
import os
import random
from collections.abc import Sequence
from threading import Event, Thread

import numpy as np
import pytest

from emlio.errors import ClosedError, DatasetError
from emlio.store.opened.open_set import OpenSet
from emlio.store.opened.room import Room

_LIMIT = 16


class _Files:
    """A thousand files, opened and closed by the set; a handle is used once."""

    def __init__(self, count: int = 1000, limit: int = _LIMIT) -> None:
        self.open: dict[int, int] = {}  # handle: number
        self.opened: list[int] = []
        self.most = 0
        self.fails: list[int] = []
        self.room = Room(lambda: limit)
        self.set = OpenSet(count, self.room, self._open, self._close, _refused)

    def _open(self, number: int) -> int:
        if self.fails:
            code = self.fails.pop()
            raise OSError(code, os.strerror(code))
        handle = len(self.opened)
        self.opened.append(number)
        self.open[handle] = number
        self.most = max(self.most, len(self.open))
        return handle

    def _close(self, doomed: Sequence[tuple[int, int]]) -> None:
        for number, handle in doomed:
            assert self.open.pop(handle) == number


def _refused(number: int, error: OSError) -> DatasetError:
    return DatasetError(f"{number}: {error.strerror}")


def _use(files: _Files, *numbers: int) -> None:
    with files.set.hold_all(np.array(numbers)) as handles:
        assert [files.open[handle] for handle in handles.tolist()] == list(numbers)


def test_as_many_are_open_as_may_be_and_what_was_used_last_stays() -> None:
    files = _Files()
    for number in range(100):
        _use(files, number, 0)
        assert len(files.set) == len(files.open) <= _LIMIT
    assert files.opened.count(0) == 1
    assert set(range(90, 100)) <= set(files.open.values()), "those used last"
    files.set.close()
    assert files.open == {}


def test_where_all_fit_each_is_opened_once() -> None:
    files = _Files(count=10)
    draw = random.Random(1)
    for _ in range(1000):
        _use(files, *(draw.randrange(10) for _ in range(5)))
        with files.set.hold(3) as handle:
            assert files.open[handle] == 3
    assert sorted(files.opened) == list(range(10))
    files.set.close()


def test_what_is_in_use_stays_open_whatever_the_limit_and_what_is_asked_for_twice_is_one() -> None:
    files = _Files()
    with files.set.hold(7) as one, files.set.hold_all(np.array([8, 8, 9])) as two:
        for number in range(100, 200):
            _use(files, number)
        _use(files, *range(200, 300))  # more at once than the limit
        assert files.open[one] == 7
        assert [files.open[handle] for handle in two.tolist()] == [8, 8, 9]
        assert files.opened.count(7) == files.opened.count(8) == 1
    _use(files, 500)
    assert len(files.open) <= _LIMIT
    files.set.close()


def test_a_closed_set_waits_for_what_is_in_use_and_opens_nothing() -> None:
    files = _Files()
    held = files.set.hold(7)
    with held as handle:
        _use(files, 1, 2)
        files.set.close()
        assert list(files.open) == [handle]
        with pytest.raises(ClosedError):
            files.set.hold(8)
    assert files.open == {}
    files.set.close()


def test_another_dataset_makes_this_one_smaller_at_once() -> None:
    files = _Files(limit=100)
    _use(files, *range(100))
    other = OpenSet(1000, files.room, lambda number: number, lambda _: None, _refused)
    assert len(files.open) == 50
    other.close()
    _use(files, *range(100))
    assert len(files.open) == 100
    files.set.close()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_where_the_system_has_no_more_it_does_with_less_and_less(code: int) -> None:
    files = _Files()
    _use(files, *range(_LIMIT))
    files.fails = [code]
    _use(files, 100)
    assert _LIMIT // 2 < len(files.open) < _LIMIT, "not too many are given up, for others take them"
    files.fails = [code, code]
    _use(files, 101)
    files.fails = [code] * 20
    with files.set.hold(101), pytest.raises(DatasetError, match=f"102: {os.strerror(code)}"):
        files.set.hold(102)
    assert list(files.open.values()) == [101], "what is in use is not given up"
    files.fails = []
    _use(files, 102)
    files.set.close()


def test_another_error_is_not_tried_again_and_nothing_stays_in_use() -> None:
    files = _Files()
    files.fails = [errno.ENOENT, errno.ENOENT]
    with pytest.raises(DatasetError, match="No such file"):
        files.set.hold_all(np.array([1, 2, 3]))
    assert files.fails == [errno.ENOENT]
    files.set.close()
    assert files.open == {}


def test_it_is_not_worth_it_to_close_others_for_what_comes_again_too_seldom() -> None:
    files = _Files()
    with files.set.hold_worthwhile(np.arange(_LIMIT)) as handles:
        assert handles.min() >= 0, "there is room"
    often = np.array([1, 2, 3, 500] + [1] * _LIMIT)
    with files.set.hold_worthwhile(often) as handles:
        assert [files.open[handle] for handle in handles.tolist()] == often.tolist()
    before = len(files.opened)
    with files.set.hold_worthwhile(np.array([1, 600, 601])) as handles:
        assert files.open[int(handles[0])] == 1
        assert handles[1:].tolist() == [-1, -1]
        files.set.allow(2)
        assert 1 in files.open.values(), "what is open of them is in use"
    assert len(files.opened) == before
    files.set.close()


def test_threads_that_use_it_at_once_never_meet_a_closed_file() -> None:
    files = _Files(count=200)
    stop = Event()
    wrong: list[str] = []

    def work(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(1500):
            numbers = [draw.randrange(200) for _ in range(4)]
            with files.set.hold_all(np.array(numbers)) as handles:
                found = [files.open.get(handle) for handle in handles.tolist()]
            if found != numbers:
                wrong.append(f"{numbers}: {found}")
                return

    def resize() -> None:
        while not stop.is_set():
            files.set.allow(_LIMIT // 2)
            files.set.allow(_LIMIT)

    threads = [Thread(target=work, args=(seed,)) for seed in range(4)]
    resizer = Thread(target=resize)
    for thread in (*threads, resizer):
        thread.start()
    for thread in threads:
        thread.join(60)
    stop.set()
    resizer.join(60)
    assert not wrong
    files.set.close()
    assert files.open == {}
