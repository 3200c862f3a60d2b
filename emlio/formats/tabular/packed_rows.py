"""Rows of tables as the bytes that are sent: fixed columns first, then those whose lengths differ.

    flags, a bit a column: set if the value is null | for each column, in order: its numbers, or its
    length in 4 bytes | the bytes of the columns that have lengths

All numbers are little-endian, without gaps. A null has numbers of 0, or no bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.contents import FieldType

__all__ = ["IMAGE_NAMES", "LABEL_NAMES", "PackedColumn", "PackedColumns", "row_reader"]

IMAGE_NAMES: Final = ("image", "img", "jpg", "jpeg", "png", "webp", "image.bytes", "img.bytes")
LABEL_NAMES: Final = ("label", "labels", "cls", "class", "target", "fine_label")
"""Columns of these names are taken for an encoded image and its label."""

_NUMBERS: Final = "?bhilqBHILQefdmM"
"""The types of NumPy that a column may have, as `dtype.char`."""


class PackedColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a table.

    Attributes:
        name: its name; a part of a struct has the struct's name, a dot and its own.
        kind: "numbers" that are as many in each row, "array" for rows of different lengths, "bytes"
            or "str".
        dtype: the type of its numbers, as NumPy writes it.
        length: how many numbers each row has, if it is a list; None for one number.
        zoned: whether times are instants, in UTC, and not those of a clock on a wall.
    """

    name: str
    kind: Literal["numbers", "array", "bytes", "str"]
    dtype: str = ""
    length: int | None = None
    zoned: bool = False

    @property
    def fixed(self) -> bool:
        """True if each row has as many bytes of it."""
        return self.kind == "numbers"

    @property
    def type(self) -> "np.dtype[Any]":
        """The type of its numbers.

        Raises:
            DatasetError: there is no such type.
        """
        try:
            found = np.dtype(self.dtype)
        except (TypeError, ValueError) as error:
            raise DatasetError(f"column {self.name!r} must have a type of NumPy, has {self.dtype!r}") from error
        if found.char not in _NUMBERS:
            raise DatasetError(f"column {self.name!r} must hold numbers, holds {self.dtype!r}")
        return found

    @property
    def field_type(self) -> FieldType:
        """Its type, for people."""
        if self.kind in ("bytes", "str"):
            return FieldType(self.kind)
        shape = None if self.kind == "array" else () if self.length is None else (self.length,)
        return FieldType(self.type.name, shape)


class PackedColumns(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a dataset's rows.

    Attributes:
        columns: in their order.
        classes: the names of the classes of the label, if there are any.
    """

    columns: list[PackedColumn]
    classes: list[str] = []

    @property
    def flag_bytes(self) -> int:
        """The bytes of a row's flags."""
        return (len(self.columns) + 7) // 8

    @property
    def head(self) -> "np.dtype[Any]":
        """The part of a row before the bytes of columns that have lengths: flags, then `c` and a number each."""
        fields: list[Any] = [("flags", "u1", (self.flag_bytes,))]
        for number, column in enumerate(self.columns):
            if not column.fixed:
                fields.append((f"c{number}", "<u4"))
            elif column.length is None:
                fields.append((f"c{number}", column.type))
            else:
                fields.append((f"c{number}", column.type, (column.length,)))
        return np.dtype(fields)

    def named(self, names: Sequence[str], *kinds: str) -> str | None:
        """Return the first column of one of these names and kinds; None if there is none."""
        return next(
            (name for name in names for column in self.columns if column.name == name and column.kind in kinds), None
        )

    def encoded(self) -> bytes:
        """Return this as a dataset's settings."""
        return msgspec.json.encode(self)

    @staticmethod
    def decoded(settings: bytes) -> "PackedColumns":
        """Return the columns from a dataset's settings.

        Raises:
            DatasetError: they are no columns.
        """
        try:
            found = msgspec.json.decode(settings, type=PackedColumns)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DatasetError(f"a table must be told with its columns: {str(error)[:200]}") from error
        if not found.columns:
            raise DatasetError("a table must have a column")
        for column in found.columns:
            if column.kind in ("numbers", "array"):
                _ = column.type
            if column.length is not None and not 0 <= column.length < 1 << 31:
                raise DatasetError(f"column {column.name!r} must have a length, has {column.length}")
        return found


def row_reader(columns: PackedColumns, wanted: Sequence[str] | None) -> Callable[[memoryview], Mapping[str, Any]]:
    """Return what reads a row, given its bytes.

    Args:
        columns: of the rows.
        wanted: the names of the columns to read; None for all.
    """
    head = columns.head
    numbered = [(number, f"c{number}", column) for number, column in enumerate(columns.columns)]
    chosen = None if wanted is None else frozenset(wanted)

    def read(view: memoryview) -> Mapping[str, Any]:
        if len(view) < head.itemsize:
            raise DatasetError(f"a row must have at least {head.itemsize} bytes, has {len(view)}")
        values = np.frombuffer(view, head, 1)[0]
        nulls = np.unpackbits(values["flags"], bitorder="little")
        row: dict[str, Any] = {}
        at = head.itemsize
        for number, field, column in numbered:
            begin = at
            if not column.fixed:
                at += int(values[field])
                if at > len(view):
                    raise DatasetError(
                        f"column {column.name!r} must end within the row's {len(view)} bytes, ends at {at}"
                    )
            if chosen is None or column.name in chosen:
                row[column.name] = None if nulls[number] else _value(column, values[field], view[begin:at])
        if at != len(view):
            raise DatasetError(f"a row's columns must fill its {len(view)} bytes, they end at {at}")
        return row

    return read


def _value(column: PackedColumn, numbers: Any, data: memoryview) -> Any:
    if column.kind == "numbers":
        return numbers
    if column.kind == "bytes":
        return data
    if column.kind == "str":
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise DatasetError(f"column {column.name!r} must be text in UTF-8: {error}") from error
    kind = column.type
    if len(data) % kind.itemsize:
        raise DatasetError(f"column {column.name!r} must have whole numbers of {kind}, has {len(data)} bytes")
    # A copy: in a row it may begin at any byte, and a tensor must not.
    found: npt.NDArray[Any] = np.frombuffer(data, kind).copy()
    return found
