"""Selection of the source that reads a dataset."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError, DatasetError
from emlio.formats.folders.names import format_options
from emlio.formats.mds import mds
from emlio.formats.registry import FORMATS, find_format
from emlio.formats.tabular.tables import arrow_tables, parquet_tables
from emlio.images.header import is_image_name
from emlio.index.opening import split_below
from emlio.prepare.sources.any_format import AnyFormat
from emlio.prepare.sources.array_columns import ArrayColumns, is_pair
from emlio.prepare.sources.class_names import ClassNames
from emlio.prepare.sources.manifest import Manifest
from emlio.prepare.sources.record_source import RecordSource
from emlio.prepare.sources.settings import SourceSettings
from emlio.prepare.sources.tfrecord_files import TfrecordFiles, looks_like_tfrecord
from emlio.prepare.sources.token_source import TokenFiles, has_index
from emlio.prepare.sources.tokenized_text import TokenizedText
from emlio.prepare.sources.tokenizer_library import Tokenizer
from emlio.prepare.sources.unpacked_files import plain_name, unpacked
from emlio.store.folder import UNFINISHED, Folder, is_unfinished
from emlio.store.folder_store import walk

__all__ = ["guess_kind", "open_source", "plain_source", "source_kinds", "split_source", "usual_name"]

_OWN: Final = ("csv", "manifest", "megatron", "npy-columns", "tfrecord", "tokens")
"""Kinds that are not read as the columns of a format."""

_SAME: Final = {"csv": "manifest", "tar": "webdataset"}
"""Other names of kinds."""

_LINES: Final = (".jsonl", ".ndjson")
_TOKENS: Final = ("megatron", "tokens")

_OF_FOLDERS: Final = ("files", "image-folder", "npy", "npy-columns", "npz")
"""Kinds in which a record is a whole file, so that one file would be one record."""

_UNPACKED: Final = ("jsonl", "mds", "webdataset")
"""Kinds whose files may be compressed; TFRecord files are unpacked where they are scanned."""

_OF_FILE: Final = {
    **dict.fromkeys((".csv", ".jsonl", ".ndjson"), "manifest"),
    ".npy": "npy-rows",
    ".tar": "webdataset",
    **dict.fromkeys(parquet_tables.extensions, parquet_tables.name),
    **dict.fromkeys(arrow_tables.extensions, arrow_tables.name),
}
"""The kind of a single file, by extension."""

_FORMS = (
    "one folder of images for each class, .tar, .npy, .npz, .jsonl, .parquet, .arrow or TFRecord files, MDS, Megatron-LM's "
    "files, or the path of a .csv or .jsonl manifest"
)


def source_kinds() -> tuple[str, ...]:
    """Return the kinds of sources that can be converted, all formats among them."""
    return tuple(sorted({*_OWN, "image-folder", "webdataset", *(each.name for each in FORMATS)}))


def usual_name(kind: str) -> str:
    """Return the usual one of the names of a kind."""
    return _SAME.get(kind, kind)


def guess_kind(path: Path, *, of_text: bool = False) -> str:
    """Return the format of the dataset at `path`.

    Args:
        path: a file or a folder.
        of_text: whether its records have text: then lines of JSON are records, and no manifest.

    Raises:
        DatasetError: nothing exists there, or its format is unknown.
    """
    try:
        if not path.is_file():
            return _kind_of_folder(path)
        return "jsonl" if of_text and path.suffix.lower() in _LINES else _kind_of_file(path)
    except OSError as error:
        raise DatasetError(f"source {path}: cannot be read: {error.strerror or error}") from error


def open_source(
    path: Path,
    kind: str,
    labels: Path | None,
    unpack_in: Path,
    options: Mapping[str, str] | None = None,
    settings: SourceSettings | None = None,
    unpacked_in: Path | None = None,
) -> RecordSource:
    """List a dataset of one of the `source_kinds`.

    Args:
        path: of the dataset.
        kind: its format.
        labels: a file that lists the classes, or None.
        unpack_in: a folder that may be created and used while the source is open.
        options: those of a format that is served in place.
        settings: what else is said of the source.
        unpacked_in: the folder that another process was given as `unpack_in`, and that has what it unpacked.

    Raises:
        ConfigError: the kind is unknown, or the file of classes cannot be used.
        DatasetError: the dataset is not of this format.
    """
    if not path.exists():
        raise DatasetError(f"source {path}: no such file or directory")
    kind, chosen = usual_name(kind), settings or SourceSettings()
    chosen.check(kind)
    if chosen.tokenizer is None:
        return _opened(path, kind, labels, unpack_in, options or {}, chosen, unpacked_in)
    tokenizer = Tokenizer(chosen.tokenizer)  # before the source is listed, which may take long
    source = _opened(path, kind, labels, unpack_in, options or {}, chosen, unpacked_in)
    try:
        return TokenizedText(source, tokenizer, chosen.tokenizer.field_of(kind), chosen.dtype)
    except BaseException:
        source.close()
        raise


def _opened(
    path: Path,
    kind: str,
    labels: Path | None,
    unpack_in: Path,
    options: Mapping[str, str],
    settings: SourceSettings,
    unpacked_in: Path | None,
) -> RecordSource:
    wants_file = kind == "manifest"
    if kind in (*_OF_FOLDERS, "manifest") and path.is_file() != wants_file:
        raise DatasetError(f"source {path}: must be a {'file' if wants_file else 'directory'} for format {kind}")
    classes = None if labels is None else ClassNames.read(labels)
    if kind in _TOKENS:
        if classes is not None:
            raise ConfigError("labels cannot be used with tokens, which have none")
        return TokenFiles(path, kind, settings, options)
    if kind == "npy" and is_pair(entry.name for entry in path.iterdir()):
        kind = "npy-columns"  # one record for x and one for y would be none of what is meant
    path, options = plain_source(path, kind, unpack_in, options)
    if kind not in _OWN and kind in source_kinds():
        return AnyFormat(path, kind, unpack_in, classes, options, unpacked_in)
    if format_options(options) or (options and kind != "tfrecord"):
        raise ConfigError(f"source {path}: format {kind} must be given without options, got {dict(options)}")
    match kind:
        case "manifest":
            return Manifest(path, classes, settings.file_column, settings.delimiter)
        case "npy-columns":
            if classes is not None:
                raise ConfigError("labels cannot be used with columns of arrays, which have no classes")
            return ArrayColumns(path)
        case "tfrecord":
            if classes is not None:
                raise ConfigError("labels cannot be used with TFRecord files, whose records are copied unchanged")
            return TfrecordFiles(path, unpack_in, options, unpacked_in)
        case _:
            raise ConfigError(f"the format of a source must be one of {', '.join(source_kinds())}, got {kind!r}")


def plain_source(path: Path, kind: str, unpack_in: Path, options: Mapping[str, str]) -> tuple[Path, Mapping[str, str]]:
    """Return the place of the same data without compression, and the options for it; see `unpacked`."""
    return unpacked(path, unpack_in / "plain", options) if kind in _UNPACKED else (path, options)


def split_source(path: Path, options: Mapping[str, str]) -> tuple[Path, dict[str, str]]:
    """Return the folder of the split that is chosen, and the other options; see `split_folder`.

    Raises:
        DatasetError: there are several splits, and none is chosen; or it cannot be read.
        ConfigError: there is no such split.
    """
    if not path.is_dir():
        return path, dict(options)
    try:
        with Folder(path, served=False) as folder:
            inside, given = split_below(folder, options)
    except OSError as error:
        raise DatasetError(f"source {path}: cannot be read: {error.strerror or error}") from error
    return path / inside, given


def _kind_of_file(path: Path) -> str:
    plain = plain_name(path.name)
    kind = _OF_FILE.get(os.path.splitext(plain)[1].lower())
    if kind is not None:
        # A compressed manifest would not lie beside the files that it lists.
        return "jsonl" if kind == "manifest" and plain != path.name else kind
    if looks_like_tfrecord(path):
        return "tfrecord"
    if has_index(path):
        return "megatron"
    if path.suffix.lower() == ".bin":
        raise _maybe_tokens(path)
    raise DatasetError(f"source {path}: unknown format, expected {_FORMS}. Choose a format with --from")


def _maybe_tokens(path: Path) -> DatasetError:
    return DatasetError(
        f"source {path}: unknown format. If it holds tokens, give their type: --from tokens --dtype uint16"
    )


def _kind_of_folder(path: Path) -> str:
    with os.scandir(path) as entries:
        everything = list(entries)
        here = sorted((entry for entry in everything if not entry.name.startswith(".")), key=lambda entry: entry.name)
    if not everything:
        raise DatasetError(f"source {path}: the folder is empty, expected {_FORMS}")
    if not here and is_unfinished(path):
        raise DatasetError(f"source {path}: {UNFINISHED}")
    names = [entry.name for entry in here if entry.is_file()]
    folders = [Path(entry.path) for entry in here if entry.is_dir()]
    if any(name.endswith(".tar") for name in names):
        return "webdataset"
    if any(name.endswith(".npy") and ".tfrec" not in name for name in names):
        return "npy-columns" if is_pair(names) else "npy"
    if any(looks_like_tfrecord(path / name) for name in names):
        return "tfrecord"
    for folder in folders:
        inside = next(
            (name for _, _, files in os.walk(folder) for name in sorted(files) if not name.startswith(".")), ""
        )
        if is_image_name(inside):
            return "image-folder"
        if inside.endswith(".npy"):
            return "npy"
    with Folder(path, served=False) as opened:
        tree = walk(opened)
        packed = {os.path.splitext(plain_name(name))[1].lower() for name in tree.names if plain_name(name) != name}
        if packed and not mds.claims(tree):
            return "webdataset" if ".tar" in packed else "jsonl"
        found = usual_name(find_format(tree, str(path)).name) if len(tree.names) else "files"
    # Any files at all would be of format files: that must be asked for.
    if found != "files":
        return found
    if any(name.lower().endswith(".bin") for name in names):
        raise _maybe_tokens(path)
    raise DatasetError(f"source {path}: unknown format, expected {_FORMS}. Choose a format with --from")
