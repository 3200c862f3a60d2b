"""A column of a dataset, collected value by value, and its bytes.

4 bytes CRC32C of the rest, little-endian | 4 bytes length of the head | head, JSON | arrays | words
"""

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from emlio.checksum import crc32c
from emlio.errors import DatasetError
from emlio.index.cache_folder import cache_folder
from emlio.index.dataset import Dataset
from emlio.planner.choice.matching import ABSENT, FLOAT, LARGE, WHOLE, Column, Numbers, Texts
from emlio.store.atomic_file import write_atomically

__all__ = ["Collected", "KeptColumns", "pack_column", "unpack_column"]

_LOG = logging.getLogger("emlio.index")
_ENDING: Final = ".column"
_MOST_FILES: Final = 64
_MOST_BYTES: Final = 32 << 30


class KeptColumns:
    """The kept columns of a dataset."""

    def __init__(self, dataset: Dataset, identity: bytes, cache_dir: Path | None) -> None:
        """See the class.

        Args:
            dataset: the dataset.
            identity: of its files.
            cache_dir: the folder of indexes, by default the user's.
        """
        self._folder = cache_folder(os.fsencode(dataset.place), cache_dir).parent / "columns"
        state = hashlib.blake2b(f"emlio.columns/2/{dataset.contents.format}/".encode(), digest_size=16)
        state.update(identity + dataset.contents.settings)
        for entry in dataset.entries:
            text = f"\0{entry.name}\0{entry.records}\0{entry.size_bytes}\0{entry.digest}"
            state.update(text.encode(errors="surrogateescape"))
        self._state = state

    def find(self, name: str) -> tuple[bool, Column | None]:
        """Return whether a column was kept, and the column: None if no record has a value."""
        path = self._path(name)
        try:
            data = path.read_bytes()
            column = unpack_column(data)
        except FileNotFoundError:
            return False, None
        except (OSError, DatasetError) as error:
            _LOG.warning("column %s is read from the records again: %s", name, error)
            return False, None
        with suppress(OSError):
            os.utime(path)  # the oldest ones are removed
        return True, column

    def keep(self, name: str, column: Column | None) -> None:
        """Keep a column. Where that is not possible it is read again the next time."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path(name), [pack_column(column)])
            self._remove_oldest()
        except OSError as error:
            _LOG.warning("column %s is not kept: %s", name, error)

    def _remove_oldest(self) -> None:
        found: list[tuple[float, int, Path]] = []
        for path in self._folder.glob(f"*{_ENDING}"):
            with suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        found.sort(reverse=True)
        total = 0
        for number, (_, size, path) in enumerate(found):
            total += size
            if number >= _MOST_FILES or (number and total > _MOST_BYTES):
                with suppress(OSError):
                    path.unlink()

    def _path(self, name: str) -> Path:
        state = self._state.copy()
        state.update(b"\0\0" + name.encode(errors="surrogateescape"))
        return self._folder / (state.hexdigest() + _ENDING)


LONGEST_TEXT: Final = 1024
"""The longest text in a column, in bytes. A longer one is not a label or a key."""

MOST_TEXTS: Final = 1 << 28
"""Bytes of the distinct texts of a column."""

_VERSION: Final = 2
_TEXT: Final = 4


class Collected:
    """The values of one column, shard by shard. Used by one thread."""

    def __init__(self, records: int) -> None:
        self._bits = np.zeros(records, np.uint64)
        self._whole, self._floats = self._bits.view(np.int64), self._bits.view(np.float64)
        self._kinds = np.full(records, ABSENT, np.uint8)
        self._words: dict[str, int] = {}
        self._words_bytes = 0
        self._unit, self._are_spans = "", False

    def put(self, record: int, value: object) -> None:
        """Add the value of a record; None, or a list of nothing, is none.

        Raises:
            DatasetError: it cannot be held; the message goes on after the column's name.
        """
        one: Any = _single(value)
        time: Any = one
        if isinstance(one, np.datetime64 | np.timedelta64):
            if np.isnat(time):
                return
            unit, factor = np.datetime_data(time.dtype)
            if self._unit not in ("", unit):
                raise DatasetError(f"must hold times of one unit to be compared, holds {self._unit} and {unit}")
            self._unit, self._are_spans = unit, isinstance(one, np.timedelta64)
            one = factor * int(time.astype(np.int64))
        if one is None:
            return
        if isinstance(one, str):
            code = self._words.get(one)
            if code is None:
                self._words_bytes += len(one)
                if self._words_bytes > MOST_TEXTS:
                    raise DatasetError(f"must have texts of at most {MOST_TEXTS >> 20} MiB together")
                code = self._words[one] = len(self._words)
            self._bits[record], kind = code, _TEXT
        elif isinstance(one, float):
            self._floats[record], kind = one, FLOAT
        elif -(2**63) <= one < 2**63:
            self._whole[record], kind = one, WHOLE
        elif one < 2**64 and one > 0:
            self._bits[record], kind = one, LARGE
        else:
            raise DatasetError(f"must hold whole numbers from -2^63 to 2^64 - 1 to be compared, holds {one}")
        self._kinds[record] = kind

    def column(self, name: str) -> Column | None:
        """Return the column; None if no record has a value.

        Raises:
            DatasetError: some values are numbers and others texts.
        """
        there = self._kinds != ABSENT
        texts = self._kinds == _TEXT
        if not there.any():
            return None
        if not texts.any():
            return Numbers(bits=self._bits, kinds=self._kinds, unit="" if self._are_spans else self._unit)
        if (texts != there).any():
            raise DatasetError(f"column {name!r} must hold numbers or texts, it has both")
        return Texts(codes=np.where(there, self._whole, -1).astype(np.int32), words=list(self._words))


def _single(given: object) -> Any:
    """Return a value as a number, a time of NumPy's or a text; None if there is none.

    Raises:
        DatasetError: it is something else.
    """
    value: Any = given
    if isinstance(value, np.ndarray):
        value = cast("npt.NDArray[Any]", value).reshape(-1)
    if isinstance(value, np.ndarray | list | tuple):
        items = cast("list[object]", value)
        if len(items) > 1:
            raise DatasetError(f"must hold single numbers or texts to be compared, holds {len(items)} values")
        value = items[0] if len(items) else None
    if isinstance(value, np.datetime64 | np.timedelta64):
        return cast("Any", value)
    if isinstance(value, np.generic):
        value = cast("Any", value.item())
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, bytes | bytearray | memoryview):
        data = cast("bytes", value)
        # Bytes that are no UTF-8 are held, as in names of files.
        value = str(data, "utf-8", "surrogateescape") if len(data) <= LONGEST_TEXT else data
    if isinstance(value, str) and len(value.encode(errors="surrogatepass")) <= LONGEST_TEXT:
        return value
    if value is None or isinstance(value, int | float):
        return value
    other: Any = value
    size = f" of {len(other):,} bytes" if isinstance(value, str | bytes | bytearray | memoryview) else ""
    raise DatasetError(
        f"must hold single numbers or texts of at most {LONGEST_TEXT >> 10} KiB to be compared, holds a value of type "
        f"{type(other).__name__}{size}"
    )


def pack_column(column: Column | None) -> bytes:
    """Return the bytes of a column."""
    head: dict[str, object] = {"version": _VERSION, "kind": "none"}
    body = b""
    if isinstance(column, Texts):
        head |= {"kind": "text", "records": len(column.codes)}
        body = column.codes.astype("<i4").tobytes() + json.dumps(list(column.words)).encode()
    elif column is not None:
        head |= {"kind": "numbers", "records": len(column.kinds), "unit": column.unit}
        body = column.bits.astype("<u8").tobytes() + column.kinds.tobytes()
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
        bits = np.frombuffer(data, "<u8", count, begin).astype(np.uint64)
        return Numbers(bits=bits, kinds=np.frombuffer(data, np.uint8, count, begin + 8 * count), unit=str(head["unit"]))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DatasetError(f"a kept column must be as it was written: {error}") from None
