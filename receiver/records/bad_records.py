"""Handling of bad records: a wrong checksum, a missing field, an image that cannot be decoded.

The number of records in a batch stays the same under every policy but "skip", the number of batches
under all.

Covers: the policy that `on_error` names, and the error that names the record. Does not cover:
finding bad records.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import CorruptRecordError

__all__ = ["BadRecordPolicy", "OnError", "RecordFault", "RecordPlace", "first_fault"]


class OnError(StrEnum):
    """The treatment of a bad record: an error, a shorter batch, or another record of the batch in its place."""

    RAISE = "raise"
    SKIP = "skip"
    REPLACE = "replace"


class RecordPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a record; `offset` is the byte where its frame begins, or -1 if not known."""

    shard: str
    record: int
    offset: int

    @property
    def text(self) -> str:
        """The place in words."""
        where = f" at byte {self.offset}" if self.offset >= 0 else ""
        return f"record {self.record} of shard {self.shard}{where}"


class RecordFault(msgspec.Struct, frozen=True, kw_only=True):
    """A bad record.

    Attributes:
        record: its global id.
        reason: what is wrong with it.
        of_transform: whether the user's transform failed on it; otherwise its bytes are bad.
    """

    record: int
    reason: str
    of_transform: bool = False


def first_fault(
    ids: npt.NDArray[np.int64], reasons: Mapping[int, str], *, of_transform: bool = False
) -> RecordFault | None:
    """Return the first of a batch's bad records, given its ids and the reasons by position; None without any."""
    if not reasons:
        return None
    first = min(reasons)
    return RecordFault(record=int(ids[first]), reason=reasons[first], of_transform=of_transform)


class BadRecordPolicy:
    """The `on_error` policy of one loader. Thread-safe.

    Attributes:
        raises: a bad record is an error.
        skips: it is left out.
        replaces: another one comes in its place.
    """

    def __init__(self, on_error: str, locate: Callable[[int], RecordPlace] | None = None) -> None:
        """Set the policy.

        Args:
            on_error: an `OnError`, or its text.
            locate: see `locate_by`.
        """
        self.raises = on_error == OnError.RAISE
        self.skips = on_error == OnError.SKIP
        self.replaces = on_error == OnError.REPLACE
        self._locate = locate if locate is not None else _nowhere

    def locate_by(self, locate: Callable[[int], RecordPlace]) -> None:
        """Set the function that finds a record by its global id.

        It is called only for an error, and may ask a daemon.
        """
        self._locate = locate

    def settle(self, ids: npt.NDArray[np.int64], reasons: Mapping[int, str]) -> npt.NDArray[np.int64]:
        """Return which record of the batch to take for each record handed out.

        Args:
            ids: (n,) the batch's records.
            reasons: the faults of bad records, by their position in the batch; at least one.

        Raises:
            CorruptRecordError: by the policy, or because no good record is left.
        """
        good = np.ones(len(ids), np.bool_)
        good[list(reasons)] = False
        if self.raises or not good.any():
            raise self.error(ids, reasons)
        if self.skips:
            return np.flatnonzero(good)
        # Another record of the same batch: it is here, and the order determines which, so all runs
        # choose alike.
        places, donors = np.arange(len(ids)), np.flatnonzero(good)
        for number, place in enumerate(sorted(reasons)):
            places[place] = donors[number % len(donors)]
        return places

    def describe(self, record_id: int) -> str:
        """Return the record's place, in words."""
        return self._locate(record_id).text

    def error(self, ids: npt.NDArray[np.int64], reasons: Mapping[int, str]) -> CorruptRecordError:
        """Return the error that names the first of these records."""
        first = min(reasons)
        found = self._locate(int(ids[first]))
        more = f" ({len(reasons) - 1} more in the same batch)" if len(reasons) > 1 else ""
        way = 'to leave out bad records, pass Recovery(on_error="skip") or "replace"'
        if not self.raises:
            all_of_them = "the only record" if len(ids) == 1 else f"all {len(ids)} records"
            way = f"{all_of_them} of the batch {'is' if len(ids) == 1 else 'are'} bad, so the batch would be empty"
        return CorruptRecordError(
            f"{found.text}: {reasons[first]}{more}; {way}",
            shard=found.shard,
            record=found.record,
            offset=found.offset,
        )


def _nowhere(record: int) -> RecordPlace:
    raise AssertionError(f"record {record} was named before there was a plan")
