"""DALI's indexes of TFRecord files: text files whose lines hold a record's offset and size."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.store.atomic_file import write_atomically
from emlio.tfrecord import FRAME_BYTES

__all__ = ["dali_index_name", "find_dali_index", "read_dali_index", "write_dali_index"]

_EXTENSIONS = ("tfrecord", "tfrecords", "tfrec", "tfr")

_CHECK_RECORDS = 1 << 20
"""The number of records checked at a time, so that checking a huge index needs no huge array."""

_DALI_BYTES = 4 << 30
"""A larger text index is not read: it would describe more than 10^8 records, which no real shard
has.
"""

_DALI_BLOCK_BYTES = 1 << 20
"""The amount of text parsed at a time; parsed words take twenty times its memory."""


def _fault(offsets: npt.NDArray[np.int64], size_bytes: int) -> str | None:
    """Return why these cannot be the offsets of a file of this size, or None."""
    if int(offsets[0]) != 0:
        return f"its first offset must be 0, got {int(offsets[0])}"
    if int(offsets[-1]) != size_bytes:
        return f"its last offset must be the shard's size of {size_bytes} bytes, got {int(offsets[-1])}"
    for first in range(0, len(offsets) - 1, _CHECK_RECORDS):
        part = offsets[first : first + _CHECK_RECORDS + 1]
        # Offsets in [0, size] cannot overflow in a subtraction; others could give a plausible gap.
        sound = int(part.min()) >= 0 and int(part.max()) <= size_bytes
        gaps = np.diff(part) if sound else part
        if not sound or int(gaps.min()) < FRAME_BYTES:
            record = first + (int(np.argmin(gaps)) if sound else 0)
            return f"record {record} or a later one must be inside the file and have at least {FRAME_BYTES} bytes"
    return None


def dali_index_name(shard: str) -> str:
    """Return the name of a shard's DALI index: the file's name with the extension `.idx`."""
    stem, _, extension = shard.rpartition(".")
    return f"{stem if extension.lower() in _EXTENSIONS and stem else shard}.idx"


def find_dali_index(shard: Path) -> Path | None:
    """Find a DALI index of this shard in the usual places.

    These are the shard's folder, and folders beside or below it.
    """
    names = (dali_index_name(shard.name), f"{shard.name}.idx")
    folder = shard.parent
    folders = (folder, folder / "idx_files", folder / "idx", folder.parent / "idx_files", folder.parent / "idx")
    return next((place / name for place in folders for name in names if (place / name).is_file()), None)


def read_dali_index(path: Path, size_bytes: int) -> npt.NDArray[np.int64]:
    """Return the offsets in a DALI index, whose lines hold a record's offset and size.

    Args:
        path: the text file.
        size_bytes: the size of the shard's file.

    Raises:
        DatasetError: it does not describe a file of this size without a gap.
    """
    parts = [np.empty((0, 2), np.int64)]
    left = size_bytes // FRAME_BYTES
    try:
        with path.open("rb") as file:
            for text in _blocks_of_lines(file, path):
                parts.append(_dali_numbers(text, path))
                left -= len(parts[-1])
                if left < 0:
                    raise DatasetError(
                        f"DALI index {path}: does not match this shard: it lists more records than fit into "
                        f"{size_bytes} bytes, with at least {FRAME_BYTES} bytes each"
                    )
    except OSError as error:
        raise DatasetError(f"DALI index {path}: cannot be read: {error.strerror or error}") from error
    numbers = np.concatenate(parts)
    offsets = np.append(numbers[:, 0], size_bytes)
    if len(numbers) == 0 and size_bytes:
        raise DatasetError(f"DALI index {path}: must describe {size_bytes} bytes, describes none")
    reason = _fault(offsets, size_bytes)
    if reason is None:
        gaps = np.flatnonzero(np.diff(offsets) != numbers[:, 1])
        if len(gaps):
            record = int(gaps[0])
            needed, given = int(offsets[record + 1] - offsets[record]), int(numbers[record, 1])
            reason = f"record {record} must have {needed} bytes up to the next one or the file's end, got {given}"
    if reason is not None:
        raise DatasetError(f"DALI index {path}: does not match this shard: {reason}")
    return offsets


def _blocks_of_lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yield the file in pieces of whole lines, each at most two blocks long."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    rest = b""
    while size <= _DALI_BYTES and len(rest) <= _DALI_BLOCK_BYTES:
        block = file.read(_DALI_BLOCK_BYTES)
        if not block:
            yield rest
            return
        lines, newline, rest = (rest + block).rpartition(b"\n")
        if newline:
            yield lines + newline
    raise DatasetError(f"DALI index {path}: every line must be an offset and a size")


def _dali_numbers(text: bytes, path: Path) -> npt.NDArray[np.int64]:
    """Return offsets and sizes, one row per line."""
    words = text.split()
    if len(words) % 2 or len(words) != 2 * len(text.splitlines()):
        raise DatasetError(f"DALI index {path}: every line must be an offset and a size")
    try:
        return np.array([int(word) for word in words], dtype=np.int64).reshape(-1, 2)
    except (ValueError, OverflowError) as error:
        raise DatasetError(f"DALI index {path}: every line must be an offset and a size in bytes: {error}") from error


def write_dali_index(path: Path, offsets: npt.NDArray[np.int64]) -> None:
    """Write the index for DALI's TFRecord reader atomically.

    Raises:
        OSError: the folder cannot be written.
    """
    starts: list[int] = offsets[:-1].tolist()
    sizes: list[int] = np.diff(offsets).tolist()
    write_atomically(path, (f"{start} {size}\n".encode() for start, size in zip(starts, sizes, strict=True)))
