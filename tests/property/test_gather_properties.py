"""Gathering scattered ranges gives what plain reads give, whichever way it takes."""

import ctypes
import errno
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.index.opening import open_dataset
from emlio.reading.gather import Gatherer, ShortReadError
from emlio.reading.page_cache import PageCacheEngine
from emlio_testing.datasets import make_dataset
from emlio_testing.reading import page_cache, ranges


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Files:
    folder: Path
    contents: list[bytes]

    def opened(self) -> PageCacheEngine:
        return page_cache(open_dataset("numbers", self.folder))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> _Files:
    folder = tmp_path_factory.mktemp("numbers")
    make_dataset(folder, records=3000, shards=3, mapped=False)
    return _Files(folder=folder, contents=[path.read_bytes() for path in sorted(folder.glob("*.tfrecord"))])


def _forbidden(*_: object) -> int:
    ctypes.set_errno(errno.EPERM)
    return -1


@st.composite
def _ranges(draw: st.DrawFn, sizes: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Shard, start and size of ranges, some of which go on where the one before ended."""
    found: list[tuple[int, int, int]] = []
    for _ in range(draw(st.integers(1, 60))):
        goes_on: bool = draw(st.booleans())
        if found and goes_on:
            shard, start = found[-1][0], found[-1][1] + found[-1][2]
        else:
            shard = draw(st.integers(0, len(sizes) - 1))
            start = draw(st.integers(0, sizes[shard] - 1))
        size = draw(st.integers(1, 5000))
        if start + size <= sizes[shard]:
            found.append((shard, start, size))
    return found or [(0, 0, 1)]


def _arrays(
    ranges: list[tuple[int, int, int]],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    shard, starts, sizes = (np.array(column, np.int64) for column in zip(*ranges, strict=True))
    return shard, starts, sizes


@given(st.data())
@settings(max_examples=60)
def test_ranges_are_read_as_they_lie_in_the_files(files: _Files, data: st.DataObject) -> None:
    some = data.draw(_ranges(tuple(len(content) for content in files.contents)))
    shard, starts, sizes = _arrays(some)
    due = b"".join(files.contents[number][start : start + size] for number, start, size in some)
    shards = files.opened()
    try:
        for gatherer in (Gatherer(), Gatherer(_forbidden)):
            for _ in range(2):  # the second time it knows what is forbidden
                out = np.zeros(len(due), np.uint8)
                gatherer.advise(shards.files, ranges(shard, starts, sizes))
                gatherer.read(shards.files, ranges(shard, starts, sizes), out)
                assert out.tobytes() == due
    finally:
        shards.close()
        shards.dataset.close()


def test_thousands_of_ranges_take_several_calls_and_come_in_order(files: _Files) -> None:
    rng = np.random.default_rng(5)
    shard = rng.integers(0, 3, 5000)
    starts = rng.integers(0, min(len(content) for content in files.contents) - 40, 5000)
    sizes = rng.integers(1, 40, 5000)
    due = b"".join(
        files.contents[number][start : start + size]
        for number, start, size in zip(shard.tolist(), starts.tolist(), sizes.tolist(), strict=True)
    )
    calls: list[int] = []
    real = Gatherer()._vm_readv

    def counted(*arguments: int) -> int:
        calls.append(arguments[4])
        return real(*arguments)

    shards = files.opened()
    try:
        out = np.zeros(len(due), np.uint8)
        Gatherer(counted).read(shards.files, ranges(shard, starts, sizes), out)
    finally:
        shards.close()
        shards.dataset.close()
    assert out.tobytes() == due
    assert len(calls) == 5
    assert max(calls) <= 1024


@pytest.mark.parametrize("forbidden", [False, True])
@pytest.mark.parametrize("short", [0, 1, 4])
def test_a_file_that_ends_too_early_names_the_first_range_that_came_short(
    tmp_path: Path, short: int, forbidden: bool
) -> None:
    make_dataset(tmp_path, records=400, shards=2, payload=5000, mapped=False)
    paths = sorted(tmp_path.glob("*.tfrecord"))
    shards = page_cache(open_dataset("numbers", tmp_path))
    starts = np.array([0, 600_000, 20_000, 700_000, 900_000], np.int64)
    shard = np.array([0, 1, 0, 1, 1], np.int64)
    sizes = np.full(5, 1000, np.int64)
    cut_shard, cut_at = (0, 0) if short == 0 else (1, int(starts[short]) + 500)
    try:
        gatherer = Gatherer(_forbidden) if forbidden else Gatherer()
        out = np.zeros(5000, np.uint8)
        gatherer.read(shards.files, ranges(shard, starts, sizes), out)
        # Cut to whole pages below: the end of a page that is mapped reads as zeros.
        with paths[cut_shard].open("r+b") as file:
            file.truncate(cut_at if forbidden else cut_at // 4096 * 4096)
        with pytest.raises(ShortReadError) as raised:
            gatherer.read(shards.files, ranges(shard, starts, sizes), out)
        assert raised.value.position == short
    finally:
        shards.close()
        shards.dataset.close()
