"""A table of files: CSV with a header line, or one JSON object per line (JSONL).

Its column `file` has paths relative to the table. A column `label` may follow, and others, which become
features of the same name; nested values are refused.

`label` holds class numbers or names. Names are numbered in sorted order, or by the file given with
--labels. A file with an image's name becomes the features of emlio.prepare.targets.example_form; any other
file becomes the bytes feature `data` with `filename`. A column of a CSV table is int64 if every
cell is a whole number, float if every cell is a number, else bytes.
"""

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias, cast

import msgspec

from emlio.arguments import like
from emlio.errors import ConfigError, DatasetError
from emlio.example import FeatureValue
from emlio.images.header import is_image_name
from emlio.prepare.sample import Sample
from emlio.prepare.sources.class_names import ClassNames
from emlio.prepare.sources.record_source import Fingerprint, Listing, read_listed, source_folder
from emlio.store.folder import Folder
from emlio.store.folder_store import FolderStore, walk_files

__all__ = ["Manifest"]

_FILE = "file"
"""The column with the paths, if the user names no other."""

_SEPARATORS = (",", ";", "\t")
_LABEL = "label"
_FOR_RECORDS = ", or convert the lines themselves: --tokenizer makes tokens of their text, --from jsonl makes records"
_OURS = frozenset({"data", "filename", "image/encoded", "image/format", "image/class/label"})

_Cell: TypeAlias = str | int | float | list[str | int | float]


class Manifest:
    """Files in the order of the table's lines.

    The constructor reads the table and stats every file.
    """

    def __init__(
        self,
        path: Path,
        classes: ClassNames | None = None,
        file_column: str | None = None,
        delimiter: str | None = None,
    ) -> None:
        """Read the table.

        Args:
            path: of the table.
            classes: the names of its labels; by default those that occur.
            file_column: the column with the paths; by default "file".
            delimiter: between the cells of a CSV table; by default the one that is found.

        Raises:
            DatasetError: it is no such table, or a file is not there.
        """
        self._path = path
        names, columns, lines = _columns(path, file_column or _FILE, delimiter)
        self._lines = lines
        self._texts: dict[int, str] = {} if classes is None else classes.texts
        self._labels = self._number(names, columns.pop(_LABEL, None), classes)
        self._columns = columns
        folder = source_folder(path.parent)
        try:
            self._files = self._listed(folder, names)
        except BaseException:
            folder.close()
            raise
        fingerprint = Fingerprint("manifest")
        for place, name in enumerate(names):
            fingerprint.add_file(self._files, place, name)
            fingerprint.add(str(self._labels[place]))
            fingerprint.add(*(repr(column[place]) for column in columns.values()))
        fingerprint.add(*columns, *map(str, sorted(self._texts.items())))
        self.listing = Listing(
            sizes_bytes=self._files.sizes,
            fingerprint=fingerprint.hexdigest(),
            label_names=self._texts,
        )

    def key(self, place: int) -> str:
        """Return the file's path."""
        return str(self._files.path(place))

    def record(self, place: int) -> Sample:
        """Read one file."""
        path = self._files.path(place)
        content = read_listed(self._files, place)
        cells = {name: column[place] for name, column in self._columns.items() if column[place] != []}
        features = {name: cast("FeatureValue", cell) for name, cell in cells.items() if isinstance(cell, list)}
        is_picture = is_image_name(path.name)
        label = self._labels[place]
        return Sample(
            columns=cells if is_picture else {**cells, "data": content},
            main="" if is_picture else "data",
            picture=content if is_picture else None,
            path=self._files.names[place],
            filename=path.name,
            label=label,
            class_name="" if label is None else self._texts.get(label, ""),
            features=features if is_picture else {**features, "filename": path.name},
        )

    def close(self) -> None:
        """Close the folder. Closing again does nothing."""
        self._files.close()

    def _listed(self, folder: Folder, names: Sequence[str]) -> FolderStore:
        place = 0

        def counted() -> Iterator[str]:
            nonlocal place
            for place, name in enumerate(names):  # noqa: B007  # told where one is wrong
                yield name

        try:
            return walk_files(folder, counted())
        except DatasetError as error:
            raise DatasetError(f"{self._path}: line {self._lines[place]}: {error}") from error

    def _number(
        self, files: Sequence[str], column: Sequence[_Cell] | None, classes: ClassNames | None
    ) -> Sequence[int | None]:
        if column is None:
            return [None] * len(files)
        if all(type(cell) is int for cell in column):
            return [cell for cell in column if isinstance(cell, int)]
        names = [str(cell) for cell in column]
        if classes is None:
            classes = ClassNames.sorted_from(names)
            self._texts = classes.texts
        return [
            classes.number(name, f"{self._path}: line {line}: {file}")
            for name, line, file in zip(names, self._lines, files, strict=True)
        ]


