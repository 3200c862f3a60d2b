"""A shard of TFRecord's form, while it is written."""

import struct
from array import array
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from emlio.checksum import crc32c, mask, masked_crc32c
from emlio.errors import DatasetError
from emlio.formats.tfrecord.scan import Framing, scan
from emlio.formats.tfrecord.verify import verify_records
from emlio.prepare.targets.shard_file import ShardFile
from emlio.prepare.targets.tally import Record
from emlio.tfrecord import FRAME_BYTES

__all__ = ["TfrecordShard"]

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")


@lru_cache(maxsize=65536)
def _header(length: int) -> bytes:
    packed = _LENGTH.pack(length)
    return packed + _CRC.pack(masked_crc32c(packed))


class TfrecordShard:
    """Frames records and appends them to a file, which its owner closes. It belongs to one thread."""

    def __init__(self, file: ShardFile) -> None:
        self._file = file
        # Twelve bytes a record; lists of numbers would take ten times that.
        self._starts = array("q")
        self._crcs = array("I")

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
        self._starts.append(self._file.size_bytes)
        self._crcs.append(masked)
        self._file.append((_header(length), *record.parts, _CRC.pack(masked)), length + FRAME_BYTES)
        return length + FRAME_BYTES

    def commit(self, *, verify: bool, advance: Callable[[int], None]) -> Framing:
        """Finish the file, after it is read back if requested.

        Raises:
            DatasetError: the disk is full or broken, or holds other bytes than were written.
        """
        framing = Framing(
            offsets=np.append(np.array(self._starts, dtype=np.int64), self._file.size_bytes),
            data_crcs=np.array(self._crcs, dtype=np.uint32),
        )

        def check(temporary: Path) -> None:
            found = scan(temporary)
            same = np.array_equal(found.offsets, framing.offsets) and np.array_equal(found.data_crcs, framing.data_crcs)
            if not same:
                raise DatasetError(
                    f"{self._file.path}: the {framing.records} records just written do not read back correctly, "
                    f"{found.records} were found. The disk or the memory of this machine may be faulty"
                )
            verify_records(temporary, framing.offsets, advance)

        self._file.commit(check if verify else None)
        return framing
