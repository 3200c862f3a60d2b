"""Blocks kept on a local disk, up to a limit; the least recently used are dropped.

    NUMBER.data     blocks one after the other
    NUMBER.index    one entry for each: key, offset, length, CRC32C of the block, CRC32C of the entry

Files are only appended to, and dropped as a whole, a 128th of the limit at a time. Nothing is synced.
After a crash an entry may be torn, or its block may not have reached the disk: both are found by
their checksums, and such a block is read from its source again.
"""

import fcntl
import hashlib
import logging
import os
import struct
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Condition, Lock
from typing import Final

from typing_extensions import Buffer

from emlio.checksum import crc32c
from emlio.errors import ClosedError, ConfigError

__all__ = ["BLOCK_BYTES", "LEAST_CACHE_BYTES", "BlockCache", "CachedBlocks"]

BLOCK_BYTES: Final = 256 << 10

Fetch = Callable[[int, int], Buffer]


_LOG = logging.getLogger(__name__)

LEAST_CACHE_BYTES: Final = 64 << 20
_PARTS: Final = 128
_MOST_SEGMENTS: Final = 2 * _PARTS
"""One open descriptor each. More than the parts, as a process that ends leaves its last one unfilled."""

_ENTRY: Final = struct.Struct("<16sQII")
_CRC: Final = struct.Struct("<I")
_ENTRY_BYTES: Final = _ENTRY.size + _CRC.size
_TOUCH_EVERY_S: Final = 60.0


