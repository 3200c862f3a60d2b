"""The part of the page cache ahead of a reader whose order is known, and a little behind it; a pool of the others. Pure.

A reader of the page cache cannot be seen. So some pieces are withheld: tripwires, whose reads tell where it is. A read
that was not foreseen tells it as well.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.files.mount.moves import Sight
from emlio.files.mount.pieces import PAGE_BYTES, PIECE_BYTES, Pieces

__all__ = ["LEAST_WINDOW_BYTES", "MOST_THREADS", "MOVE_BYTES", "MOVE_FILES", "PARTS", "Pool", "Window"]

_Ints = npt.NDArray[np.int64]

_WIRE_FILES: Final = 64
"""One piece in so many is withheld: each costs its reader some ten microseconds."""

_POOL_WIRE_FILES: Final = 8
"""More in a small pool, since a reader meets them by chance."""

PARTS: Final = 8
"""And at least one in this part of the window, so that it moves on for large files as well."""

_BEHIND: Final = 2
"""The part of the window that stays behind the reader: several processes read an order only roughly."""

LEAST_WINDOW_BYTES: Final = PARTS * PIECE_BYTES

_NEAR: Final = 32 * _WIRE_FILES
"""Readers of an order may be so many pieces apart. Farther away, two reads must agree: one may be another's."""

_JUMPS: Final = 4
_NEAR_READS: Final = 8
"""After so many jumps an order is taken for a guess; so many reads where they were expected make up for one."""

MOST_THREADS: Final = 256

_LOST: Final = 8
"""Pages are not kept for long once one in so many of their bytes was lost, and more than so many pages."""

_WHOLE: Final = 1 << 40

MOVE_FILES: Final = 1024
MOVE_BYTES: Final = 4 * PIECE_BYTES
"""Of pages that are pushed in one move."""


