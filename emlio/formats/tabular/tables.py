"""Tables in Parquet and Arrow files: each row is a record.

Rows are no ranges of such a file. They are read by groups, row groups of Parquet or record batches
of Arrow, and each row gets a range in the bytes that are made of its group.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.contents import Contents
from emlio.formats.each_record import IMAGE, LABEL, EachRecord
from emlio.formats.format import Files, Format, Layout, Ranges, ShardFiles
from emlio.formats.record_form import RowForm
from emlio.formats.tabular.arrow_library import Kind, TableColumns, joined_columns, open_table
from emlio.formats.tabular.packed_rows import IMAGE_NAMES, LABEL_NAMES, PackedColumns, row_reader

__all__ = ["Tables", "arrow_tables", "parquet_tables", "role_columns"]

_THREADS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables(Format):
    """See `Format`, and `GroupFormat`.

    Attributes:
        kind: of its files.
    """

    kind: Kind

    def layout(self, files: Files, options: Mapping[str, str], where: str) -> Layout:
        """See `Format`."""
        found = self.own_files(files, where)
        wanted = [name for name in options["columns"].split(",") if name] if "columns" in options else None

        def described(one: tuple[str, int]) -> TableColumns:
            with files.open(one[1]) as file, open_table(file, self.kind, str(files.path(one[1]))) as table:
                return table.columns(wanted)

        # Files may have other columns than the first one. Each is opened, which in a bucket is a wait.
        with ThreadPoolExecutor(min(_THREADS, len(found)), "emlio-columns") as threads:
            columns = joined_columns(found[0][0], list(threads.map(described, found)), wanted)
        return Layout(
            shards=tuple(ShardFiles(name=name, files=(number,)) for name, number in found),
            settings=columns.encoded(),
            label_names=dict(enumerate(columns.classes)),
            schema={column.name: column.field_type for column in columns.columns},
        )

    def ranges(self, files: Files, shard: ShardFiles, settings: bytes) -> Ranges:
        """See `Format`. All values of columns with lengths are read: a file does not say the lengths."""
        (number,) = shard.files
        columns = PackedColumns.decoded(settings)
        sizes: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
        groups: list[tuple[int, int]] = []
        first = 0
        with files.open(number) as file, open_table(file, self.kind, str(files.path(number))) as table:
            table.compare(columns)
            for group in table.groups():
                found = table.sizes(group, columns)
                if len(found) != group.rows:
                    raise DatasetError(f"{files.path(number)}: a group must have {group.rows} rows, has {len(found)}")
                sizes.append(found)
                groups.append((first, group.place))
                first += group.rows
        ends = np.cumsum(np.concatenate(sizes))
        return Ranges(
            starts=np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)],
            ends=ends,
            groups=np.array(groups, np.int64).reshape(-1, 2),
        )

    def common(self, file: "IO[bytes]", where: str) -> object:
        """See `GroupFormat`."""
        with open_table(file, self.kind, where) as table:
            return table.common

    def unpack(
        self, file: "IO[bytes]", place: int, settings: bytes, where: str, common: object
    ) -> npt.NDArray[np.uint8]:
        """See `GroupFormat`."""
        with open_table(file, self.kind, where, common) as table:
            return table.rows(place, PackedColumns.decoded(settings))

    def form(self, contents: Contents, fields: Sequence[str] | None) -> RowForm:
        """See `Format`."""
        columns = PackedColumns.decoded(contents.settings)
        roles = _roles(columns)
        wanted: set[str] | None = None
        if fields is not None and not isinstance(fields, str):
            wanted = {*fields} | {name for role, name in roles.items() if role in fields}
        read_row = row_reader(columns, None if wanted is None else sorted(wanted))

        def read(view: memoryview, _: bytes) -> Mapping[str, Any]:
            return read_row(view)

        def aliases(row: Mapping[str, Any]) -> Mapping[str, Any]:
            return {role: row[name] for role, name in roles.items() if name in row}

        names = [*(column.name for column in columns.columns), *roles]
        return EachRecord(read, fields, aliases, dict.fromkeys(names))


def role_columns(settings: bytes) -> Mapping[str, str]:
    """Return the columns that stand for an encoded image and its label, as far as there are any.

    Raises:
        DatasetError: the settings are not valid.
    """
    return _roles(PackedColumns.decoded(settings))


def _roles(columns: PackedColumns) -> dict[str, str]:
    """Return the columns that stand for an encoded image and its label."""
    image, label = columns.named(IMAGE_NAMES, "bytes"), columns.named(LABEL_NAMES, "numbers")
    found = {} if image is None else {IMAGE: image}
    return found if label is None else {**found, LABEL: label}


_OPTIONS: Final = {"columns": "names of the columns to serve, with commas between them; all by default"}

parquet_tables = Tables(
    options=_OPTIONS,
    name="parquet",
    kind="parquet",
    extensions=(".parquet", ".pq"),
    texts=True,
    words="Parquet tables, a row each; read by row groups",
)
arrow_tables = Tables(
    options=_OPTIONS,
    name="arrow",
    kind="arrow",
    extensions=(".arrow", ".feather", ".ipc"),
    texts=True,
    words="Arrow tables, files or streams, a row each; read by record batches",
)
