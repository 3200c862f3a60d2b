"""From the pieces of a complete batch to columns, and from columns to the user's form.

Covers: the choice of both forms, ids, seeds, records that cannot be decoded. Does not cover: when
and in which thread this happens (emlio.receiver.batches.makers), decoding images.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.arguments import like
from emlio.errors import ConfigError, DatasetError
from emlio.example.columns import Piece
from emlio.example.faults import without
from emlio.formats.contents import TFRECORD, Contents
from emlio.formats.record_form import RawRecords, RecordForm, RowRecords, slotted_notes
from emlio.formats.registry import batch_form, form_of
from emlio.formats.whole_file import with_path
from emlio.receiver.batches.collate import Arrays, BatchForm, Collated, Tensors
from emlio.receiver.batches.mixed_records import MixedBatch, MixedRecords, add_usual
from emlio.receiver.placement.reorder import WholeBatch
from emlio.receiver.records.bad_records import BadRecordPolicy, first_fault
from emlio.receiver.records.decoded import IDS, SEEDS, SOURCES, Decoded
from emlio.receiver.records.mixture import KnownContents, MixedContents

__all__ = ["Assembler"]

_LOG = logging.getLogger("emlio.receiver")

Seeder = Callable[[int, npt.NDArray[np.int64]], npt.NDArray[np.uint64]]

_SEED_BITS = np.uint64((1 << 63) - 1)


class Assembler:
    """Makes columns and batches for one loader.

    Keeps no state between batches, so any thread may use it. Records are of TFRecord's format until it
    knows another one.
    """

    def __init__(
        self,
        *,
        raw: bool | str,
        fields: Sequence[str] | None,
        ids: bool,
        seeder: Seeder | None,
        policy: BadRecordPolicy,
        to_tensor: Callable[[Any], Any] | None,
        collate_fn: Callable[[Sequence[Any]], Any] | None,
    ) -> None:
        """Configure the assembly.

        Args:
            raw: hand out the records' bytes instead of their features; "rows": as the rows of an array.
            fields: the features wanted, None for all.
            ids: add the records' global ids.
            seeder: returns the records' seeds from their epoch and numbers; None if seeds are not
                wanted.
            policy: how bad records are handled.
            to_tensor: makes a tensor of an array; None leaves arrays.
            collate_fn: makes the batch from the samples.
        """
        self._raw = raw
        self._fields = fields
        self._records: RecordForm
        self._contents: KnownContents = TFRECORD
        self._unseen: frozenset[str] = frozenset()
        self._usual: Contents | None = None
        self._mixture: MixedContents | None = None
        self._mixed: MixedRecords | None = None
        self._policy = policy
        self._ids = ids
        self._seeder = seeder
        self.know(TFRECORD)
        self._form: BatchForm = Arrays() if to_tensor is None else Tensors(to_tensor)
        if collate_fn is not None:
            self._form = Collated(collate_fn)

    def know(self, contents: KnownContents) -> None:
        """Decode records of this format, or of the datasets of a mixture, from now on.

        Raises:
            ConfigError: there are no such fields, or not at all daemons.
            DatasetError: the format is not known here.
        """
        if isinstance(contents, MixedContents):
            self._mixture = contents
        if self._raw:
            self._records = RowRecords() if self._raw == "rows" else RawRecords()
            return
        if isinstance(contents, MixedContents):
            self._mixed = MixedRecords(contents, self._fields)
        else:
            self._records = batch_form(contents, self._fields)
            self._usual = contents if self._fields is None else None
        each = contents.contents if isinstance(contents, MixedContents) else (contents,)
        known = {name for one in each for name in one.schema}
        self._check_added(known if self._fields is None else self._fields)
        self._contents, self._unseen = contents, frozenset(self._fields or ()) - known

    def _check_added(self, names: Collection[str]) -> None:
        mixed = self._ids and self._mixture is not None
        adds = ((IDS, self._ids, "ids"), (SOURCES, mixed, "ids"), (SEEDS, self._seeder is not None, "seeds"))
        for name, added, argument in adds:
            if added and name in names:
                raise ConfigError(
                    f"{argument}=True adds a column {name!r} to the batches, and the records have one of this name. Leave out "
                    f"{argument}=True, or load other columns with fields="
                )

    def _form_of(self, ids: npt.NDArray[np.int64]) -> RecordForm:
        return self._records if self._mixed is None else self._mixed.of(ids)

    def decode(self, batch: WholeBatch) -> Decoded:
        """Return the batch's columns, without bad records."""
        # No piece contains a record that failed its check.
        reasons = {record.slot: with_path(record.note, record.reason) for record in batch.bad}
        good, pieces, ids = _others(batch.count, reasons), batch.pieces, batch.ids
        if reasons:
            pieces, ids = without(pieces, tuple(reasons)), ids[good]
        columns: dict[str, Any] | None = None
        form = self._form_of(ids)
        if good.size:
            try:
                columns = form.columns(pieces, len(good))
            except DatasetError:
                # Records are looked at one by one only now, so that good batches, nearly all, pay
                # nothing for it.
                faults = form.faults(pieces)
                if not faults:
                    raise
                reasons |= {int(good[place]): reason for place, reason in faults.items()}
                pieces = without(pieces, tuple(faults))
                good = _others(batch.count, reasons)
                form = self._form_of(batch.ids[good])
        if not reasons and columns is not None:
            return self._decoded(batch.epoch, columns, batch.ids, batch.draws, pieces, form)
        chosen = self._policy.settle(batch.ids, reasons)
        if columns is None:
            columns = form.columns(pieces, len(good))
        draws = None if batch.draws is None else batch.draws[good]
        decoded = self._decoded(batch.epoch, columns, batch.ids[good], draws, pieces, form)
        return decoded.take(np.searchsorted(good, chosen), len(reasons), first_fault(batch.ids, reasons))

    def _decoded(
        self,
        epoch: int,
        columns: dict[str, Any],
        ids: npt.NDArray[np.int64],
        draws: npt.NDArray[np.int64] | None,
        pieces: Sequence[Piece],
        form: RecordForm,
    ) -> Decoded:
        if self._usual is not None:
            add_usual(columns, self._usual, len(ids))
        if self._unseen:
            self._warn_of_absent(columns, pieces, ids)
        self._check_added(columns)
        if self._ids:
            columns[IDS] = ids
        if self._ids and self._mixture is not None:
            columns[SOURCES] = self._mixture.datasets(ids)
        if self._seeder is not None:
            # Signed numbers, because every framework has them, and none below 0, because generators refuse those.
            columns[SEEDS] = (self._seeder(epoch, ids if draws is None else draws) & _SEED_BITS).view(np.int64)
        notes = slotted_notes(pieces, len(ids)) if any(piece.notes is not None for piece in pieces) else ()
        unlike = form.unlike if isinstance(form, MixedBatch) else ""
        return Decoded(epoch=epoch, columns=columns, ids=ids, draws=draws, bad=0, notes=notes, unlike=unlike)

    def _warn_of_absent(self, columns: Mapping[str, Any], pieces: Sequence[Piece], ids: npt.NDArray[np.int64]) -> None:
        """Name once the requested columns that no record of the first batch has: they may be misspelled."""
        absent = [name for name in sorted(self._unseen) if all(value is None for value in columns[name])]
        self._unseen = frozenset()
        if not absent:
            return
        first, of = without(pieces, range(1, len(ids))), self._contents
        form = MixedRecords(of, None).of(ids[:1]) if isinstance(of, MixedContents) else form_of(of, None)
        try:
            there = sorted(form.columns(first, 1))
        except DatasetError:
            there = []  # another column cannot be read, and none needs it
        for name in absent:
            _LOG.warning(
                "no record of the first batch has the requested column %r, which is None there; %s has %s%s",
                name,
                self._policy.describe(int(ids[0])),
                ", ".join(map(repr, there)) or "none",
                like(name, there),
            )

    def collate(self, samples: Sequence[Any]) -> Any:
        """Return the batch of these samples: a transform's outputs, or the records themselves."""
        return self._form.of_samples(samples)

    def batch(self, decoded: Decoded) -> Any:
        """Return the batch of records that need no transform.

        Raises:
            ConfigError: the records are of datasets with other columns, and no function joins them.
        """
        if decoded.unlike and not isinstance(self._form, Collated):
            raise ConfigError(decoded.unlike)
        return self._form.of_columns(decoded)


def _others(count: int, places: Mapping[int, object]) -> npt.NDArray[np.int64]:
    """Return the positions in a batch other than these."""
    if not places:
        return np.arange(count)
    kept = np.ones(count, np.bool_)
    kept[list(places)] = False
    return np.flatnonzero(kept)
