"""A given set of records, known by a hash of its content.

The content is a list of 8 bytes for each record where few are chosen, else a bit for each record of the dataset. Which one
it is follows from the set alone. Sides exchange the hash, and the content only where it is not known.

Covers: making a set from numbers or bits, its bytes, the k-th record. Does not cover: a user's ids (wanted.py), sending it
(emlio.session).
"""

import hashlib
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog
from emlio.planner.choice.bit_index import BitIndex
from emlio.planner.choice.selection import count_by_shard
from emlio.planner.permutation import LARGEST

__all__ = ["RecordSet"]

_LIST: Final = b"l"
_BITS: Final = b"b"
_LIST_FROM: Final = 64
"""A list takes 64 bits for each of its records."""

_DIGEST_BYTES: Final = 16


class RecordSet:
    """A set of record ids, at least one. Immutable; equal sets are equal values.

    Attributes:
        count: the number of its records.
        digest: a hash of its content.
    """

    __slots__ = ("__weakref__", "_bits", "_last", "_list", "count", "digest")

    def __init__(self, content: bytes) -> None:
        """Read a content that another set's `content` gave.

        Raises:
            ConfigError: the bytes are no set's content.
        """
        self._list: npt.NDArray[np.int64] | None = None
        self._bits: BitIndex | None = None
        form, body = content[:1], memoryview(content)[1:]
        if form == _LIST and len(body) % 8 == 0 and len(body):
            self._list = np.frombuffer(body, "<i8").astype(np.int64, copy=False)
            self.count, self._last = self._list.size, int(self._list[-1])
            rising = bool((np.diff(self._list) > 0).all())
            valid = (
                rising and int(self._list[0]) >= 0 and self._last < LARGEST and self._as_list(self.count, self._last)
            )
        elif form == _BITS and len(body) and body[-1] and 8 * len(body) <= LARGEST:
            self._bits = BitIndex(np.frombuffer(body, np.uint8))
            self.count, self._last = self._bits.count, 8 * len(body) - 8 + body[-1].bit_length() - 1
            valid = not self._as_list(self.count, self._last)
        else:
            valid = False
        if not valid:
            raise ConfigError(
                f"the content of a set of records must be a rising list or bits, got {len(content)} bytes that are neither"
            )
        self.digest: Final = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()

    @property
    def content(self) -> bytes:
        """Its bytes, for the other side; made anew each time."""
        if self._list is not None:
            return _LIST + self._list.astype("<i8", copy=False).tobytes()
        assert self._bits is not None
        return _BITS + self._bits.packed[: self._last // 8 + 1].tobytes()

    @property
    def content_bytes(self) -> int:
        """The length of `content`."""
        return 1 + (8 * self.count if self._list is not None else self._last // 8 + 1)

    @classmethod
    def of_ids(cls, ids: npt.NDArray[np.int64]) -> Self:
        """Return the set of these ids, which must rise and be at least one."""
        if cls._as_list(ids.size, int(ids[-1])):
            return cls(_LIST + ids.astype("<i8").tobytes())
        packed = np.zeros(int(ids[-1]) // 8 + 1, np.uint8)
        for bit in range(8):
            packed[ids[(ids & 7) == bit] >> 3] |= np.uint8(1 << bit)
        return cls(_BITS + packed.tobytes())

    @classmethod
    def of_bits(cls, packed: npt.NDArray[np.uint8]) -> "Self | None":
        """Return the set of these bits, the lowest of each byte first; None if none is set."""
        index = BitIndex(packed)
        if not index.count:
            return None
        last = int(index.kth(np.array([index.count - 1], np.int64))[0])
        if cls._as_list(index.count, last):
            return cls.of_ids(index.kth(np.arange(index.count, dtype=np.int64)))
        return cls(_BITS + packed[: last // 8 + 1].tobytes())

    @staticmethod
    def _as_list(count: int, last: int) -> bool:
        return _LIST_FROM * count <= last + 1

    def __eq__(self, other: object) -> bool:
        """Compare the contents."""
        return isinstance(other, RecordSet) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<{self.count:,} records up to {self._last:,}, {self.digest}>"

    def __str__(self) -> str:
        """Return "records=DIGEST:COUNT"."""
        return f"records={self.digest}:{self.count}"

    def select(self, catalog: Catalog) -> "SelectedSet":
        """See `Subset`."""
        if self._last >= catalog.records:
            within = self.before(np.array([catalog.records], np.int64))
            first = int(self.kth(within)[0])
            raise ConfigError(
                f"the ids of a subset must be in [0, {catalog.records}), as the dataset has {catalog.records:,} records, "
                f"got {first}"
            )
        return SelectedSet(self, catalog)

    def kth(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the record with each number in the set, in rising order."""
        if self._list is not None:
            return self._list[numbers]
        assert self._bits is not None
        return self._bits.kth(numbers)

    def before(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how many records of the set have lower ids."""
        if self._list is not None:
            return np.searchsorted(self._list, ids).astype(np.int64, copy=False)
        assert self._bits is not None
        return self._bits.before(ids)

    def has(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each record whether it is in the set."""
        if self._list is not None:
            at = np.minimum(np.searchsorted(self._list, ids), self._list.size - 1)
            found: npt.NDArray[np.bool_] = self._list[at] == ids
            return found
        assert self._bits is not None
        return self._bits.has(ids)


class SelectedSet:
    """A set in one catalog."""

    __slots__ = ("_set", "within")

    def __init__(self, chosen: RecordSet, catalog: Catalog) -> None:
        self._set = chosen
        self.within = count_by_shard(catalog, np.diff(chosen.before(catalog.bases)), "the set")

    def records(self, numbers: npt.NDArray[np.int64], *, in_order: bool) -> npt.NDArray[np.int64]:
        """See `Selected`; always in order."""
        del in_order
        return self._set.kth(numbers)

    def has(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """See `Selected`."""
        return self._set.has(ids)
