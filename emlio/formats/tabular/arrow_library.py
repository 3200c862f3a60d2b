"""Reading tables of Parquet and Arrow files with pyarrow, and making the rows that are sent.

pyarrow (extra `parquet`) is imported here only, on hosts that serve such files. Ranks read the rows
without it.
"""

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import IO, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.extras import how_to_install
from emlio.formats.tabular.arrow_rows import ArrowRows
from emlio.formats.tabular.packed_rows import LABEL_NAMES, PackedColumn, PackedColumns

__all__ = [
    "ARROW_FILE",
    "Group",
    "Kind",
    "Table",
    "TableColumns",
    "decompressed",
    "decompressed_at_once",
    "joined_columns",
    "open_table",
]

Kind = Literal["parquet", "arrow"]

ARROW_FILE: Final = b"ARROW1"
_FEATURES: Final = b"huggingface"
_END_MARK: Final = b"\xff\xff\xff\xff\0\0\0\0"


@dataclass(frozen=True, slots=True)
class Group:
    """A row group of a Parquet file, or a record batch of an Arrow file.

    Attributes:
        rows: how many it has.
        place: where it is, as `Table.rows` wants it.
    """

    rows: int
    place: int


def _load(name: str, what: str = "serving Parquet and Arrow files") -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(f"{what} requires pyarrow: {how_to_install('parquet')}") from error


def decompressed(file: IO[bytes], codec: str) -> IO[bytes]:
    """Return what reads the content of a compressed file.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    arrow = _load("pyarrow", f"reading files compressed with {codec}")
    opened: IO[bytes] = arrow.CompressedInputStream(arrow.PythonFile(file, "r"), codec)
    return opened


def decompressed_at_once(data: bytes, codec: str, size_bytes: int) -> bytes:
    """Return what is in compressed bytes, of a form that cannot be read bit by bit.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    arrow = _load("pyarrow", f"reading files compressed with {codec}")
    found: bytes = arrow.decompress(data, decompressed_size=size_bytes, codec=codec, asbytes=True)
    return found


@contextmanager
def open_table(file: IO[bytes], kind: Kind, where: str, common: object = None) -> "Generator[Table, None, None]":
    """Open a file for as long as the context lasts; `file` stays open.

    Args:
        file: the file, which can be sought.
        kind: what it must be.
        where: its path, for errors.
        common: what `Table.common` was at an earlier opening of this file.

    Raises:
        ConfigError: pyarrow is not installed.
        DatasetError: in the context, wherever the file is not a valid one.
    """
    arrow = _load("pyarrow")
    try:
        yield _Parquet(file, where, common) if kind == "parquet" else _opened_arrow(file, where)
    except (arrow.ArrowException, EOFError, OSError, ValueError, OverflowError) as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(f"{where}: must be a readable {kind} file: {str(error)[:300]}") from error
    except MemoryError as error:
        raise DatasetError(f"{where}: a group of its rows must fit into memory: {str(error)[:300]}") from error


