"""Items of the formats that are served in place."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from emlio.example import FeatureValue
from emlio.formats.path_text import path_bytes
from emlio.images.header import IMAGE_EXTENSIONS, is_image_name, picture_extension
from emlio.prepare.sample import Sample
from emlio.prepare.sources.class_names import is_synset

__all__ = ["Told", "sample_of"]

_MAIN: Final = {"npy": "array", "npy-rows": "row"}
"""The column that is the whole record, by kind of source."""

_TABLES: Final = ("arrow", "parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Facts about a record besides its columns.

    Attributes:
        path: of its file, if it is a whole file.
        label: its class, if it follows from the path.
        folder: the name of its class, if it follows from the path.
        class_names: plain names of classes by number.
        picture: the column of an encoded image, if the format names one.
        labels: the column of a label, if the format names one.
    """

    path: str = ""
    label: int | None = None
    folder: str = ""
    class_names: Mapping[int, str]
    picture: str = ""
    labels: str = ""

    def name(self, label: int | None) -> str:
        """Return the plain name of a class; empty if there is none."""
        return "" if label is None else self.class_names.get(label, "")


def sample_of(kind: str, data: memoryview, row: Mapping[str, Any], told: Told) -> Sample:
    """Return a record as an item.

    Args:
        kind: of the source.
        data: the record's bytes.
        row: its columns, for whole files those of the content alone.
        told: what is known besides.
    """
    match kind:
        case "webdataset":
            return _of_tar(row, told)
        case "files" | "image-folder":
            return _of_file(kind, data, told)
        case "npy" | "npz":
            return _of_arrays(kind, row, told)
        case "jsonl":
            return Sample(columns=row, members={"json": bytes(data).strip()})
        case _:
            return _of_columns(kind, row, told)


def _of_tar(row: Mapping[str, Any], told: Told) -> Sample:
    key = str(row["__key__"])
    members = {name: data for name, data in row.items() if name != "__key__"}
    picture = next((name for name in members if name in IMAGE_EXTENSIONS), None)
    label, fault = None, ""
    if "cls" in members:
        text = bytes(members["cls"])
        try:
            label = int(text.decode("ascii"))
        except ValueError:
            fault = f"its .cls must be a whole number, got {text[:40]!r}"
    return Sample(
        columns={name: data for name, data in members.items() if name not in (picture, "cls")},
        picture=None if picture is None else members[picture],
        filename="" if picture is None else f"{_base(key)}.{picture}",
        key=key,
        label=label,
        class_name=told.name(label),
        label_fault=fault,
        features={"__key__": path_bytes(key)},
        members=members,
    )


def _of_file(kind: str, data: memoryview, told: Told) -> Sample:
    is_picture = is_image_name(told.path)
    features: dict[str, FeatureValue] = {}
    if kind == "files":
        features["path"] = path_bytes(told.path)
    elif is_synset(told.folder):
        features["image/class/synset"] = told.folder
    return Sample(
        columns={} if is_picture else {"data": data},
        main="" if is_picture else "data",
        picture=data if is_picture else None,
        path=told.path,
        filename=_base(told.path),
        label=told.label,
        class_name=told.name(told.label),
        features=features,
    )


def _of_arrays(kind: str, row: Mapping[str, Any], told: Told) -> Sample:
    features: dict[str, FeatureValue] = {}
    if kind == "npy":
        features["array/filename"] = path_bytes(_base(told.path))
    elif "path" not in row:  # an array of this name is what the user stored
        features["path"] = path_bytes(told.path)
    return Sample(
        columns=row,
        main=_MAIN.get(kind, ""),
        path=told.path,
        filename=_base(told.path),
        label=told.label,
        class_name=told.name(told.label),
        whole_arrays=kind == "npy",
        features=features,
    )


def _of_columns(kind: str, row: Mapping[str, Any], told: Told) -> Sample:
    # A null of a table is a value that the row lacks.
    columns = {name: value for name, value in row.items() if value is not None or kind not in _TABLES}
    found = columns.get(told.picture)
    picture = cast("bytes", found) if isinstance(found, memoryview | bytes) else b""
    extension = picture_extension(picture)
    if extension:
        del columns[told.picture]
    label = columns.get(told.labels)
    is_number = isinstance(label, int | np.integer) and not isinstance(label, bool)
    number = int(cast("int", label)) if is_number else None
    if number is not None:
        del columns[told.labels]
    return Sample(
        columns=columns,
        main=_MAIN.get(kind, ""),
        picture=picture if extension else None,
        filename=f"image.{extension}" if extension else "",
        label=number,
        class_name=told.name(number),
    )


def _base(path: str) -> str:
    return path.rpartition("/")[2]
