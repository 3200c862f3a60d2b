"""Batches of records of similar length, each padded to its longest.

Sorted from the longest down, a batch that begins with length l holds bound // l records. Taking as
many as fit each time needs the fewest batches: a batch that begins later begins with a shorter
record, and so ends later, too.

Covers: the fewest batches under a limit of tokens, for many shares at once; cutting one share into
a given number of batches. Does not cover: which records are in a share (epoch.py), filling
arrays (emlio.receiver.tokens.batches).
"""

import heapq

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.planner.tokens.cutting import Cutting

__all__ = ["Padded"]


class Padded(msgspec.Struct, frozen=True, kw_only=True):
    """Batches in which the number of records times the longest length is at most `max_tokens`.

    Attributes:
        max_tokens: the limit, including padding.
        truncate: whether a record longer than the limit is cut off; otherwise a dataset with one is
            refused.
    """

    max_tokens: int
    truncate: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.max_tokens < 2**31:
            raise ConfigError(f"max_tokens must be in [1, 2**31), got {self.max_tokens}")

    def __str__(self) -> str:
        """Return the text that a state holds."""
        return f"padded:{self.max_tokens}" + (":truncate" if self.truncate else "")

    @property
    def accepted_tokens(self) -> int | None:
        """See `Cut`."""
        return None if self.truncate else self.max_tokens

    @property
    def piece_tokens(self) -> int:
        """See `Cut`."""
        return self.max_tokens

    @property
    def splits(self) -> bool:
        """See `Cut`."""
        return False

    @property
    def shape(self) -> None:
        """See `Cut`: as many rows as records, as many columns as the longest record has tokens."""
        return

    def most(self, lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """See `Cut`: a batch holds at least one record."""
        counted: npt.NDArray[np.int64] = np.count_nonzero(lengths, axis=1).astype(np.int64)
        return counted

    def needed(self, lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """See `Cut`."""
        shares, records = lengths.shape
        rising = np.sort(np.minimum(lengths, np.int32(self.max_tokens)), axis=1).ravel()
        needed = np.zeros(shares, dtype=np.int64)
        # The longest record is at the end of its row; a walk ends when the row or its records do.
        ends = np.arange(shares, dtype=np.int64) * records
        at = ends + (records - 1)
        walking = np.arange(shares, dtype=np.int64)
        while walking.size:
            longest = rising[at]
            alive = longest > 0
            if not alive.all():
                walking, at, longest = walking[alive], at[alive], longest[alive]
            needed[walking] += 1
            at = at - self.max_tokens // longest
            inside = at >= ends[walking]
            if not inside.all():
                walking, at = walking[inside], at[inside]
        return needed

    def cut(self, lengths: npt.NDArray[np.int32], batches: int) -> Cutting:
        """See `Cut`.

        Batches have rising lengths, and their largest size is as small as possible.
        """
        clipped = np.minimum(lengths, np.int32(self.max_tokens))
        order = np.argsort(clipped, kind="stable").astype(np.int64)
        falling: list[int] = clipped[order[::-1]].tolist()
        low, high = falling[0], self.max_tokens
        while low < high:
            middle = (low + high) // 2
            if len(_ends(falling, middle)) <= batches:
                high = middle
            else:
                low = middle + 1
        ends = _split(falling, _ends(falling, low), batches)
        bounds = np.array([0, *ends], dtype=np.int64)
        sizes = (bounds[1:] - bounds[:-1])[::-1]
        firsts = np.cumsum(sizes) - sizes
        return Cutting(
            records=order,
            lengths=clipped[order].astype(np.int64),
            batches=np.repeat(np.arange(batches, dtype=np.int64), sizes),
            rows=np.arange(len(order), dtype=np.int64) - np.repeat(firsts, sizes),
            columns=np.zeros(len(order), dtype=np.int64),
        )


def _ends(falling: list[int], bound: int) -> list[int]:
    """Return the ends of batches when each takes as many records as fit, from the longest down."""
    ends: list[int] = []
    at, records = 0, len(falling)
    while at < records:
        at += bound // falling[at]
        ends.append(min(at, records))
    return ends


def _split(falling: list[int], ends: list[int], batches: int) -> list[int]:
    """Return more batches, by halving the largest that can be halved.

    The halves never exceed the limit, as the whole did not.
    """
    if len(ends) == batches:
        return ends
    begins = [0, *ends[:-1]]
    # Largest first: a heap returns the smallest, so sizes are negative. Begins differ, so no
    # further items are compared.
    heap = [
        (-falling[begin] * (end - begin), begin, end)
        for begin, end in zip(begins, ends, strict=True)
        if end - begin > 1
    ]
    heapq.heapify(heap)
    found = set(ends)
    while len(found) < batches:
        _, begin, end = heapq.heappop(heap)
        middle = (begin + end) // 2
        found.add(middle)
        for first, after in ((begin, middle), (middle, end)):
            if after - first > 1:
                heapq.heappush(heap, (-falling[first] * (after - first), first, after))
    return sorted(found)
