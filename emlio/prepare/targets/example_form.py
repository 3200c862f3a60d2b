"""Items as tf.train.Example.

An encoded picture becomes the features of emlio.prepare.targets.image_example, a label
image/class/label. An array of more than one dimension becomes NAME/data, NAME/shape and NAME/dtype;
other columns become features of their own name.

Covers: the features of an item. Does not cover: making items (emlio.prepare.sources), frames
(emlio.prepare.targets.tfrecord_shard).
"""

import json
import math
from decimal import Decimal
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.example import FeatureValue, encode_example
from emlio.prepare.sample import Sample
from emlio.prepare.targets.image_example import image_features
from emlio.prepare.targets.record import Record

__all__ = ["array_features", "example_record"]

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
