"""The shards of a dataset, held open.

Covers: descriptors and mappings made when first needed, and noticing that a file changed. Does not cover: reading
(emlio.reading.gather), what the files hold (emlio.shards).
"""

import mmap
import os
from collections.abc import Callable, Collection
from pathlib import Path
from threading import Lock

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.reading.leases import Leases
from emlio.reading.slices import Borrower, SliceLender
from emlio.shards.dataset import Dataset, Shard

__all__ = ["OpenShards"]

_CHECK_EVERY_NS = 200_000_000
"""How long a check that a file is unchanged stays good: a stat a file a message would cost more than reading small records."""


def _ignore(path: Path, borrowers: Collection[Borrower]) -> None:
    """Until somebody wants to know."""


class OpenShards:
    """Descriptors and mappings of one dataset's shards, by the shard's number in the dataset. Thread-safe.

    Attributes:
        dataset: the dataset.
        on_stuck: called, from the lease thread, when somebody waits to write to a shard whose bytes do not leave: with its
            path and those who have them.
    """

    def __init__(self, dataset: Dataset, leases: Leases | None = None) -> None:
        """See the class.

        Args:
            dataset: whose shards.
            leases: where leases on them are had; without them nothing is lent, all is copied.
        """
        self.dataset = dataset
        self.on_stuck: Callable[[Path, Collection[Borrower]], None] = _ignore
        self._leases = leases
        self._lenders: dict[int, SliceLender] = {}
        count = len(dataset.shards)
        self._descriptors: list[int | None] = [None] * count
        self._inodes = [0] * count
        self._maps: list[mmap.mmap | None] = [None] * count
        self._addresses = np.zeros(count, np.int64)
        self._checked_ns = np.zeros(count, np.int64)
        self._lock = Lock()

    def descriptor(self, number: int) -> int:
        """An open descriptor of the shard."""
        descriptor = self._descriptors[number]
        return descriptor if descriptor is not None else self._open(number)

    def addresses(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where each of these shards is mapped; for system calls only, never to be touched from here."""
        found = self._addresses[numbers]
        if not found.all():
            for number in np.unique(numbers[found == 0]).tolist():
                self._map(number)
            found = self._addresses[numbers]
        return found

    def lend(self, number: int, start: int, end: int, borrower: Borrower) -> npt.NDArray[np.uint8] | None:
        """Bytes of a shard where they lie in its mapping, or None where they must be copied; see `SliceLender.lend`."""
        if self._leases is None:
            return None
        lender = self._lenders.get(number)
        if lender is None:
            self.addresses(np.array([number], np.int64))
            descriptor = self.descriptor(number)
            with self._lock:
                lender, mapping = self._lenders.get(number), self._maps[number]
                if lender is None and mapping is not None:
                    path = self.dataset.shards[number].path
                    lender = SliceLender(
                        descriptor, mapping, self._leases, lambda borrowers: self.on_stuck(path, borrowers)
                    )
                    self._lenders[number] = lender
        return lender.lend(start, end, borrower) if lender is not None else None

    def check(self, numbers: npt.NDArray[np.int64], now_ns: int) -> None:
        """Raise `DatasetError` if one of these files is not the one that was indexed."""
        due = numbers[now_ns - self._checked_ns[numbers] >= _CHECK_EVERY_NS]
        if not due.size:
            return
        self.dataset.folder.check_in_place()
        numbers_due: list[int] = np.unique(due).tolist()
        for number in numbers_due:
            shard = self.dataset.shards[number]
            descriptor = self.descriptor(number)
            shard.check_unchanged(descriptor)
            self._check_not_replaced(shard, self._inodes[number])
            self._checked_ns[number] = now_ns

    def check_paths(self) -> None:
        """Raise `DatasetError` if a path no longer leads to the file that was indexed, opened or not."""
        folder = self.dataset.folder
        folder.check_in_place()
        for shard in self.dataset.shards:
            try:
                found = folder.stat(shard.name)
            except OSError as error:
                raise DatasetError(f"a shard must stay while it is served: {shard.path}: {error.strerror}") from error
            if found.st_size != shard.size_bytes or found.st_mtime_ns != shard.mtime_ns:
                raise DatasetError(
                    f"a shard must not change while it is served: {shard.path} had {shard.size_bytes} bytes when it was "
                    f"indexed, has {found.st_size} and another time of change; restart the daemon to serve it as it is"
                )

    def _check_not_replaced(self, shard: Shard, inode: int) -> None:
        try:
            found = self.dataset.folder.stat(shard.name).st_ino
        except OSError as error:
            raise DatasetError(
                f"a shard must stay while it is served: {shard.path} is gone ({error.strerror})"
            ) from error
        if found != inode:
            raise DatasetError(f"a shard must not change while it is served: {shard.path} was replaced by another file")

    def _open(self, number: int) -> int:
        shard = self.dataset.shards[number]
        with self._lock:
            descriptor = self._descriptors[number]
            if descriptor is None:
                try:
                    descriptor = self.dataset.folder.open(shard.name)
                except OSError as error:
                    raise DatasetError(f"a shard must be readable: {shard.path}: {error.strerror}") from error
                self._inodes[number] = os.fstat(descriptor).st_ino
                self._descriptors[number] = descriptor
            return descriptor

    def _map(self, number: int) -> None:
        descriptor = self.descriptor(number)
        size = self.dataset.shards[number].size_bytes
        with self._lock:
            if self._addresses[number]:
                return
            try:
                mapping = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
            except (ValueError, OSError) as error:
                path = self.dataset.shards[number].path
                raise DatasetError(f"a shard must hold the {size} bytes that were indexed: {path}: {error}") from error
            self._maps[number] = mapping
            # The view that tells the address is dropped at once: it would keep the mapping from being closed.
            self._addresses[number] = np.frombuffer(mapping, np.uint8).ctypes.data

    def close(self) -> None:
        """Free everything; nobody may read any more."""
        with self._lock:
            self._addresses[:] = 0
            for lender in self._lenders.values():
                lender.close()
            # Not closed but let go: a slice that libzmq still refers to keeps its mapping until it is dropped.
            self._lenders.clear()
            for descriptor in self._descriptors:
                if descriptor is not None:
                    os.close(descriptor)
            self._maps = [None] * len(self._maps)
            self._descriptors = [None] * len(self._descriptors)
