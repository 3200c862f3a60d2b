"""A page cache ahead of readers, in memory: it does what windows want."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from emlio.files.mount.moves import Moves
from emlio.files.mount.pieces import PAGE_BYTES, PIECE_BYTES
from emlio.files.mount.window import LEAST_WINDOW_BYTES
from emlio.files.mount.windows import Windows

__all__ = ["LIMIT", "Cache", "cut", "moved", "pages_of"]

LIMIT = 2 * LEAST_WINDOW_BYTES


def pages_of(size: int) -> int:
    """Return the bytes of the pages that hold so many."""
    return -(-size // PAGE_BYTES) * PAGE_BYTES


def moved(windows: Windows) -> Moves:
    """Return what windows want, and tell them that it was done."""
    moves = windows.moves()
    windows.landed(*moves.push[:2])
    return moves


@dataclass
class Cache:
    """A page cache ahead of readers.

    A piece is held wholly, or without its first page. `got` are the reads whose pages come from answers.
    """

    windows: Windows
    sizes: list[int]
    limit: int = LIMIT
    held: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    wires: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    got: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    pushed: int = 0
    lost: bool = False

    def move(self, most: int = 1_000_000) -> None:
        """Do what the windows want, until they want nothing."""
        for _ in range(most):
            moves = self.windows.moves()
            if not moves:
                return
            for entry, offset in moves.drop.T.tolist():
                self._drop(entry, offset)
            for entry, offset, size, withheld in moves.push.T.tolist():
                assert 0 < size == min(self.sizes[int(entry)] - int(offset), PIECE_BYTES)
                assert offset % PIECE_BYTES == 0
                assert withheld in (0, min(size, PAGE_BYTES))
                self.pushed += 1
                self.held[entry, offset] = size
                if withheld:
                    self.wires.add((entry, offset))
            for entry, offset in self.windows.landed(*moves.push[:2]).T.tolist():
                self._drop(entry, offset)
            pages = sum(map(pages_of, self.held.values()))
            assert pages <= self.limit
            assert self.windows.held_bytes <= self.limit
            assert moves.drop.size or pages <= self.windows.held_bytes, "something was left"
            assert pages == self.windows.there_bytes or self.lost

    def _drop(self, entry: int, offset: int) -> None:
        self.held.pop((entry, offset), None)
        self.wires.discard((entry, offset))
        self.got = {one for one in self.got if (one[0], one[1] // PIECE_BYTES) != (entry, offset // PIECE_BYTES)}

    def answer(self, reads: list[tuple[int, int]]) -> None:
        """Have reads answered, and free what the windows want to have freed then."""
        self.got.update(reads)
        for entry, offset in self.windows.answered(reads).T.tolist():
            self._drop(entry, offset)

    def read(self, entry: int, offset: int, thread: int = 1) -> bool:
        """Read within a piece; return whether its bytes were there."""
        if not self.sizes[entry]:
            return True
        piece = (entry, offset // PIECE_BYTES * PIECE_BYTES)
        there = piece in self.held
        if not there or piece in self.wires:
            self.wires.discard(piece)
            if not there:
                self.windows.asked([(entry, offset)])
            self.windows.read(thread, entry, offset, lost_bytes=0 if there else 1)
        return there


def cut(order: npt.NDArray[np.int64], sizes: list[int]) -> list[tuple[int, int]]:
    """Return the pieces of files in an order."""
    return [(entry, offset) for entry in order.tolist() for offset in range(0, max(sizes[int(entry)], 1), PIECE_BYTES)]
