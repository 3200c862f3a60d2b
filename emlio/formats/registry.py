"""The formats, and which one a folder has."""

from collections.abc import Sequence
from typing import Any

from emlio.arguments import like
from emlio.errors import ConfigError, DatasetError
from emlio.example.columns import Piece
from emlio.formats.archives import archive_files
from emlio.formats.array_rows import array_rows
from emlio.formats.contents import Contents
from emlio.formats.each_record import LABEL
from emlio.formats.folders.containers import refuse_containers
from emlio.formats.format import Files, Format, GroupFormat, TopFormat
from emlio.formats.json_lines import json_lines
from emlio.formats.mds import mds
from emlio.formats.record_form import RecordForm, RowForm
from emlio.formats.tabular.tables import arrow_tables, parquet_tables
from emlio.formats.tar import tars
from emlio.formats.tfrecord.tfrecords import tfrecords
from emlio.formats.token_files import flat_tokens, indexed_tokens
from emlio.formats.whole_file import any_files, array_files

__all__ = ["FORMATS", "batch_form", "find_format", "form_of", "format_named", "group_format", "has_own_columns"]

FORMATS: list[Format] = [
    tfrecords,
    mds,
    indexed_tokens,
    tars,
    parquet_tables,
    arrow_tables,
    json_lines,
    archive_files,
    array_files,
    array_rows,
    flat_tokens,
    any_files,
]
"""In the order in which a folder is taken for one; `array_rows` and `flat_tokens` must be asked for."""


def find_format(files: Files, where: str) -> Format:
    """Return the format of a folder, of those that are not known by the names at the top; see `TopFormat`.

    Args:
        files: the folder's files.
        where: the folder, for errors.

    Raises:
        DatasetError: it has no files, most are of a form that cannot be read, or files with many records are few among
            others, but hold most bytes.
    """
    found = next((each for each in FORMATS if not isinstance(each, TopFormat) and each.claims(files)), None)
    if found is any_files:
        refuse_containers(files, where)
        _refuse_shards(files, where)
    if found is not None:
        return found
    raise DatasetError(f"dataset directory {where}: must hold a dataset, holds no files")


_OF_SHARDS = {
    ".tar": tars.name,
    **dict.fromkeys(parquet_tables.extensions, parquet_tables.name),
    **dict.fromkeys(arrow_tables.extensions, arrow_tables.name),
    **dict.fromkeys(json_lines.extensions, json_lines.name),
}
"""Formats of files with many records, by the endings of the files."""


def _refuse_shards(files: Files, where: str) -> None:
    """Check that files with many records do not hold most of the bytes of a folder that would be served file by file."""
    there = [ending for ending in _OF_SHARDS if ending in files.endings]
    if not there:
        return
    numbers = [number for number, name in enumerate(files.names) if name.lower().endswith(tuple(there))]
    if 2 * int(files.sizes[numbers].sum()) > int(files.sizes.sum()):
        raise DatasetError(
            f"{where}: must hold files of one kind, holds {', '.join(there)} files such as {files.names[numbers[0]]} among "
            f"others. Choose a format, such as format={_OF_SHARDS[there[0]]}; to serve each file as one record, say format=files"
        )


_ALSO_CALLED = {
    "webdataset": "tar",
    "wds": "tar",
    "mosaicml": "mds",
    "streaming": "mds",
    "json": "jsonl",
    "image-folder": "files",
}
"""Formats by other names that users have for them."""


def format_named(name: str) -> Format:
    """Return the format of this name.

    Raises:
        ConfigError: there is none.
    """
    found = next((each for each in FORMATS if each.name == name), None)
    if found is None:
        known = [each.name for each in FORMATS]
        meant = like(_ALSO_CALLED.get(name.lower(), name), known)
        raise ConfigError(f"format must be one of {', '.join(known)}, got {name!r}{meant}")
    return found


def form_of(contents: Contents, fields: Sequence[str] | None) -> RowForm:
    """Return what makes columns of a dataset's records.

    Args:
        contents: what the daemon says of the dataset.
        fields: the columns wanted; None for all.

    Raises:
        ConfigError: there is no such column.
        DatasetError: this release does not know the format.
    """
    found = next((each for each in FORMATS if each.name == contents.format), None)
    if found is None:
        raise DatasetError(f"the dataset has a format that this release of emlio does not know, {contents.format!r}")
    return found.form(contents, fields)


def batch_form(contents: Contents, fields: Sequence[str] | None) -> RecordForm:
    """Return what `form_of` does, where "label" stands for `LABEL` if the dataset has that and no column of this name."""
    of_tars = contents.format == tars.name and "cls" in contents.schema
    known = of_tars or LABEL in contents.schema or not has_own_columns(contents)
    if fields is None or "label" not in fields or "label" in contents.schema or not known:
        return form_of(contents, fields)
    wanted = [LABEL if name == "label" else name for name in fields if name != "label" or LABEL not in fields]
    try:
        return _ByClass(form_of(contents, wanted), fields)
    except ConfigError:  # it has none: the error of the user's own names
        return form_of(contents, fields)


class _ByClass:
    """A form with the column `LABEL` under the name "label". See `RecordForm`."""

    def __init__(self, form: RecordForm, fields: Sequence[str]) -> None:
        self._form = form
        self._fields = tuple(fields)
        self.faults = form.faults

    def columns(self, pieces: Sequence[Piece], count: int) -> dict[str, Any]:
        """See `RecordForm`."""
        found = self._form.columns(pieces, count)
        return {name: found[LABEL if name == "label" else name] for name in self._fields}


def group_format(contents: Contents) -> GroupFormat | None:
    """Return what makes records of a dataset's groups; None if its records are ranges of files."""
    found = next((each for each in FORMATS if each.name == contents.format), None)
    return found if isinstance(found, GroupFormat) else None


def has_own_columns(contents: Contents) -> bool:
    """Return whether each record may have columns that the schema does not list."""
    return contents.format in (json_lines.name, tars.name, archive_files.name) or (
        contents.format == tfrecords.name and not contents.settings
    )
