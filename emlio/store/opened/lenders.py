"""The files of a dataset that are under a lease, up to a limit.

Their slices are sent without a copy.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from threading import RLock

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.store.file_table import FileTable
from emlio.store.mapped_file import MappedFile
from emlio.store.opened.leases import Leases
from emlio.store.opened.room import Room
from emlio.store.opened.slices import Borrower, SliceLender

__all__ = ["Lenders"]

_LOOKED_AT = 8
"""Lenders checked for closing when one more is needed; if all are in use, the bytes are copied."""


class _Lent(msgspec.Struct, frozen=True, kw_only=True):
    lender: SliceLender
    descriptor: int


class Lenders:
    """The lenders of one dataset. Thread-safe."""

    def __init__(
        self,
        files: FileTable,
        leases: Leases,
        room: Room,
        open_file: Callable[[int], int],
        on_stuck: Callable[[Path, Collection[Borrower]], None],
    ) -> None:
        """See the class.

        Args:
            files: the files.
            leases: the leases.
            room: the limit that all datasets share.
            open_file: opens the shard of that number; the descriptor then belongs to this object.
            on_stuck: called, in the lease thread, with a path and the borrowers who must give back
                what they have of it.
        """
        self.wanted = len(files)
        self._files = files
        self._leases = leases
        self._room = room
        self._open_file = open_file
        self._on_stuck = on_stuck
        self._most = self.wanted
        self._lent: OrderedDict[int, _Lent] = OrderedDict()
        self._copied = np.zeros(self.wanted, np.bool_)
        self._closed = False
        # Reentrant: the garbage collector may drop a loader, which leaves the room, while the lock
        # is held.
        self._lock = RLock()
        room.join(self)

    def allow(self, most: int) -> None:
        """Keep at most `most` files from now on, apart from those in use."""
        with self._lock:
            self._most = most
            retired = self._retire(len(self._lent) - most, len(self._lent))
        self._end(retired)

    def spare(self) -> bool:
        """Close some that are not in use, as the system has no more descriptors.

        Returns:
            Whether there were any.
        """
        with self._lock:
            retired = self._retire(_LOOKED_AT, len(self._lent))
        self._end(retired)
        return bool(retired)

    def retire(self) -> bool:
        """Close all that are not in use, and make no new ones; return whether none is left."""
        with self._lock:
            self._closed = True
            retired = self._retire(len(self._lent), len(self._lent))
        self._end(retired)
        return not self._lent

    def status(self, number: int) -> os.stat_result | None:
        """Return the status of the file under a lease; None if there is none."""
        with self._lock:  # under the lock it is not closed
            lent = self._lent.get(number)
            return os.fstat(lent.descriptor) if lent is not None else None

    def lend(self, number: int, start: int, end: int, borrower: Borrower) -> npt.NDArray[np.uint8] | None:
        """Return a slice, see `SliceLender.lend`.

        Returns None also if the limit of files under a lease is reached, and all are in use.
        """
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
        files = self._files
        try:
            descriptor = self._open_file(number)
        except OSError:
            return None  # reading raises the error
        try:
            mapping = MappedFile(descriptor, files.size_bytes(number))
        except OSError:
            os.close(descriptor)
            return None
        path = files.path(number)
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
        """Remove lenders that are not in use, among the oldest; called under the lock."""
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
        """Close a lender that lends nothing any more.

        While slices are borrowed it stays, so that the lease thread waits for them.
        """
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
        """Release all leases.

        Borrowed slices stay readable until the file gets shorter. Idempotent.
        """
        with self._lock:
            self._closed = True
            ended = list(self._lent.values())
            self._lent.clear()
        self._end(ended)
        self._room.leave(self)
