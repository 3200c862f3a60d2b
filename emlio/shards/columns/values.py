"""A column of a dataset, collected value by value, and its bytes.

    4 bytes CRC32C of the rest, little-endian | 4 bytes length of the head | head, JSON | arrays | words

Covers: numbers and texts of records in order, packing and checking. Does not cover: reading records (features.py), where the
bytes lie (kept.py).
"""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from emlio.checksum import crc32c
from emlio.errors import DatasetError
from emlio.planner.choice.matching import Column, Numbers, Texts

__all__ = ["LONGEST_TEXT", "MOST_TEXTS", "Collected", "pack_column", "unpack_column"]

LONGEST_TEXT: Final = 1024
"""The longest text in a column, in bytes. A longer one is not a label or a key."""

MOST_TEXTS: Final = 1 << 28
"""Bytes of the distinct texts of a column."""

_VERSION: Final = 1


class Collected:
    """The values of one column, shard by shard. Used by one thread."""

    def __init__(self, records: int) -> None:
        self._numbers = np.zeros(records, np.float64)
        self._whole = np.zeros(records, np.int64)
        self._codes = np.full(records, -1, np.int32)
        self._present = np.zeros(records, np.bool_)
        self._words: dict[str, int] = {}
        self._words_bytes = 0
        self._kinds: set[str] = set()

    def put(self, record: int, value: object) -> None:
        """Add the value of a record; nothing if it is no single number or short text.

        Raises:
            DatasetError: texts have too many bytes.
        """
        one = _single(value)
        if isinstance(one, str):
            code = self._words.get(one)
            if code is None:
                self._words_bytes += len(one)
                if self._words_bytes > MOST_TEXTS:
                    raise DatasetError(f"the texts of a column must have at most {MOST_TEXTS >> 20} MiB together")
                code = self._words[one] = len(self._words)
            self._codes[record] = code
            self._kinds.add("text")
        elif isinstance(one, int):
            if not -(2**63) <= one < 2**63:
                return
            self._whole[record] = self._numbers[record] = one
            self._kinds.add("int")
        elif isinstance(one, float):
            self._numbers[record] = one
            self._kinds.add("float")
        else:
            return
        self._present[record] = True

    def column(self, name: str) -> Column | None:
        """Return the column; None if no record has a value.

        Raises:
            DatasetError: some values are numbers and others texts.
        """
        if not self._kinds:
            return None
        if "text" in self._kinds:
            if len(self._kinds) > 1:
                raise DatasetError(f"column {name!r} must hold numbers or texts, it has both")
            return Texts(codes=self._codes, words=list(self._words))
        absent = None if self._present.all() else ~self._present
        return Numbers(values=self._numbers if "float" in self._kinds else self._whole, absent=absent)


def _single(given: object) -> int | float | str | None:
    """Return a value as a number or a text; None if it is neither."""
    value: Any = given
    if isinstance(value, np.ndarray):
        array = cast("npt.NDArray[Any]", value)
        value = array.reshape(-1)[0] if array.size == 1 else None
    elif isinstance(value, list | tuple):
        items = cast("list[object]", value)
        value = items[0] if len(items) == 1 else None
    if isinstance(value, np.generic):
        value = cast("Any", value.item())
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, bytes | bytearray | memoryview):
        data = cast("bytes", value)
        if len(data) > LONGEST_TEXT:
            return None
        try:
            return bytes(data).decode()
        except UnicodeDecodeError:
            return None
    if isinstance(value, str):
        return value if len(value.encode(errors="replace")) <= LONGEST_TEXT else None
    return value if isinstance(value, int | float) else None


def pack_column(column: Column | None) -> bytes:
    """Return the bytes of a column."""
    head: dict[str, object] = {"version": _VERSION, "kind": "none"}
    body = b""
    if isinstance(column, Texts):
        body = column.codes.astype("<i4").tobytes()
        words = json.dumps(list(column.words)).encode()
        head |= {"kind": "text", "records": len(column.codes)}
        body += words
    elif column is not None:
        kind = "<i8" if column.values.dtype == np.int64 else "<f8"
        body = column.values.astype(kind).tobytes()
        head |= {"kind": kind, "records": len(column.values), "absent": column.absent is not None}
        if column.absent is not None:
            body += np.packbits(column.absent, bitorder="little").tobytes()
    encoded = json.dumps(head).encode()
    rest = len(encoded).to_bytes(4, "little") + encoded + body
    return crc32c(rest).to_bytes(4, "little") + rest


def unpack_column(data: bytes) -> Column | None:
    """Return the column that `pack_column` packed.

    Raises:
        DatasetError: the bytes are damaged, or of another version.
    """
    try:
        if int.from_bytes(data[:4], "little") != crc32c(memoryview(data)[4:]):
            raise ValueError("another checksum")
        begin = 8 + int.from_bytes(data[4:8], "little")
        head: Mapping[str, Any] = json.loads(data[8:begin])
        if head["version"] != _VERSION:
            raise ValueError("another version")
        if head["kind"] == "none":
            return None
        count = int(head["records"])
        if head["kind"] == "text":
            codes = np.frombuffer(data, "<i4", count, begin).astype(np.int32)
            return Texts(codes=codes, words=[str(word) for word in json.loads(data[begin + 4 * count :])])
        values = np.frombuffer(data, head["kind"], count, begin)
        absent = None
        if head["absent"]:
            packed = np.frombuffer(data, np.uint8, -1, begin + 8 * count)
            absent = np.unpackbits(packed, count=count, bitorder="little").astype(np.bool_)
        return Numbers(values=values.astype(values.dtype.newbyteorder("=")), absent=absent)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DatasetError(f"a kept column must be as it was written: {error}") from None
