"""The files of a folder, kept open as far as the system allows."""

import fcntl
import os
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError, EmlioError
from emlio.native.files import close_files
from emlio.open_limits import is_used_up, refusal_of
from emlio.store.folder import absence
from emlio.store.folder_store import FolderStore
from emlio.store.mapped_file import map_file, unmap
from emlio.store.opened.leases import Leases, is_local
from emlio.store.opened.lenders import Lenders
from emlio.store.opened.open_set import HeldFile, HeldFiles, OpenSet
from emlio.store.opened.room import Room, file_room, lease_room, mapping_room
from emlio.store.opened.slices import Borrower

__all__ = ["PAUSES_S", "OpenFiles", "Stuck", "nobody_waits", "patiently"]

PAUSES_S = (0.005, 0.01, 0.02, 0.05, *(0.1,) * 49)
"""Five seconds in all, as long as a peer that sends nothing may keep a connection."""

_T = TypeVar("_T")


def patiently(action: Callable[[], _T], pause: Callable[[float], bool]) -> _T:
    """Return the result of an action; retry it if it fails for such a reason.

    Args:
        action: may be repeated after it failed.
        pause: waits for so many seconds; returns True if there is no use in a retry.

    Raises:
        DatasetError: for another reason, or after all retries.
    """
    for seconds in PAUSES_S:
        try:
            return action()
        except DatasetError as error:
            if not error.passing or pause(seconds):
                raise
    return action()


_CHECK_EVERY_NS = 200_000_000
"""The time for which a check that a file is unchanged stays valid. One stat per file and message
would cost more than reading small records."""

_FEW_FILES = 256
_FEW_LINKS = 16
"""So many files are looked at after each read of them, and so many that are links, which takes longer."""

_PATHS_CHECKED = 10_000
"""The most files whose paths are looked at when a rank joins: a tenth of a second."""

_SCANS = 16
"""The number of shards with a new change time that may be scanned at once; one thread scans
each."""


Stuck = Callable[[Path, Collection[Borrower]], None]
"""Called in the lease thread when a process waits to write to a file whose bytes are still in use: with the file's path
and the borrowers."""


def nobody_waits(path: Path, borrowers: Collection[Borrower]) -> None:
    """Do nothing: see `Stuck`."""


