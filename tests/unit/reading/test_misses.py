"""Records in files that are neither open nor mapped: what reading them costs, and that a file that is another one is noticed."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from emlio.errors import DatasetError
from emlio.index.opening import open_dataset
from emlio.reading.gather import Gatherer
from emlio.reading.page_cache import PageCacheEngine
from emlio.store.folder import Folder
from emlio.store.opened.room import Room
from emlio_testing.datasets import make_dataset
from emlio_testing.reading import feed_of, in_folder, page_cache

_SHARDS, _LIMIT, _RECORD = 200, 16, 116


class _CountingFolder(Folder):
    """A folder that counts what is asked of it."""

    stats = 0
    opens = 0

    def stat(self, name: str) -> os.stat_result:
        self.stats += 1
        return super().stat(name)

    def beneath(self, name: str, flags: int) -> int:
        self.opens += 1
        return super().beneath(name, flags)

    def open_indexed(self, files: Any, numbers: npt.NDArray[np.int64], *given: Any, **named: Any) -> None:
        self.opens += len(numbers)
        super().open_indexed(files, numbers, *given, **named)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "data", records=_SHARDS, shards=_SHARDS, payload=_RECORD - 16, mapped=False)
    return tmp_path / "data"


@contextmanager
def _opened(folder: Path, limit: int = _LIMIT) -> Generator[PageCacheEngine]:
    with open_dataset("d", folder) as found, _CountingFolder(folder) as counting:
        shards = page_cache(in_folder(found, counting), files=Room(lambda: limit), mappings=Room(lambda: limit))
        try:
            yield shards
        finally:
            shards.close()


def _warm() -> Gatherer:
    gatherer = Gatherer()
    gatherer.cold = False
    return gatherer


def test_a_record_in_a_closed_file_costs_one_opening_no_look_by_name_and_no_mapping(folder: Path) -> None:
    with _opened(folder) as shards:
        with shards.files.mapped(np.arange(_LIMIT)):
            pass  # as many as may be
        counting = shards.files.store.folder
        assert isinstance(counting, _CountingFolder)
        counting.opens = counting.stats = 0
        feed, gatherer = feed_of(shards, message_bytes=_SHARDS * _RECORD, batch_size=10), _warm()
        message = feed.next(gatherer)
        assert message is not None
        assert message.count == _SHARDS
        out = np.zeros(message.size_bytes, np.uint8)
        feed.read(message, gatherer, out)
        assert sorted(int.from_bytes(out[at + 12 : at + 20], "little") for at in range(0, len(out), _RECORD)) == list(
            range(_SHARDS)
        )
        assert counting.opens <= _SHARDS, "each once at most"
        assert counting.stats <= 2 * _LIMIT, "by name only those that were open"
        with shards.files.mapped(np.arange(_LIMIT)) as addresses:
            assert addresses.min() >= 0, "the mappings that were there are kept"


def test_records_of_mapped_and_closed_files_come_where_they_belong_in_any_mixture(folder: Path) -> None:
    with _opened(folder) as shards:
        with shards.files.mapped(np.arange(0, 2 * _LIMIT, 2)):
            pass
        for message_bytes in (_RECORD, 7 * _RECORD, 50 * _RECORD):
            feed, gatherer, seen = feed_of(shards, message_bytes=message_bytes, batch_size=10), _warm(), list[int]()
            while len(seen) < _SHARDS:
                message = feed.next(gatherer)
                assert message is not None
                out = np.zeros(message.size_bytes, np.uint8)
                feed.read(message, gatherer, out)
                found = [int.from_bytes(out[at + 12 : at + 20], "little") for at in range(0, len(out), _RECORD)]
                assert found == message.shard.tolist()
                seen += found
            assert sorted(seen) == list(range(_SHARDS))


def _gone(path: Path) -> None:
    path.unlink()


def _replaced(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes())
    other.rename(path)


def _shortened(path: Path) -> None:
    os.truncate(path, 50)


def _folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fifo_instead(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link_outside(path: Path) -> None:
    outside = path.parent.parent / "outside"
    path.rename(outside)
    path.symlink_to(outside)


@pytest.mark.parametrize("limit", [_LIMIT, 10 * _SHARDS])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_gone, r"00150.* was removed \(No such file or directory\)"),
        (_replaced, "00150.* was replaced by another file. Reload or restart the daemon"),
        (
            _shortened,
            "00150.* changed while it was served.*. Reload or restart the daemon",
        ),
        (_folder_instead, "00150.*(was replaced by another file|changed while it was served)"),
        (_fifo_instead, "00150.*(was replaced|changed while it was served|must be a regular file, is a FIFO)"),
        (_link_outside, "00150.*must point inside it"),
    ],
)
def test_a_closed_file_that_is_another_one_is_the_same_error_as_an_open_one(
    folder: Path, change: Callable[[Path], None], said: str, limit: int
) -> None:
    with _opened(folder, limit) as shards:
        if limit > _SHARDS:
            with shards.files.mapped(np.arange(_SHARDS)):
                pass
        change(next(folder.glob("train-00150-*.tfrecord")))
        feed, gatherer = feed_of(shards, message_bytes=_SHARDS * _RECORD, batch_size=10), _warm()
        message = feed.next(gatherer)
        assert message is not None
        with pytest.raises(DatasetError, match=said):
            feed.read(message, gatherer, np.zeros(message.size_bytes, np.uint8))
