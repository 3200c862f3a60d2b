"""Ranges of objects, read by way of a cache of blocks.

An object is divided into blocks of 256 KiB. A range that is not in the cache is read with the rest of
its blocks, so that other records of the same blocks need no request. A smaller block would make more
entries and more requests; a larger one reads more around a record that is needed alone.

Covers: which blocks a range needs, no block requested twice at once. Does not cover: storing blocks
(emlio.store.bucket.block_cache).
"""

import hashlib
from collections.abc import Callable, Sequence
from threading import Condition
from typing import Final

from typing_extensions import Buffer

from emlio.store.bucket.block_cache import BlockCache

__all__ = ["BLOCK_BYTES", "CachedBlocks"]

BLOCK_BYTES: Final = 256 << 10

Fetch = Callable[[int, int], Buffer]


class CachedBlocks:
    """Reads by way of a cache. Thread-safe."""

    def __init__(self, cache: BlockCache) -> None:
        self._cache = cache
        self._coming: set[bytes] = set()
        self._changed = Condition()

    def read(self, identity: bytes, size_bytes: int, start: int, end: int, fetch: Fetch) -> bytes:
        """Return bytes of an object.

        Args:
            identity: of the object and its content.
            size_bytes: the object's size.
            start: the first byte.
            end: the byte after the last one.
            fetch: reads a range from the server.
        """
        numbers = range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES))
        keys = {number: hashlib.blake2b(b"%d\0" % number + identity, digest_size=16).digest() for number in numbers}
        blocks: dict[int, Buffer] = {}
        while len(blocks) < len(keys):
            missing: list[int] = []
            for number in numbers:
                if number not in blocks:
                    found = self._cache.get(keys[number])
                    if found is None:
                        missing.append(number)
                    else:
                        blocks[number] = found
            if not missing:
                break
            with self._changed:
                mine = [number for number in missing if keys[number] not in self._coming]
                if not mine:
                    # Another thread reads them. If that fails, this one tries.
                    self._changed.wait()
                    continue
                self._coming.update(keys[number] for number in mine)
            try:
                for run in _runs(mine):
                    begin, upto = run[0] * BLOCK_BYTES, min((run[-1] + 1) * BLOCK_BYTES, size_bytes)
                    data = memoryview(fetch(begin, upto)).cast("B")
                    for number in run:
                        at = number * BLOCK_BYTES - begin
                        block = data[at : at + BLOCK_BYTES]
                        self._cache.put(keys[number], block)
                        blocks[number] = block
            finally:
                with self._changed:
                    self._coming.difference_update(keys[number] for number in mine)
                    self._changed.notify_all()
        first = numbers.start * BLOCK_BYTES
        whole = b"".join(blocks[number] for number in numbers) if len(numbers) > 1 else bytes(blocks[numbers.start])
        return whole[start - first : end - first]


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """Return neighbouring numbers together."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs
