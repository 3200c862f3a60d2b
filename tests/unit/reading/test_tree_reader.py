"""Ranges of a walked folder's files: their bytes, and files that are not the ones in the tree any more."""

import os
from collections.abc import Callable, Generator
from pathlib import Path

import numpy as np
import pytest

from emlio import native
from emlio.checksum import crc32c
from emlio.errors import DatasetError
from emlio.reading.tree_reader import FoundRanges, TreeReader
from emlio.store.folder import Folder
from emlio.store.tree_walk import walk_tree

_FILES = 40


class _Reader:
    def __init__(self, folder: Folder) -> None:
        self.path = folder.path
        self.reader = TreeReader(walk_tree(folder))

    def read(self, *ranges: tuple[str, int, int], most_bytes: int = 1 << 20) -> FoundRanges:
        files = np.array([self.reader.tree.lookup(name) for name, _, _ in ranges], np.int64)
        starts, sizes = (np.array([one[place] for one in ranges], np.int64) for place in (1, 2))
        return self.reader.read(files, starts, sizes, most_bytes)


@pytest.fixture
def reader(tmp_path: Path) -> Generator[_Reader]:
    (tmp_path / "d").mkdir()
    for number in range(_FILES):
        (tmp_path / "d" / str(number)).write_bytes(os.urandom(1000 + number))
    with Folder(tmp_path) as folder:
        made = _Reader(folder)
        yield made
        made.reader.close()


def test_ranges_have_the_files_bytes_and_their_checksums(reader: _Reader) -> None:
    ranges = [(f"d/{number % _FILES}", number % 7, 900 + number % 90) for number in range(300)]
    found = reader.read(*ranges)
    wanted = [(reader.path / name).read_bytes()[at : at + size] for name, at, size in ranges]
    assert found.payload.tobytes() == b"".join(wanted)
    assert found.crcs.tolist() == [crc32c(one) for one in wanted]


@pytest.mark.parametrize(("most", "count", "size"), [(1500, 2, 1500), (1000, 1, 1000), (999, 1, 999), (2000, 2, 2000)])
def test_an_answer_is_filled_and_no_longer(reader: _Reader, most: int, count: int, size: int) -> None:
    found = reader.read(("d/3", 0, 1000), ("d/4", 2, 1000), ("d/5", 0, 1000), most_bytes=most)
    assert (len(found.crcs), found.payload.nbytes) == (count, size)
    wanted = (reader.path / "d" / "3").read_bytes()[:1000] + (reader.path / "d" / "4").read_bytes()[2:1002]
    assert found.payload.tobytes() == wanted[:size]


def test_ranges_that_fit_come_whole(reader: _Reader) -> None:
    assert reader.read(("d/3", 0, 700), most_bytes=1000).payload.nbytes == 700


def _rewritten(path: Path) -> None:
    path.write_bytes(b"x" * path.stat().st_size)


def _replaced(path: Path) -> None:
    other = path.with_name("new")
    other.write_bytes(path.read_bytes())
    status = path.stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)


def _linked_elsewhere(path: Path) -> None:
    path.unlink()
    path.symlink_to("9")


def _folder_moved(path: Path) -> None:
    path.parent.rename(path.parent.with_name("gone"))
    path.parent.mkdir()


_CHANGES: list[tuple[Callable[[Path], None], str]] = [
    (_rewritten, "changed while it was served"),
    (lambda path: os.truncate(path, 10), "changed while it was served"),
    (lambda path: os.utime(path, ns=(0, 1)), "changed while it was served"),
    (_replaced, "replaced by another file"),
    (_linked_elsewhere, "replaced by another file"),
    (Path.unlink, "was removed"),
    (_folder_moved, "was removed"),
]


@pytest.mark.parametrize("before", [False, True], ids=["never opened", "open"])
@pytest.mark.parametrize(("change", "words"), _CHANGES)
def test_a_file_that_is_not_the_one_in_the_tree_is_an_error(
    reader: _Reader, change: Callable[[Path], None], words: str, before: bool
) -> None:
    if before:
        reader.read(("d/7", 0, 500))
    change(reader.path / "d" / "7")
    with pytest.raises(DatasetError, match=words):
        reader.read(("d/7", 0, 500))


def test_ranges_before_one_that_cannot_be_read_are_answered(reader: _Reader) -> None:
    (reader.path / "d" / "7").unlink()
    found = reader.read(("d/1", 0, 5), ("d/2", 0, 5), ("d/7", 0, 5), ("d/3", 0, 5))
    assert (len(found.crcs), found.payload.nbytes) == (2, 10)


def test_a_file_whose_permissions_changed_is_the_same(reader: _Reader) -> None:
    (reader.path / "d" / "7").chmod(0o400)
    assert reader.read(("d/7", 0, 5)).payload.nbytes == 5


def test_small_files_of_any_mode_are_read_without_keeping_them_open(reader: _Reader) -> None:
    (reader.path / "d" / "5").chmod(0o600)  # a new time of change: its content is looked at
    before = len(os.listdir("/proc/self/fd"))
    ranges = [(f"d/{number}", 0, 1000 + number) for number in range(_FILES)]
    wanted = b"".join((reader.path / name).read_bytes() for name, _, _ in ranges)
    assert [reader.read(*ranges).payload.tobytes() for _ in range(2)] == [wanted] * 2
    kept = len(os.listdir("/proc/self/fd")) - before
    assert kept <= (_FILES - 5 if native.is_used() else _FILES)  # those from the one on that was not as it was
