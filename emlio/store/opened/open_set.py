"""Files that are open at once, up to a limit; the least recently used are closed for others.

A file in use is held: it is not closed during a system call, whatever the limit. Files are closed
in groups, so that finding the least recently used costs little for each.
"""

from collections.abc import Callable, Sequence
from threading import RLock
from types import TracebackType

import numpy as np
import numpy.typing as npt

from emlio.errors import ClosedError, EmlioError
from emlio.open_limits import is_used_up
from emlio.store.opened.room import Room

__all__ = ["HeldFile", "HeldFiles", "OpenSet"]

_NONE = -1
_LUMPS = 16
"""The part of the limit that is closed at a time."""

_GIVEN_UP = 4
"""Files closed for a new one when the system has no descriptor left. Other threads that wait for a
descriptor, such as libzmq's for new connections, may take some of them at once."""

_WORTH = 16
"""If not all files fit, opening new ones is worth it only if they are less than this part of what
is read: then they are likely to be used again."""


def _open_none(_: npt.NDArray[np.int64], __: npt.NDArray[np.int64]) -> None:
    """Open nothing quickly."""


class HeldFile:
    """One open file, in use until the end of the block."""

    __slots__ = ("_handle", "_set", "_token")

    def __init__(self, of: "OpenSet", token: int, handle: int) -> None:
        self._set, self._token, self._handle = of, token, handle

    def __enter__(self) -> int:
        return self._handle

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._set.release(self._token)


class HeldFiles:
    """Several open files, in use until the end of the block: a handle for each requested number."""

    __slots__ = ("_handles", "_set", "_token")

    def __init__(self, of: "OpenSet", token: int, handles: npt.NDArray[np.int64]) -> None:
        self._set, self._token, self._handles = of, token, handles

    def __enter__(self) -> npt.NDArray[np.int64]:
        return self._handles

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._set.release(self._token)


