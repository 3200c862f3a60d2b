"""Files opened many at once: only those that are exactly as they were indexed, and each other one as if it was opened alone."""

import errno
import fcntl
import os
from collections.abc import Callable, Generator
from pathlib import Path
from threading import Thread

import numpy as np
import numpy.typing as npt
import pytest

from emlio import native
from emlio.errors import DatasetError
from emlio.index.opening import open_dataset
from emlio.native import library as native_library
from emlio.open_limits import open_descriptors
from emlio.store.folder import Folder
from emlio.store.folder_store import FolderStore, walk
from emlio.store.opened.open_files import OpenFiles
from emlio.store.opened.room import Room

pytestmark = pytest.mark.usefixtures("own_cache")

_STRANGE = ["with space", "ü", os.fsdecode(b"\xff\xfe"), "line\nbreak", "-", "%s", "deep/er/one", "b" * 255]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "deep" / "er").mkdir(parents=True)
    for number, name in enumerate([*(f"{number:03}" for number in range(50)), *_STRANGE]):
        (folder / name).write_bytes(b"%03d" % number * (number + 1))
    (folder / "link").symlink_to("deep/er/one")
    return folder


@pytest.fixture(params=[True, False], ids=["served", "not-served"])
def store(request: pytest.FixtureRequest, data: Path) -> Generator[FolderStore]:
    with Folder(data, served=request.param) as folder:
        yield walk(folder)


@pytest.fixture
def files(store: FolderStore) -> Generator[OpenFiles]:
    before = open_descriptors()
    opened = OpenFiles(store, files=Room(lambda: 16))
    yield opened
    opened.close()
    assert open_descriptors() == before


def _number(store: FolderStore, name: str) -> int:
    return list(store.names).index(name)


def _opened(store: FolderStore, *, direct: bool = False) -> npt.NDArray[np.int64]:
    numbers = np.arange(len(store))
    descriptors = np.full(len(store), -1, np.int64)
    store.folder.open_indexed(store.table.indexed(store.table.ctimes_ns), numbers, descriptors, direct=direct)
    return descriptors


def _close(descriptors: npt.NDArray[np.int64]) -> None:
    for descriptor in descriptors[descriptors >= 0].tolist():
        os.close(descriptor)


needs_library = pytest.mark.skipif(not native.is_used(), reason="the C library is not used")


@needs_library
def test_each_name_leads_to_its_file_which_children_do_not_inherit(store: FolderStore) -> None:
    descriptors = _opened(store)
    try:
        assert descriptors.min() >= 0
        for number, descriptor in enumerate(descriptors.tolist()):
            assert os.pread(descriptor, 1000, 0) == store.path(number).read_bytes()
            assert not os.get_inheritable(descriptor)
    finally:
        _close(descriptors)


