"""The records of a batch as columns, before anybody's transform.

Covers: the value, taking some of its records, one record as a sample. Does not cover: how it comes about
(emlio.receiver.assemble).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

__all__ = ["IDS", "SEEDS", "Decoded"]

IDS = "__id__"
SEEDS = "__seed__"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decoded:
    """What is left of a batch once its bad records were dealt with.

    Attributes:
        epoch: its epoch.
        columns: features by name, each with one item a record.
        ids: (n,) the records' global ids.
        bad: how many records of the batch were not what they must be.
    """

    epoch: int
    columns: Mapping[str, Any]
    ids: npt.NDArray[np.int64]
    bad: int

    def take(self, places: npt.NDArray[np.int64], bad: int) -> Self:
        """The records at these places, in this order; `bad` more are gone or replaced."""
        picked: list[int] = places.tolist()
        columns: dict[str, Any] = {
            name: column[places] if isinstance(column, np.ndarray) else [column[place] for place in picked]
            for name, column in self.columns.items()
        }
        return replace(self, columns=columns, ids=self.ids[places], bad=self.bad + bad)

    def sample(self, place: int) -> dict[str, Any]:
        """One record."""
        return {name: column[place] for name, column in self.columns.items()}
