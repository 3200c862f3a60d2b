"""Columns in the form that the sources of a DALI pipeline take.

From its first batch to its last, a source holds values of one type and one number of dimensions:
DALI gives up a pipeline that is fed anything else. The contents of a single batch must not decide
that. So a record has one run of bytes, or as many numbers as the others, unless the pipeline
declares that they vary.

Covers: which records do not fit and why, incomplete images, the arrays. Pure, except that it
remembers the first batch. Does not cover: handling records that do not fit
(emlio.receiver.records.bad_records).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.images.wholeness import image_fault
from emlio.receiver.records.decoded import Decoded

__all__ = ["SourceColumns"]


class SourceColumns:
    """The columns for the sources of one loader's pipeline."""

    def __init__(self, images: Sequence[str], vectors: Sequence[str]) -> None:
        """Configure the columns.

        Args:
            images: features that must be complete images.
            vectors: features that hold any number of numbers.
        """
        self._images = tuple(images)
        self._vectors = frozenset(vectors)
        self._kinds: dict[str, str] = {}
        self._widths: dict[str, int] = {}

    def faults(self, decoded: Decoded) -> dict[int, str]:
        """Return the positions of records that do not fit, in rising order, with the reasons."""
        faults: dict[int, str] = {}
        for name, column in decoded.columns.items():
            kinds = _kinds(column)
            held = Counter(kind for kind in kinds if kind)
            others = "earlier batches" if name in self._kinds else "other records"
            usual = self._kinds.get(name) or (self._kinds.setdefault(name, held.most_common(1)[0][0]) if held else "")
            for place, kind in enumerate(kinds):
                if not kind:
                    faults.setdefault(place, f"has no feature {name!r}, which the pipeline needs")
                elif kind != usual:
                    faults.setdefault(place, f"feature {name!r} must hold {usual} as in {others}, got {kind}")
            if usual == "bytes":
                found = _not_one(name, column)
            elif name in self._vectors or not usual:
                continue
            else:
                found = self._other_widths(name, column, faults)
            for place, reason in found.items():
                faults.setdefault(place, reason)
        for name in self._images:
            if self._kinds.get(name, "bytes") != "bytes":
                raise ConfigError(f"feature {name!r} must hold images, got {self._kinds[name]}")
            for place, encoded in enumerate(decoded.columns[name]):
                fault = None if place in faults else image_fault(_only(encoded))
                if fault is not None:
                    faults[place] = f"{name}: {fault}"
        return dict(sorted(faults.items()))

    def _other_widths(self, name: str, column: Any, faults: Mapping[int, str]) -> dict[int, str]:
        width = _width(column)
        if width is not None and self._widths.setdefault(name, width) == width:
            return {}
        widths = {place: np.size(values) for place, values in enumerate(column) if place not in faults}
        if not widths:
            return {}
        usual = self._widths.setdefault(name, Counter(widths.values()).most_common(1)[0][0])
        return {
            place: f"feature {name!r} must hold {usual} numbers as in other records, got {held}. If the pipeline "
            "accepts any number, name the feature in inputs(vectors=...)"
            for place, held in widths.items()
            if held != usual
        }

    def fit(self, decoded: Decoded) -> Mapping[str, Any]:
        """Return the columns of records without faults: arrays, or lists with an array per record."""
        return {name: self._fit(name, column) for name, column in decoded.columns.items()}

    def _fit(self, name: str, column: Any) -> Any:
        if self._kinds[name] == "bytes":
            return [np.frombuffer(_only(value), np.uint8) for value in column]
        if name in self._vectors:
            if isinstance(column, list):
                return [np.atleast_1d(values) for values in cast("list[Any]", column)]  # type: ignore[redundant-cast]
            return column.reshape(len(column), -1) if _width(column) == 1 else column
        if not isinstance(column, list):
            return column
        stacked: npt.NDArray[Any] = np.stack(cast("list[npt.NDArray[Any]]", column))
        return stacked.reshape(-1) if self._widths[name] == 1 else stacked


def _kinds(column: Any) -> list[str]:
    """Return the types of a column's values, in words; "" for None."""
    if not isinstance(column, Sequence):
        return [str(column.dtype)] * len(column)
    values = cast("Sequence[Any]", column)  # type: ignore[redundant-cast]
    if {type(value) for value in values} == {memoryview}:
        return ["bytes"] * len(values)
    return ["" if value is None else str(getattr(value, "dtype", "bytes")) for value in values]


def _width(column: Any) -> int | None:
    """Return how many numbers each record has, or None if they differ."""
    if isinstance(column, list):
        return None
    return 1 if column.ndim == 1 else int(column.shape[1])


def _not_one(name: str, column: Sequence[Any]) -> dict[int, str]:
    lists = [(place, cast("Any", value)) for place, value in enumerate(column) if isinstance(value, list)]
    return {
        place: f"feature {name!r} must hold one bytes value for a pipeline, holds {len(value)}"
        for place, value in lists
        if len(value) != 1
    }


def _only(value: Any) -> Any:
    """Return the one run of bytes of a record.

    It is in a list if other records of the batch hold more.
    """
    return cast("Any", value)[0] if isinstance(value, list) else value