class _Segment:
    """One pair of files. That of the blocks is open as long as something refers to the segment."""

    def __init__(self, folder: Path, number: int) -> None:
        self.number = number
        self.data_path = folder / f"{number:08d}.data"
        self.index_path = folder / f"{number:08d}.index"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self.data = os.open(self.data_path, flags, 0o600)
        weakref.finalize(self, os.close, self.data).atexit = False
        index = os.open(self.index_path, flags, 0o600)
        self.size_bytes = os.fstat(self.data).st_size + os.fstat(index).st_size
        os.close(index)
        self.end = os.fstat(self.data).st_size
        self.keys: set[bytes] = set()
        self.used_s = os.fstat(self.data).st_mtime
        self.touched_s = 0.0

    def add_entry(self, entry: bytes) -> None:
        """Append to the index. Of a segment that was dropped meanwhile there is none any more."""
        try:
            index = os.open(self.index_path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            os.write(index, entry)
        finally:
            os.close(index)


class BlockCache:
    """Blocks by key. Thread-safe; used by one process at a time.

    Attributes:
        folder: where its files are.
        most_bytes: the limit of their sizes.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        """Open a cache, and find what it holds.

        Args:
            folder: made if it does not exist; nothing else may lie in it.
            most_bytes: the limit of its files' sizes.

        Raises:
            ConfigError: the folder cannot be used, or another process uses it.
        """
        if most_bytes < LEAST_CACHE_BYTES:
            raise ConfigError(f"a cache of objects must have at least {LEAST_CACHE_BYTES} bytes, got {most_bytes}")
        self.folder = folder
        self.most_bytes = most_bytes
        self._segment_bytes = most_bytes // _PARTS
        self._lock = Lock()
        self._found: dict[bytes, tuple[_Segment, int, int, int]] = {}
        self._segments: dict[int, _Segment] = {}
        self._open: _Segment | None = None
        self._refused = self._closed = False
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock_file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"the cache of objects {folder} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for number in self._numbers():
                self._load(_Segment(folder, number))
            self._make_room(0)
        except OSError as error:
            os.close(self._lock_file)
            reason = "another process uses it" if isinstance(error, BlockingIOError) else error.strerror
            raise ConfigError(f"the cache of objects {folder} cannot be used: {reason}") from error

    @property
    def size_bytes(self) -> int:
        """The size of its files."""
        with self._lock:
            return sum(segment.size_bytes for segment in self._segments.values())

    def get(self, key: bytes) -> bytes | None:
        """Return the block of this key; None if it is not there, or damaged."""
        with self._lock:
            entry = self._found.get(key)
            if entry is None or self._closed:
                return None
            segment, offset, length, crc = entry
            segment.used_s = time.time()
            touch = segment.used_s - segment.touched_s >= _TOUCH_EVERY_S
            if touch:
                segment.touched_s = segment.used_s
        try:
            data = os.pread(segment.data, length, offset)
            if touch:
                os.utime(segment.data)  # the order of use outlives this process
        except OSError:
            data = b""
        if len(data) == length and crc32c(data) == crc:
            return data
        with self._lock:
            if self._found.get(key) == entry:
                del self._found[key]
        return None

    def put(self, key: bytes, data: Buffer) -> None:
        """Keep a block. If the disk refuses, no more are kept."""
        view = memoryview(data).cast("B")
        length = len(view)
        try:
            with self._lock:
                if self._refused or self._closed or key in self._found or length > self._segment_bytes // 2:
                    return
                segment = self._room_for(length + _ENTRY_BYTES)
                offset, segment.end = segment.end, segment.end + length
                segment.size_bytes += length + _ENTRY_BYTES
            done = 0
            while done < length:
                done += os.pwrite(segment.data, view[done:], offset + done)
            crc = crc32c(view)
            entry = _ENTRY.pack(key, offset, length, crc)
            segment.add_entry(entry + _CRC.pack(crc32c(entry)))
        except OSError as error:
            self._refused = True
            _LOG.warning("the cache of objects %s keeps no more: %s", self.folder, error.strerror)
            return
        with self._lock:
            if self._segments.get(segment.number) is segment:  # else it was dropped meanwhile
                self._found[key] = (segment, offset, length, crc)
                segment.keys.add(key)

    def _numbers(self) -> list[int]:
        """Return the numbers of the segments; those beyond the limit are removed unopened."""
        paths = [path for path in self.folder.glob("*.data") if path.stem.isdecimal()]
        paths.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for path in paths[_MOST_SEGMENTS:]:
            path.with_suffix(".index").unlink(missing_ok=True)
            path.unlink(missing_ok=True)
        return sorted(int(path.stem) for path in paths[:_MOST_SEGMENTS])

    def _load(self, segment: _Segment) -> None:
        """Take over the entries of a segment; stop at the first that is torn."""
        data_bytes = os.fstat(segment.data).st_size
        with open(segment.index_path, "rb") as file:
            entries = file.read()
        for at in range(0, len(entries) - _ENTRY_BYTES + 1, _ENTRY_BYTES):
            entry = entries[at : at + _ENTRY.size]
            if _CRC.unpack_from(entries, at + _ENTRY.size)[0] != crc32c(entry):
                break
            key, offset, length, crc = _ENTRY.unpack(entry)
            if offset + length <= data_bytes:
                self._found[key] = (segment, offset, length, crc)
                segment.keys.add(key)
        self._segments[segment.number] = segment

    # ---- under the lock -------------------------------------------------------------------------------------------

    def _room_for(self, size_bytes: int) -> _Segment:
        """Return the segment to append to."""
        segment = self._open
        if segment is None or segment.size_bytes + size_bytes > self._segment_bytes:
            self._open = None
            self._make_room(self._segment_bytes)
            segment = _Segment(self.folder, max(self._segments, default=0) + 1)
            segment.used_s = time.time()
            self._segments[segment.number] = self._open = segment
        return segment

    def _make_room(self, more_bytes: int) -> None:
        """Drop the segments that were not used for longest."""
        held = sum(segment.size_bytes for segment in self._segments.values())
        for segment in sorted(self._segments.values(), key=lambda one: one.used_s):
            if held + more_bytes <= self.most_bytes and len(self._segments) < _MOST_SEGMENTS:
                break
            held -= segment.size_bytes
            del self._segments[segment.number]
            for key in segment.keys:
                if (entry := self._found.get(key)) is not None and entry[0] is segment:
                    del self._found[key]
            segment.index_path.unlink(missing_ok=True)
            segment.data_path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files; blocks stay for the next process. Closing again does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._found.clear()
            self._segments.clear()
            self._open = None
        os.close(self._lock_file)

    def __enter__(self) -> "BlockCache":
        if self._closed:
            raise ClosedError("the cache of objects is closed")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class CachedBlocks:
    """Reads ranges of objects by way of a cache. Thread-safe; no block is requested twice at once.

    An object is divided into blocks of 256 KiB. A range that is not in the cache is read with the rest of
    its blocks, so that other records of the same blocks need no request. A smaller block would make more
    entries and more requests; a larger one reads more around a record that is needed alone.
    """

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