class OpenSet:
    """One dataset's open files of one kind, by number.

    Thread-safe; `open_one` and `close_all` run without its lock. All files in use stay open, so the
    limit may be exceeded by what threads use at once, and by no more.
    """

    def __init__(
        self,
        count: int,
        room: Room,
        open_one: Callable[[int], int],
        close_all: Callable[[Sequence[tuple[int, int]]], None],
        refused: Callable[[int, OSError], EmlioError],
        open_many: Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], None] = _open_none,
    ) -> None:
        """See the class.

        Args:
            count: the number of files.
            room: the limit that all datasets share.
            open_one: opens a file and returns its handle, which is not negative.
            close_all: closes files, given the number and the handle of each.
            refused: returns the error to raise if the system does not open a file.
            open_many: opens, quickly, those of some files that it can, and writes their handles to an array, or
                negative numbers; called before `open_one` is for the others.
        """
        self.wanted = count
        self._room = room
        self._open_one = open_one
        self._close_all = close_all
        self._refused = refused
        self._open_many = open_many
        self._handles = np.full(count, _NONE, np.int64)
        # Access to a single number costs half as much this way.
        self._handle_of = self._handles.data
        self._used = np.zeros(count, np.int64)
        self._used_at = self._used.data
        self._open: dict[int, None] = {}
        self._opening = 0
        self._held: dict[int, int | npt.NDArray[np.int64]] = {}
        self._ticks = 0
        self._most = count
        self._crowded = False
        self._closed = False
        # Reentrant: the garbage collector may drop a loader, which leaves the room, while the lock
        # is held.
        self._lock = RLock()
        room.join(self)

    def __len__(self) -> int:
        """The number of open files."""
        return len(self._open)

    def allow(self, most: int) -> None:
        """Keep at most `most` files open from now on."""
        with self._lock:
            self._most = most
            self._crowded = most < self.wanted
            doomed = self._make_room(0)
        self._close_all(doomed)

    def hold(self, number: int) -> HeldFile:
        """Return a context manager for the file of this number; open it if needed.

        Raises:
            ClosedError: the set is closed.
            EmlioError: the file cannot be opened.
        """
        held = self.hold_if_open(number)
        if held is not None:
            return held
        token = self._fetch(np.array([number], np.int64))
        return HeldFile(self, token, self._handle_of[number])

    def hold_if_open(self, number: int) -> HeldFile | None:
        """Hold the file like `hold`, but return None if it is not open."""
        with self._lock:
            handle = self._handle_of[number]
            if handle < 0:
                return None
            self._ticks = token = self._ticks + 1
            self._held[token] = number
            if self._crowded:
                self._used_at[number] = token
            return HeldFile(self, token, handle)

    def hold_all(self, numbers: npt.NDArray[np.int64]) -> HeldFiles:
        """Return a context manager for the files of these numbers; open them if needed.

        Raises:
            ClosedError: the set is closed.
            EmlioError: a file cannot be opened.
        """
        with self._lock:
            handles = self._handles[numbers]
            if len(self._open) == self.wanted or handles.min() >= 0:
                return HeldFiles(self, self._hold(numbers), handles)
        token = self._fetch(numbers)
        return HeldFiles(self, token, self._handles[numbers])

    def hold_worthwhile(self, numbers: npt.NDArray[np.int64]) -> HeldFiles:
        """Hold files like `hold_all`, but open none if too many others would have to be closed.

        A file that is not open then has the handle -1. Too many means that the new files would be
        used again too seldom.
        """
        with self._lock:
            handles = self._handles[numbers]
            if len(self._open) == self.wanted or handles.min() >= 0:
                return HeldFiles(self, self._hold(numbers), handles)
            if self._crowded:
                missing = len(np.unique(numbers[handles < 0]))
                if len(self._open) + missing > self._most and missing * _WORTH > len(numbers):
                    return HeldFiles(self, self._hold(numbers), handles)
        token = self._fetch(numbers)
        return HeldFiles(self, token, self._handles[numbers])

    def are_open(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return, for each of these numbers, whether its file is open now."""
        return self._handles[numbers] >= 0

    def release(self, token: int) -> None:
        """Note that the files of this token are no longer in use."""
        # Without the lock, and in this order: `close` sets its flag before it looks at what is
        # held.
        del self._held[token]
        if self._closed:
            with self._lock:
                doomed = self._evict(len(self._open))
            self._close_all(doomed)

    def close(self) -> None:
        """Close all files; those in use are closed when they are released. Idempotent."""
        with self._lock:
            self._closed = True
            doomed = self._evict(len(self._open))
        self._close_all(doomed)
        self._room.leave(self)

    # ---- under the lock -------------------------------------------------------------------------------------------

    def _hold(self, numbers: npt.NDArray[np.int64]) -> int:
        self._ticks = token = self._ticks + 1
        self._held[token] = numbers
        if self._crowded:
            self._used[numbers] = token
        return token

    def _make_room(self, more: int) -> list[tuple[int, int]]:
        """Remove files so that `more` can be opened."""
        excess = len(self._open) + self._opening + more - self._most
        return self._evict(max(excess, self._most // _LUMPS)) if excess > 0 else []

    def _evict(self, wanted: int) -> list[tuple[int, int]]:
        """Remove the `wanted` least recently used files, or fewer if the rest is in use."""
        numbers = np.fromiter(self._open, np.int64, len(self._open))
        # In one step, as other threads release without the lock.
        all_held = list(self._held.values())
        if all_held:
            in_use = np.concatenate([np.atleast_1d(np.asarray(held, np.int64)) for held in all_held])
            numbers = numbers[~np.isin(numbers, in_use)]
        if wanted < len(numbers):
            numbers = numbers[np.argpartition(self._used[numbers], wanted)[:wanted]]
        doomed = list(zip(numbers.tolist(), self._handles[numbers].tolist(), strict=True))
        self._handles[numbers] = _NONE
        for number, _ in doomed:
            del self._open[number]
        return doomed

    # ---- without it -----------------------------------------------------------------------------------------------

    def _fetch(self, numbers: npt.NDArray[np.int64]) -> int:
        """Hold these files, and open those that are not open."""
        with self._lock:
            if self._closed:
                raise ClosedError("the dataset is closed")
            token = self._hold(numbers)
            missing = np.unique(numbers[self._handles[numbers] < 0])
            doomed = self._make_room(len(missing))
            self._opening += len(missing)
        handles = np.full(len(missing), _NONE, np.int64)  # filled in place: files opened before an error are kept
        try:
            try:
                self._close_all(doomed)
                self._open_many(missing, handles)
                for place in np.flatnonzero(handles < 0).tolist():
                    handles[place] = self._open_now(int(missing[place]))
            finally:
                self._add(missing, handles)
        except BaseException:
            self.release(token)
            raise
        finally:
            with self._lock:
                self._opening -= len(missing)
        return token

    def _open_now(self, number: int) -> int:
        while True:
            try:
                return self._open_one(number)
            except OSError as error:
                # The program around EMLIO needs more than its part: use fewer files. Not far fewer,
                # as others take what is closed here.
                with self._lock:
                    doomed = self._evict(_GIVEN_UP) if is_used_up(error) else []
                if not doomed:
                    raise self._refused(number, error) from error
            self._close_all(doomed)

    def _add(self, numbers: npt.NDArray[np.int64], handles: npt.NDArray[np.int64]) -> None:
        """Add files that were opened; the others' handles are negative."""
        with self._lock:
            lost = (handles >= 0) & (self._handles[numbers] >= 0)  # another thread opened them meanwhile
            new = (handles >= 0) & ~lost
            self._handles[numbers[new]] = handles[new]
            self._open.update(dict.fromkeys(numbers[new].tolist()))
        self._close_all(list(zip(numbers[lost].tolist(), handles[lost].tolist(), strict=True)))
