"""Weights of records, known by a hash of their content.

Weights are whole numbers below 2**32: the largest of a user's weights becomes 2**32 - 1, and a weight above 0 at least 1.

Covers: making them from numbers, their bytes, the record at a point of their sum. Does not cover: drawing (weighted.py),
users' arguments (wanted.py).
"""

import hashlib
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError

__all__ = ["WEIGHTS", "RecordWeights"]

WEIGHTS: Final = b"w"
"""The first byte of the content."""

_MOST_RECORDS: Final = 2**28
_LARGEST: Final = 2**32 - 1
_DIGEST_BYTES: Final = 16


class RecordWeights:
    """A weight for each record of a dataset; at least one is above 0. Immutable; equal weights are equal values.

    Attributes:
        count: the number of records.
        total: the sum.
        digest: a hash of the content.
    """

    __slots__ = ("__weakref__", "_ends", "count", "digest", "total")

    def __init__(self, content: bytes) -> None:
        """Read a content that other weights' `content` gave.

        Raises:
            ConfigError: the bytes are no weights.
        """
        body = memoryview(content)[1:]
        if content[:1] != WEIGHTS or len(body) % 4 or not 0 < len(body) // 4 <= _MOST_RECORDS:
            raise ConfigError(f"the content of weights must be 4 bytes for each record, got {len(content)} bytes")
        self._ends: npt.NDArray[np.int64] = np.cumsum(np.frombuffer(body, "<u4"), dtype=np.int64)
        self.count, self.total = self._ends.size, int(self._ends[-1])
        if not self.total:
            raise ConfigError("weights must be above 0 for at least one record, all are 0")
        self.digest = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()

    @classmethod
    def of(cls, weights: npt.NDArray[np.float64]) -> Self:
        """Return the whole numbers for weights of at least 0.

        Raises:
            ConfigError: a weight is not a finite number of at least 0, or all are 0.
        """
        if not 0 < weights.size <= _MOST_RECORDS:
            raise ConfigError(f"weights must be of 1 to {_MOST_RECORDS:,} records, got {weights.size:,}")
        wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
        if wrong.size:
            raise ConfigError(f"weights must be finite and at least 0, got {weights[wrong[0]]} for record {wrong[0]}")
        largest = float(weights.max())
        if not largest:
            raise ConfigError("weights must be above 0 for at least one record, all are 0")
        whole = np.rint(weights / largest * _LARGEST)
        whole = np.where(weights > 0, np.maximum(whole, 1), 0)
        return cls(WEIGHTS + whole.astype("<u4").tobytes())

    @property
    def content(self) -> bytes:
        """Its bytes, for the other side; made anew each time."""
        return WEIGHTS + np.diff(self._ends, prepend=0).astype("<u4").tobytes()

    @property
    def content_bytes(self) -> int:
        """The length of `content`."""
        return 1 + 4 * self.count

    def __eq__(self, other: object) -> bool:
        """Compare the weights."""
        return isinstance(other, RecordWeights) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<weights of {self.count:,} records, {self.digest}>"

    def at(self, points: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the record at each point in [0, total): each has as many points as its weight."""
        return np.searchsorted(self._ends, points, side="right").astype(np.int64, copy=False)

    def before(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the sum of the weights of all records before each one; ids are in [0, count]."""
        return np.where(ids > 0, self._ends[np.maximum(ids, 1) - 1], 0)
