"""DALI's index of a shard: lines of text.

bytes 0 to 7  the shard's size
rest          the file
"""

from itertools import pairwise

import numpy as np

from emlio.errors import DatasetError
from emlio.index.dali_index import read_dali_index
from emlio.tfrecord import FRAME_BYTES
from tests.fuzz.memory_file import memory_file
from tests.fuzz.target import Target

__all__ = ["TARGET", "fuzz"]


def fuzz(data: bytes) -> None:
    """An index is refused, or its offsets rise from 0 to the shard's size by a frame at least."""
    size_bytes, content = int.from_bytes(data[:8], "little") >> 2, data[8:]
    with memory_file(content) as path:
        offsets = read_dali_index(path, size_bytes)
    numbers = offsets.tolist()
    assert offsets.dtype == np.int64
    assert (numbers[0], numbers[-1]) == (0, size_bytes)
    assert all(after - before >= FRAME_BYTES for before, after in pairwise(numbers))


TARGET = Target(
    fuzz=fuzz,
    raises=(DatasetError,),
    tokens=(
        b"9" * 30,
        b"-1",
        b"\r",
        b"\x0b",
        b"0 16\n16 16\n",
        b"_",
    ),
)
