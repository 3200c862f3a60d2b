"""One column under construction, from records parsed one by one and records parsed together.

Covers: placing values by their record's place in the batch, stacking, one kind per column. Does not
cover: parsing.
"""

from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.example.decode import BYTES, FLOATS, INTS, KIND_NAMES, NO_KIND, Feature
from emlio.example.varint import unpack_varints

__all__ = ["Column", "Gathered"]

Column: TypeAlias = (
    npt.NDArray[np.int64]
    | npt.NDArray[np.float32]
    | list[npt.NDArray[np.int64]]
    | list[npt.NDArray[np.float32]]
    | list[memoryview]
    | list[list[memoryview]]
)
"""The values of one feature of a batch.

Numbers: one array, (count,) if every record has one value, (count, k) if every record has k;
otherwise a list of arrays in batch order. Bytes: a list of views in batch order, or of lists of
views if any record does not have exactly one.
"""

_Ints = npt.NDArray[np.int64]
_Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float32]


class Gathered:
    """The values of one feature, added in any order."""

    __slots__ = (
        "_count",
        "_ints",
        "_kind",
        "_kind_slot",
        "_lists",
        "_name",
        "_raw",
        "_runs",
        "_sizes",
        "_slots",
        "_views",
    )

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._kind = NO_KIND
        self._kind_slot = 0
        self._views: list[memoryview] = []
        self._lists: dict[int, list[memoryview]] = {}
        # Numbers of records parsed one by one, record after record ...
        self._slots: list[int] = []
        self._sizes: list[int] = []
        self._ints: list[int] = []
        self._raw: list[memoryview] = []
        # ... and of those parsed together: slots, values per record, values.
        self._runs: list[tuple[_Ints, _Ints, _Numbers]] = []

    def add_record(self, slot: int, feature: Feature) -> None:
        """Add one record's values."""
        kind, views, ints = feature
        self._settle(kind, slot)
        if kind == BYTES:
            if len(views) == 1:
                self._views[slot] = views[0]
            else:
                self._lists[slot] = views
            return
        self._slots.append(slot)
        if kind == INTS:
            self._sizes.append(len(ints))
            self._ints.extend(ints)
        else:
            self._sizes.append(sum(map(len, views)) // 4)
            self._raw.extend(views)

    def add_views(self, buffer: memoryview, slots: _Ints, lows: _Ints, highs: _Ints) -> None:
        """Add the one bytes value of each of many records."""
        self._settle(BYTES, int(slots[0]))
        views = self._views
        for slot, low, high in zip(slots.tolist(), lows.tolist(), highs.tolist(), strict=True):
            views[slot] = buffer[low:high]

    def unpack(self, buffer: memoryview, kind: int, lows: _Ints, highs: _Ints) -> tuple[_Ints, _Numbers] | None:
        """Return values per record and all values of many packed runs; None if one is malformed."""
        sizes = highs - lows
        raw = [buffer[low:high] for low, high in zip(lows.tolist(), highs.tolist(), strict=True)]
        if kind == FLOATS:
            return sizes >> 2, _floats(raw)
        octets = np.frombuffer(b"".join(raw), np.uint8)
        run = unpack_varints(octets)
        if run is None:
            return None
        values, lasts = run
        if len(values) == len(octets):
            return sizes, values  # one byte each
        return np.diff(np.searchsorted(lasts, np.cumsum(sizes)), prepend=0), values

    def add_numbers(self, kind: int, slots: _Ints, sizes: _Ints, values: _Numbers) -> None:
        """Add the result of `unpack`."""
        self._settle(kind, int(slots[0]))
        self._runs.append((slots, sizes, values))

    def column(self) -> Column:
        """Return the column; every place must have been filled."""
        if self._kind == BYTES:
            if not self._lists:
                return self._views
            return [self._lists.get(slot, [view]) for slot, view in enumerate(self._views)]
        runs = self._runs
        if self._slots:
            values: _Numbers = np.array(self._ints, np.int64) if self._kind == INTS else _floats(self._raw)
            runs = [*runs, (np.array(self._slots, np.int64), np.array(self._sizes, np.int64), values)]
        width = int(runs[0][1][0])
        if not all((sizes == width).all() for _, sizes, _ in runs):
            return self._ragged(runs)
        column = np.empty((self._count, width), np.int64 if self._kind == INTS else np.float32)
        for slots, _, values in runs:
            column[slots] = values.reshape(len(slots), width)
        return cast("Column", column.reshape(-1) if width == 1 else column)

    def _ragged(self, runs: list[tuple[_Ints, _Ints, _Numbers]]) -> Column:
        rows: list[_Numbers] = [np.empty(0, np.float32)] * self._count
        for slots, sizes, values in runs:
            highs = np.cumsum(sizes)
            for slot, low, high in zip(slots.tolist(), (highs - sizes).tolist(), highs.tolist(), strict=True):
                rows[slot] = values[low:high]
        return cast("Column", rows)

    def _settle(self, kind: int, slot: int) -> None:
        if kind == self._kind:
            return
        if self._kind != NO_KIND:
            raise DatasetError(
                f"feature {self._name!r} must have one type in all records of a batch: record {self._kind_slot} "
                f"holds {KIND_NAMES[self._kind]}, record {slot} {KIND_NAMES[kind]}"
            )
        self._kind, self._kind_slot = kind, slot
        if kind == BYTES:
            self._views = [memoryview(b"")] * self._count


def _floats(raw: list[memoryview]) -> npt.NDArray[np.float32]:
    # A bytearray, not bytes: torch warns about read-only arrays.
    return np.frombuffer(bytearray().join(raw), "<f4")
