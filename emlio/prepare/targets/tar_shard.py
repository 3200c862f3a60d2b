"""A shard that is a tar, while it is written.

Covers: the end mark, reading the file back. Does not cover: the members of a record
(emlio.prepare.targets.tar_record), the file (emlio.prepare.targets.shard_file).
"""

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from emlio.checksum import crc32c
from emlio.errors import DatasetError
from emlio.prepare.targets.record import Record
from emlio.prepare.targets.shard_file import ShardFile

__all__ = ["TarShard"]

_BLOCK_BYTES: Final = 1 << 20
_END_BYTES: Final = 2 * tarfile.BLOCKSIZE


class TarShard:
    """Appends records to a file, which its owner closes. It belongs to one thread.

    Attributes:
        records: how many it holds.
    """

    def __init__(self, file: ShardFile) -> None:
        self.records = 0
        self._file = file
        self._crc = 0

    def append(self, record: Record) -> int:
        """Add one record and return its size in the file.

        The record's parts must not change until `commit`.

        Raises:
            DatasetError: the disk is full or broken.
        """
        size = 0
        for part in record.parts:
            size += len(memoryview(part))
            self._crc = crc32c(part, self._crc)
        self._file.append(record.parts, size)
        self.records += 1
        return size

    def commit(self, *, verify: bool, advance: Callable[[int], None]) -> None:
        """Write the end mark and finish the file, after it is read back if requested.

        Raises:
            DatasetError: the disk is full or broken, or holds other bytes than were written.
        """
        # As Python's module and GNU tar do it: two empty blocks, and the file ends with a whole record of tapes.
        end = bytes(_END_BYTES + -(self._file.size_bytes + _END_BYTES) % tarfile.RECORDSIZE)
        self._crc = crc32c(end, self._crc)
        self._file.append((end,), len(end))
        self._file.commit((lambda temporary: self._check(temporary, advance)) if verify else None)

    def _check(self, temporary: Path, advance: Callable[[int], None]) -> None:
        found = size = 0
        try:
            with temporary.open("rb", buffering=0) as file:
                while block := file.read(_BLOCK_BYTES):
                    found = crc32c(block, found)
                    size += len(block)
                    advance(len(block))
        except OSError as error:
            raise DatasetError(f"{self._file.path}: cannot be read back: {error.strerror or error}") from error
        if (found, size) != (self._crc, self._file.size_bytes):
            raise DatasetError(
                f"{self._file.path}: must read back with {self._file.size_bytes} bytes and the CRC32C {self._crc:#010x}, "
                f"has {size} and {found:#010x}. The disk or the memory of this machine may be faulty"
            )
