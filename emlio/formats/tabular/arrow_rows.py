"""Columns and rows of pyarrow's tables, as they are sent."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.tabular.packed_rows import PackedColumn, PackedColumns

__all__ = ["ArrowRows"]

_MOST_BYTES: Final = (1 << 32) - 1


class ArrowRows:
    """Makes rows of a file's tables."""

    def __init__(self, arrow: Any, compute: Any, where: str) -> None:
        """See the class.

        Args:
            arrow: pyarrow.
            compute: its module of this name.
            where: the file's path, for errors.
        """
        self._arrow = arrow
        self._compute = compute
        self._where = where

    def flat(self, table: Any) -> Any:
        """Return a table with the parts of its structs as columns."""
        while any(self._arrow.types.is_struct(field.type) for field in table.schema):
            table = table.flatten()
        return table

    def columns(self, schema: Any, names: list[str] | None) -> list[PackedColumn]:
        """Return the columns that are served. A column of nulls alone is as if the file lacked it.

        Args:
            schema: of the file, pyarrow's.
            names: those wanted, parts of structs with a dot; None for all.

        Raises:
            DatasetError: one is of a type that cannot be served.
        """
        flat = self.flat(schema.empty_table()).schema
        fields = {field.name: field for field in flat}
        if len(fields) < len(flat):
            raise DatasetError(f"{self._where}: columns must have different names")
        chosen = [name for name in (fields if names is None else names) if name in fields]
        found: list[PackedColumn] = []
        for name in chosen:
            if self._arrow.types.is_null(fields[name].type):
                continue
            column = self._column(name, fields[name].type)
            if column is None:
                able = [one for one in fields if self._column(one, fields[one].type) is not None]
                raise DatasetError(
                    f"{self._where}: column {name!r} must hold numbers, text, bytes or lists of numbers, is of type "
                    f"{fields[name].type}. Serve the others with ?columns={','.join(able)}"
                )
            found.append(column)
        return found

    def _column(self, name: str, kind: Any) -> PackedColumn | None:
        """Return how a column is sent; None if it cannot be."""
        types = self._arrow.types
        if types.is_dictionary(kind):
            kind = kind.value_type
        if self._is_text(kind):
            return PackedColumn(name=name, kind="str")
        if self._is_bytes(kind):
            return PackedColumn(name=name, kind="bytes")
        if types.is_list(kind) or types.is_large_list(kind):
            dtype = self._dtype(kind.value_type)
            return None if dtype is None else PackedColumn(name=name, kind="array", dtype=dtype)
        if types.is_fixed_size_list(kind):
            dtype = self._dtype(kind.value_type)
            length = int(kind.list_size)
            return (
                None
                if dtype is None or not length
                else PackedColumn(name=name, kind="numbers", dtype=dtype, length=length)
            )
        dtype = self._dtype(kind)
        zoned = types.is_timestamp(kind) and kind.tz is not None
        return None if dtype is None else PackedColumn(name=name, kind="numbers", dtype=dtype, zoned=zoned)

    def _is_text(self, kind: Any) -> bool:
        types = self._arrow.types
        views = getattr(types, "is_string_view", None)
        return types.is_string(kind) or types.is_large_string(kind) or (views is not None and views(kind))

    def _is_bytes(self, kind: Any) -> bool:
        types = self._arrow.types
        views = getattr(types, "is_binary_view", None)
        return (
            types.is_binary(kind)
            or types.is_large_binary(kind)
            or types.is_fixed_size_binary(kind)
            or (views is not None and views(kind))
        )

    def _dtype(self, kind: Any) -> str | None:
        """Return NumPy's type for numbers of this type; None if there is none."""
        types = self._arrow.types
        if types.is_boolean(kind):
            return "|b1"
        if types.is_integer(kind) or types.is_floating(kind):
            return str(np.dtype(kind.to_pandas_dtype()).newbyteorder("<").str)
        if types.is_timestamp(kind):
            return f"<M8[{kind.unit}]"
        if types.is_duration(kind):
            return f"<m8[{kind.unit}]"
        if types.is_date32(kind):
            return "<M8[D]"
        if types.is_date64(kind):
            return "<M8[ms]"
        return None

    def sizes(self, table: Any, columns: PackedColumns) -> npt.NDArray[np.int64]:
        """Return the bytes of each row, as `rows` makes them, given the columns that have lengths."""
        table = self.flat(table)
        found = np.full(table.num_rows, columns.head.itemsize, np.int64)
        for column in columns.columns:
            if column.fixed and column.length is None:
                continue
            values = self._whole(table, column)
            if values is None:
                continue
            if not column.fixed:
                found += self._lengths(column, values)
            if column.kind == "array" or column.length is not None:
                self._check_list(column, values.flatten())
        return found

    def rows(self, table: Any, columns: PackedColumns) -> npt.NDArray[np.uint8]:
        """Return a table's rows, one after the other."""
        table = self.flat(table)
        count = table.num_rows
        head = np.zeros(count, columns.head)
        nulls = np.zeros((count, columns.flag_bytes * 8), np.uint8)
        parts: list[Any] = []
        for number, column in enumerate(columns.columns):
            values = self._whole(table, column)
            if values is None:
                nulls[:, number] = 1
                continue
            nulls[:, number] = self._nulls(values)
            if column.fixed:
                head[f"c{number}"] = self._numbers(column, values)
            else:
                head[f"c{number}"] = self._lengths(column, values)
                parts.append(self._octets(column, values))
        head["flags"] = np.packbits(nulls, axis=1, bitorder="little")
        if not parts:
            return head.view(np.uint8) if count else np.empty(0, np.uint8)
        lengths = np.full(count, columns.head.itemsize, np.int64)
        joined = self._compute.binary_join_element_wise(
            self._binary(head.view(np.uint8), lengths),
            *parts,
            self._arrow.scalar(b"", self._arrow.large_binary()),
        )
        _, bounds, data = joined.buffers()
        begins = np.frombuffer(bounds, np.int64)[joined.offset : joined.offset + count + 1]
        made: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8)[int(begins[0]) : int(begins[-1])]
        return made

    def _whole(self, table: Any, column: PackedColumn) -> Any:
        """Return a column as one array, its values plain, texts and bytes with offsets of 8 bytes; None without values."""
        if table.schema.get_field_index(column.name) < 0:
            return None
        values = table.column(column.name)
        if self._arrow.types.is_null(values.type):
            return None
        if self._arrow.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if self._column(column.name, values.type) != column:
            raise DatasetError(f"{self._where}: column {column.name!r} must be as in other files, is of {values.type}")
        if column.kind in ("bytes", "str"):
            if self._is_text(values.type) and not self._arrow.types.is_large_string(values.type):
                values = values.cast(self._arrow.large_string())
            if values.type != self._arrow.large_binary():
                values = values.cast(self._arrow.large_binary())
        if column.kind == "array":
            values = values.cast(self._arrow.large_list(values.type.value_type))
        whole = values.combine_chunks()
        if isinstance(whole, self._arrow.ChunkedArray):
            whole = self._arrow.concat_arrays(whole.chunks)
        return whole

    def _nulls(self, values: Any) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = self._compute.is_null(values).to_numpy(zero_copy_only=False)
        return found

    def _lengths(self, column: PackedColumn, values: Any) -> npt.NDArray[np.int64]:
        """Return the bytes of each value of a column that has lengths."""
        if column.kind == "array":
            counted = self._compute.list_value_length(values)
        else:
            counted = self._compute.binary_length(values)
        width = column.type.itemsize if column.kind == "array" else 1
        found: npt.NDArray[np.int64] = counted.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64) * width
        if found.size and int(found.max()) > _MOST_BYTES:
            raise DatasetError(
                f"{self._where}: a value of column {column.name!r} must have less than 4 GiB, one has {found.max()}"
            )
        return found

    def _octets(self, column: PackedColumn, values: Any) -> Any:
        """Return the values of a column that has lengths as bytes, without nulls."""
        if column.kind != "array":
            return values.fill_null(b"")
        data: npt.NDArray[np.uint8] = self._plain(column, values.flatten()).view(np.uint8)
        return self._binary(data, self._lengths(column, values))

    def _numbers(self, column: PackedColumn, values: Any) -> npt.NDArray[Any]:
        """Return the values of a column of numbers, with 0 for nulls."""
        if column.length is None:
            if values.null_count:
                valid = ~self._nulls(values)
                found = np.zeros(len(values), column.type)
                found[valid] = self._plain(column, values.drop_null())
                return found
            return self._plain(column, values)
        made = np.zeros((len(values), column.length), column.type)
        made[~self._nulls(values)] = self._plain(column, values.flatten()).reshape(-1, column.length)
        return made

    def _plain(self, column: PackedColumn, values: Any) -> npt.NDArray[Any]:
        """Return numbers without nulls as NumPy's."""
        self._check_list(column, values)
        return np.ascontiguousarray(values.to_numpy(zero_copy_only=False), column.type)

    def _check_list(self, column: PackedColumn, values: Any) -> None:
        if values.null_count:
            raise DatasetError(f"{self._where}: lists in column {column.name!r} must be without nulls")

    def _binary(self, data: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64]) -> Any:
        """Return bytes of these lengths as an array of pyarrow's."""
        bounds = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=bounds[1:])
        wrap = self._arrow.py_buffer
        return self._arrow.Array.from_buffers(
            self._arrow.large_binary(), len(lengths), [None, wrap(bounds), wrap(np.ascontiguousarray(data))]
        )
