"""A block order: neighbouring records are shuffled in blocks, then mixed within a window.

Ids are cut into blocks of `block_records`; the last may be short. A permutation of the blocks puts
them in a row. The row is cut into windows of `window_blocks` blocks, and each window's records are
permuted by a permutation of its own. Only one block is short, and the inverse permutation tells its
position in the row. Everything before it is plain arithmetic; everything after it is shifted by a
constant.

Covers: the arithmetic from places to ids, in constant memory, with the short last block at its
exact place. Does not cover: the choice of sizes (order.py says how the defaults were chosen).
"""

import numpy as np
import numpy.typing as npt

from emlio.planner.permutation import Permutation

__all__ = ["BlockOrder"]


class BlockOrder:
    """The order of one epoch; immutable.

    Args:
        records: the number of records.
        block_records: records in a block.
        window_blocks: blocks in a window.
        blocks_key: the key of the order of the blocks.
        windows_key: the key, together with the window's number, of the order within each window.
    """

    __slots__ = (
        "_block",
        "_block_row",
        "_blocks",
        "_full",
        "_lack",
        "_shift_from",
        "_short",
        "_special",
        "_window",
        "_within",
    )

    def __init__(
        self, *, records: int, block_records: int, window_blocks: int, blocks_key: bytes, windows_key: bytes
    ) -> None:
        self._block = block_records
        self._window = window_blocks
        self._full = block_records * window_blocks
        self._blocks = -(-records // block_records)
        self._lack = self._blocks * block_records - records
        self._block_row = Permutation(self._blocks, blocks_key)
        self._short = int(self._block_row.inverse(np.array([self._blocks - 1], dtype=np.int64))[0])
        short_window = self._short // window_blocks
        self._shift_from = (short_window + 1) * self._full - self._lack
        last = (self._blocks - 1) // window_blocks
        last_start = last * self._full - (self._lack if last > short_window else 0)
        sizes = {short_window: self._full - self._lack, last: records - last_start}
        self._special = {window: Permutation(size, windows_key) for window, size in sizes.items() if size != self._full}
        self._within = Permutation(min(self._full, records), windows_key)

    def ids(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the record at each place of the epoch."""
        if not places.size:
            return places.copy()
        full, block = self._full, self._block
        # Places counted as if no block were short: windows then have equal length.
        even = places + self._lack * (places >= self._shift_from)
        windows = even // full
        offsets = even - windows * full
        first, last = int(windows.min()), int(windows.max())
        mixed = self._permuted(windows, offsets, first, last)
        if self._lack and first <= self._short // self._window <= last:
            beyond = windows * full + mixed >= (self._short + 1) * block - self._lack
            mixed += self._lack * (beyond & (windows == self._short // self._window))
        rows = mixed // block
        within_block = mixed - rows * block
        rows += windows * self._window
        return self._blocks_at(rows, first, last) * block + within_block

    def windows(self, place: int, least: int) -> tuple[int, int]:
        """Return the first place of the window of a place, and the one after its last.

        Where windows have fewer than `least` records, it is as many neighbouring ones as have so many.
        """
        several = -(-least // self._full)
        number = (place + self._lack * (place >= self._shift_from)) // self._full // several
        even = (number * several * self._full, (number + 1) * several * self._full)
        first, end = (at - self._lack * (at > self._shift_from) for at in even)
        return first, min(end, self._blocks * self._block - self._lack)

    def places(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the place of each record: the steps of `ids`, undone."""
        if not ids.size:
            return ids.copy()
        blocks, within_block = np.divmod(ids, self._block)
        position = self._block_row.inverse(blocks)
        windows, rows = np.divmod(position, self._window)
        mixed = rows * self._block + within_block
        short_window = self._short // self._window
        mixed -= self._lack * ((windows == short_window) & (position > self._short))
        offsets = self._permuted(windows, mixed, int(windows.min()), int(windows.max()), inverse=True)
        even: npt.NDArray[np.int64] = windows * self._full + offsets
        return even - self._lack * (windows > short_window)

    def _permuted(
        self,
        windows: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
        first: int,
        last: int,
        *,
        inverse: bool = False,
    ) -> npt.NDArray[np.int64]:
        def step(by: Permutation, at: "slice | npt.NDArray[np.bool_]") -> npt.NDArray[np.int64]:
            return (by.inverse if inverse else by.forward)(offsets[at], windows[at])

        special = [window for window in self._special if first <= window <= last]
        if not special:
            return step(self._within, slice(None))
        mixed = np.empty_like(offsets)
        usual = np.ones(offsets.shape, dtype=np.bool_)
        for window in special:
            here = windows == window
            mixed[here] = step(self._special[window], here)
            usual &= ~here
        if usual.any():
            mixed[usual] = step(self._within, usual)
        return mixed

    def _blocks_at(self, rows: npt.NDArray[np.int64], first: int, last: int) -> npt.NDArray[np.int64]:
        """Return the block at each position of the row.

        All positions lie in the windows `first` to `last`.
        """
        begin, end = first * self._window, min((last + 1) * self._window, self._blocks)
        if end - begin > rows.size:
            return self._block_row.forward(rows)
        # Few blocks for many places, as in a walk: look up each block once.
        return self._block_row.forward(np.arange(begin, end, dtype=np.int64))[rows - begin]
