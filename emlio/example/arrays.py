"""Arrays that are stored as three features: NAME/data, NAME/dtype and, unless they are scalars, NAME/shape."""

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError

__all__ = ["array_columns", "array_faults", "array_names", "parts_of"]

_DATA: Final = "/data"
_DTYPE: Final = "/dtype"
_SHAPE: Final = "/shape"
_KINDS: Final = "biufcSUmMV"
_MOST_TYPE_BYTES: Final = 64
_MOST_AXES: Final = 31
"""One less than NumPy 1 has: the batch is one more."""

_REMEDY: Final = "To load the features as they are, name them with fields="


def array_names(features: Collection[str]) -> list[str]:
    """Return the names of arrays whose parts are among these features, in their order."""
    names = [name.removesuffix(_DATA) for name in features if name.endswith(_DATA)]
    return [name for name in names if name and name not in features and f"{name}{_DTYPE}" in features]


def parts_of(name: str, features: Collection[str]) -> list[str]:
    """Return the features that are the parts of an array."""
    parts = [f"{name}{_DATA}", f"{name}{_DTYPE}"]
    return [*parts, f"{name}{_SHAPE}"] if f"{name}{_SHAPE}" in features else parts


def array_columns(columns: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a column for each array: one array if all have one type and shape, else a list of arrays.

    A record without any of an array's parts has None.

    Args:
        columns: of a batch, with the parts.
        names: of the arrays.

    Raises:
        DatasetError: the parts of a record do not fit; the message names its place.
    """
    made: dict[str, Any] = {}
    for name in names:
        alike = _alike(columns, name)
        if alike is not None:
            made[name] = alike
            continue
        arrays: list[npt.NDArray[Any] | None] = []
        for place in range(len(columns[f"{name}{_DATA}"])):
            try:
                arrays.append(_array(columns, name, place))
            except DatasetError as error:
                raise DatasetError(f"record {place} of the batch: {error}") from error
        made[name] = _together(arrays)
    return made


def array_faults(columns: Mapping[str, Any], names: Sequence[str]) -> dict[int, str]:
    """Return the places of the records whose parts do not fit, with the reasons."""
    faults: dict[int, str] = {}
    for name in names:
        for place in range(len(columns[f"{name}{_DATA}"])):
            try:
                _array(columns, name, place)
            except DatasetError as error:
                faults.setdefault(place, str(error))
    return faults


def _alike(columns: Mapping[str, Any], name: str) -> npt.NDArray[Any] | None:
    """Return the column of arrays that are all of one type and shape; None if they are not, or one does not fit."""
    datas, texts, shapes = (columns.get(f"{name}{part}") for part in (_DATA, _DTYPE, _SHAPE))
    if not (isinstance(shapes, np.ndarray) and isinstance(datas, list) and isinstance(texts, list)):
        return None
    views, types = cast("Sequence[Any]", datas), cast("Sequence[Any]", texts)
    lengths = cast("npt.NDArray[Any]", shapes).reshape(len(views), -1)
    if lengths.dtype.kind != "i" or not 1 <= lengths.shape[1] <= _MOST_AXES:
        return None
    if not all(isinstance(view, memoryview) for view in (*views, *types)) or (lengths != lengths[0]).any():
        return None
    dtype, shape = _type(bytes(types[0][:_MOST_TYPE_BYTES])), lengths[0].tolist()
    if dtype is None or any(text != types[0] for text in types) or min(shape) < 1:
        return None
    size = math.prod(shape) * dtype.itemsize
    if any(len(view) != size for view in views):
        return None
    # A bytearray, not bytes: torch warns about read-only arrays.
    together = np.frombuffer(bytearray().join(views), dtype).reshape(len(views), *shape)
    return together.astype(dtype.newbyteorder("="), copy=False)


def _together(given: list[npt.NDArray[Any] | None]) -> Any:
    arrays = [array for array in given if array is not None]
    first = arrays[0]
    if len(arrays) == len(given) and all(array.shape == first.shape and array.dtype == first.dtype for array in arrays):
        return np.stack(arrays).astype(first.dtype.newbyteorder("="), copy=False)
    # Copies: bytes of a message can neither be written nor kept, and may not be aligned.
    return [None if array is None else array.astype(array.dtype.newbyteorder("=")) for array in given]


def _array(columns: Mapping[str, Any], name: str, place: int) -> npt.NDArray[Any] | None:
    """Return the array of one record, on its bytes; None if it has no part of it."""
    if all(columns[part][place] is None for part in parts_of(name, columns)):
        return None
    data, text = (_only(columns[f"{name}{part}"][place], f"{name}{part}") for part in (_DATA, _DTYPE))
    dtype = _type(bytes(text[:_MOST_TYPE_BYTES]))
    if dtype is None:
        raise DatasetError(
            f"feature {f'{name}{_DTYPE}'!r} must be the type of an array, got {bytes(text[:_MOST_TYPE_BYTES])!r}. {_REMEDY}"
        )
    lengths = columns[f"{name}{_SHAPE}"][place] if f"{name}{_SHAPE}" in columns else None
    shape: list[int] = [] if lengths is None else np.atleast_1d(lengths).tolist()
    try:
        if any(type(length) is not int or length < 0 for length in shape):
            raise ValueError("lengths must be whole numbers of at least 0")
        if len(shape) > _MOST_AXES:
            raise ValueError(f"at most {_MOST_AXES} lengths can be read")
        flat = np.frombuffer(data, dtype) if len(data) else np.empty(0, dtype)
        return flat.reshape(shape)
    except (ValueError, OverflowError) as error:
        raise DatasetError(
            f"the array {name!r} must have the bytes of {dtype} {tuple(shape)}, has {len(data)}: {error}. {_REMEDY}"
        ) from error


def _only(value: Any, name: str) -> memoryview:
    """Return the only bytes value of a feature."""
    if isinstance(value, memoryview):
        return cast("memoryview", value)
    values = cast("Sequence[object]", value) if isinstance(value, list) else None
    if values is not None and len(values) == 1:  # in a list if other records have more
        return cast("memoryview", values[0])
    got = "none" if value is None else "numbers" if values is None else f"{len(values)} values"
    raise DatasetError(f"feature {name!r} must be one value of bytes, as part of an array, got {got}. {_REMEDY}")


@lru_cache(maxsize=256)
def _type(text: bytes) -> "np.dtype[Any] | None":
    """Return the type of this name; None if there is none, or it is one of objects or structures."""
    try:
        dtype = np.dtype(text.decode("ascii"))
    except (UnicodeDecodeError, ValueError, TypeError, SyntaxError):
        return None
    plain = dtype.kind in _KINDS and dtype.names is None and dtype.subdtype is None and not dtype.hasobject
    return dtype if plain and dtype.itemsize else None
