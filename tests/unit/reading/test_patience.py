"""Descriptors or memory that are used up for a while: given up, waited for, and never taken for a change of the files."""

import ctypes
import errno
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio.daemon.control.answers import code_of_files, fault_of
from emlio.errors import DatasetError, RefusedError
from emlio.index.opening import open_dataset
from emlio.native.files import close_files
from emlio.reading.feed import Feed
from emlio.reading.gather import Gatherer
from emlio.reading.message_planner import MessagePlan
from emlio.reading.page_cache import PageCacheEngine
from emlio.receiver.machine.retry import may_pass
from emlio.session.faults import error_of
from emlio.store.folder import Folder
from emlio.store.opened.leases import Leases
from emlio.store.opened.open_files import PAUSES_S, patiently
from emlio_testing.datasets import make_dataset
from emlio_testing.leases import Returned, gives_leases
from emlio_testing.reading import feed_of, in_folder, page_cache

_SHARDS = 3
_FOR_EVER = 1 << 30
_USED_UP = [errno.EMFILE, errno.ENFILE, errno.ENOMEM]


class _ScarceFolder(Folder):
    """A folder in which nothing can be opened for some times."""

    refusals = 0
    code = errno.EMFILE
    on_refusal: Callable[[], None] = staticmethod(lambda: None)

    def beneath(self, name: str, flags: int) -> int:
        if self.refusals:
            self.refusals -= 1
            self.on_refusal()
            raise OSError(self.code, os.strerror(self.code), name)
        return super().beneath(name, flags)

    def open_indexed(self, *given: Any, **named: Any) -> None:
        """Leave all to `beneath`, as if the C library was refused all."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Shards that are links, as in a layout of versions."""
    make_dataset(tmp_path / "data", records=30, shards=_SHARDS, mapped=False, payload=100)
    (tmp_path / "data" / "blobs").mkdir()
    for path in sorted((tmp_path / "data").glob("*.tfrecord")):
        path.rename(path.parent / "blobs" / path.name)
        path.symlink_to(f"blobs/{path.name}")
    return tmp_path / "data"


@contextmanager
def _opened(data: Path, leases: Leases | None = None) -> Generator[tuple[PageCacheEngine, _ScarceFolder]]:
    with open_dataset("d", data) as found, _ScarceFolder(data) as folder:
        shards = page_cache(in_folder(found, folder), leases)
        try:
            yield shards, folder
        finally:
            shards.close()


def _first(shards: PageCacheEngine, *readv: Any) -> tuple[Feed, Gatherer, MessagePlan]:
    """Return a feed with its first message, to be read without asking the disk."""
    feed, gatherer = feed_of(shards, batch_size=10), Gatherer(*readv)
    gatherer.cold = False
    message = feed.next(gatherer)
    assert message is not None
    return feed, gatherer, message


@dataclass
class _Action:
    """Fails with these errors, one after the other, and then succeeds."""

    errors: list[Exception]
    pauses: list[float] = field(default_factory=list[float])
    use: bool = True

    def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    def pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return not self.use


def _scarce() -> DatasetError:
    return DatasetError("no descriptors", passing=True)


def test_what_may_pass_is_tried_again_after_a_pause_for_some_seconds() -> None:
    action = _Action([_scarce(), _scarce()])
    assert patiently(action, action.pause) == "done"
    assert action.pauses == list(PAUSES_S[:2])
    action = _Action([_scarce() for _ in range(1000)])
    with pytest.raises(DatasetError):
        patiently(action, action.pause)
    assert 4 < sum(action.pauses) < 6


def test_another_error_and_who_is_told_to_stop_are_not_tried_again() -> None:
    for action in (_Action([DatasetError("changed"), _scarce()]), _Action([_scarce(), _scarce()], use=False)):
        with pytest.raises(DatasetError):
            patiently(action, action.pause)
        assert len(action.errors) == 1


@pytest.mark.parametrize("code", _USED_UP)
def test_a_message_is_read_when_there_are_descriptors_again(data: Path, code: int) -> None:
    with _opened(data) as (shards, folder):
        feed, gatherer, message = _first(shards)
        out = np.zeros(message.size_bytes, np.uint8)
        folder.code, folder.refusals = code, 3
        feed.read(message, gatherer, out)
        assert folder.refusals == 0
        assert np.count_nonzero(out)


def _forbidden(*_: object) -> int:
    """As process_vm_readv in a container."""
    ctypes.set_errno(errno.EPERM)
    return -1


