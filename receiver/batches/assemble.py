"""From the pieces of a complete batch to columns, and from columns to the user's form.

Covers: raw views, decoded features, ids, seeds, records that cannot be decoded, collation. Does not
cover: when and in which thread this happens (emlio.receiver.batches.makers), decoding images.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.example.columns import ColumnDecoder, Piece
from emlio.example.faults import find_absent, find_faults, without
from emlio.receiver.batches.collate import default_collate
from emlio.receiver.placement.reorder import WholeBatch
from emlio.receiver.records.bad_records import BadRecordPolicy
from emlio.receiver.records.decoded import IDS, SEEDS, Decoded, slotted_views

__all__ = ["Assembler"]

Seeder = Callable[[int, npt.NDArray[np.int64]], npt.NDArray[np.uint64]]


class Assembler:
    """Makes columns and batches for one loader.

    Keeps no state between batches, so any thread may use it.
    """

    def __init__(
        self,
        *,
        raw: bool,
        fields: Sequence[str] | None,
        ids: bool,
        seeder: Seeder | None,
        policy: BadRecordPolicy,
        to_tensor: Callable[[Any], Any] | None,
        collate_fn: Callable[[Sequence[Any]], Any] | None,
    ) -> None:
        """Configure the assembly.

        Args:
            raw: hand out the records' bytes instead of their features.
            fields: the features wanted, None for all.
            ids: add the records' global ids.
            seeder: returns the records' seeds from their epoch and ids; None if seeds are not
                wanted.
            policy: how bad records are handled.
            to_tensor: makes a tensor of an array; None leaves arrays.
            collate_fn: makes the batch from the samples.
        """
        self._raw = raw
        self._fields = fields
        self._ids = ids
        self._seeder = seeder
        self._policy = policy
        self._to_tensor = to_tensor
        self._collate = collate_fn
        self._decoder = None if raw else ColumnDecoder(fields)

    def decode(self, batch: WholeBatch) -> Decoded:
        """Return the batch's columns, without bad records."""
        # No piece contains a record that failed its check.
        reasons = {record.slot: record.reason for record in batch.bad}
        good = _others(batch.count, reasons)
        pieces = without(batch.pieces, tuple(reasons)) if reasons else batch.pieces
        columns: dict[str, Any] | None = None
        if good.size:
            try:
                columns = self._columns(pieces, len(good))
            except DatasetError:
                # Records are looked at one by one only now, so that good batches, nearly all, pay
                # nothing for it.
                faults = find_faults(pieces, self._fields)
                if not faults:
                    raise
                absent = find_absent(pieces, self._fields) if self._fields and len(faults) == len(good) else None
                if absent is not None:
                    record = int(batch.ids[good[absent.place]])
                    raise self._policy.absent(record, absent.name, absent.there, others=absent.records > 1) from None
                reasons |= {int(good[place]): reason for place, reason in faults.items()}
                pieces = without(pieces, tuple(faults))
                good = _others(batch.count, reasons)
        if not reasons and columns is not None:
            return self._decoded(batch.epoch, columns, batch.ids)
        chosen = self._policy.settle(batch.ids, reasons)
        if columns is None:
            columns = self._columns(pieces, len(good))
        return self._decoded(batch.epoch, columns, batch.ids[good]).take(np.searchsorted(good, chosen), len(reasons))

    def _decoded(self, epoch: int, columns: dict[str, Any], ids: npt.NDArray[np.int64]) -> Decoded:
        if self._ids:
            columns[IDS] = ids
        if self._seeder is not None:
            # Signed numbers, because every framework has them.
            columns[SEEDS] = self._seeder(epoch, ids).view(np.int64)
        return Decoded(epoch=epoch, columns=columns, ids=ids, bad=0)

    def _columns(self, pieces: Sequence[Piece], count: int) -> dict[str, Any]:
        if self._decoder is None:
            return {"record": slotted_views(pieces, count)}
        return dict(self._decoder.decode(pieces, count))

    def collate(self, samples: Sequence[Any]) -> Any:
        """Return the batch of these samples: a transform's outputs, or the records themselves."""
        if self._collate is not None:
            return self._collate(samples)
        return default_collate(samples, self._to_tensor)

    def batch(self, decoded: Decoded) -> Any:
        """Return the batch of records that need no transform."""
        if self._collate is not None:
            return self._collate([decoded.sample(place) for place in range(len(decoded.ids))])
        make = self._to_tensor
        if make is None:
            return dict(decoded.columns)
        return {name: _to_tensors(column, make) for name, column in decoded.columns.items()}


def _others(count: int, places: Mapping[int, object]) -> npt.NDArray[np.int64]:
    """Return the positions in a batch other than these."""
    kept = np.ones(count, np.bool_)
    kept[list(places)] = False
    return np.flatnonzero(kept)


def _to_tensors(column: Any, make: Callable[[Any], Any]) -> Any:
    if isinstance(column, np.ndarray):
        return make(column)
    if column and isinstance(column[0], np.ndarray):
        return [make(value) for value in column]
    return column