class Window:
    """The pieces of one order that are kept in the page cache: positions from `dropped` to `pushed`, or to the end if that fits.

    Attributes:
        is_order: whether its reader comes to one position after the other.
        is_guess: whether the order may be wrong; of one that was told, until much of it was read.
        was_told: whether its readers told it, though it may be wrong all the same.
        pieces: the order.
        limit_bytes: their pages take no more.
        dropped: the first position whose pages are there.
        seen: the first position that the reader has not come to, as far as is known.
        pushed: the first position that was not pushed.
    """

    __slots__ = (
        *("_full", "_jumps", "_late", "_lost_bytes", "_other", "_part", "_reach", "_threads"),
        *("dropped", "is_guess", "limit_bytes", "pieces", "pushed", "seen", "was_told"),
    )
    is_order = True

    def __init__(self, pieces: Pieces, limit_bytes: int, *, guessed: bool = False) -> None:
        """See the class.

        Args:
            pieces: the order.
            limit_bytes: of their pages.
            guessed: whether the order may be wrong. It begins with the least window, which doubles when what was pushed is
                read.
        """
        self.pieces, self.limit_bytes, self.is_guess = pieces, limit_bytes, guessed
        self.was_told = not guessed
        self._part = 1 if guessed else _WHOLE
        self.dropped: int = 0
        self.seen: int = 0
        self.pushed: int = 0
        self._threads: dict[int, int] = {}  # where each was last
        self._other: int | None = None  # where one was last that was not known: each file may have a process of its own
        self._late = 0
        self._jumps = 0
        self._lost_bytes = 0
        self._reach = 0
        self._full = np.concatenate(([0], np.cumsum(pieces.sizes > 0)))

    @property
    def held_bytes(self) -> int:
        """The bytes of its pages, once they have been read or pushed."""
        return int(self.pieces.ends[self.held.stop] - self.pieces.ends[self.dropped])

    @property
    def held(self) -> range:
        """The positions whose pages are not to be freed."""
        return range(self.dropped, max(self.pushed, self._reach))

    def lose(self, size: int) -> bool:
        """Take note that bytes were there, but not when they were read; return whether that is true of many."""
        self._lost_bytes += max(size, PAGE_BYTES)
        return self._lost_bytes > _LOST * PAGE_BYTES + int(self.pieces.ends[-1]) // _LOST

    def give_up(self) -> range:
        """Return the positions ahead, which are to be freed and pushed once more."""
        last = self.held.stop
        self.pushed, self._reach, self._lost_bytes = self.seen, 0, 0
        return range(self.seen, last)

    @property
    def _most_bytes(self) -> int:
        return min(self.limit_bytes, LEAST_WINDOW_BYTES * self._part)

    @property
    def _most_ahead(self) -> int:
        return self.seen + _WIRE_FILES * self._part

    @property
    def _wire_files(self) -> int:
        return _WIRE_FILES

    def place(self, entry: int, offset: int) -> int | None:
        """Return the position of a read: the first one that is to come, else the last one behind; None if there is none."""
        positions = self.pieces.positions(entry, offset)
        if not len(positions):
            return None
        ahead = positions[positions >= self.seen]
        return int(ahead[0] if len(ahead) else positions[-1])

    def sight(self, place: int, thread: int) -> Sight | None:
        """Return what a thread's read at a position says of the readers of this order, if anything."""
        if self.dropped <= place < self.seen + _NEAR:
            return Sight.HERE
        last = self._threads.get(thread, self._other)
        if last is None or not last < place <= last + _NEAR:
            return None
        return Sight.LATE if _WIRE_FILES <= place < self.dropped and self._late < _WIRE_FILES else Sight.FAR

    def note(self, place: int, thread: int) -> None:
        """Keep in mind where a thread was."""
        if self._threads.pop(thread, None) is None:
            self._other = place
        self._threads[thread] = place
        if len(self._threads) > MOST_THREADS:
            del self._threads[next(iter(self._threads))]

    def move(self, place: int, sight: Sight | None = None) -> range:
        """Take note that the reader is at a position; return the positions that are freed since it began again."""
        last = self.held
        if sight is Sight.LATE:  # what it reads is not pushed again, unless none is ahead of it
            self._late += 1
            return range(0)
        self._late = 0
        if sight is Sight.FAR:
            self._jump(place)
        elif self.seen <= place <= self.pushed and self.seen < self.pushed:
            self._part = min(2 * self._part, _WHOLE)
            self.is_guess &= not self.was_told or self._most_bytes < self.limit_bytes
        if place < self.dropped:  # also what was pushed ahead
            self.dropped = self.seen = self.pushed = place + 1
            self._reach = 0
        self._jumps = max(self._jumps - 1, 0)
        self.seen = max(self.seen, place + 1)
        self.pushed = max(self.pushed, self.seen)
        return last if self.held.stop < last.stop else range(0)

    def _jump(self, place: int) -> None:
        """Doubt the order since its reader was seen far away, unless it begins again there."""
        if place >= self.pushed or _WIRE_FILES <= place < self.dropped:
            self._jumps += _NEAR_READS
        if self._jumps > _NEAR_READS * _JUMPS:
            self.is_guess, self._part, self._jumps = True, 1, 0

    def drop(self) -> range:
        """Return the positions behind the reader whose pages are to be freed, and count them as freed.

        Only for what comes: at the end all stays, as other readers of the order may still be in its midst.
        """
        ends, limit = self.pieces.ends, self._most_bytes
        last = min(int(ends[self.seen]) + limit - limit // _BEHIND, int(ends[-1]))
        first = int(np.searchsorted(ends, last - limit))
        begin = self.dropped
        self.dropped = max(self.dropped, min(first, self.seen))
        return range(begin, self.dropped)

    def settle(self) -> range:
        """Return the positions farthest ahead that are to be freed since the limit is lower. `drop` comes first."""
        ends, last = self.pieces.ends, self.held.stop
        end = int(np.searchsorted(ends, int(ends[self.dropped]) + self._most_bytes, side="right")) - 1
        self.pushed = min(self.pushed, max(end, self.seen))
        self._reach = end if end == len(self.pieces) else 0
        return range(self.held.stop, last)

    @property
    def least_bytes(self) -> int:
        """The room for pages without which nothing is pushed, unless it is the last: few at once cost as many questions."""
        return min(self._most_bytes // PARTS, MOVE_BYTES)

    def push(self) -> range:
        """Return the positions that are to be pushed next, and count them as pushed. `drop` comes first."""
        ends = self.pieces.ends
        most = int(ends[self.dropped]) + self._most_bytes
        if most < min(int(ends[self.pushed]) + self.least_bytes, int(ends[-1])):
            return range(self.pushed, self.pushed)
        room = min(most, int(ends[self.pushed]) + MOVE_BYTES)
        end = int(np.searchsorted(ends, room, side="right")) - 1
        begin = self.pushed
        end = min(end, begin + MOVE_FILES, self._most_ahead)
        self.pushed = max(begin, end)
        return range(begin, self.pushed)

    def withheld(self, places: range, there: npt.NDArray[np.bool_] | None = None) -> _Ints:
        """Return how many bytes of each of these positions are withheld: the first page of tripwires.

        Args:
            places: the positions.
            there: whether each is there. If all that comes has room there are few tripwires among those: nothing has to follow
                the reader.
        """
        part = slice(places.start, places.stop)
        ends, full, sizes = self.pieces.ends, self._full, self.pieces.sizes[part]
        step = self._most_bytes // PARTS
        behind = slice(places.start + 1, places.stop + 1)
        wires = full[behind] % self._wire_files == 0
        if there is not None and self._reach:
            wires &= ~there
        wires |= (ends[part] // step != ends[behind] // step) | (full[behind] == full[-1])
        return np.where(wires & (sizes > 0), np.minimum(sizes, PAGE_BYTES), 0)


class Pool(Window):
    """The pieces of files that are read here and there, all of which have room: they are pushed, and stay.

    It begins as small as a window that is guessed.
    """

    __slots__ = ()
    is_order = False

    @property
    def _most_ahead(self) -> int:
        return len(self.pieces)

    @property
    def _wire_files(self) -> int:
        return min(_POOL_WIRE_FILES * self._part, _WIRE_FILES)

    def move(self, place: int, sight: Sight | None = None) -> range:
        """Take note of a read; nothing is freed."""
        if place < self.pushed:
            self._part = min(2 * self._part, _WHOLE)
        return range(0)

    def drop(self) -> range:
        """Return nothing: no reader is known to be past a piece."""
        return range(0)
