"""The records of a batch as columns, before a transform.

Covers: the value, selecting records, one record as a sample. Does not cover: making it
(emlio.receiver.batches.assemble).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self, cast

import numpy as np
import numpy.typing as npt

from emlio.formats.whole_file import with_path
from emlio.receiver.records.bad_records import RecordFault

__all__ = ["ABSENT", "IDS", "SEEDS", "SOURCES", "Decoded"]

IDS = "__id__"
SEEDS = "__seed__"
SOURCES = "__source__"

_NAMES: Final = ("image/filename", "__key__")
"""Columns that name a record: of a tf.train.Example, and of a tar in the form of WebDataset."""

ABSENT: Final = object()
"""The value of a column that a record does not have, as records of another dataset of a mixture may."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decoded:
    """A batch whose bad records have been handled.

    Attributes:
        epoch: its epoch.
        columns: features by name, each with one item per record.
        ids: (n,) the records' global ids.
        bad: the number of bad records in the batch.
        fault: the first of them that was found.
        notes: what was told of each record beside its bytes; empty if nothing was.
        draws: (n,) the numbers from which their seeds are drawn; None: their ids.
        unlike: why the columns cannot be handed out as one batch; "" if they can.
    """

    epoch: int
    columns: Mapping[str, Any]
    ids: npt.NDArray[np.int64]
    bad: int
    fault: RecordFault | None = None
    notes: Sequence[bytes] = ()
    unlike: str = ""
    draws: npt.NDArray[np.int64] | None = None

    @property
    def seed_numbers(self) -> npt.NDArray[np.int64]:
        """The numbers from which the records' seeds are drawn."""
        return self.ids if self.draws is None else self.draws

    def take(self, places: npt.NDArray[np.int64], bad: int, fault: RecordFault | None = None) -> Self:
        """Return the records at these positions, in this order; `bad` more are bad, first of them `fault`."""
        picked: list[int] = places.tolist()
        columns: dict[str, Any] = {
            name: column[places] if isinstance(column, np.ndarray) else _taken(column, picked)
            for name, column in self.columns.items()
        }
        notes = [self.notes[place] for place in picked] if self.notes else ()
        first = self.fault or fault
        return replace(
            self,
            columns=columns,
            ids=self.ids[places],
            draws=None if self.draws is None else self.draws[places],
            bad=self.bad + bad,
            fault=first,
            notes=notes,
        )

    def with_path(self, place: int, reason: str) -> str:
        """Return what is wrong with a record, with the path of its file, or its own name, if that is known."""
        told = with_path(self.notes[place], reason) if self.notes else reason
        if told != reason:
            return told
        for name in _NAMES:
            value: Any = self.columns[name][place] if name in self.columns else None
            if isinstance(value, bytes | memoryview):
                value = bytes(cast("bytes", value)).decode("utf-8", "replace")
            if isinstance(value, str) and value:
                return f"{value if value.isprintable() else repr(value)}: {reason}"
        return reason

    def with_paths(self, reasons: Mapping[int, str]) -> dict[int, str]:
        """Return what is wrong with records, by their position, with the paths of their files."""
        return {place: self.with_path(place, reason) for place, reason in reasons.items()}

    def in_transform(self, error: BaseException, place: int, record: str) -> str:
        """Return where an error of the user's transform came from; for a key that is missing, what there is."""
        has = f"; the sample has {', '.join(map(repr, self.sample(place)))}" if isinstance(error, KeyError) else ""
        return f"in the transform of {self.with_path(place, record)}{has}"

    def sample(self, place: int) -> dict[str, Any]:
        """Return one record as a sample."""
        values = {name: column[place] for name, column in self.columns.items()}
        return {name: value for name, value in values.items() if value is not ABSENT} if self.unlike else values


def _taken(column: Sequence[Any], places: Sequence[int]) -> list[Any]:
    """Return the items at these positions.

    An array taken twice is copied, so that changing one does not change the other.
    """
    taken: list[Any] = []
    seen: set[int] = set()
    for place in places:
        item = column[place]
        taken.append(item.copy() if place in seen and isinstance(item, np.ndarray) else item)
        seen.add(place)
    return taken
