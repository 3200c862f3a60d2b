"""`Agent`, which pushes files into the page cache of a mount ahead of its readers."""

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from os import PathLike
from threading import Condition, Thread
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from emlio.errors import ClosedError
from emlio.files.mount.figures import MountFigures, OrderFigures
from emlio.files.mount.listing import Lister
from emlio.files.mount.mount import Mount
from emlio.files.mount.moves import Moves
from emlio.files.mount.pieces import PAGE_BYTES, PIECE_BYTES
from emlio.files.mount.scatter import ScatterDetector
from emlio.files.mount.sequences import SequenceDetector
from emlio.files.mount.source import Source
from emlio.files.mount.windows import Windows
from emlio.native.fuse import Miss
from emlio.store.tree import Tree
from emlio.thread_name import show_thread_name

__all__ = ["Agent"]

_Ints = npt.NDArray[np.int64]

_PUSHING: Final = 4
"""Threads that push: as many times the bytes of one move are under way."""

_REPLACED: Final = 4
"""A pool is replaced once reads elsewhere took one in so many of its bytes, and none of it was seen meanwhile."""


class Agent:
    """A mount with a window ahead of each reader whose order is known: by a hint, or because it reads file after file.

    A folder that fits is pushed whole once files are read in it here and there.

    A wrong order costs speed, never a wrong byte. Threads may share it.
    """

    def __init__(
        self,
        tree: Tree,
        directory: str | PathLike[str],
        source: Source,
        *,
        window_bytes: int = 256 << 20,
        max_files: int = 2_000_000,
        limit_s: float = 60.0,
    ) -> None:
        """Mount the tree; see `Mount`.

        Args:
            tree: the entries.
            directory: where to mount it.
            source: where bytes come from.
            window_bytes: of the page cache, for all readers together.
            max_files: that the kernel keeps known because their order was told; those of windows come in addition.
            limit_s: how long a read may wait for the source.
        """
        self._changed = Condition()
        self._sizes = tree.sizes
        self._windows = Windows(tree.sizes, window_bytes)
        self._sequences, self._scatter = SequenceDetector(), ScatterDetector(tree)
        self._detected: dict[int, int] = {}
        self._pool, self._elsewhere_bytes = 0, 0
        self._unlisted: _Ints | None = None  # the files of a new pool
        files = tree.are_files(np.arange(len(tree)))
        self._files = np.flatnonzero(files & (tree.sizes > 0))
        self._tree_files, self._tree_bytes = int(np.count_nonzero(files)), int(tree.sizes[files].sum())
        self._began_ns = time.monotonic_ns()
        self._closing = False
        self._leaving: list[_Ints] = []  # pieces whose pages are being freed
        self.mount = Mount(tree, directory, source, limit_s=limit_s)
        self.mount.on_reads, self.mount.on_answered = self._see, self._pass
        self._lister = Lister(tree, self.mount.directory, max_files)
        self._threads = [
            Thread(target=self._push, args=(source,), name=f"emlio-push-{number}", daemon=True)
            for number in range(_PUSHING)
        ]
        for thread in self._threads:
            thread.start()

    def hint(self, entries: _Ints, *, instead_of: Collection[int] = ()) -> int:
        """Tell the order in which files will be read from now on, which may replace others; return its name, for `forget`."""
        self._lister.list(entries, self.mount.counts().unknown)
        with self._changed:
            name = self._windows.begin(entries, instead_of=instead_of)
            self._changed.notify_all()
        return name

    def forget(self, name: int) -> None:
        """End an order. Nothing happens if it has ended."""
        with self._changed:
            self._windows.end(name)
            self._changed.notify_all()

    @property
    def held_bytes(self) -> int:
        """The bytes of the pages of all windows."""
        with self._changed:
            return self._windows.there_bytes

    def figures(self, address: str) -> MountFigures:
        """Return what was done until now, for the mount of this dataset."""
        counts = self.mount.counts()
        with self._changed:
            windows = [
                (window.is_order, OrderFigures(pieces=len(window.pieces), read=window.seen, pushed=window.pushed))
                for window in self._windows.all()
            ]
            held_bytes = self._windows.there_bytes
        return MountFigures(
            address=address,
            directory=self.mount.directory,
            up_ns=time.monotonic_ns() - self._began_ns,
            files=self._tree_files,
            size_bytes=self._tree_bytes,
            window_bytes=self._windows.limit_bytes,
            held_bytes=held_bytes,
            pushed=counts.stored,
            pushed_bytes=counts.stored_bytes,
            on_demand=counts.missed,
            answered=counts.answered,
            failed=self.mount.failures.reads + counts.late + counts.refused,
            orders=tuple(figures for is_order, figures in windows if is_order),
            pools=tuple(figures for is_order, figures in windows if not is_order),
        )

    def close(self) -> None:
        """Take the file system away. A second call does nothing."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self.mount.close()
        self._lister.close()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- threads --------------------------------------------------------------------------------------------------

    def _see(self, reads: Sequence[Miss]) -> None:
        with self._changed:
            for miss in reads:
                places = list(self._places(miss))
                lost_bytes = miss.size if miss.unique else 0
                self._windows.asked(places)
                seen = [self._windows.read(miss.thread, *place, lost_bytes=lost_bytes) for place in places]
                if not seen[0]:
                    self._detect(miss, miss.inode - 1)
            late = self._leave(self._windows.late_drops())
            self._changed.notify()  # also if the last window ended: there is something to drop
            unlisted, self._unlisted = self._unlisted, None
        with suppress(ClosedError):
            self._drop(late)
        if unlisted is not None:  # without the lock: there may be a million folders
            self._lister.list(unlisted, self.mount.counts().unknown)

    def _pass(self, reads: Sequence[Miss]) -> None:
        with self._changed:
            passed = self._leave(self._windows.answered(place for read in reads for place in self._places(read)))
        with suppress(ClosedError):
            self._drop(passed)

    def _places(self, read: Miss) -> Iterator[tuple[int, int]]:
        """Yield a read's entry and offset, and those of the next piece if it goes on there: the kernel reads across."""
        entry, following = read.inode - 1, (read.offset // PIECE_BYTES + 1) * PIECE_BYTES
        yield entry, read.offset
        if following < min(read.offset + read.size, int(self._sizes[entry])):
            yield entry, following

    def _detect(self, miss: Miss, entry: int) -> None:
        rank = int(np.searchsorted(self._files, entry))
        if not self._sequences.read(miss.thread, rank, miss.offset, miss.size):
            self._detect_scatter(miss, entry)
            return
        if not miss.offset:  # not within a large file, as those are read that are chosen here and there
            self._scatter.forget()
        self._windows.end(self._detected.pop(miss.thread, 0))
        self._detected = {thread: name for thread, name in self._detected.items() if name in self._windows}
        self._detected[miss.thread] = self._windows.begin(self._files[rank:], guessed=True)
        self._windows.read(miss.thread, entry, miss.offset)

    def _detect_scatter(self, miss: Miss, entry: int) -> None:
        if self._windows.is_pooled(entry):
            self._elsewhere_bytes = 0
            return
        self._elsewhere_bytes += max(miss.size, PAGE_BYTES)
        may_replace = self._elsewhere_bytes * _REPLACED >= self._windows.pooled_bytes
        files = self._scatter.read(entry, self._windows.pool_bytes if may_replace else 0)
        if files is not None:
            for name in (self._pool, *self._detected.values()):  # those sequences did not go on, or are found again
                self._windows.end(name)
            self._detected.clear()
            self._elsewhere_bytes = 0
            self._pool = self._windows.begin(files, guessed=True, is_order=False)
            self._unlisted = files

    def _push(self, source: Source) -> None:
        show_thread_name()
        while (moves := self._next()) is not None:
            stored = np.zeros(moves.push.shape[1], np.bool_)
            try:
                self._carry_out(moves, source, stored)
            except ClosedError:  # the source, or the mount: there will be no more to push
                return
            except Exception as error:  # noqa: BLE001  # of any source: what is not pushed is read on demand
                self.mount.failures.tell(error)
            finally:
                with self._changed:
                    gone = self._leave(self._windows.landed(moves.push[0], moves.push[1], stored))
                with suppress(ClosedError):
                    self._drop(gone)

    def _next(self) -> Moves | None:
        with self._changed:
            while not self._closing:
                moves = self._windows.moves(self._leaving)
                if moves:
                    self._leave(moves.drop)
                    self._changed.notify()  # there may be more for another thread
                    return moves
                self._changed.wait()
        return None

    def _carry_out(self, moves: Moves, source: Source, stored: npt.NDArray[np.bool_]) -> None:
        """Drop and push; say what is there then in `stored`."""
        self._drop(moves.drop)
        entries, offsets, sizes, withheld = moves.push
        begin = 0
        for read in source.read_ranges(entries, offsets, sizes) if len(entries) else ():
            part = slice(begin, begin + len(read.starts))
            begin = part.stop
            good = read.sizes == sizes[part]
            good[list(read.failures)] = False
            if not read.failures:
                self.mount.failures.end()
            memory = np.frombuffer(read.memory, np.uint8)
            moved = entries[part][good], offsets[part][good]
            results = self.mount.push(memory, *moved, read.starts[good], read.sizes[good], withheld[part][good])
            stored[part][good] = results == 0
            with self._changed:
                passed = self._leave(self._windows.left(*moved))
            self._drop(passed)  # the window has moved on meanwhile, or has ended

    def _leave(self, pieces: _Ints) -> _Ints:
        """Let nothing be pushed there until `_drop`; the lock is held."""
        if pieces.size:
            self._leaving.append(pieces)
        return pieces

    def _drop(self, pieces: _Ints) -> None:
        """Free the pages of pieces of `_leave`."""
        if not pieces.size:
            return
        try:
            forgotten = (self._sizes[pieces[0]] <= PIECE_BYTES) & ~self._lister.are_kept(pieces[0])
            self.mount.drop(pieces[0], pieces[1], PIECE_BYTES, forgotten)
        finally:
            with self._changed:
                self._leaving = [other for other in self._leaving if other is not pieces]
                self._changed.notify_all()
