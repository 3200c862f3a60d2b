"""Leases: a writer waits for those who use the file, for no others and not for ever."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from emlio.store.opened.leases import Leases
from emlio_testing.leases import gives_leases, leases_on
from emlio_testing.processes import run_python, settles

_FOR_EVER_S = 20.0
_SIZE = 8192


@pytest.fixture
def path(tmp_path: Path) -> Path:
    if not gives_leases(tmp_path):
        pytest.skip(f"the file system of {tmp_path} gives no leases")
    return _file(tmp_path / "shard")


def _file(path: Path) -> Path:
    path.write_bytes(bytes(_SIZE))
    return path


@contextmanager
def _opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _leases(patience_s: float = 600.0) -> Iterator[Leases]:
    leases = Leases(patience_s)
    try:
        yield leases
    finally:
        leases.close()


class _User:
    """Uses a file until it is told that it does not any more."""

    def __init__(self, *, uses: bool = True) -> None:
        self.uses = uses
        self.asked, self.hurried = Event(), Event()

    def withdraw(self) -> bool:
        self.asked.set()
        return not self.uses

    def hurry(self) -> None:
        self.hurried.set()


@contextmanager
def _doing(action: Callable[[], object]) -> Iterator[Event]:
    """Do it in another thread; the event says that it is done."""
    done = Event()

    def run() -> None:
        action()
        done.set()

    thread = Thread(target=run)
    thread.start()
    try:
        yield done
    finally:
        thread.join(_FOR_EVER_S)
        assert not thread.is_alive()


def _open_and_close(path: Path, flags: int) -> None:
    os.close(os.open(path, flags))


_WRITERS: dict[str, Callable[[Path], object]] = {
    "open to write": lambda path: _open_and_close(path, os.O_RDWR),
    "open to append": lambda path: _open_and_close(path, os.O_WRONLY | os.O_APPEND),
    "open and empty": lambda path: _open_and_close(path, os.O_WRONLY | os.O_TRUNC),
    "truncate": lambda path: os.truncate(path, 10),
}


@pytest.mark.parametrize("how", _WRITERS)
def test_a_writer_waits_until_the_file_is_not_in_use(path: Path, how: str) -> None:
    user = _User()
    with _leases() as leases, _opened(path) as descriptor:
        assert leases.take(descriptor, user)
        assert leases_on(path) == ["ACTIVE"]
        with _doing(lambda: _WRITERS[how](path)) as done:
            assert user.asked.wait(_FOR_EVER_S)
            assert leases_on(path) == ["BREAKING"]
            assert not done.is_set()
            assert path.stat().st_size == _SIZE
            user.uses = False
            leases.look()
            assert done.wait(_FOR_EVER_S)
        assert leases_on(path) == []
        assert not user.hurried.is_set()


def test_a_file_that_is_leased_but_not_in_use_is_let_go_at_once(path: Path) -> None:
    with _leases() as leases, _opened(path) as descriptor:
        assert leases.take(descriptor, _User(uses=False))
        with _doing(lambda: os.truncate(path, 10)) as done:
            assert done.wait(_FOR_EVER_S)


def test_who_will_not_wait_is_told_so_and_may_come_again(path: Path) -> None:
    user = _User()
    with _leases() as leases, _opened(path) as descriptor:
        assert leases.take(descriptor, user)
        with pytest.raises(BlockingIOError):
            os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        assert user.asked.wait(_FOR_EVER_S)
        with pytest.raises(BlockingIOError):
            os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        user.uses = False
        leases.look()
        assert settles(lambda: leases_on(path) == [], _FOR_EVER_S)
        with _opened(path, os.O_WRONLY | os.O_NONBLOCK):
            pass


def test_reading_renaming_and_removing_disturb_nobody(path: Path) -> None:
    user = _User()
    with _leases() as leases, _opened(path) as descriptor:
        assert leases.take(descriptor, user)
        assert len(path.read_bytes()) == _SIZE
        moved = path.rename(path.with_name("moved"))
        os.chmod(moved, 0o600)
        assert leases_on(moved) == ["ACTIVE"]
        moved.unlink()
        assert not user.asked.is_set()


def test_a_user_is_hurried_again_and_again_when_the_writer_has_waited_long_enough(path: Path) -> None:
    user = _User()
    with _leases(0.05) as leases, _opened(path) as descriptor:
        assert leases.take(descriptor, user)
        with _doing(lambda: os.truncate(path, 10)) as done:
            for _ in range(3):
                assert user.hurried.wait(_FOR_EVER_S)
                user.hurried.clear()
            assert not done.is_set(), "the lease is not given up while the file is in use"
            user.uses = False
            leases.look()
            assert done.wait(_FOR_EVER_S)


def test_a_file_that_is_stuck_does_not_keep_the_others_writers_waiting(path: Path) -> None:
    other = _file(path.with_name("other"))
    stuck, quick = _User(), _User()
    with _leases() as leases, _opened(path) as first, _opened(other) as second:
        assert leases.take(first, stuck)
        assert leases.take(second, quick)
        with _doing(lambda: os.truncate(path, 10)) as stuck_done:
            assert stuck.asked.wait(_FOR_EVER_S)
            with _doing(lambda: os.truncate(other, 10)) as quick_done:
                assert quick.asked.wait(_FOR_EVER_S)
                quick.uses = False
                leases.look()
                assert quick_done.wait(_FOR_EVER_S)
            assert not stuck_done.is_set()
            stuck.uses = False
            leases.look()


def test_two_daemons_with_one_file_are_both_waited_for(path: Path) -> None:
    one, other = _User(), _User()
    with _leases() as first, _leases() as second, _opened(path) as left, _opened(path) as right:
        assert first.take(left, one)
        assert second.take(right, other)
        assert leases_on(path) == ["ACTIVE", "ACTIVE"]
        with _doing(lambda: os.truncate(path, 10)) as done:
            assert one.asked.wait(_FOR_EVER_S)
            assert other.asked.wait(_FOR_EVER_S)
            one.uses = False
            first.look()
            assert settles(lambda: leases_on(path) == ["BREAKING"], _FOR_EVER_S)
            assert not done.is_set()
            other.uses = False
            second.look()
            assert done.wait(_FOR_EVER_S)


@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_WRONLY | os.O_APPEND])
def test_a_file_that_is_open_to_be_written_is_refused(path: Path, flags: int) -> None:
    with _leases() as leases, _opened(path) as descriptor:
        with _opened(path, flags):
            assert not leases.take(descriptor, _User())
        assert leases.take(descriptor, _User()), "nobody writes any more"


def test_a_file_system_that_is_not_known_to_keep_all_writers_away_is_refused() -> None:
    with _leases() as leases, _opened(Path("/proc/self/status")) as descriptor:
        assert not leases.take(descriptor, _User())


def test_a_released_file_is_nobodys_business(path: Path) -> None:
    user = _User()
    with _leases() as leases, _opened(path) as descriptor:
        assert leases.take(descriptor, user)
        leases.release(descriptor)
        leases.release(descriptor)
        assert leases_on(path) == []
        os.truncate(path, 10)
        assert not user.asked.is_set()


def test_closing_lets_all_writers_through_and_gives_no_more_leases(path: Path) -> None:
    user = _User()
    leases = Leases(600.0)
    try:
        with _opened(path) as descriptor:
            assert leases.take(descriptor, user)
            with _doing(lambda: os.truncate(path, 10)) as done:
                assert user.asked.wait(_FOR_EVER_S)
                leases.close()
                assert done.wait(_FOR_EVER_S)
            leases.close()
            leases.look()
            assert not leases.take(descriptor, user)
            assert leases_on(path) == []
    finally:
        leases.close()


def test_opening_and_closing_leaves_the_signals_of_the_thread_as_they_were() -> None:
    seen: list[set[int]] = []

    def live() -> None:
        seen.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        for _ in range(20):
            Leases().close()  # the signal that ends its thread must never come before that waits for it
        seen.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, ())))

    live()
    with _doing(live) as done:
        assert done.wait(_FOR_EVER_S)
    assert seen[0] == seen[1]
    assert seen[2] == seen[3]
    assert signal.SIGIO not in seen[1] | seen[3]


_AS_ANOTHER = """
import os, sys
from emlio.store.opened.leases import Leases

class User:
    def withdraw(self): return True
    def hurry(self): pass

theirs, own = (os.open(path, os.O_RDONLY) for path in sys.argv[1:])
os.fchown(own, 65534, 65534)
leases = Leases()  # Python itself may lie where the other account cannot read it
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
print(leases.take(theirs, User()), leases.take(own, User()))
leases.close()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="to be another account than a file's owner takes root")
def test_without_the_capability_one_s_own_files_give_leases_and_those_of_others_do_not(path: Path) -> None:
    own = _file(path.with_name("own"))
    assert run_python("-c", _AS_ANOTHER, path, own, timeout_s=_FOR_EVER_S).split() == ["False", "True"]
