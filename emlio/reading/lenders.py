"""The files of a dataset that are under a lease, up to a limit: those whose slices are sent where they lie.

Covers: which file has a lender, and giving up those not used for longest that nobody has a slice of. Does not cover: lending
(emlio.reading.slices), leases (emlio.reading.leases).
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import RLock

import numpy as np
import numpy.typing as npt

from emlio.reading.leases import Leases
from emlio.reading.room import Room
from emlio.reading.slices import Borrower, SliceLender
from emlio.shards.dataset import Dataset
from emlio.shards.mapped_file import MappedFile

__all__ = ["Lenders"]

_LOOKED_AT = 8
"""Lenders asked whether they can be given up, when one more is wanted; where all are in use, the bytes are copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lent:
    lender: SliceLender
    descriptor: int


class Lenders:
    """See the module. Thread-safe."""

    def __init__(
        self,
        dataset: Dataset,
        leases: Leases,
        room: Room,
        open_file: Callable[[int], int],
        on_stuck: Callable[[Path, Collection[Borrower]], None],
    ) -> None:
        """See the class.

        Args:
            dataset: whose shards.
            leases: where leases are had.
            room: the limit that all datasets share.
            open_file: a descriptor of the shard of that number, which is then ours.
            on_stuck: called, from the lease thread, with a path and those who must give back what they have of it.
        """
        self.wanted = len(dataset.shards)
        self._dataset = dataset
        self._leases = leases
        self._room = room
        self._open_file = open_file
        self._on_stuck = on_stuck
        self._most = self.wanted
        self._lent: OrderedDict[int, _Lent] = OrderedDict()
        self._copied = np.zeros(self.wanted, np.bool_)
        self._closed = False
        # Reentrant: the collector may drop a loader, and so leave the room, in the midst of this.
        self._lock = RLock()
        room.join(self)

    def allow(self, most: int) -> None:
        """Have no more than `most` from now on, but for those in use."""
        with self._lock:
            self._most = most
            retired = self._retire(len(self._lent) - most, len(self._lent))
        self._end(retired)

    def spare(self) -> bool:
        """Give up some that are not in use, since the system has no more descriptors; whether there were any."""
        with self._lock:
            retired = self._retire(_LOOKED_AT, len(self._lent))
        self._end(retired)
        return bool(retired)

    def status(self, number: int) -> os.stat_result | None:
        """Of the file that is under a lease; None where there is none."""
        with self._lock:  # under which it is not closed
            lent = self._lent.get(number)
            return os.fstat(lent.descriptor) if lent is not None else None

    def lend(self, number: int, start: int, end: int, borrower: Borrower) -> npt.NDArray[np.uint8] | None:
        """See `SliceLender.lend`. None too where as many files as may be are under a lease, and in use."""
        if self._copied[number]:
            return None
        with self._lock:
            lent = self._lent.get(number)
            if lent is not None:
                self._lent.move_to_end(number)
        if lent is None:
            lent = self._make(number)
            if lent is None:
                return None
        view = lent.lender.lend(start, end, borrower)
        if view is None and lent.lender.only_copies:
            self._copied[number] = True
            self._give_up(number, lent)
        return view

    def _make(self, number: int) -> _Lent | None:
        with self._lock:
            retired = self._retire(len(self._lent) + 1 - self._most, _LOOKED_AT)
            room = len(self._lent) < self._most
        self._end(retired)
        if not room:
            return None
        shard = self._dataset.shards[number]
        try:
            descriptor = self._open_file(number)
        except OSError:
            return None  # reading says why
        try:
            mapping = MappedFile(descriptor, shard.size_bytes)
        except OSError:
            os.close(descriptor)
            return None
        path = shard.path
        lender = SliceLender(
            descriptor, mapping.array(), self._leases, lambda borrowers: self._on_stuck(path, borrowers)
        )
        made = _Lent(lender=lender, descriptor=descriptor)
        with self._lock:
            kept = self._lent.get(number)
            if kept is None and not self._closed:
                kept = self._lent[number] = made
        if kept is not made:
            os.close(descriptor)
        return kept

    def _retire(self, wanted: int, looked_at: int) -> list[_Lent]:
        """Under the lock: take out so many, if among the oldest so many are not in use."""
        retired: list[_Lent] = []
        for number in list(self._lent)[:looked_at] if wanted > 0 else ():
            if len(retired) >= wanted:
                break
            if self._lent[number].lender.retire():
                retired.append(self._lent.pop(number))
            else:
                self._lent.move_to_end(number)
        return retired

    def _give_up(self, number: int, lent: _Lent) -> None:
        """It lends nothing any more; while slices are out it stays, for the lease thread to wait for them."""
        with self._lock:
            retired = self._lent.get(number) is lent and lent.lender.retire()
            if retired:
                del self._lent[number]
        if retired:
            self._end([lent])

    def _end(self, retired: Collection[_Lent]) -> None:
        for lent in retired:
            lent.lender.close(partial(os.close, lent.descriptor))

    def close(self) -> None:
        """End all leases. Slices that are out stay readable until the file gets shorter. Closing again does nothing."""
        with self._lock:
            self._closed = True
            ended = list(self._lent.values())
            self._lent.clear()
        self._end(ended)
        self._room.leave(self)
