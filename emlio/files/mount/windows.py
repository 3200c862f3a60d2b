"""The windows of all readers of a mount: what they share, what a read says to which, what is pushed and freed next. Pure."""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.files.mount.moves import Moves, Sight
from emlio.files.mount.pages import Pages
from emlio.files.mount.pieces import Pieces
from emlio.files.mount.window import LEAST_WINDOW_BYTES, MOST_THREADS, MOVE_BYTES, MOVE_FILES, PARTS, Pool, Window

__all__ = ["Windows"]

_Ints = npt.NDArray[np.int64]

_FREED_FILES: Final = 2 * MOVE_FILES
_FREED_BYTES: Final = 2 * MOVE_BYTES
"""Of pages that are freed in one move: more than are pushed, since they go before others come, but not all at once."""

_LOOKED_AT: Final = 4 * MOVE_FILES
"""Freed pieces that are looked at at a time: most may be held by others, or have never been there."""


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
        self._pages = Pages(sizes)
        self._windows: dict[int, Window] = {}
        self._names = count(1)
        self._later: deque[_Ints] = deque()  # pieces that were freed and are to be dropped, if no window holds them
        self._followed: dict[int, int] = {}
        self._asked: Counter[int] = Counter()  # reads of pieces that were not answered yet
        self._passed: dict[int, int] = {}  # the bytes of pieces that were read where perhaps no window holds them
        self._passed_bytes = 0

    @property
    def held_bytes(self) -> int:
        """The bytes of the pages that all windows hold, at most."""
        return sum(window.held_bytes for window in self._windows.values())

    @property
    def there_bytes(self) -> int:
        """The bytes of the pages that are there, as far as is known."""
        return self._pages.there_bytes

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
        return name

    def end(self, name: int) -> None:
        """End a reader's order; what others do not hold is dropped. Nothing happens if it has ended."""
        window = self._windows.pop(name, None)
        if window is not None:
            self._free(window, window.held)
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
        pages, piece = self._pages, self._pages.number(entry, offset)
        is_waiting = lost_bytes > 0
        lost_bytes *= bool(pages.there[piece] and not pages.coming[piece])
        self._read_pools(entry, offset, lost_bytes)
        sights: list[tuple[Sight, bool, int, int]] = []
        found = was_told = False
        for name, window in self._windows.items():
            place = window.place(entry, offset) if window.is_order else None
            if place is None:
                continue
            pages.touched[piece] = True
            sight = window.sight(place, thread)
            window.note(place, thread)
            was_told |= window.was_told
            found |= not window.is_guess  # which may reach over all that is read elsewhere
            if sight is not None:
                sights.append((sight, name != self._followed.get(thread), name, place))
        best, _, name, place = min(sights) if sights else (None, False, 0, 0)
        if best is Sight.LATE or (is_waiting and (was_told or sights)):
            self._passed_bytes += int(pages.bytes[piece]) - self._passed.pop(piece, 0)  # it becomes the newest
            self._passed[piece] = int(pages.bytes[piece])
        if best is None:
            return found
        window = self._windows[name]
        self._followed.pop(thread, None)
        self._followed[thread] = name
        if len(self._followed) > MOST_THREADS:
            del self._followed[next(iter(self._followed))]
        if lost_bytes and window.lose(lost_bytes):
            self._lose(window, window.give_up())
        self._free(window, window.move(place, best))
        return True

    def asked(self, reads: Iterable[tuple[int, int]]) -> None:
        """Take note of entries and offsets that are read, and will be answered: see `read` and `answered`."""
        self._asked.update(self._pages.number(entry, offset) for entry, offset in reads)

    def answered(self, reads: Iterable[tuple[int, int]]) -> _Ints:
        """Take note that reads of `asked` were answered; return what is to be dropped of what no window holds.

        That is freed when more was read: at once, the reader might not have copied it; before, it was not there.
        """
        for number in (self._pages.number(entry, offset) for entry, offset in reads):
            self._asked[number] -= 1
            if self._asked[number] <= 0:
                del self._asked[number]
        over_bytes, gone = self._passed_bytes - self.limit_bytes // PARTS, list[int]()
        for number, size in self._passed.items():
            if over_bytes <= 0 or len(gone) == len(self._passed) - 1:
                break
            if number not in self._asked:  # else it is not there yet
                gone.append(number)
                over_bytes -= size
        self._passed_bytes -= sum(self._passed.pop(number) for number in gone)
        return self.left(*self._pages.located(gone)) if gone else np.empty((2, 0), np.int64)

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
        leaving_bytes = sum(self._pages.size(self._pages.numbers(*pieces)) for pieces in leaving)
        free_bytes = self.limit_bytes - self._pages.there_bytes - leaving_bytes
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
                    self._pages.coming[self._pages.numbers(*chosen[:2])] = True
                    self._windows[name] = self._windows.pop(name)  # the others come before it
                    wires = chosen[:2, chosen[3] > 0]  # what is in the page cache shows no reader
                    return Moves(drop=np.concatenate((drop, wires), axis=1), push=chosen)
        return Moves(drop=drop, push=np.empty((4, 0), np.int64))

    def _fitting(self, window: Window, places: range, free_bytes: int) -> range:
        """Return as many positions as there is room for what is not there; the window has pushed no others."""
        part = slice(places.start, places.stop)
        numbers = self._pages.numbers(window.pieces.entries[part], window.pieces.offsets[part])
        ends = np.cumsum(np.where(self._pages.there[numbers], 0, self._pages.bytes[numbers]))
        if not places or ends[-1] <= free_bytes:
            return places
        some = free_bytes >= window.least_bytes
        window.pushed = places.start + (int(np.searchsorted(ends, free_bytes, side="right")) if some else 0)
        return range(places.start, window.pushed)

    def landed(self, entries: _Ints, offsets: _Ints, stored: npt.NDArray[np.bool_] | None = None) -> _Ints:
        """Take note that what was pushed is there; return what no window holds, which is to be dropped.

        Args:
            entries: the files.
            offsets: of the pieces.
            stored: whether each is there; all by default. Another order, or another epoch, pushes what is not.
        """
        numbers = self._pages.numbers(entries, offsets)
        self._pages.coming[numbers] = False
        if stored is not None:
            self._pages.forget(numbers[~stored])
        return self.left(entries, offsets)

    def left(self, entries: _Ints, offsets: _Ints) -> _Ints:
        """Return those pieces that no window holds, which are to be dropped, shape (2, n). The others may be there now."""
        held = self._are_held(entries, offsets)
        numbers = self._pages.numbers(entries, offsets)
        self._pages.forget(numbers[~held])
        self._pages.touched[numbers] = held
        return np.stack([entries, offsets])[:, ~held]

    def _are_held(self, entries: _Ints, offsets: _Ints) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(entries), np.bool_)
        for window in self._windows.values():
            found |= window.pieces.are_between(entries, offsets, window.held.start, window.held.stop)
        return found

    def _chosen(self, window: Window, places: range) -> _Ints:
        """Return what is pushed of positions, and count it as there: tripwires, and what is not."""
        part = slice(places.start, places.stop)
        pieces = window.pieces
        numbers = self._pages.numbers(pieces.entries[part], pieces.offsets[part])
        withheld = window.withheld(places, self._pages.there[numbers])
        rows = np.stack([pieces.entries[part], pieces.offsets[part], pieces.sizes[part], withheld])
        _, firsts = np.unique(numbers, return_index=True)  # a file may come twice
        needed = np.zeros(len(numbers), np.bool_)
        needed[firsts] = True
        needed &= (rows[2] > 0) & ~self._pages.there[numbers]
        self._pages.come(numbers[needed])
        return rows[:, needed | (rows[3] > 0)]

    def _free(self, window: Window, places: range) -> None:
        if places:
            part = slice(places.start, places.stop)
            self._later.append(np.stack([window.pieces.entries[part], window.pieces.offsets[part]]))

    def _lose(self, window: Window, places: range) -> None:
        """Free pieces, and count them as not there, also if others hold them."""
        self._free(window, places)
        part = slice(places.start, places.stop)
        self._pages.forget(self._pages.numbers(window.pieces.entries[part], window.pieces.offsets[part]))

    def _dropped(self) -> _Ints:
        """Return the next pieces that were freed, that no window holds, and that may be there."""
        found = [np.empty((2, 0), np.int64)]
        pieces, size = _FREED_FILES, _FREED_BYTES
        while self._later and pieces > 0 and size > 0:
            freed = self._later.popleft()
            if freed.shape[1] > _LOOKED_AT:
                self._later.appendleft(freed[:, _LOOKED_AT:])
            freed = freed[:, :_LOOKED_AT]
            numbers = self._pages.numbers(*freed)
            freed = freed[
                :, self._pages.touched[numbers] & ~self._pages.coming[numbers]
            ]  # what comes is looked at when it has landed
            freed = freed[:, ~self._are_held(*freed)]
            ends = np.cumsum(self._pages.bytes[self._pages.numbers(*freed)])
            end = min(int(np.searchsorted(ends, size)) + 1, pieces)
            if end < len(ends):
                self._later.appendleft(freed[:, end:])
            found.append(self.left(*freed[:, :end]))
            pieces -= found[-1].shape[1]
            size -= self._pages.size(self._pages.numbers(*found[-1]))
        return np.concatenate(found, axis=1)
