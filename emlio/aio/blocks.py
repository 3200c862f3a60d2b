"""Cutting requests into the blocks that are given to the disk. Pure.

A block past the page cache has an aligned place in the file, size and memory. What a request has besides such blocks is
*bounced*, read or written by way of aligned memory, or, of a write, goes through the page cache: a disk writes whole blocks,
so the rest of one would have to be read first, and another write to it would be lost.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from emlio.native.disk import ALIGNMENT

__all__ = ["Blocks", "Wanted", "cut"]

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wanted:
    """Requests of one direction, shapes (n,).

    Attributes:
        plain: the descriptor of each request's file, through the page cache.
        direct: its descriptor past the page cache; -1 if the file has none.
        starts: the first byte in the file.
        sizes: how many bytes.
        addresses: the memory.
    """

    plain: _Ints
    direct: _Ints
    starts: _Ints
    sizes: _Ints
    addresses: _Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blocks:
    """Blocks that are given to the disk, shapes (n,).

    Attributes:
        descriptors: the file of each block.
        starts: the first byte in the file.
        sizes: how many bytes.
        needed: how many of them there must be.
        addresses: the memory that is read or written, or, of a bounced block, to copy to or from.
        skips: how many bytes of a bounced block come before those to copy.
        copied: how many bytes to copy; 0 for a block that is not bounced.
    """

    descriptors: _Ints
    starts: _Ints
    sizes: _Ints
    needed: _Ints
    addresses: _Ints
    skips: _Ints
    copied: _Ints

    def stages(self, bounce_bytes: int) -> "Iterator[Blocks]":
        """Yield the blocks in parts, whose bounced ones begin within so many bytes."""
        before = np.cumsum(self.bounced_sizes) - self.bounced_sizes
        ends = np.flatnonzero(np.diff(before // bounce_bytes)) + 1
        for begin, end in zip((0, *ends), (*ends, len(before)), strict=True):
            yield self._taken(slice(begin, end))

    def in_turns(self) -> "Blocks":
        """Return the blocks of all files in turns, so that all their disks work at once."""
        by_file = np.argsort(self.descriptors, kind="stable")
        _, firsts = np.unique(self.descriptors[by_file], return_index=True)
        if len(firsts) < 2:
            return self
        counts = np.diff(firsts, append=len(by_file))
        turns = np.empty_like(by_file)
        turns[by_file] = np.arange(len(by_file)) - np.repeat(firsts, counts)
        return self._taken(np.argsort(turns, kind="stable"))

    @property
    def bounced_sizes(self) -> _Ints:
        """The memory that each block needs for bouncing."""
        return np.where(self.copied > 0, self.sizes, 0)

    @property
    def to_copy(self) -> tuple[_Ints, _Ints]:
        """The user's memory of the bounced blocks, and how many bytes of each."""
        bounced = self.copied > 0
        return self.addresses[bounced], self.copied[bounced]

    def _taken(self, which: slice | npt.NDArray[np.intp]) -> "Blocks":
        return Blocks(**{field.name: getattr(self, field.name)[which] for field in fields(self)})


def cut(wanted: Wanted, block_bytes: int, *, writes: bool) -> Blocks:
    """Return the blocks of requests, those of a request one after the other.

    Args:
        wanted: the requests.
        block_bytes: the size of the largest block, a multiple of `ALIGNMENT`.
        writes: whether they are writes.
    """
    starts, ends, direct = wanted.starts, wanted.starts + wanted.sizes, wanted.direct >= 0
    first_whole, last_whole = _up(starts), _down(ends)
    parts: tuple[
        tuple[_Ints, _Ints, _Ints, npt.NDArray[np.bool_]], ...
    ]  # of each request: from, to, file, whether bounced
    if writes:
        # Whole blocks in the middle, and both ends through the page cache. Without a middle all is one end.
        middle = direct & (last_whole > first_whole)
        begin, end = np.where(middle, first_whole, ends), np.where(middle, last_whole, ends)
        bounced = (wanted.addresses + begin - starts) % ALIGNMENT != 0
        never = np.zeros_like(bounced)
        parts = (
            (starts, begin, wanted.plain, never),
            (begin, end, wanted.direct, bounced),
            (end, ends, wanted.plain, never),
        )
    else:
        # Whole blocks as far as file and memory allow it, and the rest bounced.
        fits = (starts % ALIGNMENT == 0) & (wanted.addresses % ALIGNMENT == 0)
        upto = np.where(direct, np.where(fits, last_whole, starts), ends)
        files = np.where(direct, wanted.direct, wanted.plain)
        parts = ((starts, upto, files, np.zeros_like(direct)), (upto, ends, files, direct))
    # The parts of a request follow each other.
    part_starts, part_ends, files, bounced = (np.stack(column, axis=1).ravel() for column in zip(*parts, strict=True))
    addresses = np.repeat(wanted.addresses - starts, len(parts)) + part_starts
    kept = part_ends > part_starts
    return _in_blocks(part_starts[kept], part_ends[kept], files[kept], bounced[kept], addresses[kept], block_bytes)


def _in_blocks(
    starts: _Ints, ends: _Ints, files: _Ints, bounced: npt.NDArray[np.bool_], addresses: _Ints, block_bytes: int
) -> Blocks:
    low, high = np.where(bounced, _down(starts), starts), np.where(bounced, _up(ends), ends)
    counts = -(-(high - low) // block_bytes)
    of = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    block_starts = low[of] + number * block_bytes
    block_ends = np.minimum(block_starts + block_bytes, high[of])
    first, last = np.maximum(block_starts, starts[of]), np.minimum(block_ends, ends[of])
    return Blocks(
        descriptors=files[of],
        starts=block_starts,
        sizes=block_ends - block_starts,
        needed=last - block_starts,
        addresses=addresses[of] + first - starts[of],
        skips=first - block_starts,
        copied=np.where(bounced[of], last - first, 0),
    )


def _down(places: _Ints) -> _Ints:
    return places & -ALIGNMENT


def _up(places: _Ints) -> _Ints:
    return (places + ALIGNMENT - 1) & -ALIGNMENT
