"""Which form a dataset has, and the source that reads it.

Covers: the forms by name, and guessing one from what lies at a path. Does not cover: reading them.
"""

import os
from pathlib import Path
from typing import Final

from emlio.daemon.prepare.class_names import ClassNames
from emlio.daemon.prepare.image_folder import ImageFolder
from emlio.daemon.prepare.manifest import Manifest
from emlio.daemon.prepare.npy_folder import NpyFolder
from emlio.daemon.prepare.source import Source
from emlio.daemon.prepare.tfrecord_files import TfrecordFiles, looks_like_tfrecord
from emlio.daemon.prepare.webdataset import WebDataset
from emlio.errors import ConfigError, DatasetError
from emlio.images.header import is_image_name

__all__ = ["SOURCE_KINDS", "guess_kind", "open_source"]

SOURCE_KINDS: Final = ("image-folder", "manifest", "npy", "tfrecord", "webdataset")

_TABLES = frozenset({".csv", ".jsonl", ".ndjson"})
_FORMS = "one folder of images for each class, .tar, .npy or TFRecord files, or the path of a .csv or .jsonl manifest"


def guess_kind(path: Path) -> str:
    """The form of what lies at `path`.

    Raises:
        DatasetError: nothing lies there, or nothing that is known.
    """
    try:
        return _kind_of_file(path) if path.is_file() else _kind_of_folder(path)
    except OSError as error:
        raise DatasetError(f"source {path}: cannot be read: {error.strerror or error}") from error


def open_source(path: Path, kind: str, labels: Path | None, unpack_in: Path) -> Source:
    """List a dataset of one of the SOURCE_KINDS.

    Args:
        path: where it lies.
        kind: its form.
        labels: a file that lists the classes, or None.
        unpack_in: a folder that may be made and used while the source is open.

    Raises:
        ConfigError: no such kind, or the file of classes cannot be used.
        DatasetError: what lies there is not of this form.
    """
    if not path.exists():
        raise DatasetError(f"source {path}: there is no such file or directory")
    wants_file = kind == "manifest"
    if kind in ("image-folder", "npy", "manifest") and path.is_file() != wants_file:
        raise DatasetError(f"source {path}: {kind} must be a {'file' if wants_file else 'directory'}")
    classes = None if labels is None else ClassNames.read(labels)
    match kind:
        case "image-folder":
            return ImageFolder(path, classes)
        case "manifest":
            return Manifest(path, classes)
        case "npy":
            return NpyFolder(path, classes)
        case "webdataset":
            return WebDataset(path, classes)
        case "tfrecord":
            if classes is not None:
                raise ConfigError("labels cannot be given for TFRecord files: their records are copied as they are")
            return TfrecordFiles(path, unpack_in)
        case _:
            raise ConfigError(f"the form of a source must be one of {', '.join(SOURCE_KINDS)}, got {kind!r}")


def _kind_of_file(path: Path) -> str:
    if path.suffix.lower() in _TABLES:
        return "manifest"
    if path.suffix.lower() == ".tar":
        return "webdataset"
    if looks_like_tfrecord(path):
        return "tfrecord"
    raise DatasetError(f"source {path}: its form is not known; looked for {_FORMS}. Say it with --from")


def _kind_of_folder(path: Path) -> str:
    with os.scandir(path) as entries:
        here = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)
    names = [entry.name for entry in here if entry.is_file()]
    folders = [Path(entry.path) for entry in here if entry.is_dir()]
    if any(name.endswith(".tar") for name in names):
        return "webdataset"
    if any(name.endswith(".npy") and ".tfrec" not in name for name in names):
        return "npy"
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
    raise DatasetError(f"source {path}: its form is not known; looked for {_FORMS}. Say it with --from")