def test_a_message_of_many_shards_is_read_where_there_is_one_descriptor(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_open = set[int]()

    def close(descriptors: Sequence[int], close: Callable[[Sequence[int]], None] = close_files) -> None:
        is_open.difference_update(descriptors)
        close(descriptors)

    with _opened(data) as (shards, folder):
        feed, gatherer, message = _first(shards, _forbidden)
        assert len(set(message.shard.tolist())) == _SHARDS

        def open_status(name: str) -> tuple[int, os.stat_result]:
            if is_open:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), name)
            descriptor, status = Folder.open_status(folder, name)
            is_open.add(descriptor)
            return descriptor, status

        monkeypatch.setattr(folder, "open_status", open_status)
        monkeypatch.setattr("emlio.store.opened.open_files.close_files", close)
        out = np.zeros(message.size_bytes, np.uint8)
        feed.read(message, gatherer, out)
        ends: list[int] = np.cumsum(message.sizes).tolist()
        numbers: list[int] = message.shard.tolist()
        starts: list[int] = message.starts.tolist()
        for number, start, begin, end in zip(numbers, starts, [0, *ends[:-1]], ends, strict=True):
            whole = shards.dataset.shard_paths[number].read_bytes()
            assert out[begin:end].tobytes() == whole[start : start + end - begin]


def test_who_waits_for_descriptors_ends_when_the_feed_is_stopped(data: Path) -> None:
    with _opened(data) as (shards, folder):
        feed, gatherer, message = _first(shards)
        folder.refusals, folder.on_refusal = _FOR_EVER, feed.stop
        with pytest.raises(DatasetError, match=r"this process has reached its limit of .* open files") as caught:
            feed.read(message, gatherer, np.zeros(message.size_bytes, np.uint8))
        # Mapped, and read so many files at a time, and half as many, down to one: all without a pause.
        assert folder.refusals >= _FOR_EVER - 8
        assert caught.value.passing


@pytest.mark.parametrize("code", _USED_UP)
def test_open_files_are_read_on_though_a_link_cannot_be_looked_at(data: Path, code: int) -> None:
    now_ns = 10**18
    with _opened(data) as (shards, folder):
        numbers = np.arange(_SHARDS)
        with shards.files.open_all(numbers):
            pass
        folder.code, folder.refusals = code, _FOR_EVER
        shards.check(numbers, now_ns)
        path = data / "blobs" / shards.dataset.shards[1].name
        os.utime(path, ns=(1, 1))
        with pytest.raises(DatasetError, match=f"{path.name}: changed while it was served"):
            shards.check(numbers, now_ns)
        os.utime(path, ns=(1, int(shards.files.store.table.mtimes_ns[1])))
        with pytest.raises(DatasetError) as caught:
            shards.check(numbers, now_ns)
        assert caught.value.passing, "its content must be looked at, for which there is no descriptor"
        folder.refusals = 0
        shards.check(numbers, now_ns)
        path.unlink()
        with pytest.raises(DatasetError, match="was removed"):
            shards.check(numbers, now_ns + 10**9)


@pytest.mark.parametrize("code", _USED_UP)
def test_a_look_at_all_files_waits_for_descriptors_and_never_calls_a_file_gone(data: Path, code: int) -> None:
    with _opened(data) as (shards, folder):
        folder.code, folder.refusals = code, 2
        shards.check_paths()
        assert folder.refusals == 0
        folder.refusals = _FOR_EVER
        with pytest.raises(DatasetError) as caught:
            shards.check_paths(lambda: folder.refusals < _FOR_EVER)
        assert caught.value.passing
        assert "gone" not in str(caught.value)


def test_a_look_that_waits_for_descriptors_ends_when_the_files_are_closed(data: Path) -> None:
    with _opened(data) as (shards, folder):
        folder.refusals, folder.on_refusal = _FOR_EVER, shards.close
        with pytest.raises(DatasetError):
            shards.check_paths()
        assert folder.refusals == _FOR_EVER - 1


def test_files_under_a_lease_are_given_up_for_one_that_must_be_opened(data: Path) -> None:
    if not gives_leases(data):
        pytest.skip(f"the file system of {data} gives no leases")
    leases = Leases()
    try:
        with _opened(data, leases) as (shards, folder):
            assert shards.files.lend(0, 0, 10, Returned()) is not None
            folder.refusals = 1
            with shards.files.open(1) as descriptor:
                assert os.fstat(descriptor).st_size
            kept = shards.files.lend(0, 0, 10, Returned())
            assert kept is not None, "it may come back"
            folder.refusals = _FOR_EVER
            with pytest.raises(DatasetError, match="this process has"), shards.files.open(2):
                pass
            shards.check(np.array([0]), 10**18)
            assert kept.tobytes()
            del kept
    finally:
        leases.close()


def test_a_rank_calls_a_daemon_again_that_lacks_descriptors_and_no_other() -> None:
    for error, passes in ((_scarce(), True), (DatasetError("changed"), False)):
        came = error_of(fault_of(1, error), "store1:5555")
        assert may_pass(came, None, reopens=False) is passes
        refused = RefusedError("no", code=code_of_files(error))
        assert may_pass(refused, None, reopens=False) is passes
    assert code_of_files(DatasetError("changed")) == "dataset-changed"
