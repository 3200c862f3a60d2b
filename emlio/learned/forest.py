"""Gradient-boosted trees as arrays, evaluated with NumPy alone. Pure."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError

__all__ = ["FOREST_ARRAYS", "Floats", "Forest"]

Floats = npt.NDArray[np.float64]

FOREST_ARRAYS: Final = {
    "roots": "<i4",
    "column": "<i4",
    "threshold": "<f8",
    "missing_left": "|b1",
    "left": "<i4",
    "right": "<i4",
    "value": "<f8",
    "baseline": "<f8",
}
"""The arrays of a forest, and their types in a file."""

_MOST_TREES: Final = 1000
_MOST_DEPTH: Final = 64
"""With more a decision would take too long."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forest:
    """Regression trees whose leaves are added up. The nodes of all trees lie one after the other.

    Attributes:
        roots: the first node of each tree.
        column: of each node, the column that it looks at.
        threshold: values up to this one go left.
        missing_left: whether a missing value (NaN) goes left.
        left, right: the nodes that follow, behind this one; a leaf names itself.
        value: of each leaf.
        baseline: a single value, added to the sum.
    """

    roots: npt.NDArray[np.int32]
    column: npt.NDArray[np.int32]
    threshold: Floats
    missing_left: npt.NDArray[np.bool_]
    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    value: Floats
    baseline: Floats
    _next: npt.NDArray[np.intp] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        nodes = np.arange(self.value.size)
        for name, kind in FOREST_ARRAYS.items():
            array = getattr(self, name)
            if array.dtype != np.dtype(kind) or array.ndim != 1:
                raise ConfigError(f"{name} of a forest must be a row of {kind}, got {array.ndim} of {array.dtype.str}")
            if name not in ("roots", "baseline") and len(array) != len(nodes):
                raise ConfigError(f"{name} of a forest must have {len(nodes)} values, got {len(array)}")
        if self.baseline.shape != (1,) or not np.isfinite(self.baseline).all() or not np.isfinite(self.value).all():
            raise ConfigError("the values of a forest must be finite, with one baseline")
        if np.isnan(self.threshold).any() or (self.column < 0).any():
            raise ConfigError("the nodes of a forest must have thresholds, and columns from 0 on")
        if ((self.roots < 0) | (self.roots >= len(nodes))).any():
            raise ConfigError(f"the roots of a forest must be in [0, {len(nodes)})")
        leaf = (self.left == nodes) & (self.right == nodes)
        behind = (self.left > nodes) & (self.right > nodes) & (self.left < len(nodes)) & (self.right < len(nodes))
        if not (leaf | behind).all():
            raise ConfigError("the nodes of a forest must name two nodes behind them, or themselves")
        following = np.stack((self.right, self.left), axis=1)
        level = np.unique(self.roots)
        for _ in range(_MOST_DEPTH + 1):
            level = level[~leaf[level]]
            if not len(level):
                break
            level = np.unique(following[level])
        if len(level) or len(self.roots) > _MOST_TREES:
            raise ConfigError(f"a forest must have {_MOST_TREES} trees at most, of a depth of at most {_MOST_DEPTH}")
        object.__setattr__(self, "_next", following.ravel().astype(np.intp))

    @property
    def columns(self) -> int:
        """The fewest columns that rows must have."""
        return int(self.column.max(initial=-1)) + 1

    def raw(self, rows: Floats) -> Floats:
        """Return the sum of the leaves and the baseline for each row."""
        count, width = rows.shape
        if width < self.columns:
            raise ConfigError(f"rows must have {self.columns} columns or more, got {width}")
        cells = np.ascontiguousarray(rows).ravel()
        missing = np.isnan(cells)
        some_missing = bool(missing.any())
        node = np.tile(self.roots.astype(np.intp), count)
        first = np.repeat(width * np.arange(count, dtype=np.intp), len(self.roots))
        while True:
            place = first + self.column.take(node)
            goes_left = cells.take(place) <= self.threshold.take(node)
            if some_missing:
                goes_left |= missing.take(place) & self.missing_left.take(node)
            after = self._next.take(2 * node + goes_left)
            if np.array_equal(after, node):
                break
            node = after
        leaves = self.value.take(node).reshape(count, len(self.roots))
        return np.asarray(leaves.sum(axis=1) + self.baseline[0])