def _columns(
    path: Path, file_column: str, delimiter: str | None
) -> tuple[list[str], dict[str, Sequence[_Cell]], Sequence[int]]:
    """Return the files, every other column, and the number of each entry's line."""
    try:
        lines = path.suffix.lower() in {".jsonl", ".ndjson"}
        if lines and delimiter is not None:
            raise ConfigError(f"--delimiter must be given for a CSV table, got it for {path}")
        table, numbers = _jsonl(path) if lines else _csv(path, file_column, delimiter)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path}: cannot be read as a table: {error}") from error
    files = table.pop(file_column, None)
    if files is None:
        raise DatasetError(
            f"{path}: must have a column {file_column!r} with the paths of files, has "
            f"{', '.join(map(repr, sorted(table))) or 'none'}. Name it with --file-column"
            f"{_FOR_RECORDS if lines else ''}{like(file_column, table)}"
        )
    for name in table:
        if name in _OURS:
            raise DatasetError(
                f"{path}: a column must not be named {name!r}, which is the name of a feature of the file"
            )
    for number, cell in zip(numbers, files, strict=True):
        if not isinstance(cell, str) or not cell:
            raise DatasetError(f"{path}: line {number}: {file_column!r} must be a path, got {cell!r}")
    return [str(cell) for cell in files], table, numbers


def _csv(path: Path, file_column: str, delimiter: str | None) -> tuple[dict[str, Sequence[_Cell]], Sequence[int]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        if delimiter is None:
            delimiter = _separator(file.readline(), file_column)
            file.seek(0)
        reader = csv.reader(file, strict=True, delimiter=delimiter)
        header: list[str] = next(reader, list[str]())
        if len(set(header)) != len(header):
            raise DatasetError(f"{path}: every column must have a name of its own, the first line is {header}")
        cells: list[list[str]] = [[] for _ in header]
        numbers: list[int] = []
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise DatasetError(f"{path}: line {reader.line_num}: must have {len(header)} cells, has {len(row)}")
            numbers.append(reader.line_num)
            for column, cell in zip(cells, row, strict=True):
                column.append(cell)
    table = {name: _typed(column, text=name == file_column) for name, column in zip(header, cells, strict=True)}
    return table, numbers


def _separator(header: str, file_column: str) -> str:
    """Return what separates the cells of a table: what gives the column with the paths, or else the most columns."""

    def judged(separator: str) -> tuple[bool, int]:
        cells = next(csv.reader([header], delimiter=separator), list[str]())
        return file_column in cells, len(cells)

    return max(_SEPARATORS, key=judged)  # the comma, if all are alike


def _typed(column: list[str], *, text: bool) -> Sequence[_Cell]:
    if text or not column or any("_" in cell for cell in column):  # Python would read "1_2" as 12
        return column
    try:
        whole = [int(cell) for cell in column]
        if all(-(1 << 63) <= number < 1 << 63 for number in whole):
            return whole
    except ValueError:
        pass
    try:
        numbers = [float(cell) for cell in column]
    except ValueError:
        return column
    # A column that holds only words like "nan" and "inf" is text, not numbers.
    return numbers if any(map(math.isfinite, numbers)) else column


def _jsonl(path: Path) -> tuple[dict[str, Sequence[_Cell]], Sequence[int]]:
    rows: list[dict[str, _Cell]] = []
    numbers: list[int] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                rows.append(msgspec.json.decode(line, type=dict[str, _Cell]))
            except (msgspec.MsgspecError, RecursionError) as error:
                raise DatasetError(
                    f"{path}: line {number}: must be a JSON object of strings, numbers or lists of these: {error}"
                ) from error
            numbers.append(number)
            missing = rows[0].keys() ^ rows[-1].keys()
            if missing:
                raise DatasetError(
                    f"{path}: line {number}: a table that lists files must have the same keys in all lines, it differs from "
                    f"the first in {sorted(missing)}. Give them all keys{_FOR_RECORDS}"
                )
    names = list(rows[0]) if rows else []
    return {name: _one_kind([row[name] for row in rows]) for name in names}, numbers


def _one_kind(column: list[_Cell]) -> Sequence[_Cell]:
    """Convert a column of mixed integers and floats, such as 1 and 1.5, to floats."""
    if any(type(cell) is float for cell in column) and all(type(cell) in (int, float) for cell in column):
        return [float(cell) for cell in column if isinstance(cell, int | float)]
    return column
