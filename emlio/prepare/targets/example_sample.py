"""Records of TFRecord files as items, for targets that do not copy them.

Covers: which features are the picture, the label and the key; arrays in three features; records that
are no tf.train.Example. Does not cover: reading records (emlio.prepare.sources.tfrecord_files).
"""

from contextlib import suppress
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from emlio.errors import DatasetError
from emlio.example import parse_example
from emlio.formats.each_record import IMAGE, LABEL
from emlio.formats.path_text import path_text
from emlio.images.header import picture_extension
from emlio.prepare.sample import Sample

__all__ = ["sample_of_example"]

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
