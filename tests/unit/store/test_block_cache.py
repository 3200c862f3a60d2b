"""The cache of blocks: a bound, the least recently used dropped, damage found, no block asked for twice."""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from emlio.errors import ConfigError
from emlio.store.bucket.block_cache import BLOCK_BYTES, LEAST_CACHE_BYTES, BlockCache, CachedBlocks

_MOST = LEAST_CACHE_BYTES
_BLOCK = 200_000


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[BlockCache]:
    with BlockCache(tmp_path / "cache", _MOST) as cache:
        yield cache


def _key(number: int) -> bytes:
    return number.to_bytes(16, "little")


def _data(number: int) -> bytes:
    return (number + 1).to_bytes(4, "little") * (_BLOCK // 4)


def test_what_was_put_is_found_also_by_the_next_process(tmp_path: Path) -> None:
    with BlockCache(tmp_path, _MOST) as cache:
        for number in range(20):
            cache.put(_key(number), _data(number))
        assert cache.get(_key(7)) == _data(7)
        assert cache.get(_key(99)) is None
    with BlockCache(tmp_path, _MOST) as cache:
        assert all(cache.get(_key(number)) == _data(number) for number in range(20))


def test_the_files_stay_in_the_bound_and_the_last_used_stay(cache: BlockCache) -> None:
    for number in range(600):  # 120 MB
        cache.put(_key(number), _data(number))
        cache.get(_key(0))
    assert sum(path.stat().st_size for path in cache.folder.iterdir()) <= _MOST
    assert cache.size_bytes > _MOST // 2
    assert cache.get(_key(0)) == _data(0), "it was always in use"
    assert cache.get(_key(1000)) is None
    assert cache.get(_key(599)) == _data(599)
    assert cache.get(_key(10)) is None


def test_a_damaged_block_is_not_returned(cache: BlockCache) -> None:
    cache.put(_key(1), _data(1))
    (path,) = cache.folder.glob("*.data")
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff\xff")
    assert cache.get(_key(1)) is None
    cache.put(_key(1), _data(1))
    assert cache.get(_key(1)) == _data(1)


@pytest.mark.parametrize("lost", ["data", "entry", "all data"])
def test_after_a_crash_only_whole_blocks_are_found(tmp_path: Path, lost: str) -> None:
    with BlockCache(tmp_path, _MOST) as cache:
        for number in range(2):
            cache.put(_key(number), _data(number))
    (data,), (index,) = tmp_path.glob("*.data"), tmp_path.glob("*.index")
    if lost == "data":
        os.truncate(data, _BLOCK + 10)
    elif lost == "all data":
        os.truncate(data, 0)
        os.truncate(data, 2 * _BLOCK)  # blocks that never reached the disk
    else:
        os.truncate(index, index.stat().st_size - 3)
    with BlockCache(tmp_path, _MOST) as cache:
        assert cache.get(_key(0)) == (None if lost == "all data" else _data(0))
        assert cache.get(_key(1)) is None


def test_a_folder_is_used_by_one_process(cache: BlockCache) -> None:
    with pytest.raises(ConfigError, match="another process uses it"):
        BlockCache(cache.folder, _MOST)


def test_a_bound_must_leave_room(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least"):
        BlockCache(tmp_path, 1 << 20)


def test_a_range_is_read_with_its_blocks_and_then_never_again(cache: BlockCache) -> None:
    content, asked = os.urandom(3 * BLOCK_BYTES + 100), list[tuple[int, int]]()

    def fetch(start: int, end: int) -> bytes:
        asked.append((start, end))
        return content[start:end]

    blocks = CachedBlocks(cache)
    for start, end in (
        (10, 20),
        (BLOCK_BYTES - 5, BLOCK_BYTES + 5),
        (0, len(content)),
        (len(content) - 1, len(content)),
    ):
        assert blocks.read(b"id", len(content), start, end, fetch) == content[start:end]
    assert asked == [
        (0, BLOCK_BYTES),
        (BLOCK_BYTES, 2 * BLOCK_BYTES),
        (2 * BLOCK_BYTES, len(content)),
    ]
    assert blocks.read(b"other", len(content), 0, 1, fetch) == content[:1]
    assert len(asked) == 4


def test_a_block_that_comes_is_waited_for(cache: BlockCache) -> None:
    begun, release, asked, found = Event(), Event(), list[int](), list[bytes]()

    def fetch(start: int, end: int) -> bytes:
        asked.append(start)
        begun.set()
        release.wait(5)
        return bytes(end - start)

    blocks = CachedBlocks(cache)
    threads = [Thread(target=lambda: found.append(blocks.read(b"id", 100, 0, 50, fetch))) for _ in range(3)]
    threads[0].start()
    assert begun.wait(5)
    for thread in threads[1:]:
        thread.start()
    release.set()
    for thread in threads:
        thread.join()
    assert found == [bytes(50)] * 3
    assert asked == [0]


def test_a_failed_read_leaves_the_next_to_try(cache: BlockCache) -> None:
    def fail(start: int, end: int) -> bytes:
        raise OSError("lost")

    blocks = CachedBlocks(cache)
    with pytest.raises(OSError, match="lost"):
        blocks.read(b"id", 100, 0, 50, fail)
    assert blocks.read(b"id", 100, 0, 50, lambda start, end: bytes(end - start)) == bytes(50)


def _open_descriptors(folder: Path) -> int:
    targets = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_open(name)]
    return sum(target.startswith(str(folder)) for target in targets)


def _is_open(descriptor: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{descriptor}")


def test_few_files_are_open_however_many_lie_in_the_folder(tmp_path: Path) -> None:
    for number in range(600):
        (tmp_path / f"{number:08d}.data").write_bytes(b"x")
        (tmp_path / f"{number:08d}.index").write_bytes(b"x")
        os.utime(tmp_path / f"{number:08d}.data", (number, number))
    with BlockCache(tmp_path, _MOST) as cache:
        assert _open_descriptors(tmp_path) <= 257, "and the lock"
        numbers = sorted(int(path.stem) for path in tmp_path.glob("*.data"))
        assert (len(numbers), numbers[-1]) == (255, 599), "the last used stay"
        assert len([*tmp_path.glob("*.index")]) == 255
        for number in range(600):
            cache.put(_key(number), _data(number))
        assert _open_descriptors(tmp_path) <= 257
        assert cache.get(_key(599)) == _data(599)


def test_a_block_of_a_part_that_is_dropped_meanwhile_leaves_nothing(
    cache: BlockCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite

    def dropped(descriptor: int, data: memoryview, at: int) -> int:
        for path in cache.folder.glob("*.index"):
            path.unlink()
        return write(descriptor, data, at)

    monkeypatch.setattr("emlio.store.bucket.block_cache.os.pwrite", dropped)
    cache.put(_key(1), _data(1))
    assert not [*cache.folder.glob("*.index")]
    monkeypatch.undo()
    cache.put(_key(2), _data(2))
    assert cache.get(_key(2)) == _data(2)
