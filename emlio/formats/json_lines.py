"""JSON lines: each line that is not empty is a record. Lines end with LF, or CR in a file without LF."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.contents import Contents, FieldType, sampled
from emlio.formats.each_record import EachRecord
from emlio.formats.format import Files, Format, Layout, Ranges, ShardFiles
from emlio.formats.record_form import RowForm

__all__ = ["JsonLines", "json_lines"]

_BLOCK_BYTES: Final = 4 << 20
_NEWLINE: Final = 10
_RETURN: Final = 13
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_BLANK: Final = np.isin(np.arange(256), np.frombuffer(b" \t\r\n", np.uint8))
_SAMPLED_BYTES: Final = 1 << 20
_SAMPLED_FILES: Final = 8
_SAMPLED_LINES: Final = 64
"""The limits of what is read to learn the columns."""

_EXACT: Final = 1 << 53
"""Whole numbers up to here are exact as floats."""


class JsonLines(Format):
    """See `Format`."""

    def layout(self, files: Files, options: Mapping[str, str], where: str) -> Layout:
        """See `Format`."""
        found = self.own_files(files, where)
        return Layout(
            shards=tuple(ShardFiles(name=name, files=(number,)) for name, number in found),
            schema=_sampled_schema(files, [number for _, number in found]),
        )

    def ranges(self, files: Files, shard: ShardFiles, settings: bytes) -> Ranges:
        """See `Format`."""
        (number,) = shard.files
        # A byte order mark belongs to no line.
        begin = len(_BYTE_ORDER_MARK) if files.read(number, 0, len(_BYTE_ORDER_MARK)) == _BYTE_ORDER_MARK else 0
        newlines, filled = _line_ends(files, number, begin, _NEWLINE)
        if not len(newlines):
            newlines, filled = _line_ends(files, number, begin, _RETURN)
        starts = np.concatenate([[begin], newlines + 1])
        ends = np.append(newlines, int(files.sizes[number]))
        # A line counts if it has more than blanks; the last newline begins no line.
        keep = np.diff(filled, prepend=begin) > 0
        return Ranges(starts=starts[keep], ends=ends[keep])

    def form(self, contents: Contents, fields: Sequence[str] | None) -> RowForm:
        """See `Format`."""
        return EachRecord(_read, fields)


def _line_ends(files: Files, number: int, begin: int, end: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where lines end, and how many bytes that are no blanks there are up to each end and to that of the file.

    Raises:
        DatasetError: the file grows or shrinks meanwhile.
    """
    newlines: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
    filled: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
    at = written = 0
    with files.open(number) as file:
        while block := file.read(_BLOCK_BYTES):
            octets = np.frombuffer(block, np.uint8)
            found = np.flatnonzero(octets == end)
            counts = np.cumsum(~_BLANK[octets], dtype=np.int64)
            newlines.append(found + at)
            filled.append(counts[found] + written)
            at, written = at + len(block), written + int(counts[-1])
    size = int(files.sizes[number])
    if at != size:
        raise DatasetError(f"{files.path(number)}: had {size} bytes and has {at} now: another process is changing it")
    return np.concatenate(newlines), np.concatenate([*filled, np.array([max(written, begin)], np.int64)])


def _read(view: memoryview, note: bytes) -> Mapping[str, Any]:
    try:
        parsed = msgspec.json.decode(view)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        try:
            parsed = _with_nan(bytes(view))
        except (ValueError, RecursionError):
            raise DatasetError(f"must be a line of JSON, got {bytes(view[:60])!r}: {str(error)[:200]}") from error
    if not isinstance(parsed, dict):
        raise DatasetError(f"must be a JSON object, got {bytes(view[:60])!r}")
    return {str(name): _column(value) for name, value in cast("Mapping[str, Any]", parsed).items()}


def _with_nan(line: bytes) -> Any:
    """Parse a line with NaN or Infinity, which Python writes though JSON has none."""
    if b"NaN" not in line and b"Infinity" not in line:
        raise ValueError
    return json.loads(line)


def _column(value: Any) -> Any:
    """Return lists of numbers of one type as arrays; everything else as it is."""
    if not isinstance(value, list):
        return value
    values = cast("list[Any]", value)  # type: ignore[redundant-cast]  # pyright knows no more than a list
    # Not np.array(values): it makes floats of large whole numbers, and numbers of true and false.
    kinds: set[type[Any]] = {type(one) for one in values}
    if kinds == {int} and min(values) >= -(1 << 63) and max(values) < 1 << 63:
        return np.array(values, np.int64)
    if kinds == {bool}:
        return np.array(values, np.bool_)
    if kinds in ({float}, {int, float}) and all(abs(one) <= _EXACT for one in values if type(one) is int):
        return np.array(values, np.float64)
    return values


def _sampled_schema(files: Files, numbers: Sequence[int]) -> Mapping[str, FieldType]:
    """Return the columns of the first lines of some files; other lines may have others."""
    found: dict[str, FieldType] = {}
    for number in numbers[:: -(-len(numbers) // _SAMPLED_FILES)]:
        for line in files.read(number, 0, _SAMPLED_BYTES).splitlines()[:_SAMPLED_LINES]:
            try:
                parsed = json.loads(line.removeprefix(_BYTE_ORDER_MARK))
            except (ValueError, RecursionError):
                continue  # cut off here, or said to be wrong where records are read
            if isinstance(parsed, dict):
                for name, value in cast("Mapping[str, Any]", parsed).items():
                    if value is not None:
                        found.setdefault(name, FieldType(_kind(value)))
    return sampled(found)


def _kind(value: object) -> str:
    kinds: list[tuple[type, str]] = [(bool, "bool"), (str, "str"), (int, "int64"), (float, "float64")]
    return next((name for kind, name in kinds if isinstance(value, kind)), "json")


json_lines = JsonLines(name="jsonl", words="JSON lines, an object each", extensions=(".jsonl", ".ndjson"), texts=True)