class Table(ABC):
    """An open file. A subclass for each form of file says where its groups are."""

    def __init__(self, where: str) -> None:
        """See the class; `where` is for errors."""
        self._where = where
        self._arrow = _load("pyarrow")
        self._rows = ArrowRows(self._arrow, _load("pyarrow.compute"), where)

    @property
    @abstractmethod
    def schema(self) -> Any:
        """Its schema, pyarrow's."""

    @abstractmethod
    def groups(self) -> list[Group]:
        """Return its groups that have rows, in order."""

    @abstractmethod
    def _read(self, place: int, names: list[str] | None) -> Any:
        """Return a group as a table of pyarrow's.

        Args:
            place: see `Group`.
            names: columns of the schema to read, at least; None for all.
        """

    @property
    def common(self) -> object:
        """The part of the file that all its groups need, for later openings; never None."""
        return self._where

    def columns(self, names: list[str] | None) -> "TableColumns":
        """Return the columns, those of them that can be served, and the names of classes; see `ArrowRows.columns`."""
        found = PackedColumns(columns=self._rows.columns(self.schema, names))
        label = found.named(LABEL_NAMES, "numbers")
        return TableColumns(
            served=PackedColumns(columns=found.columns, classes=[] if label is None else self._classes(label)),
            types=self._types(),
        )

    def compare(self, columns: PackedColumns) -> None:
        """Compare the columns that the file has with those of the dataset.

        Raises:
            DatasetError: they differ.
        """
        wanted = {column.name: column for column in columns.columns}
        about = self.columns(list(wanted))
        found = about.served
        other = next((column.name for column in found.columns if column != wanted[column.name]), None)
        if other is not None:
            raise DatasetError(f"{self._where}: column {other!r} must be as in other files, is of {about.types[other]}")
        label = columns.named(LABEL_NAMES, "numbers")
        if label == found.named(LABEL_NAMES, "numbers") and found.classes != columns.classes:
            raise DatasetError(
                f"{self._where}: the names of classes must be as in other files, {columns.classes[:9]}, are "
                f"{found.classes[:9]}"
            )

    def sizes(self, group: Group, columns: PackedColumns) -> npt.NDArray[np.int64]:
        """Return the bytes of each row of a group, as `rows` makes them."""
        # Lists of one length are read as well, since nulls in them must be found now and not in training.
        read = self._roots(column for column in columns.columns if not column.fixed or column.length is not None)
        if not read:
            return np.full(group.rows, columns.head.itemsize, np.int64)
        return self._rows.sizes(self._read(group.place, read), columns)

    def rows(self, place: int, columns: PackedColumns) -> npt.NDArray[np.uint8]:
        """Return the rows of a group, one after the other."""
        return self._rows.rows(self._read(place, self._roots(columns.columns)), columns)

    def _classes(self, label: str) -> list[str]:
        """Return the names of classes that Hugging Face's datasets keeps beside the schema, if it does."""
        try:
            about: Any = self.schema.metadata or {}
            feature: Any = json.loads(about[_FEATURES])["info"]["features"][label]
            if feature["_type"] == "ClassLabel":
                return [str(one) for one in feature["names"]]
        except (KeyError, TypeError, ValueError, RecursionError):
            pass
        return []

    def _types(self) -> dict[str, str]:
        return {field.name: str(field.type) for field in self._rows.flat(self.schema.empty_table()).schema}

    def _roots(self, columns: Iterable[PackedColumn]) -> list[str]:
        """Return the columns of the schema that these columns are, or are parts of, as far as the file has them."""
        of: dict[str, str] = {}
        for number, name in enumerate(self.schema.names):
            one = self._arrow.schema([self.schema.field(number)]).empty_table()
            of |= dict.fromkeys(self._rows.flat(one).schema.names, name)
        return sorted({of[column.name] for column in columns if column.name in of})


class _Parquet(Table):
    """A Parquet file."""

    def __init__(self, file: IO[bytes], where: str, footer: object) -> None:
        super().__init__(where)
        parquet = _load("pyarrow.parquet")
        self._file = parquet.ParquetFile(file, metadata=footer, pre_buffer=False, page_checksum_verification=True)

    @property
    def common(self) -> object:
        return self._file.metadata

    @property
    def schema(self) -> Any:
        return self._file.schema_arrow

    def groups(self) -> list[Group]:
        about = self._file.metadata
        counts = [int(about.row_group(place).num_rows) for place in range(about.num_row_groups)]
        return [Group(rows, place) for place, rows in enumerate(counts) if rows]

    def _read(self, place: int, names: list[str] | None) -> Any:
        if place >= self._file.metadata.num_row_groups:
            raise DatasetError(f"{self._where}: must still have row group {place}")
        return self._file.read_row_group(place, columns=names, use_threads=False)


def _opened_arrow(file: IO[bytes], where: str) -> Table:
    file.seek(0)
    head = file.read(len(ARROW_FILE))
    file.seek(0)
    return _ArrowFile(file, where) if head == ARROW_FILE else _ArrowStream(file, where)


class _ArrowFile(Table):
    """An Arrow file with a list of its batches at the end."""

    def __init__(self, file: IO[bytes], where: str) -> None:
        super().__init__(where)
        self._file = _load("pyarrow.ipc").open_file(self._arrow.PythonFile(file, "r"))

    @property
    def schema(self) -> Any:
        return self._file.schema

    def groups(self) -> list[Group]:
        counts = [len(self._file.get_batch(place)) for place in range(self._file.num_record_batches)]
        return [Group(rows, place) for place, rows in enumerate(counts) if rows]

    def _read(self, place: int, names: list[str] | None) -> Any:
        if place >= self._file.num_record_batches:
            raise DatasetError(f"{self._where}: must still have record batch {place}")
        return _checked(self._arrow.Table.from_batches([self._file.get_batch(place)]), names)


