"""Checksums of records whose format has none.

A record's CRC32C is computed when it is first read and kept, so that a byte that changes on the disk
afterwards is found by every rank that gets the record. 0 stands for a checksum that is not known; a
record whose checksum is 0 is computed each time, and protected on its way only.

An entry of the table is the checksum and 32 bits that follow from it. An entry that is damaged itself is not known, so that
a sound record is not taken for a corrupt one.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.formats.plain import checksums_of

__all__ = ["Checksums"]

_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)
_FACTOR: Final = np.uint64(0x9E3779B1)
"""Odd, so that each bit of a checksum changes the other half."""


def _entries(crcs: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    wide = crcs.astype(np.uint64)
    return wide | (wide * _FACTOR & _LOW) << _HALF


def _crcs(entries: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """Return the checksums of entries, 0 where one is not known or is damaged."""
    crcs = (entries & _LOW).astype(np.uint32)
    return np.where(_entries(crcs) == entries, crcs, np.uint32(0))


class Checksums:
    """The checksums of a dataset's records. Thread-safe: all threads write the same numbers."""

    def __init__(self, table: npt.NDArray[np.uint64], bases: npt.NDArray[np.int64]) -> None:
        """Use a table.

        Args:
            table: (records,) the entries, 0 where unknown; written to, maybe mapped from a file.
            bases: (shards,) where each shard begins in the table.
        """
        self._table = table
        self._bases = bases

    @property
    def missing(self) -> int:
        """The number of records whose checksum is not known."""
        return int(len(self._table) - np.count_nonzero(_crcs(self._table)))

    def known(self, shard: npt.NDArray[np.int64], record: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for which of these records the checksum is known."""
        known: npt.NDArray[np.bool_] = _crcs(self._table[self._bases[shard] + record]) != 0
        return known

    def of(
        self,
        shard: npt.NDArray[np.int64],
        record: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        payload: memoryview,
    ) -> npt.NDArray[np.uint32]:
        """Return the checksums that these records must have; unknown ones are computed and kept.

        Args:
            shard: the shard of each record.
            record: its number in the shard.
            sizes: its length.
            payload: the records as they were read, one after the other.
        """
        places = self._bases[shard] + record
        known = _crcs(self._table[places])
        unknown = known == 0
        if unknown.any():
            # Runs of unknown records: usually all of them are.
            ends = np.cumsum(sizes)
            edges = np.flatnonzero(np.diff(np.concatenate(([0], unknown.astype(np.int8), [0]))))
            for begin, end in edges.reshape(-1, 2).tolist():
                part = payload[int(ends[begin] - sizes[begin]) : int(ends[end - 1])]
                known[begin:end] = checksums_of(part, sizes[begin:end])
            self._table[places] = _entries(known)
        return known

    def keep(
        self, shard: npt.NDArray[np.int64], record: npt.NDArray[np.int64], crcs: npt.NDArray[np.uint32]
    ) -> npt.NDArray[np.uint32]:
        """Keep the checksums of these records where none is known; return those that they must have."""
        places = self._bases[shard] + record
        known = _crcs(self._table[places])
        kept = np.where(known == 0, crcs, known).astype(np.uint32)
        self._table[places] = _entries(kept)
        return kept
