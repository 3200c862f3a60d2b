"""Reads of one feed from a folder: the disk is asked ahead while it is what is waited for.

Covers: how far ahead, records that a file lacks. Does not cover: system calls
(emlio.reading.gather), open files (emlio.reading.files).
"""

import os
from collections.abc import Sequence
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from emlio.errors import CorruptRecordError
from emlio.reading.gather import Gatherer, ShortReadError
from emlio.reading.message_planner import MessagePlan
from emlio.reading.patience import patiently
from emlio.reading.slices import Borrower

if TYPE_CHECKING:
    from emlio.reading.files import OpenShards

__all__ = ["FolderReadAhead"]

_AHEAD = 3
"""The number of messages requested ahead: two or three hide a disk's latency, more only fill the
cache."""


class FolderReadAhead:
    """See `ReadAhead`. The kernel keeps what was requested, so nothing is held here.

    Reading is repeated for a while if the system has no descriptor or memory left.
    """

    def __init__(self, shards: "OpenShards") -> None:
        self._shards = shards
        self._stopped = Event()

    def wants(self, planned: Sequence[MessagePlan], gatherer: Gatherer) -> bool:
        """See `ReadAhead`."""
        return gatherer.cold and len(planned) <= _AHEAD

    def request(self, message: MessagePlan, gatherer: Gatherer) -> bool:
        """See `ReadAhead`."""
        if gatherer.cold:
            gatherer.advise(self._shards, message.file, message.starts, message.sizes)
        return gatherer.cold

    def borrow(
        self, message: MessagePlan, gatherer: Gatherer, borrower: Borrower, now_ns: int
    ) -> npt.NDArray[np.uint8] | None:
        """See `ReadAhead`. They must be under a lease, which nothing can shorten meanwhile."""
        return patiently(partial(self._borrow, message, gatherer, borrower, now_ns), self._stopped.wait)

    def _borrow(
        self, message: MessagePlan, gatherer: Gatherer, borrower: Borrower, now_ns: int
    ) -> npt.NDArray[np.uint8] | None:
        self._shards.check(message.file[:1], now_ns)
        start = int(message.starts[0])
        view = self._shards.lend(int(message.file[0]), start, start + message.size_bytes, borrower)
        if view is not None:
            gatherer.look_at_disk()
        return view

    def read(self, message: MessagePlan, gatherer: Gatherer, out: npt.NDArray[np.uint8], now_ns: int) -> None:
        """See `ReadAhead`."""
        patiently(partial(self._read, message, gatherer, out, now_ns), self._stopped.wait)

    def _read(self, message: MessagePlan, gatherer: Gatherer, out: npt.NDArray[np.uint8], now_ns: int) -> None:
        self._shards.check_used(message.file, now_ns)
        try:
            gatherer.read(self._shards, message.file, message.starts, message.sizes, out)
        except ShortReadError as short:
            raise self._cut_short(message, short.position) from short

    def _cut_short(self, message: MessagePlan, at: int) -> CorruptRecordError:
        """Return the error for a record that the file lacks or cannot deliver.

        Raises another error if the file has changed.
        """
        number, offset, record = int(message.file[at]), int(message.starts[at]), int(message.record[at])
        dataset = self._shards.dataset
        files = dataset.file_table
        with self._shards.open(number) as descriptor:
            files.check_unchanged(number, os.fstat(descriptor))
        return CorruptRecordError(
            f"record {record} of {files.path(number)} cannot be read: it must have {int(message.sizes[at])} "
            f"bytes at offset {offset}",
            shard=dataset.shards[int(message.shard[at])].name,
            record=record,
            offset=offset,
        )

    def confirm(self, message: MessagePlan) -> None:
        """See `ReadAhead`."""
        self._shards.confirm(message.file)

    def close(self) -> None:
        """See `ReadAhead`."""
        self._stopped.set()
