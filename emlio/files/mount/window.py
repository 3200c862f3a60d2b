"""The part of the page cache ahead of readers whose order is known, and a little behind them; pools of the others. Pure.

A reader of the page cache cannot be seen. So some pieces are withheld: tripwires, whose reads tell where it is. A read
that was not foreseen tells it as well.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.files.mount.moves import Moves, Sight
from emlio.files.mount.pieces import PAGE_BYTES, PIECE_BYTES, Pieces, page_bytes

__all__ = ["LEAST_WINDOW_BYTES", "Window", "Windows"]

_Ints = npt.NDArray[np.int64]

_WIRE_FILES: Final = 64
"""One piece in so many is withheld: each costs its reader some ten microseconds."""

_POOL_WIRE_FILES: Final = 8
"""More in a small pool, since a reader meets them by chance."""

_PARTS: Final = 8
"""And at least one in this part of the window, so that it moves on for large files as well."""

_BEHIND: Final = 2
"""The part of the window that stays behind the reader: several processes read an order only roughly."""

LEAST_WINDOW_BYTES: Final = _PARTS * PIECE_BYTES

_NEAR: Final = 32 * _WIRE_FILES
"""Readers of an order may be so many pieces apart. Farther away, two reads must agree: one may be another's."""

_JUMPS: Final = 4
_NEAR_READS: Final = 8
"""After so many jumps an order is taken for a guess; so many reads where they were expected make up for one."""

_MOST_THREADS: Final = 256

_LOST: Final = 8
"""Pages are not kept for long once one in so many of their bytes was lost, and more than so many pages."""

_WHOLE: Final = 1 << 40

_MOVE_FILES: Final = 1024
_MOVE_BYTES: Final = 4 * PIECE_BYTES
"""Of pages that are pushed in one move. It frees twice as many at most: they go before others come, but not all at once."""

_LOOKED_AT: Final = 4 * _MOVE_FILES
"""Freed pieces that are looked at at a time: most may be held by others, or have never been there."""


