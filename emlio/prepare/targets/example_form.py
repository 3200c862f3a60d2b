"""Items as tf.train.Example.

An encoded picture becomes the features of emlio.prepare.targets.example_form, a label
image/class/label. An array of more than one dimension becomes NAME/data, NAME/shape and NAME/dtype;
other columns become features of their own name.
"""

import json
import math
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from emlio.errors import DatasetError
from emlio.example import FeatureValue, encode_example, parse_example
from emlio.formats.each_record import IMAGE, LABEL
from emlio.formats.path_text import path_text
from emlio.images.header import picture_extension, read_image_header
from emlio.prepare.sample import Sample
from emlio.prepare.targets.tally import Record

__all__ = ["array_features", "example_record", "sample_of_example"]

_DERIVED: Final = tuple(f"image/{name}" for name in ("channels", "colorspace", "format", "height", "width"))
"""Features of a picture that follow from its bytes."""

_TEXTS: Final = frozenset(
    {"array/filename", "filename", "image/class/synset", "image/class/text", "image/filename", "path"}
)
"""Features that are text by their meaning; of others nothing says whether they are."""

_MAIN: Final = (IMAGE, "array", "data")

_Values: TypeAlias = list[Any]
"""Views of bytes, whole numbers or floats."""


def sample_of_example(record: Buffer) -> Sample:
    """Return a record as an item; one that is no tf.train.Example, or has no features, is bytes."""
    features: dict[str, _Values] = {}
    with suppress(DatasetError):
        features.update(parse_example(memoryview(record)))
    if not features:
        return Sample(columns={"record": memoryview(record)}, main="record")
    key = _taken(features, "__key__")
    # So are files and pictures written; elsewhere it may be a column of this name.
    path = _taken(features, "path") if {IMAGE, "data"} & features.keys() else ""
    columns: dict[str, Any] = {}
    for name in [name.removesuffix("/dtype") for name in features if name.endswith("/dtype")]:
        array = _array(features, name)
        if array is not None:
            columns[name] = array
    for name, values in features.items():
        columns.update(_columns(name, values))
    encoded, label = _view(columns.get(IMAGE)), columns.get(LABEL)
    extension = "" if encoded is None else picture_extension(encoded)
    if extension:
        for name in (IMAGE, *_DERIVED):
            columns.pop(name, None)
        # The name of a picture that was in a tar is its key's.
        if key and str(columns.get("image/filename", "")).partition(".")[0] == key.rpartition("/")[2]:
            del columns["image/filename"]
    if isinstance(label, int):
        del columns[LABEL]
    return Sample(
        columns=columns,
        main=next((name for name in _MAIN if name in columns), ""),
        picture=encoded if extension else None,
        path=path,
        filename=path.rpartition("/")[2],
        key=key,
        label=label if isinstance(label, int) else None,
    )


def _taken(features: dict[str, _Values], name: str) -> str:
    """Take a name out of the features; return an empty one if there is none."""
    value = _view(*features.get(name, ()))
    if value is None:
        return ""
    del features[name]
    return path_text(bytes(value))


def _columns(name: str, values: _Values) -> dict[str, Any]:
    """Return a feature as columns: one value by itself, several numbers as a list, several bytes each by itself."""
    if len(values) == 1:
        view = _view(*values) if name in _TEXTS else None
        return {name: values[0] if view is None else path_text(bytes(view))}
    if any(isinstance(value, memoryview) for value in values):
        return {f"{name}.{number}": value for number, value in enumerate(values)}
    return {name: values}


def _array(features: dict[str, _Values], name: str) -> npt.NDArray[Any] | None:
    """Take an array out of the features, which is its bytes, its type and its shape; None if it is none."""
    shape: list[Any] = list(features.get(f"{name}/shape", []))
    data, dtype = (_view(*features.get(f"{name}/{part}", ())) for part in ("data", "dtype"))
    if data is None or dtype is None:
        return None
    try:
        array: npt.NDArray[Any] = np.frombuffer(data, np.dtype(str(dtype, "ascii"))).reshape(shape)
    except (ValueError, TypeError):
        return None  # features that only have such names
    for part in ("data", "dtype", "shape"):
        features.pop(f"{name}/{part}", None)
    return array