class _ArrowStream(Table):
    """A stream of record batches in a file, as Hugging Face's datasets caches them; a place is a byte."""

    def __init__(self, file: IO[bytes], where: str) -> None:
        super().__init__(where)
        self._ipc = _load("pyarrow.ipc")
        self._file = file
        self._source = self._arrow.PythonFile(file, "r")
        message = self._ipc.read_message(self._source)
        if message.type != "schema":
            raise DatasetError(f"{where}: must begin with a schema, begins with a {message.type}")
        self._schema = self._ipc.read_schema(message)
        if any(self._arrow.types.is_dictionary(field.type) for field in self._schema):
            raise DatasetError(
                f"{where}: a stream must be without dictionaries, of which one is read before all batches: write it "
                "as an Arrow file or as Parquet"
            )

    @property
    def schema(self) -> Any:
        return self._schema

    def groups(self) -> list[Group]:
        found: list[Group] = []
        while True:
            place = self._source.tell()
            try:
                message = self._ipc.read_message(self._source)
            except EOFError:
                self._check_end(place)
                return found
            if message.type != "record batch":
                raise DatasetError(f"{self._where}: must hold record batches, has a {message.type} at byte {place}")
            rows = len(self._ipc.read_record_batch(message, self._schema))
            if rows:
                found.append(Group(rows, place))

    def _check_end(self, place: int) -> None:
        """Check that the file ends with the stream's end mark, at this byte.

        Raises:
            DatasetError: it is cut off, or goes on.
        """
        self._file.seek(0, io.SEEK_END)
        size = self._file.tell()
        self._file.seek(place)
        if self._file.read(len(_END_MARK)) != _END_MARK or size != place + len(_END_MARK):
            raise DatasetError(
                f"{self._where}: a stream must end with its end mark, and the file with it; after {place} of {size} bytes "
                "there is none, or something follows. Its writer may have been killed, or files were joined: write it "
                "again"
            )

    def _read(self, place: int, names: list[str] | None) -> Any:
        self._source.seek(place)
        message = self._ipc.read_message(self._source)
        batch = self._ipc.read_record_batch(message, self._schema)
        return _checked(self._arrow.Table.from_batches([batch]), names)


def _checked(table: Any, names: list[str] | None) -> Any:
    """Return columns of a table, every length and place in it checked: pyarrow takes them as they are."""
    chosen = table if names is None else table.select(names)
    chosen.validate(full=True)
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumns:
    """The columns of one file.

    Attributes:
        served: those that are served.
        types: the types of all, by name, as people write them.
    """

    served: PackedColumns
    types: Mapping[str, str]


def joined_columns(where: str, tables: Sequence[TableColumns], names: Sequence[str] | None) -> PackedColumns:
    """Return the columns of a dataset: those of any of its files. A row of a file that lacks one has a null.

    Args:
        where: the first file, for errors.
        tables: the columns of each file.
        names: those wanted; None for all.

    Raises:
        DatasetError: one that is wanted is in no file, or there is none.
    """
    types = {name: kind for table in reversed(tables) for name, kind in table.types.items()}
    strange = next((name for name in names or () if name not in types), None)
    if strange is not None:
        raise DatasetError(f"{where}: columns must be some of {', '.join(types)}, got {strange!r}")
    found: dict[str, PackedColumn] = {}
    for table in tables:
        for column in table.served.columns:
            found.setdefault(column.name, column)
    # Of nulls only, in every file; a struct of them may have parts elsewhere.
    empty = [name for name in (types if names is None else names) if name not in found]
    empty = [name for name in empty if not any(other.startswith(f"{name}.") for other in found)]
    if empty or not found:
        able = f". Serve the others with ?columns={','.join(found)}" if found else ""
        raise DatasetError(f"{where}: columns must hold values, {', '.join(empty) or 'there'} is none that does{able}")
    columns = PackedColumns(columns=[found[name] for name in (found if names is None else names)])
    label = columns.named(LABEL_NAMES, "numbers")
    classes = (table.served.classes for table in tables if table.served.named(LABEL_NAMES, "numbers") == label)
    return PackedColumns(columns=columns.columns, classes=[] if label is None else next(classes))