class Window:
    """The pieces of one order that are kept in the page cache: positions from `dropped` to `pushed`, or to the end if that fits.

    Attributes:
        is_order: whether its reader comes to one position after the other.
        is_guess: whether the order may be wrong; of one that was told, until much of it was read.
        pieces: the order.
        limit_bytes: their pages take no more.
        dropped: the first position whose pages are there.
        seen: the first position that the reader has not come to, as far as is known.
        pushed: the first position that was not pushed.
    """

    __slots__ = (
        *("_full", "_guessed", "_jumps", "_late", "_lost_bytes", "_part", "_reach", "_threads"),
        *("dropped", "is_guess", "limit_bytes", "pieces", "pushed", "seen"),
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
        self._guessed = guessed
        self._part = 1 if guessed else _WHOLE
        self.dropped: int = 0
        self.seen: int = 0
        self.pushed: int = 0
        self._threads: dict[int, int] = {}  # where each was last
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
        last = self._threads.get(thread, place)
        if not last < place <= last + _NEAR:
            return None
        return Sight.LATE if _WIRE_FILES <= place < self.dropped and self._late < _WIRE_FILES else Sight.FAR

    def note(self, place: int, thread: int) -> None:
        """Keep in mind where a thread was."""
        self._threads.pop(thread, None)
        self._threads[thread] = place
        if len(self._threads) > _MOST_THREADS:
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
            self.is_guess &= self._guessed or self._most_bytes < self.limit_bytes
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
        return min(self._most_bytes // _PARTS, _MOVE_BYTES)

    def push(self) -> range:
        """Return the positions that are to be pushed next, and count them as pushed. `drop` comes first."""
        ends = self.pieces.ends
        most = int(ends[self.dropped]) + self._most_bytes
        if most < min(int(ends[self.pushed]) + self.least_bytes, int(ends[-1])):
            return range(self.pushed, self.pushed)
        room = min(most, int(ends[self.pushed]) + _MOVE_BYTES)
        end = int(np.searchsorted(ends, room, side="right")) - 1
        begin = self.pushed
        end = min(end, begin + _MOVE_FILES, self._most_ahead)
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
        step = self._most_bytes // _PARTS
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


class Windows:
    """The windows of all readers of a mount, which share a number of bytes.

    Attributes:
        limit_bytes: of pages, for all together.
    """

    def __init__(self, sizes: _Ints, limit_bytes: int) -> None:
        """See the class.

        Args:
            sizes: of all entries of the tree.
            limit_bytes: of pages, at least `LEAST_WINDOW_BYTES`.
        """
        if limit_bytes < LEAST_WINDOW_BYTES:
            raise ValueError(f"a window must have at least {LEAST_WINDOW_BYTES} bytes, got {limit_bytes}")
        self._sizes, self.limit_bytes = sizes, limit_bytes
        counts = np.maximum(-(-sizes // PIECE_BYTES), 1)
        self._firsts = np.concatenate(([0], np.cumsum(counts)))
        # Of all pieces of the tree: the bytes of their pages, whether those were pushed, whether some may be there, and whether
        # they are on their way.
        self._bytes = np.full(int(self._firsts[-1]), PIECE_BYTES, np.int32)
        self._bytes[self._firsts[1:] - 1] = page_bytes(sizes - (counts - 1) * PIECE_BYTES)
        self._there = np.zeros(len(self._bytes), np.bool_)
        self._touched = np.zeros(len(self._bytes), np.bool_)
        self._coming = np.zeros(len(self._bytes), np.bool_)
        self._there_bytes = 0
        self._windows: dict[int, Window] = {}
        self._names = count(1)
        self._later: deque[_Ints] = deque()  # pieces that were freed and are to be dropped, if no window holds them
        self._followed: dict[int, int] = {}
        self._asked: set[int] = set()  # pieces that readers of an order wait for
        self._passed: dict[int, int] = {}  # and the bytes of those that they got where perhaps no window holds them
        self._passed_bytes = 0

    @property
    def held_bytes(self) -> int:
        """The bytes of the pages that all windows hold, at most."""
        return sum(window.held_bytes for window in self._windows.values())

    @property
    def there_bytes(self) -> int:
        """The bytes of the pages that are there, as far as is known."""
        return self._there_bytes

    def all(self) -> Iterable[Window]:
        """Return the windows."""
        return self._windows.values()

    def __len__(self) -> int:
        return len(self._windows)

    def __contains__(self, name: int) -> bool:
        return name in self._windows

    def begin(
        self, order: _Ints, *, guessed: bool = False, is_order: bool = True, instead_of: Collection[int] = ()
    ) -> int:
        """Begin a reader's order, which may be a guess, or files without one; return the window's name.

        The one that has been there longest ends if there are too many. Those that it replaces leave it what it needs, if
        it has room for all: an epoch after the first needs no link.
        """
        gone = [self._windows.pop(name) for name in instead_of if name in self._windows]
        if (len(self._windows) + 1) * LEAST_WINDOW_BYTES > self.limit_bytes:
            self.end(next(iter(self._windows)))
        name = next(self._names)
        kind = Window if is_order else Pool
        self._windows[name] = kind(Pieces.of_files(order, self._sizes), 0, guessed=guessed)
        self._share()
        for last in gone:
            self._free(last, last.held)
        self._free_passed()
        return name

    def end(self, name: int) -> None:
        """End a reader's order; what others do not hold is dropped. Nothing happens if it has ended."""
        window = self._windows.pop(name, None)
        if window is not None:
            self._free(window, window.held)
            self._free_passed()
            self._share()

    def _share(self) -> None:
        """Give equal parts to all. What a pool does not need is for the others."""
        left = self.limit_bytes
        for place, window in enumerate(sorted(self._windows.values(), key=lambda one: one.is_order)):
            window.limit_bytes = left // (len(self._windows) - place)
            if not window.is_order:
                window.limit_bytes = min(window.limit_bytes, max(int(window.pieces.ends[-1]), LEAST_WINDOW_BYTES))
            left -= window.limit_bytes

    def read(self, thread: int, entry: int, offset: int, *, lost_bytes: int = 0) -> bool:
        """Take note of a read that was seen; return whether it belongs to an order that was told, or comes next in a guessed one.

        Readers with orders of the same files are told by their threads: one whose reads are near in an order follows it.

        Args:
            thread: of the reader.
            entry: the file.
            offset: the first byte.
            lost_bytes: how many were not there, and are waited for: if they had been pushed, the kernel freed them, or they could
                not be read.
        """
        piece, is_waiting = self._firsts[entry] + offset // PIECE_BYTES, lost_bytes > 0
        lost_bytes *= bool(self._there[piece] and not self._coming[piece])
        self._read_pools(entry, offset, lost_bytes)
        sights: list[tuple[Sight, bool, int, int]] = []
        found = False
        for name, window in self._windows.items():
            place = window.place(entry, offset) if window.is_order else None
            if place is None:
                continue
            self._touched[piece] = True
            sight = window.sight(place, thread)
            window.note(place, thread)
            found |= not window.is_guess  # which may reach over all that is read elsewhere
            if sight is not None:
                sights.append((sight, name != self._followed.get(thread), name, place))
        if not sights:
            return found
        best, _, name, place = min(sights)
        window = self._windows[name]
        if is_waiting or best is Sight.LATE:
            self._asked.add(int(piece))
        self._follow(thread, name)
        if lost_bytes and window.lose(lost_bytes):
            self._lose(window, window.give_up())
        self._free(window, window.move(place, best))
        return True

    def answered(self, reads: Iterable[tuple[int, int]]) -> _Ints:
        """Take note that reads were answered; return what is to be dropped of what readers got where no window holds it.

        That is freed when more was read: at once, the reader might not have copied it; before, it was not there.
        """
        if not self._asked:
            return np.empty((2, 0), np.int64)
        for number in (int(self._firsts[entry]) + offset // PIECE_BYTES for entry, offset in reads):
            if number in self._asked:
                self._asked.remove(number)
                self._touched[number] = True  # also if it was dropped meanwhile
                self._passed_bytes += int(self._bytes[number]) - self._passed.pop(number, 0)  # it becomes the newest
                self._passed[number] = int(self._bytes[number])
        over: list[int] = []
        while self._passed_bytes > self.limit_bytes // _PARTS and len(self._passed) > 1:
            over.append(next(iter(self._passed)))
            self._passed_bytes -= self._passed.pop(over[-1])
        gone = [number for number in over if number not in self._asked]  # else it is not there yet
        return self.left(*self._located(gone)) if gone else np.empty((2, 0), np.int64)

    def _free_passed(self) -> None:
        if self._passed:
            self._later.append(self._located([*self._passed]))
            self._passed.clear()
            self._passed_bytes = 0

    def _located(self, numbers: Sequence[int]) -> _Ints:
        """Return the entries and offsets of pieces with these numbers."""
        found = np.array(numbers, np.int64)
        entries = np.searchsorted(self._firsts, found, side="right") - 1
        return np.stack([entries, (found - self._firsts[entries]) * PIECE_BYTES])

    def _read_pools(self, entry: int, offset: int, lost_bytes: int) -> None:
        """Take note of a read. One that lost much ends, as no reader comes past it; orders push what they left to it."""
        for name, window in list(self._windows.items()):
            place = window.place(entry, offset) if isinstance(window, Pool) else None
            if not isinstance(window, Pool) or place is None:
                continue
            if not (lost_bytes and place < window.pushed):
                window.move(place)
            elif window.lose(lost_bytes):
                self._lose(window, window.held)
                self.end(name)
                for other in self._windows.values():
                    self._lose(other, other.give_up())

    @property
    def pool_bytes(self) -> int:
        """The bytes that a pool beside the orders that were told would have; none if one of them had to end for it."""
        share = self.limit_bytes // (sum(not window.is_guess for window in self._windows.values()) + 1)
        return share if share >= LEAST_WINDOW_BYTES else 0

    @property
    def pooled_bytes(self) -> int:
        """The bytes of the pages of pools."""
        return sum(window.held_bytes for window in self._windows.values() if not window.is_order)

    def is_pooled(self, entry: int) -> bool:
        """Return whether a file belongs to a pool."""
        return any(window.place(entry, 0) is not None for window in self._windows.values() if not window.is_order)

    def _follow(self, thread: int, name: int) -> None:
        self._followed.pop(thread, 0)
        self._followed[thread] = name
        if len(self._followed) > _MOST_THREADS:
            del self._followed[next(iter(self._followed))]

    def late_drops(self) -> _Ints:
        """Return what must be dropped now, since readers overtook what is pushed and filled the windows by themselves."""
        if self.held_bytes <= self.limit_bytes:
            return np.empty((2, 0), np.int64)
        self._leave_behind()
        return self._dropped()

    def _leave_behind(self) -> None:
        for window in self._windows.values():
            self._free(window, window.drop())
            self._free(window, window.settle())

    def moves(self, leaving: Sequence[_Ints] = ()) -> Moves:
        """Return what is to be dropped and pushed next. Each window has its turn, orders before pools.

        Args:
            leaving: entries and offsets of pieces that are being dropped; nothing is pushed there meanwhile, as it would be lost,
                and they take their room until they have left.
        """
        self._leave_behind()
        drop = self._dropped()
        leaving_bytes = sum(int(self._bytes[self._pieces(*pieces)].sum()) for pieces in leaving)
        free_bytes = self.limit_bytes - self._there_bytes - leaving_bytes
        for name, window in sorted(self._windows.items(), key=lambda one: not one[1].is_order):
            while places := self._fitting(window, window.push(), free_bytes):
                if any(
                    window.pieces.are_between(pieces[0], pieces[1], places.start, places.stop).any()
                    for pieces in leaving
                ):
                    window.pushed = places.start
                    break
                chosen = self._chosen(window, places)
                if chosen.size:
                    self._coming[self._pieces(*chosen[:2])] = True
                    self._windows[name] = self._windows.pop(name)  # the others come before it
                    wires = chosen[:2, chosen[3] > 0]  # what is in the page cache shows no reader
                    return Moves(drop=np.concatenate((drop, wires), axis=1), push=chosen)
        return Moves(drop=drop, push=np.empty((4, 0), np.int64))

    def _fitting(self, window: Window, places: range, free_bytes: int) -> range:
        """Return as many positions as there is room for what is not there; the window has pushed no others."""
        part = slice(places.start, places.stop)
        numbers = self._pieces(window.pieces.entries[part], window.pieces.offsets[part])
        ends = np.cumsum(np.where(self._there[numbers], 0, self._bytes[numbers]))
        if not places or ends[-1] <= free_bytes:
            return places
        some = free_bytes >= window.least_bytes
        window.pushed = places.start + (int(np.searchsorted(ends, free_bytes, side="right")) if some else 0)
        return range(places.start, window.pushed)

    def landed(self, entries: _Ints, offsets: _Ints) -> _Ints:
        """Take note that what was pushed is there, or will not come; return what no window holds, which is to be dropped."""
        self._coming[self._pieces(entries, offsets)] = False
        return self.left(entries, offsets)

    def left(self, entries: _Ints, offsets: _Ints) -> _Ints:
        """Return those pieces that no window holds, which are to be dropped, shape (2, n). The others may be there now."""
        held = self._are_held(entries, offsets)
        numbers = self._pieces(entries, offsets)
        self._forget(numbers[~held])
        self._touched[numbers] = held
        return np.stack([entries, offsets])[:, ~held]

    def _are_held(self, entries: _Ints, offsets: _Ints) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(entries), np.bool_)
        for window in self._windows.values():
            found |= window.pieces.are_between(entries, offsets, window.held.start, window.held.stop)
        return found

    def _pieces(self, entries: _Ints, offsets: _Ints) -> _Ints:
        """Return the numbers of pieces in the tree."""
        found: _Ints = self._firsts[entries] + offsets // PIECE_BYTES
        return found

    def _chosen(self, window: Window, places: range) -> _Ints:
        """Return what is pushed of positions, and count it as there: tripwires, and what is not."""
        part = slice(places.start, places.stop)
        pieces = window.pieces
        numbers = self._pieces(pieces.entries[part], pieces.offsets[part])
        withheld = window.withheld(places, self._there[numbers])
        rows = np.stack([pieces.entries[part], pieces.offsets[part], pieces.sizes[part], withheld])
        _, firsts = np.unique(numbers, return_index=True)  # a file may come twice
        needed = np.zeros(len(numbers), np.bool_)
        needed[firsts] = True
        needed &= (rows[2] > 0) & ~self._there[numbers]
        self._there[numbers[needed]] = self._touched[numbers[needed]] = True
        self._there_bytes += int(self._bytes[numbers[needed]].sum())
        return rows[:, needed | (rows[3] > 0)]

    def _forget(self, numbers: _Ints) -> None:
        """Count pieces as not there."""
        gone = np.unique(numbers[self._there[numbers]])
        self._there[gone] = False
        self._there_bytes -= int(self._bytes[gone].sum())

    def _free(self, window: Window, places: range) -> None:
        if places:
            part = slice(places.start, places.stop)
            self._later.append(np.stack([window.pieces.entries[part], window.pieces.offsets[part]]))

    def _lose(self, window: Window, places: range) -> None:
        """Free pieces, and count them as not there, also if others hold them."""
        self._free(window, places)
        part = slice(places.start, places.stop)
        self._forget(self._pieces(window.pieces.entries[part], window.pieces.offsets[part]))

    def _dropped(self) -> _Ints:
        """Return the next pieces that were freed, that no window holds, and that may be there."""
        found = [np.empty((2, 0), np.int64)]
        pieces, size = 2 * _MOVE_FILES, 2 * _MOVE_BYTES
        while self._later and pieces > 0 and size > 0:
            freed = self._later.popleft()
            if freed.shape[1] > _LOOKED_AT:
                self._later.appendleft(freed[:, _LOOKED_AT:])
            freed = freed[:, :_LOOKED_AT]
            numbers = self._pieces(*freed)
            freed = freed[
                :, self._touched[numbers] & ~self._coming[numbers]
            ]  # what comes is looked at when it has landed
            freed = freed[:, ~self._are_held(*freed)]
            ends = np.cumsum(self._bytes[self._pieces(*freed)])
            end = min(int(np.searchsorted(ends, size)) + 1, pieces)
            if end < len(ends):
                self._later.appendleft(freed[:, end:])
            found.append(self.left(*freed[:, :end]))
            pieces -= found[-1].shape[1]
            size -= int(self._bytes[self._pieces(*found[-1])].sum())
        return np.concatenate(found, axis=1)
