"""Values of a column as features."""

import io
import sys
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.example import FeatureValue
from emlio.prepare.targets.example_form import array_features
from emlio.prepare.targets.tally import FeatureForm

__all__ = ["KINDS", "Kind", "features_of", "form_of_feature", "kind_of", "may_be", "plain"]

Kind: TypeAlias = Literal["array", "bytes", "float32", "int64", "str"]

KINDS: tuple[Kind, ...] = ("array", "bytes", "float32", "int64", "str")
"""The kinds of a column's values."""

_ALLOWED = "bytes, str, a number, a NumPy array, a tensor, a PIL image, or a list of numbers, of bytes or of str in one dimension"
_BYTES = (bytes, bytearray, memoryview)
_AS_THEY_ARE = (*_BYTES, str, bool, int, float)
_PNG_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})
"""Modes that a PNG keeps without loss."""


def plain(value: Any) -> Any:
    """Return a value as bytes, text, a number, a list of one of them, or an array of one dimension or more.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(value, _AS_THEY_ARE):
        return cast("object", value)
    if isinstance(value, np.generic | np.ndarray):
        return _of_numpy(cast("np.generic | npt.NDArray[Any]", value))
    if isinstance(value, list | tuple | range):
        return _of_list(cast("Sequence[object]", value))
    pillow = sys.modules.get("PIL.Image")  # an image can only come from a program that has loaded it
    if pillow is not None and isinstance(value, pillow.Image):
        return _png(value)
    return _of_numpy(_of_tensor(value))


def kind_of(value: Any) -> Kind | None:
    """Return the kind of a plain value; None for an empty list, which has none."""
    if isinstance(value, np.ndarray):
        return _kind_of_array(cast("npt.NDArray[Any]", value))
    one = value
    if isinstance(value, list):
        items = cast("list[object]", value)
        if not items:
            return None
        # One float makes all of a list floats.
        one = next((item for item in items if not isinstance(item, Integral)), items[0])
    if isinstance(one, _BYTES):
        return "bytes"
    if isinstance(one, str):
        return "str"
    return "int64" if isinstance(one, Integral) else "float32"


def may_be(value: Any, kind: Kind, *, convert: bool) -> bool:
    """Return whether a plain value may stand in a column of this kind.

    Args:
        value: the value.
        kind: of the column.
        convert: whether the kind was named by the user: then arrays may lose bits on the way to it.
    """
    own = kind_of(value)
    if own == kind or own is None:
        return own is not None or kind != "array"
    is_array = isinstance(value, np.ndarray)
    if kind == "array":
        return own in ("int64", "float32") and (is_array or convert)
    if kind == "float32" and own == "int64":
        return True
    if not (convert and is_array and cast("npt.NDArray[Any]", value).ndim == 1):
        return False
    letter = cast("npt.NDArray[Any]", value).dtype.kind
    return letter in ("biu" if kind == "int64" else "biuf" if kind == "float32" else "")


def features_of(name: str, value: Any, kind: Kind) -> dict[str, FeatureValue]:
    """Return a plain value, which `may_be` of this kind, as features.

    Raises:
        ConfigError: text cannot be encoded.
    """
    if kind == "array":
        return array_features(name, np.asarray(value), whole=True)
    if isinstance(value, np.ndarray):
        return {name: cast("npt.NDArray[Any]", value)} if kind == "int64" else {name: np.asarray(value, np.float32)}
    if isinstance(value, list):
        items = cast("Sequence[Any]", value)
        if kind == "int64":
            return {name: items or np.empty(0, np.int64)}
        if kind == "float32":
            return {name: np.array(items, np.float64)}
        return {name: [_octets(item) for item in items] if items else np.empty(0, "S1")}
    if kind == "int64":
        return {name: int(value)}
    if kind == "float32":
        return {name: float(value)}
    return {name: _octets(value)}


def form_of_feature(value: FeatureValue) -> FeatureForm:
    """Return the kind of a feature that `features_of` made, and how many values it has."""
    if isinstance(value, np.ndarray):
        letter = value.dtype.kind
        return "float" if letter == "f" else "bytes" if letter == "S" else "int64", value.size
    if isinstance(value, list):
        return "bytes" if isinstance(value[0], _BYTES) else "int64", len(value)
    if isinstance(value, (*_BYTES, str)):
        return "bytes", 1
    return "float" if isinstance(value, float) else "int64", 1


def _kind_of_array(array: npt.NDArray[Any]) -> Kind:
    """Return the kind of the feature that holds the array bit for bit, as `emlio convert` chooses it."""
    if array.ndim == 1:
        if array.dtype == np.int64 or (array.dtype.kind in "iu" and array.dtype.itemsize <= 4):
            return "int64"
        if array.dtype == np.float32:
            return "float32"
    return "array"


def _of_numpy(value: "np.generic | npt.NDArray[Any]") -> Any:
    if isinstance(value, np.ma.MaskedArray):
        raise ConfigError("must be an array without a mask; fill it first: value.filled(0)")
    array = np.asarray(value)
    letter = array.dtype.kind
    if letter in "OV":
        raise ConfigError(f"must be an array of numbers, bytes or text, got one of dtype {array.dtype}")
    if array.ndim:
        return array
    match letter:
        case "b" | "i" | "u":
            return int(array)
        case "f":
            return float(array)
        case "S" | "U":
            return array.item()
        case _:
            return array


def _of_list(value: Sequence[object]) -> list[Any]:
    kinds = set(map(type, value))
    items = list(value) if kinds <= {int, float, bool, str, bytes} else [plain(item) for item in value]
    for which in (_BYTES, str, Real):
        if all(isinstance(item, which) for item in items):
            return items
    if any(isinstance(item, list | np.ndarray) for item in items):
        raise ConfigError(
            f"must be {_ALLOWED}, got a list with {type(value[0]).__name__} in it. Give it as one array: "
            "numpy.array(value)"
        )
    raise ConfigError(
        f"must be a list of one kind of value, got one of {', '.join(sorted(kind.__name__ for kind in kinds))}"
    )


def _of_tensor(value: Any) -> npt.NDArray[Any]:
    """Return the array of anything that can become one, without importing what it belongs to."""
    try:
        if hasattr(value, "detach") and hasattr(value, "cpu"):
            return np.asarray(value.detach().cpu().numpy())
        if hasattr(value, "__array__"):
            return np.asarray(value)
        if hasattr(value, "numpy"):
            return np.asarray(value.numpy())
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"must be a tensor that NumPy can hold, got {type(value).__name__}: {error}") from error
    raise ConfigError(f"must be {_ALLOWED}, got {type(value).__name__}: {value!r:.80}")


def _png(image: Any) -> bytes:
    if image.mode not in _PNG_MODES:
        raise ConfigError(
            f"must be a PIL image of a mode that a PNG keeps ({', '.join(sorted(_PNG_MODES))}), got mode "
            f"{image.mode!r}. Convert it, or give the bytes of an encoded file"
        )
    file = io.BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()


def _octets(value: Any) -> bytes:
    """Return bytes that do not change; those of `bytes` are not copied."""
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise ConfigError(f"must be text that can be encoded as UTF-8, got {value!r:.80}") from error
    return bytes(cast("bytes | bytearray | memoryview", value))