@needs_library
def test_direct_files_are_as_the_way_of_one_file_makes_them(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = OpenFiles(store, direct=True, files=Room(lambda: 16))
    descriptors = _opened(store, direct=True)
    try:
        if descriptors[0] == -errno.EINVAL:
            pytest.skip("this file system has no direct reading")
        monkeypatch.setattr(native_library, "_LIBRARY", native_library.Library(Path("/nowhere")))
        with one.open(0) as alone:
            flags = [fcntl.fcntl(descriptor, fcntl.F_GETFL) for descriptor in (alone, *descriptors.tolist())]
        assert len(set(flags)) == 1
        assert flags[0] & os.O_DIRECT
    finally:
        _close(descriptors)
        one.close()


def _removed(path: Path) -> None:
    path.unlink()


def _other_inode(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(1, path.stat().st_mtime_ns))
    other.rename(path)


def _longer(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def _touched(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def _set_back(path: Path) -> None:
    before = path.stat()
    path.write_bytes(bytes(before.st_size))
    os.utime(path, ns=(1, before.st_mtime_ns))


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link_out(path: Path) -> None:
    outside = path.parent.parent / "outside"
    path.rename(outside)
    path.symlink_to(outside)


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


_CHANGES = [_removed, _other_inode, _longer, _touched, _set_back, _folder, _fifo, _loop]


@needs_library
@pytest.mark.parametrize("change", [*_CHANGES, _link_out])
def test_what_is_not_as_it_was_is_not_opened_and_leaves_no_descriptor(
    store: FolderStore, data: Path, change: Callable[[Path], None]
) -> None:
    number, before = _number(store, "007"), open_descriptors()
    change(data / "007")
    descriptors = _opened(store)
    wrong: dict[Callable[[Path], None], int] = {
        _removed: -errno.ENOENT,
        _loop: -errno.ELOOP,
        _link_out: -errno.EXDEV if store.folder.served else -errno.ESTALE,
    }
    try:
        assert descriptors[number] == wrong.get(change, -errno.ESTALE)
        others = np.delete(descriptors, number)
        assert others.min() >= 0
        assert open_descriptors() == (before or 0) + len(others)
    finally:
        _close(descriptors)


def _error_of(files: OpenFiles, numbers: npt.NDArray[np.int64]) -> str:
    try:
        with files.open_all(numbers):
            return ""
    except DatasetError as error:
        return str(error)


@pytest.mark.parametrize("change", [*_CHANGES, _link_out])
def test_a_changed_file_is_the_same_error_among_many_alone_and_without_the_library(
    store: FolderStore, data: Path, change: Callable[[Path], None], files: OpenFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = _number(store, "007")
    change(data / "007")
    among = _error_of(files, np.arange(len(store)))
    alone = _error_of(files, np.array([number]))
    monkeypatch.setattr(native_library, "_LIBRARY", native_library.Library(Path("/nowhere")))
    assert _error_of(files, np.arange(len(store))) == alone == among
    assert bool(among) is not (change is _set_back or (change is _link_out and not store.folder.served))


def test_a_file_that_changes_after_it_was_opened_is_found_by_the_next_look(
    store: FolderStore, data: Path, files: OpenFiles
) -> None:
    few = np.arange(10)
    with files.open_all(few):
        files.check_used(few, 10**18)
        _touched(data / "003")
        _touched(data / "049")  # which is not in use
        files.check_used(few, 10**18 + 1)  # a look is valid for a while
        with pytest.raises(DatasetError, match="003: changed while it was served"):
            files.check_used(few, 10**18 + 10**9)


def test_files_replaced_while_many_are_opened_are_the_indexed_ones_or_an_error(store: FolderStore, data: Path) -> None:
    path, twin = data / "007", data.parent / "twin"
    twin.write_bytes(b"other" * 5)
    contents = [store.path(number).read_bytes() for number in range(len(store))]
    before, ended = open_descriptors(), False

    def swap() -> None:
        while not ended:
            path.rename(data.parent / "kept")
            twin.rename(path)
            path.rename(twin)
            (data.parent / "kept").rename(path)

    swapper = Thread(target=swap)
    swapper.start()
    try:
        for _ in range(300):
            files = OpenFiles(store, files=Room(lambda: 100))
            try:
                with files.open_all(np.arange(len(store))) as descriptors:
                    assert [os.pread(descriptor, 1000, 0) for descriptor in descriptors.tolist()] == contents
            except DatasetError as error:
                assert "007" in str(error)  # noqa: PT017  # the race decides whether there is one
            files.close()
    finally:
        ended = True
        swapper.join()
    assert open_descriptors() == before


def test_threads_that_open_many_with_little_room_read_the_right_files_and_leak_none(store: FolderStore) -> None:
    contents = [store.path(number).read_bytes() for number in range(len(store))]
    before, wrong = open_descriptors(), list[str]()
    files = OpenFiles(store, files=Room(lambda: 16))

    def work(seed: int) -> None:
        draw = np.random.default_rng(seed)
        for _ in range(200):
            numbers = draw.integers(0, len(store), 12)
            with files.open_all(numbers) as descriptors:
                found = [os.pread(descriptor, 1000, 0) for descriptor in descriptors.tolist()]
            if found != [contents[number] for number in numbers.tolist()]:
                wrong.append(f"{numbers}")

    threads = [Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert (open_descriptors() or 0) <= (before or 0) + 16 + 12 * 4
    files.close()
    assert open_descriptors() == before


@needs_library
@pytest.mark.parametrize("number", [-1, 59, 2**40])
def test_a_number_of_no_file_is_not_looked_up(store: FolderStore, number: int) -> None:
    indexed, numbers, opened = store.table.indexed(store.table.ctimes_ns), np.array([number]), np.full(1, -1, np.int64)
    assert len(store) == 59
    store.folder.open_indexed(indexed, numbers, opened, direct=False)
    assert opened.tolist() == [-errno.EINVAL]
    assert indexed.are_same(store.folder.descriptor, numbers).tolist() == [False]


def test_an_unchanged_dataset_is_not_looked_at_one_by_one(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native.is_used():
        pytest.skip("the C library is not used")
    with open_dataset("x", data) as dataset:
        store = dataset.folder_store
        numbers = np.delete(np.arange(len(store)), _number(store, "link"))
        files = OpenFiles(store, files=Room(lambda: 100))
        monkeypatch.setattr(Folder, "open_status", None)
        monkeypatch.setattr(Folder, "stat", None)
        with files.open_all(np.arange(len(store))):
            files.check_used(numbers, 10**18)
        files.close()
