"""A set of records from ids that a user gave, in any order.

Covers: whole numbers of any type, refusing what is negative, too large or there twice, with the first wrong one named. Does
not cover: files of ids (emlio.receiver.setup.subset), the bound that a dataset sets (record_set.py).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.planner.choice.record_set import RecordSet
from emlio.planner.permutation import LARGEST

__all__ = ["set_of_ids"]


def set_of_ids(ids: npt.NDArray[Any], words: str = "the ids of a subset") -> RecordSet:
    """Return the set of these ids.

    Args:
        ids: ids of records, in any order, each once.
        words: what they are, for errors.

    Raises:
        ConfigError: there are none, or one is not valid.
    """
    if ids.ndim == 1 and not ids.size:
        raise ConfigError(f"{words} must be a list of at least one whole number, got an empty list")
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ConfigError(f"{words} must be a list of at least one whole number, got {ids.dtype} of shape {ids.shape}")
    wrong = np.flatnonzero((ids < 0) | (ids >= LARGEST))
    if wrong.size:
        raise ConfigError(f"{words} must be in [0, {LARGEST}), got {ids[wrong[0]]} at position {wrong[0]}")
    numbers = ids.astype(np.int64)
    if bool((np.diff(numbers) > 0).all()):
        return RecordSet.of_ids(numbers)
    order = np.argsort(numbers, kind="stable")
    rising = numbers[order]
    again = order[1:][rising[1:] == rising[:-1]]
    if again.size:
        first = int(again.min())
        raise ConfigError(f"{words} must hold each id once, got {numbers[first]} again at position {first}")
    return RecordSet.of_ids(rising)
