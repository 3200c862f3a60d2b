"""From the pieces of a whole batch to what the user asked for.

Covers: raw views, decoded columns, ids, per-sample transforms, collation, what `on_error` makes of bad records. Does not cover:
when it happens (emlio.receiver.prefetch), decoding images.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.errors import CorruptRecordError
from emlio.example.columns import ColumnDecoder, Piece
from emlio.receiver.collate import default_collate
from emlio.receiver.reorder import WholeBatch

__all__ = ["Assembler"]

IDS = "__id__"


class Assembler:
    """Makes batches for one loader; called by one thread."""

    def __init__(
        self,
        *,
        raw: bool,
        fields: Sequence[str] | None,
        ids: bool,
        on_error: str,
        to_tensor: Callable[[Any], Any] | None,
        transform: Callable[[Any], Any] | None,
        collate_fn: Callable[[Sequence[Any]], Any] | None,
    ) -> None:
        """See the class.

        Args:
            raw: hand out the records' bytes instead of their features.
            fields: the features wanted, None for all.
            ids: add the records' global ids.
            on_error: "raise", "skip" or "replace".
            to_tensor: makes a tensor of an array; None leaves arrays.
            transform: applied to each sample.
            collate_fn: makes the batch of the samples.
        """
        self._raw = raw
        self._ids = ids
        self._on_error = on_error
        self._to_tensor = to_tensor
        self._transform = transform
        self._collate = collate_fn
        self._decoder = None if raw else ColumnDecoder(fields)

    def __call__(self, batch: WholeBatch) -> Any:
        """The batch as the user gets it."""
        pieces, ids = (batch.pieces, batch.ids) if not batch.bad else self._settle(batch)
        count = len(ids)
        columns: dict[str, Any]
        if self._decoder is None:
            columns = {"record": _views(pieces, count)}
        else:
            columns = dict(self._decoder.decode(pieces, count))
        if self._ids:
            columns[IDS] = ids
        if self._transform is None and self._collate is None:
            return self._tensors(columns)
        samples: list[Any] = _samples(columns, count)
        if self._transform is not None:
            samples = [self._transform(sample) for sample in samples]
        if self._collate is not None:
            return self._collate(samples)
        return default_collate(samples, self._to_tensor)

    def _settle(self, batch: WholeBatch) -> tuple[list[Piece], npt.NDArray[np.int64]]:
        """What is left of a batch with bad records, by the policy."""
        bad = sorted(batch.bad, key=lambda record: record.slot)
        good = np.ones(batch.count, np.bool_)
        good[[record.slot for record in bad]] = False
        if self._on_error == "raise" or not good.any():
            first = bad[0]
            more = f" ({len(bad) - 1} more in the same batch)" if len(bad) > 1 else ""
            way = 'batches without it need on_error="skip" or "replace"'
            if self._on_error != "raise":
                way = f"all {batch.count} records of the batch are bad, so there is nothing left to hand out"
            raise CorruptRecordError(
                f"record {first.record} of shard {first.shard}: {first.reason}{more}; {way}",
                shard=first.shard,
                record=first.record,
                offset=-1,
            )
        if self._on_error == "skip":
            place = np.cumsum(good) - 1
            return [replace(piece, slots=place[piece.slots]) for piece in batch.pieces], batch.ids[good]
        ids = batch.ids.copy()
        pieces = list(batch.pieces)
        donors = np.flatnonzero(good)
        for number, record in enumerate(bad):
            # Another record of the same batch: it is here, and the plan says which, so all runs choose alike.
            donor = int(donors[number % len(donors)])
            ids[record.slot] = ids[donor]
            piece = next(piece for piece in batch.pieces if (piece.slots == donor).any())
            at = np.flatnonzero(piece.slots == donor)
            pieces.append(
                Piece(
                    buffer=piece.buffer,
                    starts=piece.starts[at],
                    ends=piece.ends[at],
                    slots=np.array([record.slot], np.int64),
                )
            )
        return pieces, ids

    def _tensors(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        make = self._to_tensor
        if make is None:
            return dict(columns)
        return {name: _to_tensors(column, make) for name, column in columns.items()}


def _to_tensors(column: Any, make: Callable[[Any], Any]) -> Any:
    if isinstance(column, np.ndarray):
        return make(column)
    if column and isinstance(column[0], np.ndarray):
        return [make(value) for value in column]
    return column


def _views(pieces: Sequence[Piece], count: int) -> list[memoryview]:
    """Each record's bytes, in the batch's order."""
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


def _samples(columns: Mapping[str, Any], count: int) -> list[Any]:
    """One dict a sample."""
    return [{name: column[place] for name, column in columns.items()} for place in range(count)]
