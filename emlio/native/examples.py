"""Finding features in tf.train.Examples, and reading their numbers, in the C library.

Covers: the calls. Does not cover: records in an unusual form, which are named as odd; error texts.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.native.library import library_for

__all__ = ["ONE_AFTER_THE_OTHER", "ExampleSpans", "scan_examples", "write_numbers"]

_Ints = npt.NDArray[np.int64]
_Octets = npt.NDArray[np.uint8]
_Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float32]

ONE_AFTER_THE_OTHER: Final = -1
_LEFT_OUT: Final = -2
"""Widths that are no width."""

_FLOATS: Final = 0x12
"""The tag of a list of floats."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExampleSpans:
    """The positions of the values of features in many records.

    Attributes:
        kinds: (features,), the tag of each feature's list; 0 if all records are odd.
        lows: (records, features), start of the value (bytes) or of the packed run (numbers).
        highs: one past its end.
        counts: the number of its values.
        odd: (records,), whether the record has another form; what is told of its values then means nothing.
    """

    kinds: _Octets
    lows: _Ints
    highs: _Ints
    counts: _Ints
    odd: _Octets


def scan_examples(
    buffer: memoryview, starts: _Ints, ends: _Ints, names: Sequence[bytes], *, closed: bool
) -> ExampleSpans | None:
    """Find features in the records buffer[starts[i]:ends[i]].

    Args:
        buffer: bytes.
        starts: start of each record.
        ends: one past its last byte.
        names: the requested features.
        closed: whether a record with other features is odd.

    Returns:
        None without the library, and if a record does not lie in the buffer.
    """
    library = library_for(len(buffer))
    if library is None or not len(buffer) or not names or starts.shape != ends.shape or sys.byteorder != "little":
        return None
    data = np.frombuffer(buffer, np.uint8)
    starts, ends = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(ends, np.int64)
    joined = np.frombuffer(b"".join(names) or b"\0", np.uint8)
    name_ends = np.cumsum([len(name) for name in names], dtype=np.int64)
    kinds, found = np.empty((2, len(names)), np.uint8)
    lows, highs, counts = np.empty((3, len(starts), len(names)), np.int64)
    odd = np.empty(len(starts), np.uint8)
    result = library.emlio_scan_examples(
        data.ctypes.data,
        len(data),
        starts.ctypes.data,
        ends.ctypes.data,
        len(starts),
        joined.ctypes.data,
        name_ends.ctypes.data,
        len(names),
        closed,
        *(each.ctypes.data for each in (kinds, found, lows, highs, counts, odd)),
    )
    return None if result < 0 else ExampleSpans(kinds=kinds, lows=lows, highs=highs, counts=counts, odd=odd)


def write_numbers(
    buffer: memoryview, spans: ExampleSpans, slots: _Ints, outs: Sequence[tuple[int, _Numbers] | None]
) -> bool:
    """Write the numbers of the records that are not odd.

    Args:
        buffer: as given to `scan_examples`.
        spans: its result.
        slots: the row of each record.
        outs: for each feature its width and the contiguous array that gets its numbers: one row of this width for each
            slot; or all numbers in the order of the records, with the width `ONE_AFTER_THE_OTHER`. None for no array.

    Returns:
        False without the library, and if a number is malformed or anything does not fit. What the arrays hold then means
        nothing.
    """
    library = library_for(len(buffer))
    records, features = spans.lows.shape
    if library is None or slots.shape != (records,) or len(outs) != features:
        return False
    widths = np.full(features, _LEFT_OUT, np.int64)
    addresses, heights, written = np.zeros((3, features), np.int64)
    for feature, out in enumerate(outs):
        if out is None:
            continue
        widths[feature], array = out
        wanted = np.float32 if spans.kinds[feature] == _FLOATS else np.int64
        if array.dtype != wanted or not array.flags.c_contiguous or not array.flags.writeable:
            return False
        addresses[feature] = array.ctypes.data
        width = int(widths[feature])
        heights[feature] = array.size if width == ONE_AFTER_THE_OTHER else len(array)
        if width >= 0 and array.shape != (len(array), width):
            return False
    data = np.frombuffer(buffer, np.uint8)
    slots = np.ascontiguousarray(slots, np.int64)
    return not library.emlio_example_numbers(
        data.ctypes.data,
        len(data),
        *(each.ctypes.data for each in (spans.lows, spans.highs, spans.counts, spans.odd, slots)),
        records,
        spans.kinds.ctypes.data,
        features,
        *(each.ctypes.data for each in (addresses, heights, widths, written)),
    )
