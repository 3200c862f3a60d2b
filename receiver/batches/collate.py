"""Collation of samples into a batch, as users of PyTorch expect it.

Covers: numbers, arrays, tensors, strings, dicts, tuples and lists of them. Does not cover: padding
of different lengths, which only the user can decide (`collate_fn=`).
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import numpy as np

from emlio.errors import ConfigError
from emlio.receiver.records.decoded import Decoded

__all__ = ["Arrays", "BatchForm", "Collated", "Tensors", "as_tensor", "collated_by", "default_collate"]

_NUMBERS = "biufc"
"""The kinds of arrays that become tensors; PyTorch has no text and no times."""

_STACKED = (np.ndarray, np.generic, int, float, bool)


def collated_by(collate_fn: Callable[[Sequence[Any]], Any], samples: Sequence[Any]) -> Any:
    """Return what the user's function makes of samples; note on its error with what it was called."""
    try:
        return collate_fn(samples)
    except Exception as error:
        first = f", the first a {_kind(samples[0])}" if samples else ""
        error.add_note(f"in collate_fn, which gets a list of samples: here {len(samples)}{first}")
        raise


def _kind(sample: object) -> str:
    kind = type(sample).__name__
    return (
        f"{kind} of {', '.join(map(repr, cast('dict[object, object]', sample)))}" if isinstance(sample, dict) else kind
    )


def default_collate(samples: Sequence[Any], to_tensor: Callable[[Any], Any] | None) -> Any:
    """Return the samples stacked, element by element; values that cannot be stacked stay a list."""
    first = samples[0]
    unlike = next((sample for sample in samples if _form(sample) != _form(first)), first)
    if unlike is not first:
        raise ConfigError(
            f"samples of a batch must be alike, got {type(first).__name__} and {type(unlike).__name__}. Return the same "
            "from each call of the transform, or pass a collate_fn that knows what to do with them"
        )
    if isinstance(first, dict):
        return _collate_dicts(samples, to_tensor)
    if isinstance(first, tuple | list):
        if len({len(sample) for sample in samples}) != 1:
            raise ConfigError(
                "samples that are tuples or lists must have equal lengths. Pass a collate_fn that pads them"
            )
        parts = [_values(part, to_tensor) for part in zip(*samples, strict=True)]
        return tuple(parts) if isinstance(first, tuple) else parts
    if isinstance(first, bytes | str | memoryview):
        return list(samples)
    if hasattr(first, "new_empty"):  # a tensor: its own module stacks it, without an import here
        return _stack_tensors(samples)
    if isinstance(first, _STACKED):
        arrays = [np.asarray(sample) for sample in samples]
        if any(array.shape != arrays[0].shape for array in arrays):
            shapes = sorted({array.shape for array in arrays})[:3]
            raise ConfigError(
                f"arrays must have the same shape to be stacked, got {shapes}. Pass a collate_fn that pads them"
            )
        return as_tensor(np.stack(arrays), to_tensor)
    return list(samples)


def _form(sample: Any) -> str:
    """Return how a sample is collated; "" if it stays in a list."""
    if isinstance(sample, dict):
        return "by its keys"
    if isinstance(sample, tuple | list):
        return "by its places"
    return "stacked" if isinstance(sample, _STACKED) or hasattr(sample, "new_empty") else ""


def _collate_dicts(samples: Sequence[dict[Any, Any]], to_tensor: Callable[[Any], Any] | None) -> dict[Any, Any]:
    unlike = next((sample for sample in samples if sample.keys() != samples[0].keys()), None)
    if unlike is not None:
        raise ConfigError(
            f"samples that are dicts must have equal keys, got {list(samples[0])} and {list(unlike)}. Pass a collate_fn "
            "that knows what to do with them"
        )
    return {key: _values([sample[key] for sample in samples], to_tensor) for key in samples[0]}


def _values(values: Sequence[Any], to_tensor: Callable[[Any], Any] | None) -> Any:
    if all(value is not None for value in values):
        return default_collate(values, to_tensor)
    # Some records lack this value: the others stay single values, as in a batch without a transform.
    return [as_tensor(value, to_tensor) for value in values]


def as_tensor(value: Any, make: Callable[[Any], Any] | None) -> Any:
    """Return an array as a tensor, if PyTorch has its type; every other value as it is."""
    array: Any = value
    if make is None or not isinstance(value, np.ndarray) or array.dtype.kind not in _NUMBERS:
        return array
    return make(array)


def _stack_tensors(samples: Sequence[Any]) -> Any:
    first = samples[0]
    unlike = sorted({tuple(sample.shape) for sample in samples} - {tuple(first.shape)})[:3]
    if unlike:
        raise ConfigError(
            f"tensors must have the same shape to be stacked, got {[tuple(first.shape), *unlike]}. Pass a collate_fn that "
            "pads them"
        )
    out = first.new_empty((len(samples), *first.shape))
    for place, sample in enumerate(samples):
        out[place] = sample
    return out


class BatchForm(Protocol):
    """Makes batches. Keeps no state between batches, so any thread may use it."""

    def of_columns(self, decoded: Decoded) -> Any:
        """Return the batch of records that need no transform."""
        ...

    def of_samples(self, samples: Sequence[Any]) -> Any:
        """Return the batch of these samples: a transform's outputs."""
        ...


class Arrays:
    """NumPy arrays. See `BatchForm`."""

    def of_columns(self, decoded: Decoded) -> Any:
        """See `BatchForm`."""
        return dict(decoded.columns)

    def of_samples(self, samples: Sequence[Any]) -> Any:
        """See `BatchForm`."""
        return default_collate(samples, None)


class Tensors:
    """Tensors on the memory of the arrays. See `BatchForm`."""

    def __init__(self, to_tensor: Callable[[Any], Any]) -> None:
        """Make tensors with this function."""
        self._to_tensor = to_tensor

    def of_columns(self, decoded: Decoded) -> Any:
        """See `BatchForm`."""
        make = self._to_tensor
        return {name: _to_tensors(column, make) for name, column in decoded.columns.items()}

    def of_samples(self, samples: Sequence[Any]) -> Any:
        """See `BatchForm`."""
        return default_collate(samples, self._to_tensor)


class Collated:
    """Batches made by the user's function. See `BatchForm`."""

    def __init__(self, collate_fn: Callable[[Sequence[Any]], Any]) -> None:
        """Make batches with this function."""
        self._collate = collate_fn

    def of_columns(self, decoded: Decoded) -> Any:
        """See `BatchForm`."""
        return self.of_samples([decoded.sample(place) for place in range(len(decoded.ids))])

    def of_samples(self, samples: Sequence[Any]) -> Any:
        """See `BatchForm`."""
        return collated_by(self._collate, samples)


def _to_tensors(column: Any, make: Callable[[Any], Any]) -> Any:
    if isinstance(column, list):  # of arrays of several shapes, or beside None, where a record has no value
        values = cast("list[Any]", column)  # type: ignore[redundant-cast]  # pyright knows less
        return [as_tensor(value, make) for value in values]
    return as_tensor(column, make)
