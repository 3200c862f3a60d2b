"""The records of a batch as columns, before anybody's transform.

Covers: the value, taking some of its records, one record as a sample, records as views of their bytes. Does not cover: how it
comes about (emlio.receiver.assemble).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from emlio.example.columns import Piece

__all__ = ["IDS", "SEEDS", "Decoded", "slotted_views"]

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
            name: column[places] if isinstance(column, np.ndarray) else _taken(column, picked)
            for name, column in self.columns.items()
        }
        return replace(self, columns=columns, ids=self.ids[places], bad=self.bad + bad)

    def sample(self, place: int) -> dict[str, Any]:
        """One record."""
        return {name: column[place] for name, column in self.columns.items()}


def _taken(column: Sequence[Any], places: Sequence[int]) -> list[Any]:
    """The items at these places; an array that is taken twice is copied, since who changes one must not change the other."""
    taken: list[Any] = []
    seen: set[int] = set()
    for place in places:
        item = column[place]
        taken.append(item.copy() if place in seen and isinstance(item, np.ndarray) else item)
        seen.add(place)
    return taken


def slotted_views(pieces: Sequence[Piece], count: int) -> list[Any]:
    """Each record's bytes, in the batch's order; None in the place of one that lies in no piece."""
    if len(pieces) == 1 and len(pieces[0].starts) == count and (np.diff(pieces[0].slots) == 1).all():
        return _slices(pieces[0])
    views: list[Any] = [None] * count
    for piece in pieces:
        for slot, view in zip(piece.slots.tolist(), _slices(piece), strict=True):
            views[slot] = view
    return views


def _slices(piece: Piece) -> list[memoryview]:
    buffer = piece.buffer
    return [buffer[start:end] for start, end in zip(piece.starts.tolist(), piece.ends.tolist(), strict=True)]