class OpenFiles:
    """The open files of a folder, by number. Thread-safe.

    Attributes:
        store: the files.
        read_whole: whether each is read whole, so that a mapping is not worth it.
        on_stuck: see `Stuck`.
    """

    def __init__(
        self,
        store: FolderStore,
        leases: Leases | None = None,
        *,
        read_whole: bool = False,
        direct: bool = False,
        files: Room | None = None,
        mappings: Room | None = None,
        leased: Room | None = None,
    ) -> None:
        """See the class.

        Args:
            store: the files.
            leases: the leases on them; without them nothing is lent, and all bytes are copied.
            read_whole: see the class.
            direct: whether what is read goes past the page cache; nothing can be mapped or lent then.
            files: the limit of descriptors; by default this process's.
            mappings: the limit of mappings; by default this process's.
            leased: the limit of files under a lease; by default this process's.
        """
        self.store = store
        self.read_whole = read_whole
        self._direct = direct
        self.on_stuck: Stuck = nobody_waits
        self._table = store.table
        count = len(store)
        self._ctimes_ns = np.array(store.table.ctimes_ns, np.int64)
        self._indexed = self._table.indexed(self._ctimes_ns)
        self._files = OpenSet(
            count, files or file_room(), self._open_file, _close_files, self._not_opened, self._open_many
        )
        self._maps = OpenSet(count, mappings or mapping_room(), self._map_file, self._unmap_files, self._not_mapped)
        self._lenders: Lenders | None = None
        if leases is not None:
            self._lenders = Lenders(store.table, leases, leased or lease_room(), self._open_file, self._hear_stuck)
        self._local: bool | None = None  # not known yet
        self._size_bytes = int(store.sizes.sum())
        self._warm_bytes = 0
        self._checked_ns = np.zeros(count, np.int64)
        self._scanning = [Lock() for _ in range(_SCANS)]
        self._closing = Event()

    def open(self, number: int) -> HeldFile:
        """Return a context manager for the shard's descriptor."""
        return self._files.hold(number)

    def open_all(self, numbers: npt.NDArray[np.int64]) -> HeldFiles:
        """Return a context manager for the descriptors of these shards."""
        return self._files.hold_all(numbers)

    def mapped(self, numbers: npt.NDArray[np.int64]) -> HeldFiles:
        """Return a context manager for the addresses at which these shards are mapped.

        They are for system calls only: never touch that memory directly. An address is -1 if
        mapping the shard costs more than reading from it.
        """
        return self._maps.hold_worthwhile(numbers)

    @property
    def are_warm(self) -> bool:
        """Long runs of as many bytes as all files have were read since a thread last waited for a disk there.

        Touching each page of a mapping for the first time costs more than reading it, and each later time less: so a
        mapping pays from the second epoch on, and only if the files stay in the page cache. Never of a file system of
        other hosts: where a file becomes shorter its last page ends in zeros, and `check_read` does not look there.
        """
        return self._warm_bytes >= self._size_bytes and self._is_local

    @property
    def _is_local(self) -> bool:
        if self._local is None:
            self._local = is_local(self.store.folder.descriptor)
        return self._local

    def note_read(self, size_bytes: int, *, waited: bool) -> None:
        """Note that long runs were read; a wait for a disk begins the count again.

        An update lost to another thread is harmless.
        """
        self._warm_bytes = 0 if waited else self._warm_bytes + size_bytes

    def lend(self, number: int, start: int, end: int, borrower: Borrower) -> npt.NDArray[np.uint8] | None:
        """Return bytes of a shard in its mapping, or None if they must be copied.

        See `SliceLender.lend`.
        """
        return self._lenders.lend(number, start, end, borrower) if self._lenders is not None else None

    def read_once(
        self,
        numbers: npt.NDArray[np.int64],
        starts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        out: npt.NDArray[np.uint8],
    ) -> int:
        """Read ranges of files that are opened for that alone, one after the other into `out`.

        Returns how many were read: the file of the next one may not be the one that was indexed, before or after.
        """
        return self.store.folder.read_indexed(self._indexed, (numbers, starts, sizes), out)

    def check(self, numbers: npt.NDArray[np.int64], now_ns: int) -> None:
        """Raise `DatasetError` if one of these files is not the one that was indexed."""
        due = numbers[now_ns - self._checked_ns[numbers] >= _CHECK_EVERY_NS]
        if due.size:
            self._check_due(due, now_ns)

    def check_used(self, numbers: npt.NDArray[np.int64], now_ns: int) -> None:
        """Check like `check`, but skip files that are neither open nor mapped.

        Those are compared when they are opened for reading.
        """
        due = numbers[now_ns - self._checked_ns[numbers] >= _CHECK_EVERY_NS]
        if due.size:
            self._check_due(due[self._files.are_open(due) | self._maps.are_open(due)], now_ns)

    def check_read(self, numbers: npt.NDArray[np.int64], now_ns: int) -> None:
        """Raise `DatasetError` if one of these files, which were just read, has changed meanwhile.

        Looks at a few local files, by a system call of a microsecond for each. The others are left to `check`.
        """
        if min(len(numbers), len(self._table)) > _FEW_FILES or not self._is_local:
            return
        files = np.unique(numbers) if len(numbers) <= _FEW_FILES else np.flatnonzero(np.bincount(numbers))
        changed = files[~self._are_same(files)]
        if len(changed) <= _FEW_LINKS:
            self._look_closer(changed, now_ns)

    def confirm(self, numbers: npt.NDArray[np.int64]) -> None:
        """Raise `DatasetError` if one of these files is not the one that was indexed, checked just now."""
        of_each = np.unique(numbers)
        for number in of_each[~self._are_same(of_each)].tolist():
            self._check(number)

    def _check_due(self, due: npt.NDArray[np.int64], now_ns: int) -> None:
        self.store.folder.check_in_place()
        due = np.unique(due)
        same = self._are_same(due)
        self._checked_ns[due[same]] = now_ns
        self._look_closer(due[~same], now_ns)

    def _look_closer(self, numbers: npt.NDArray[np.int64], now_ns: int) -> None:
        for number in numbers.tolist():
            try:
                self._check(number)
            except DatasetError as error:
                # What is read is the open file: if that is unchanged the bytes are right, whatever
                # its name refers to now.
                if not error.passing or not self._check_open(number):
                    raise
            else:
                self._checked_ns[number] = now_ns

    def check_paths(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Raise `DatasetError` if a path no longer leads to the indexed file, open or not.

        Of very many files some are looked at.

        Args:
            stopped: called before each file; if it returns True, the rest is not checked.
        """

        def pause(seconds: float) -> bool:
            return self._closing.wait(seconds) or stopped()

        patiently(self.store.folder.check_in_place, pause)
        count = len(self._table)
        # The others are compared when they are opened.
        for number in range(0, count, -(-count // _PATHS_CHECKED) or 1):
            if stopped():
                return
            patiently(partial(self._check, number), pause)

    def _are_same(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of these files are certainly unchanged, by name; `_check` is for the others."""
        return self._indexed.are_same(self.store.folder.descriptor, numbers)

    def _check(self, number: int) -> None:
        """Check by name. Files are compared when they are opened, so the name stands for both."""
        files = self._table
        try:
            found = self.store.folder.stat(files.names[number])
        except OSError as error:
            raise refusal_of(error, f"shard {files.path(number)}") or DatasetError(
                f"a shard must not be removed while it is served: {files.path(number)} {absence(error)}"
            ) from error
        self._compare(number, found)

    def _check_open(self, number: int) -> bool:
        """Check by an open descriptor; return False if the shard has none."""
        found = self._lenders.status(number) if self._lenders is not None else None
        if found is None:
            held = self._files.hold_if_open(number)
            if held is None:
                return False
            with held as descriptor:
                found = os.fstat(descriptor)
        self._compare(number, found)
        return True

    def _compare(self, number: int, found: os.stat_result) -> None:
        self._table.check_unchanged(number, found)
        if found.st_ctime_ns != self._ctimes_ns[number]:
            # A new change time may mean that other content was written and its size and time
            # restored, or no more than a chmod.
            # A second thread finds that the first has scanned it.
            with self._scanning[number % _SCANS]:
                if found.st_ctime_ns != self._ctimes_ns[number]:
                    self._table.check_content(number, self.store.folder)
                    self._ctimes_ns[number] = found.st_ctime_ns

    # ---- opening and closing --------------------------------------------------------------------------------------

    def _open_many(self, numbers: npt.NDArray[np.int64], descriptors: npt.NDArray[np.int64]) -> None:
        self.store.folder.open_indexed(self._indexed, numbers, descriptors, direct=self._direct)

    def _open_file(self, number: int) -> int:
        try:
            descriptor, found = self._open_status(self._table.names[number])
        except OSError as error:
            if not is_used_up(error):
                self._check(number)  # raises a better error if the file has changed
            raise
        try:
            self._compare(number, found)
            if self._direct:
                fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_RDONLY | os.O_DIRECT)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _open_status(self, name: str) -> tuple[int, os.stat_result]:
        while True:
            try:
                return self.store.folder.open_status(name)
            except OSError as error:
                if self._lenders is None or not is_used_up(error) or not self._lenders.spare():
                    raise

    def _map_file(self, number: int) -> int:
        with self._files.hold(number) as descriptor:
            return map_file(descriptor, self._table.size_bytes(number))

    def _unmap_files(self, mapped: Sequence[tuple[int, int]]) -> None:
        for number, address in mapped:
            unmap(address, self._table.size_bytes(number))

    def _not_opened(self, number: int, error: OSError) -> EmlioError:
        path = self._table.path(number)
        return refusal_of(error, f"shard {path}") or DatasetError(f"a shard must be readable: {path}: {error.strerror}")

    def _not_mapped(self, number: int, error: OSError) -> EmlioError:
        path = self._table.path(number)
        return refusal_of(error, f"shard {path}") or DatasetError(f"a shard cannot be mapped: {path}: {error.strerror}")

    def _hear_stuck(self, path: Path, borrowers: Collection[Borrower]) -> None:
        self.on_stuck(path, borrowers)

    def idle(self) -> bool:
        """Return whether no slice of a mapped shard is in use, so that `close` may release leases.

        Lends nothing more of what is not in use.
        """
        return self._lenders is None or self._lenders.retire()

    def close(self) -> None:
        """Close everything; what a thread is still using is closed when it is done."""
        self._closing.set()
        if self._lenders is not None:
            self._lenders.close()
        self._maps.close()
        self._files.close()


def _close_files(opened: Sequence[tuple[int, int]]) -> None:
    if opened:
        close_files([descriptor for _, descriptor in opened])
