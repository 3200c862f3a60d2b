"""Records of any format that is served as it lies, to be written as tf.train.Example.

An encoded image becomes the features of emlio.prepare.targets.image_example, its label image/class/label.
An array of more than one dimension becomes NAME/data, NAME/shape and NAME/dtype, as those of .npy
folders do; other columns become features of their own name.

Covers: the listing, the features of one record. Does not cover: the formats (emlio.formats).
"""

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from threading import Lock
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.example import FeatureValue, encode_example
from emlio.formats.contents import TFRECORD
from emlio.formats.each_record import IMAGE, LABEL
from emlio.formats.registry import form_of
from emlio.images.header import IMAGE_EXTENSIONS
from emlio.planner.catalog import Catalog
from emlio.prepare.sources.class_names import ClassNames
from emlio.prepare.sources.record_source import Fingerprint, Listing, Record
from emlio.prepare.targets.image_example import image_features
from emlio.shards.opening.choice import open_dataset
from emlio.shards.range_records import columns_of, read_ranges

__all__ = ["AnyFormat"]


class AnyFormat:
    """Records in the order of the dataset."""

    def __init__(self, path: Path, options: Mapping[str, str], classes: ClassNames | None = None) -> None:
        """Index the dataset.

        Args:
            path: its folder.
            options: "format" and those of the format.
            classes: the names of its labels; by default those that the format knows.

        Raises:
            DatasetError: it is not of this format.
        """
        self._dataset = open_dataset(path.name, path, options=options)
        contents = self._dataset.contents
        if contents.format == TFRECORD.format:
            raise DatasetError(f"source {path}: holds TFRecord files, whose form is tfrecord")
        self._form = form_of(contents, None)
        self._roles = {role: form_of(contents, [role]) for role in (IMAGE, LABEL)}
        self._catalog = Catalog(shards=self._dataset.entries)
        self._names = dict(contents.label_names) if classes is None else dict(classes.texts)
        self._lock = Lock()
        fingerprint = Fingerprint(contents.format)
        fingerprint.add(self._catalog.fingerprint)
        for label, name in self._names.items():
            fingerprint.add(label, name)
        sizes = np.concatenate([shard.ends - shard.starts for shard in self._dataset.shards])
        self.listing = Listing(
            sizes_bytes=sizes.astype(np.int64), fingerprint=fingerprint.hexdigest(), label_names=self._names
        )

    def key(self, place: int) -> str:
        """Return the file and the record in it."""
        shard, record = self._where(place)
        one = np.array([record], np.int64)
        held = self._dataset.shards[shard]
        path = self._dataset.files.path(int(held.files_of(shard, one)[0]))
        return f"{path}: record {record}" if int(held.starts[record]) or held.records > 1 else str(path)

    def _where(self, place: int) -> tuple[int, int]:
        shards, records = self._catalog.locate(np.array([place], np.int64))
        return int(shards[0]), int(records[0])

    def record(self, place: int) -> Record:
        """Read one record."""
        shard, record = self._where(place)
        ((_, piece),) = read_ranges(self._dataset, shard, [record])
        columns = columns_of(self._form, piece)
        roles = {
            role: form.columns([piece], 1)[role][0] for role, form in self._roles.items() if not form.faults([piece])
        }
        features: dict[str, FeatureValue] = {}
        image = roles.get(IMAGE)
        name = str(columns.get("path", columns.get("__key__", "")))
        if image is not None and image_name(columns, image, name):
            features.update(image_features(bytes(image), image_name(columns, image, name)))
        else:
            image = None
        label = int(roles[LABEL]) if LABEL in roles else None
        if label is not None:
            features[LABEL] = label
            if label in self._names:
                features["image/class/text"] = self._names[label]
        for column, value in columns.items():
            if value is image or (label is not None and column in ("label", "cls")):
                continue
            features.update(_features(column, value))
        return Record(parts=(encode_example(features),), label=label)

    def close(self) -> None:
        """Close the dataset."""
        self._dataset.close()


def image_name(columns: Mapping[str, Any], image: Any, name: str) -> str:
    """Return a file's name for an image, with its extension; empty if nothing says that it is one."""
    column = next((column for column, value in columns.items() if value is image), "")
    if column in IMAGE_EXTENSIONS:
        return f"{Path(name).name or 'image'}.{column}"
    return Path(name).name if Path(name).suffix.lower().removeprefix(".") in IMAGE_EXTENSIONS else ""


def _features(name: str, value: Any) -> dict[str, FeatureValue]:
    match value:
        case memoryview() | bytes():
            return {name: bytes(cast("bytes", value))}
        case str():
            return {name: value.encode("utf-8", "surrogateescape")}
        case bool() | int() | float():
            return {name: value}
        case np.generic() | np.ndarray():
            array: npt.NDArray[Any] = np.asarray(cast("Any", value))
            return {name: array.item()} if isinstance(value, np.generic) else _of_array(name, array)
        case Decimal():
            return {name: str(value)}
        case _:
            return {name: json.dumps(value)}


def _of_array(name: str, array: npt.NDArray[Any]) -> dict[str, FeatureValue]:
    if array.ndim == 1 and array.dtype.kind in "iu" and array.dtype.itemsize <= 4:
        return {name: array.astype(np.int64)}
    if array.ndim == 1 and array.dtype in (np.dtype(np.int64), np.dtype(np.float32)):
        return {name: array}
    return {
        f"{name}/data": np.ascontiguousarray(array).tobytes(),
        f"{name}/shape": np.array(array.shape, np.int64),
        f"{name}/dtype": array.dtype.str,
    }
