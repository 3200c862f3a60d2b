"""JSON lines: each line that is not empty is a record.

Covers: finding lines, parsing them. Does not cover: compressed files.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec
import numpy as np

from emlio.errors import DatasetError
from emlio.formats.contents import Contents, FieldType
from emlio.formats.each_record import EachRecord
from emlio.formats.format import Files, Layout, Ranges, ShardFiles
from emlio.formats.record_form import RecordForm
from emlio.formats.whole_file import mostly

__all__ = ["JsonLines", "json_lines"]

_EXTENSIONS: Final = (".jsonl", ".ndjson")
_BLOCK_BYTES: Final = 4 << 20
_NEWLINE: Final = 10
_BLANK: Final = np.isin(np.arange(256), np.frombuffer(b" \t\r\n", np.uint8))
_SAMPLED_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLines:
    """See `Format`.

    Attributes:
        name: see `Format`.
        words: see `Format`.
        options: see `Format`.
    """

    name: str = "jsonl"
    words: str = "JSON lines, an object each"
    options: Mapping[str, str] = field(default_factory=dict[str, str])

    def claims(self, files: Files) -> bool:
        """See `Format`."""
        return mostly(files, *_EXTENSIONS)

    def layout(self, files: Files, options: Mapping[str, str], where: str) -> Layout:
        """See `Format`."""
        found = sorted((name, number) for number, name in enumerate(files.names) if name.lower().endswith(_EXTENSIONS))
        if not found:
            raise DatasetError(f"dataset directory {where}: must hold .jsonl files, holds none")
        return Layout(
            shards=tuple(ShardFiles(name=name, files=(number,)) for name, number in found),
            schema=_first_line_schema(files, [number for _, number in found]),
        )

    def ranges(self, files: Files, shard: ShardFiles, settings: bytes) -> Ranges:
        """See `Format`."""
        (number,) = shard.files
        newlines: list[Any] = [np.array([-1], np.int64)]
        blanks: list[Any] = []
        size, at = int(files.sizes[number]), 0
        with files.open(number) as file:
            while block := file.read(_BLOCK_BYTES):
                octets = np.frombuffer(block, np.uint8)
                newlines.append(np.flatnonzero(octets == _NEWLINE) + at)
                blanks.append(_BLANK[octets])
                at += len(block)
        if at != size:
            raise DatasetError(f"{shard.name}: had {size} bytes and has {at} now: another process is changing it")
        starts = np.concatenate(newlines) + 1
        ends = np.append(starts[1:] - 1, size)
        # A line counts if it has more than blanks; the last newline begins no line.
        filled = np.concatenate(([0], np.cumsum(~np.concatenate([*blanks, np.ones(0, np.bool_)]))))
        keep = filled[ends] > filled[starts]
        return Ranges(starts=starts[keep], ends=ends[keep])

    def form(self, contents: Contents, fields: Sequence[str] | None) -> RecordForm:
        """See `Format`."""
        return EachRecord(_read, fields)


def _read(view: memoryview, note: bytes) -> Mapping[str, Any]:
    try:
        parsed = msgspec.json.decode(view)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DatasetError(f"must be a line of JSON, got {bytes(view[:60])!r}: {str(error)[:200]}") from error
    if not isinstance(parsed, dict):
        raise DatasetError(f"must be a JSON object, got {bytes(view[:60])!r}")
    return {str(name): _column(value) for name, value in cast("Mapping[str, Any]", parsed).items()}


def _column(value: Any) -> Any:
    """Return lists of numbers as arrays; everything else as it is."""
    if not isinstance(value, list):
        return value
    values = cast("list[Any]", value)  # type: ignore[redundant-cast]  # pyright knows no more than a list
    if values and all(isinstance(one, int | float) for one in values):
        try:
            return np.array(values)
        except OverflowError:
            return values
    return values


def _first_line_schema(files: Files, numbers: Sequence[int]) -> Mapping[str, FieldType]:
    for number in numbers:
        line = files.read(number, 0, _SAMPLED_BYTES).split(b"\n", 1)[0]
        try:
            parsed = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(parsed, dict):
            members = cast("Mapping[str, Any]", parsed)
            return {name: FieldType(_kind(value)) for name, value in members.items()}
    return {}


def _kind(value: object) -> str:
    kinds: list[tuple[type, str]] = [(bool, "bool"), (str, "str"), (int, "int64"), (float, "float64")]
    return next((name for kind, name in kinds if isinstance(value, kind)), "json")


json_lines = JsonLines()
