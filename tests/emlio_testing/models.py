"""Models of a loader for tests: trees of one threshold."""

import numpy as np

from emlio.learned.forest import Forest
from emlio.learned.model import Model
from emlio.receiver.tuning.learned import COLUMNS

__all__ = ["tree_model"]


def tree_model(column: str = "message_bytes", chance: float = 0.9, gain: float = 0.5) -> Model:
    """Return a model of changes by which a column is above 0.5 with this chance and this logarithm of the gain."""
    return Model(
        names=COLUMNS,
        low=np.full(len(COLUMNS), -50.0),
        high=np.full(len(COLUMNS), 50.0),
        gain=_tree(column, 0.0, gain),
        chance=_tree(column, 0.1, chance),
        calibration=np.array([[0.0, 1.0], [0.0, 1.0]]),
        epsilon=0.15,
        environments=("a test",),
    )


def _tree(column: str, low: float, high: float) -> Forest:
    """Return a tree of one threshold: `low` up to 0.5 of a column, `high` above it."""
    return Forest(
        roots=np.array([0], np.int32),
        column=np.array([COLUMNS.index(column), 0, 0], np.int32),
        threshold=np.array([0.5, 0.0, 0.0]),
        missing_left=np.zeros(3, bool),
        left=np.array([1, 1, 2], np.int32),
        right=np.array([2, 1, 2], np.int32),
        value=np.array([0.0, low, high]),
        baseline=np.zeros(1),
    )
