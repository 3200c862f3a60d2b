"""Collation of samples into a batch, as users of PyTorch expect it.

Covers: numbers, arrays, tensors, strings, dicts, tuples and lists of them. Does not cover: padding
of different lengths, which only the user can decide (`collate_fn=`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from emlio.errors import ConfigError

__all__ = ["default_collate"]


def default_collate(samples: Sequence[Any], to_tensor: Callable[[Any], Any] | None) -> Any:
    """Return the samples stacked, element by element; values that cannot be stacked stay a list."""
    first = samples[0]
    if isinstance(first, dict):
        return _collate_dicts(samples, to_tensor)
    if isinstance(first, tuple | list):
        if len({len(sample) for sample in samples}) != 1:
            raise ConfigError(
                "samples that are tuples or lists must have equal lengths. Pass a collate_fn that pads them"
            )
        parts = [default_collate(list(part), to_tensor) for part in zip(*samples, strict=True)]
        return tuple(parts) if isinstance(first, tuple) else parts
    if isinstance(first, bytes | str | memoryview):
        return list(samples)
    if hasattr(first, "new_empty"):  # a tensor: its own module stacks it, without an import here
        return _stack_tensors(samples)
    if isinstance(first, np.ndarray | np.generic | int | float | bool):
        arrays = [np.asarray(sample) for sample in samples]
        if any(array.shape != arrays[0].shape for array in arrays):
            shapes = sorted({array.shape for array in arrays})[:3]
            raise ConfigError(
                f"arrays must have the same shape to be stacked, got {shapes}. Pass a collate_fn that pads them"
            )
        stacked = np.stack(arrays)
        return to_tensor(stacked) if to_tensor is not None else stacked
    return list(samples)


def _collate_dicts(samples: Sequence[dict[Any, Any]], to_tensor: Callable[[Any], Any] | None) -> dict[Any, Any]:
    return {key: default_collate([sample[key] for sample in samples], to_tensor) for key in samples[0]}


def _stack_tensors(samples: Sequence[Any]) -> Any:
    first = samples[0]
    out = first.new_empty((len(samples), *first.shape))
    for place, sample in enumerate(samples):
        out[place] = sample
    return out