def _view(*values: Any) -> memoryview | None:
    """Return the bytes that are the only value; None if it is another, or there are several."""
    return cast("memoryview", values[0]) if len(values) == 1 and isinstance(values[0], memoryview) else None


def image_features(encoded: bytes, filename: str) -> dict[str, FeatureValue]:
    """Return the features that follow from an image alone, named as in ImageNet's usual TFRecord files.

        image/encoded     bytes   the file, unchanged, never encoded again
        image/format      bytes   "JPEG", "PNG", ... by the content, not by the name
        image/height, image/width, image/channels          int64, from the header
        image/colorspace  bytes   "RGB", "Grayscale", "CMYK"
        image/filename    bytes   the file's name without folders
        image/class/label int64   from 0 (some ImageNet scripts count from 1; 0 is "background")
        image/class/text  bytes   the plain name of the class
        image/class/synset bytes  only where the class is a WordNet synset, like n01440764

    Raises:
        DatasetError: the bytes are not an image.
    """
    header = read_image_header(encoded)
    return {
        "image/channels": header.channels,
        "image/colorspace": header.colorspace,
        "image/encoded": encoded,
        "image/filename": filename,
        "image/format": header.format,
        "image/height": header.height,
        "image/width": header.width,
    }


_BEYOND = 2.0**128 - 2.0**103
"""Floats from here on become infinite in the 32 bits of a feature."""


def example_record(sample: Sample) -> Record:
    """Return an item as a record.

    Raises:
        ConfigError: a value has no form as a feature.
        DatasetError: its picture is none, or its label cannot be read.
    """
    if sample.record is not None:
        return Record(parts=(sample.record,))
    if sample.bare:
        return Record(parts=(np.ascontiguousarray(sample.columns[sample.main]).tobytes(),), label=sample.label)
    if sample.label_fault:
        raise DatasetError(sample.label_fault)
    features: dict[str, FeatureValue] = {}
    if sample.picture is not None:
        features.update(image_features(bytes(sample.picture), sample.filename))
    for column, value in sample.columns.items():
        if column not in sample.features:
            features.update(_features(column, value, whole_arrays=sample.whole_arrays))
    features.update(sample.features)
    if sample.label is not None:
        features["image/class/label"] = sample.label
        if sample.class_name:
            features["image/class/text"] = sample.class_name
    return Record(parts=(encode_example(features),), label=sample.label)


def _features(name: str, value: Any, *, whole_arrays: bool) -> dict[str, FeatureValue]:
    match value:
        case memoryview() | bytes():
            return {name: bytes(cast("bytes", value))}
        case str():
            return {name: value.encode("utf-8", "surrogateescape")}
        case float() if _BEYOND <= abs(value) < math.inf:
            raise DatasetError(
                f"column {name!r}: a float in a TFRecord file has 32 bits and must be below {_BEYOND:.4g}, got {value!r}. "
                "Convert to tars (--to wds), or leave the column out"
            )
        case bool() | int() | float():
            return {name: value}
        case np.generic():
            item = cast("Any", value).item()
            if isinstance(item, float):
                return _features(name, item, whole_arrays=whole_arrays)
            return {name: item if isinstance(item, int | float | bytes | str) else str(cast("Any", value))}
        case np.ndarray():
            array = cast("npt.NDArray[Any]", value)
            return (
                {name: array.item()}
                if not array.ndim and not whole_arrays
                else array_features(name, array, whole=whole_arrays)
            )
        case Decimal():
            return {name: str(value)}
        case _:
            return {name: json.dumps(value)}


def array_features(name: str, array: npt.NDArray[Any], *, whole: bool) -> dict[str, FeatureValue]:
    """Return an array as features.

    Args:
        name: of the column.
        array: of any shape; of one dimension it is a feature of its own, if no bits are lost.
        whole: whether it becomes bytes, a shape and a type in any case.
    """
    if array.ndim == 1 and not whole:
        if array.dtype.kind in "iu" and array.dtype.itemsize <= 4:
            return {name: array.astype(np.int64)}
        if array.dtype in (np.dtype(np.int64), np.dtype(np.float32)):
            return {name: array}
    features: dict[str, FeatureValue] = {
        f"{name}/data": np.ascontiguousarray(array).tobytes(),
        f"{name}/dtype": array.dtype.str,
    }
    if array.ndim:
        features[f"{name}/shape"] = np.array(array.shape, np.int64)
    return features
