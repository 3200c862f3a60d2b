"""A subset by a predicate over columns, before daemons have said which records match.

Covers: the value, and the subset once the matches are known. Does not cover: the language (predicate.py), asking daemons
(emlio.receiver.machine).
"""

from hashlib import blake2b

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog
from emlio.planner.choice.fraction import Fraction
from emlio.planner.choice.predicate import parse_predicate
from emlio.planner.choice.record_set import RecordSet
from emlio.planner.choice.selection import Selected
from emlio.wire.limits import MATCH_DIGEST_BYTES

__all__ = ["Where", "digest_matches", "join_matches"]

_AT_ONCE = 1 << 20


class Where(msgspec.Struct, frozen=True):
    """The records for which a predicate holds, such as `label in {1, 5} and __size__ < 1MB`.

    The daemons evaluate it over their own records: nothing of the others is read or sent.

    Attributes:
        predicate: the predicate; see docs/guide/subsets.md for its columns.
        part: only those that are also in this fraction; None for all.
    """

    predicate: str
    part: Fraction | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.predicate, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # from a user
            raise ConfigError(f"a predicate must be a text, got {self.predicate!r}")
        parse_predicate(self.predicate)
        if self.part is not None and not isinstance(self.part, Fraction):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"part must be a Fraction(...) or None, got {self.part!r}")

    def __str__(self) -> str:
        """Return the predicate, for people: daemons get the set of records that it chose."""
        return f"where {self.predicate}"

    def select(self, catalog: Catalog) -> Selected:
        """Refuse: the matches must be known first, see `chosen`."""
        raise ConfigError(f"the records of a predicate must be found by the daemons first, got {self.predicate!r}")

    def chosen(self, catalog: Catalog, matches: npt.NDArray[np.uint8]) -> RecordSet:
        """Return the set of the matching records.

        Args:
            catalog: the whole dataset.
            matches: a bit for each of its records, the lowest of each byte first.

        Raises:
            ConfigError: none is left.
        """
        found = RecordSet.of_bits(matches)
        if found is not None and self.part is not None:
            found = self._in_part(catalog, found, self.part)
        if found is None:
            within = "" if self.part is None else f" of the fraction from {self.part.begin:.9g} to {self.part.end:.9g}"
            raise ConfigError(
                f"a subset must leave at least one record, {self.predicate!r} holds for none{within} of {catalog.records:,}"
            )
        return found

    @staticmethod
    def _in_part(catalog: Catalog, found: RecordSet, part: Fraction) -> RecordSet | None:
        selected = part.select(catalog)
        kept: list[npt.NDArray[np.int64]] = []
        for first in range(0, found.count, _AT_ONCE):
            ids = found.kth(np.arange(first, min(first + _AT_ONCE, found.count), dtype=np.int64))
            kept.append(ids[selected.has(ids)])
        ids = np.concatenate(kept)
        return RecordSet.of_ids(ids) if ids.size else None


def join_matches(
    sizes: npt.NDArray[np.int64], shards: "list[tuple[npt.NDArray[np.uint8], int]]"
) -> npt.NDArray[np.uint8]:
    """Return the bits of all shards, one behind the other.

    Args:
        sizes: the records of each shard.
        shards: for each shard the bits of some daemon, and the number of the bit that is the shard's first record.
    """
    total = int(sizes.sum())
    joined = np.zeros(-(-total // 8), np.uint8)
    at = 0
    for size, (bits, first) in zip(sizes.tolist(), shards, strict=True):
        for begin in range(0, size, _AT_ONCE):
            count = min(_AT_ONCE, size - begin)
            some = _unpacked(bits, first + begin, count)
            place, shift = (at + begin) >> 3, (at + begin) & 7
            packed = np.packbits(np.concatenate((np.zeros(shift, np.uint8), some)), bitorder="little")
            joined[place : place + packed.size] |= packed
        at += size
    return joined


def digest_matches(bits: npt.NDArray[np.uint8], sizes: "list[int]") -> bytes:
    """Return a digest of each shard's bits, one behind the other; it does not depend on the shards before it.

    Args:
        bits: a bit for each record of all shards.
        sizes: the records of each shard.
    """
    digests: list[bytes] = []
    first = 0
    for size in sizes:
        digest = blake2b(digest_size=MATCH_DIGEST_BYTES)
        for begin in range(0, size, _AT_ONCE):
            some = _unpacked(bits, first + begin, min(_AT_ONCE, size - begin))
            digest.update(np.packbits(some, bitorder="little").data)
        digests.append(digest.digest())
        first += size
    return b"".join(digests)


def _unpacked(bits: npt.NDArray[np.uint8], first: int, count: int) -> npt.NDArray[np.uint8]:
    """Return the bits from number `first` on, each in a byte."""
    skipped = first & 7
    return np.unpackbits(bits[first >> 3 : -(-(first + count) // 8)], bitorder="little")[skipped : skipped + count]
