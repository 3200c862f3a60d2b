"""The forms in which a batch is handed out: arrays, tensors, what a `collate_fn` makes.

Covers: a batch from columns, a batch from samples. Does not cover: DALI's outputs, tokens.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from emlio.receiver.batches.collate import as_tensor, collated_by, default_collate
from emlio.receiver.records.decoded import Decoded

__all__ = ["Arrays", "BatchForm", "Collated", "Tensors"]


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
