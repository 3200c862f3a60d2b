"""The two kinds of index file.

byte 0        bit 0: DALI's lines of text; bit 1: a right .npy header before what follows
bytes 1 to 8  the shard's size
rest          the file
"""

import io
from itertools import pairwise

import numpy as np

from emlio.errors import DatasetError
from emlio.shards.tfrecord.index import open_index, read_dali_index
from emlio.tfrecord import FRAME_BYTES
from tests.fuzz.memory_file import memory_file
from tests.fuzz.target import Target

__all__ = ["TARGET", "fuzz"]


def fuzz(data: bytes) -> None:
    """An index is refused, or its offsets rise from 0 to the shard's size by a frame at least."""
    flags, size_bytes, content = data[0] if data else 0, int.from_bytes(data[1:9], "little") >> 2, data[9:]
    if flags & 2 and not flags & 1:
        header = io.BytesIO()
        array = np.frombuffer(content[: len(content) // 8 * 8], "<i8")
        np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
        content = header.getvalue() + content
    with memory_file(content) as path:
        offsets = read_dali_index(path, size_bytes) if flags & 1 else open_index(path, size_bytes)
    numbers = offsets.tolist()
    assert offsets.dtype == np.int64
    assert (numbers[0], numbers[-1]) == (0, size_bytes)
    assert all(after - before >= FRAME_BYTES for before, after in pairwise(numbers))


TARGET = Target(
    fuzz=fuzz,
    raises=(DatasetError,),
    tokens=(
        b"\x93NUMPY\x01\x00",
        b"'shape': (999999999999999999,)",
        b"9" * 30,
        b"-1",
        b"\r",
        b"\x0b",
        b"0 16\n16 16\n",
        b"_",
    ),
)
