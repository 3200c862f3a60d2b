"""One column under construction, from records parsed one by one and records parsed together."""

from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.example.decode import BYTES, FLOATS, INTS, KIND_NAMES, NO_KIND, Feature
from emlio.example.varint import unpack_varints

__all__ = ["Column", "Gathered", "empty_numbers"]

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
        "_placed",
        "_ragged",
        "_raw",
        "_rows",
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
        # ... and of those parsed together: the rows of one array, and which of them are filled, as long as all records
        # have as many numbers; then an array for each slot.
        self._rows: _Numbers | None = None
        self._placed: list[_Ints] = []
        self._ragged: list[_Numbers] | None = None

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
        views = [buffer[low:high] for low, high in zip(lows.tolist(), highs.tolist(), strict=True)]
        first, last = int(slots[0]), int(slots[-1])
        if last - first == len(slots) - 1 and bool((slots[1:] > slots[:-1]).all()):
            self._views[first : last + 1] = views
            return
        placed = self._views
        for slot, view in zip(slots.tolist(), views, strict=True):
            placed[slot] = view

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
        width = int(sizes[0])
        rows = self.rows(kind, slots, width) if bool((sizes == width).all()) else None
        if rows is not None:
            rows[slots] = values.reshape(len(slots), width)
            return
        self._settle(kind, int(slots[0]))
        ragged = self._one_by_one()
        highs = np.cumsum(sizes)
        for slot, low, high in zip(slots.tolist(), (highs - sizes).tolist(), highs.tolist(), strict=True):
            ragged[slot] = values[low:high]

    def rows(self, kind: int, slots: _Ints, width: int) -> _Numbers | None:
        """Return the array (count, width) for the caller to fill in the rows of these slots.

        None if records have different numbers of values, so that there is no such array.
        """
        self._settle(kind, int(slots[0]))
        if self._ragged is not None:
            return None
        if self._rows is None:
            self._rows = empty_numbers(kind, self._count, width)
        if self._rows.shape[1] != width:
            return None
        self._placed.append(slots)
        return self._rows

    def column(self) -> Column:
        """Return the column; every place must have been filled."""
        if self._kind == BYTES:
            if not self._lists:
                return self._views
            return [self._lists.get(slot, [view]) for slot, view in enumerate(self._views)]
        if self._slots:
            values: _Numbers = np.array(self._ints, np.int64) if self._kind == INTS else _floats(self._raw)
            self.add_numbers(self._kind, np.array(self._slots, np.int64), np.array(self._sizes, np.int64), values)
            self._slots = []
        if self._ragged is not None:
            return cast("Column", self._ragged)
        assert self._rows is not None  # there is a record, and its numbers are somewhere
        return cast("Column", self._rows.reshape(-1) if self._rows.shape[1] == 1 else self._rows)

    def _one_by_one(self) -> list[_Numbers]:
        """Give each slot an array of its own, from now on."""
        if self._ragged is None:
            self._ragged = [empty_numbers(self._kind, 0)] * self._count
            for slots in self._placed:
                assert self._rows is not None
                for slot in slots.tolist():
                    self._ragged[slot] = self._rows[slot]
            self._rows = None
        return self._ragged

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


def empty_numbers(kind: int, *shape: int) -> _Numbers:
    """Return an array for the values of a feature of this kind."""
    return np.empty(shape, np.int64) if kind == INTS else np.empty(shape, np.float32)


def _floats(raw: list[memoryview]) -> npt.NDArray[np.float32]:
    # A bytearray, not bytes: torch warns about read-only arrays.
    return np.frombuffer(bytearray().join(raw), "<f4")
