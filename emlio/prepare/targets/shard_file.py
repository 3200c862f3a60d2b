"""A shard file that is written atomically.

Covers: framing records, writing them in large pieces, disk errors, reading the file back. Does not
cover: the index and the mapping beside it (emlio.prepare.targets.shard_set).
"""

import os
import secrets
import shutil
import struct
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from typing_extensions import Buffer

from emlio.checksum import crc32c, mask, masked_crc32c
from emlio.errors import DatasetError
from emlio.prepare.sources.record_source import Record
from emlio.shards.tfrecord.scan import Framing, scan
from emlio.shards.tfrecord.verify import verify_records
from emlio.tfrecord import FRAME_BYTES
from emlio.units import format_size

__all__ = ["ShardFile", "disk_error"]

_WRITE_BYTES = 1 << 20
_WRITE_PIECES = 1000
"""The kernel accepts at most 1024 pieces per call."""

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")


def disk_error(path: Path, needed_bytes: int, error: OSError) -> DatasetError:
    """Return the error for a file that cannot be written."""
    try:
        free = format_size(shutil.disk_usage(path.parent).free)
    except OSError:
        free = "an unknown amount"
    return DatasetError(
        f"{path}: cannot be written: {error.strerror or error}. It needs about {needed_bytes} bytes "
        f"({format_size(needed_bytes)}), its file system has {free} free. Free some space and run the same command "
        "again to continue"
    )


@lru_cache(maxsize=65536)
def _header(length: int) -> bytes:
    packed = _LENGTH.pack(length)
    return packed + _CRC.pack(masked_crc32c(packed))


class ShardFile:
    """A shard under a temporary name. It belongs to one thread.

    `commit` gives the file its final name; closing it without a commit removes it.
    """

    def __init__(self, path: Path, expected_bytes: int) -> None:
        self._path = path
        self._expected_bytes = expected_bytes
        # The same form as in emlio.shards.files.atomic_file: hidden, and recognised by the clean-up after
        # a killed process.
        self._temporary = path.parent / f".{path.name}.{secrets.token_hex(6)}.tmp"
        self._pieces: list[Buffer] = []
        self._waiting_bytes = 0
        self._size_bytes = 0
        self._starts: list[int] = []
        self._crcs: list[int] = []
        try:
            self._fd = os.open(self._temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise disk_error(path, expected_bytes, error) from error

    def append(self, record: Record) -> int:
        """Add one record and return its size in the file.

        The record's parts must not change until `commit`.

        Raises:
            DatasetError: the disk is full or broken.
        """
        length = crc = 0
        for part in record.parts:
            length += len(memoryview(part))
            crc = crc32c(part, crc)
        masked = mask(crc)
        self._starts.append(self._size_bytes)
        self._crcs.append(masked)
        self._pieces += (_header(length), *record.parts, _CRC.pack(masked))
        self._size_bytes += length + FRAME_BYTES
        self._waiting_bytes += length + FRAME_BYTES
        if self._waiting_bytes >= _WRITE_BYTES or len(self._pieces) >= _WRITE_PIECES:
            self._write_out()
        return length + FRAME_BYTES

    def commit(self, *, verify: bool, advance: Callable[[int], None]) -> Framing:
        """Sync the file to disk, read it back if requested, and give it its final name.

        Raises:
            DatasetError: the disk is full or broken, or holds other bytes than were written.
        """
        self._write_out()
        framing = Framing(
            offsets=np.array([*self._starts, self._size_bytes], dtype=np.int64),
            data_crcs=np.array(self._crcs, dtype=np.uint32),
        )
        try:
            os.fsync(self._fd)
            # Otherwise reading back would check the page cache, not the disk.
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise disk_error(self._path, self._expected_bytes, error) from error
        if verify:
            self._read_back(framing, advance)
        try:
            self._temporary.replace(self._path)
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)  # otherwise the name may be lost in a power cut, but not the mapping beside it
            finally:
                os.close(folder)
        except OSError as error:
            raise disk_error(self._path, self._expected_bytes, error) from error
        return framing

    def close(self) -> None:
        """Close the file, and remove it if it was not committed. Closing again does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._pieces.clear()
            self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_out(self) -> None:
        pieces = [memoryview(piece) for piece in self._pieces]
        self._pieces.clear()
        self._waiting_bytes = 0
        try:
            while pieces:
                written = os.writev(self._fd, pieces[:_WRITE_PIECES])
                done = 0
                while done < len(pieces) and written >= len(pieces[done]):
                    written -= len(pieces[done])
                    done += 1
                del pieces[:done]
                if written:
                    pieces[0] = pieces[0][written:]
        except OSError as error:
            raise disk_error(self._path, self._expected_bytes, error) from error

    def _read_back(self, framing: Framing, advance: Callable[[int], None]) -> None:
        found = scan(self._temporary)
        same = np.array_equal(found.offsets, framing.offsets) and np.array_equal(found.data_crcs, framing.data_crcs)
        if not same:
            raise DatasetError(
                f"{self._path}: the {framing.records} records just written do not read back correctly, "
                f"{found.records} were found. The disk or the memory of this machine may be faulty"
            )
        verify_records(self._temporary, framing.offsets, advance)
