"""Rows of large NumPy arrays: each row of each .npy file is a record."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from emlio.errors import DatasetError
from emlio.formats.contents import Contents, FieldType
from emlio.formats.each_record import EachRecord
from emlio.formats.format import Files, Format, Layout, Ranges, ShardFiles
from emlio.formats.npy_header import MOST_HEADER_BYTES, NpyHeader, read_npy_header
from emlio.formats.record_form import RowForm

__all__ = ["MOST_SIDE_BY_SIDE", "array_rows", "check_numbers", "header_of", "side_by_side"]

MOST_SIDE_BY_SIDE: Final = 8
"""More files are records themselves, even if their lengths are equal."""

_PAIR: Final = ["x.npy", "y.npy"]


def side_by_side(headers: Mapping[str, NpyHeader]) -> str:
    """Return the advice for arrays that have equally many rows, but are not all alike; "" for others.

    Args:
        headers: of all arrays of a folder, by their names in it.
    """
    rows = {header.shape[:1] for header in headers.values()}
    if not 2 <= len(headers) <= MOST_SIDE_BY_SIDE or len(rows) != 1 or any("/" in name for name in headers):
        return ""
    (count,) = rows
    forms = {(header.shape, header.dtype.newbyteorder("=")) for header in headers.values()}
    # Arrays of one shape may well be records: clips of sound, embeddings.
    if not count or count[0] < 2 or (len(forms) == 1 and sorted(map(str.lower, headers)) != _PAIR):
        return ""
    *names, last = sorted(headers)
    return (
        f"each file is one record, but {', '.join(names)} and {last} have {count[0]:,} rows each. If a row of each makes a "
        "record, convert them: emlio convert DIR OUT --from npy-columns"
    )


class ArrayRows(Format):
    """See `Format`."""

    def claims(self, files: Files) -> bool:
        """See `Format`."""
        return False

    def layout(self, files: Files, options: Mapping[str, str], where: str) -> Layout:
        """See `Format`."""
        found = self.own_files(files, where)
        first = header_of(files, found[0][1])
        for _, number in found:
            header = header_of(files, number)
            name = str(files.path(number))
            check_numbers(header, int(files.sizes[number]), name)
            if not header.shape or (header.fortran and len(header.shape) > 1):
                raise DatasetError(
                    f"{name}: must have rows in C order, has shape {header.shape}, Fortran: {header.fortran}"
                )
            if header.dtype.names is not None:
                raise DatasetError(f"{name}: rows must be numbers of one type, has the fields {header.dtype}")
            if not header.size_bytes and header.shape[:1] != (0,):
                raise DatasetError(f"{name}: must have rows of at least one byte, has shape {header.shape}")
            if (header.dtype, header.shape[1:]) != (first.dtype, first.shape[1:]):
                raise DatasetError(
                    f"{name}: all arrays must have rows of one type and shape, {found[0][0]} has {first.dtype} "
                    f"{first.shape[1:]}, this one {header.dtype} {header.shape[1:]}"
                )
        shape = first.shape[1:]
        return Layout(
            shards=tuple(ShardFiles(name=name, files=(number,)) for name, number in found),
            settings=json.dumps({"dtype": first.dtype.str, "shape": shape}).encode(),
            schema={"row": FieldType(first.dtype.newbyteorder("=").name, shape)},
        )

    def ranges(self, files: Files, shard: ShardFiles, settings: bytes) -> Ranges:
        """See `Format`."""
        header = header_of(files, shard.files[0])
        rows = header.shape[0]
        row_bytes = header.size_bytes // rows if rows else 0
        starts = np.arange(rows, dtype=np.int64) * row_bytes + header.begin
        return Ranges(starts=starts, ends=starts + row_bytes)

    def form(self, contents: Contents, fields: Sequence[str] | None) -> RowForm:
        """See `Format`."""
        try:
            told = json.loads(contents.settings)
            dtype, shape = np.dtype(str(told["dtype"])), tuple(int(length) for length in told["shape"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise DatasetError(f"rows of arrays must be told with type and shape, got {contents.settings!r}") from error

        def read(view: memoryview, note: bytes) -> Mapping[str, Any]:
            try:
                row = np.frombuffer(view, dtype).reshape(shape)
            except ValueError as error:
                raise DatasetError(f"a row must be {dtype} {shape}, has {len(view)} bytes") from error
            return {"row": row.astype(dtype.newbyteorder("="), copy=False)}

        return EachRecord(read, fields, names=("row",))


def header_of(files: Files, number: int) -> NpyHeader:
    """Return the header of a .npy file, with its name in errors."""
    try:
        return read_npy_header(files.read(number, 0, MOST_HEADER_BYTES + 16))
    except DatasetError as error:
        raise DatasetError(f"{files.path(number)}: {error}") from error


def check_numbers(header: NpyHeader, size_bytes: int, name: str) -> None:
    """Check that a file holds the numbers that its header says.

    Raises:
        DatasetError: it is longer or shorter.
    """
    if size_bytes != header.begin + header.size_bytes:
        raise DatasetError(
            f"{name}: must have {header.begin + header.size_bytes} bytes for {header.dtype} {header.shape}, has "
            f"{size_bytes}"
        )


array_rows = ArrayRows(
    name="npy-rows", words="a tree of .npy files, each row a record; must be asked for", extensions=(".npy",)
)
