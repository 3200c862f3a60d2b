"""The objects of a dataset, as they were when it was indexed.

An object's identity is its entity tag. Where the server gives none, it is its size and the time of
its last change.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.folders.containers import ZARR_MARKS
from emlio.formats.folders.names import is_junk
from emlio.store.bucket.address import ObjectAddress
from emlio.store.bucket.client import ObjectStatus
from emlio.store.file_table import NameTable
from emlio.store.folder import HOW_TO_RENEW

__all__ = ["ObjectTable", "table_of"]


_ODD: Final = frozenset({"", ".", ".."})
_CONTROL: Final = frozenset(map(chr, (*range(32), 127)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ObjectTable:
    """The objects that hold a dataset's records, by number.

    Attributes:
        address: where they lie.
        names: relative to the address.
        etags: their entity tags, empty where there is none.
        sizes: (n,) in bytes.
        modified_s: (n,) times of their last change, in seconds.
        junk: names of objects that are no data; see `is_junk`, and keys with an empty part, . or .., or control characters.
        marks: the names in `ZARR_MARKS` among those of hidden objects.
    """

    address: ObjectAddress
    names: NameTable
    etags: NameTable
    sizes: npt.NDArray[np.int64]
    modified_s: npt.NDArray[np.int64]
    junk: tuple[str, ...] = ()
    marks: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.names)

    def only(self, numbers: Sequence[int]) -> "ObjectTable":
        """Return some of the objects, without the marks of the others."""
        return replace(
            self,
            names=NameTable.of(self.names[number] for number in numbers),
            etags=NameTable.of(self.etags[number] for number in numbers),
            sizes=self.sizes[numbers],
            modified_s=self.modified_s[numbers],
            marks=frozenset(),
        )

    def path(self, number: int) -> str:
        """Return an object's address, for people."""
        return self.address.of(self.names[number])

    def status(self, number: int) -> ObjectStatus:
        """Return an object as the server described it."""
        return ObjectStatus(
            name=self.names[number],
            size_bytes=int(self.sizes[number]),
            etag=self.etags[number],
            modified_s=int(self.modified_s[number]),
        )

    def identity(self, number: int) -> bytes:
        """Return what identifies an object's content among all objects of the address."""
        etag = self.etags.raw(number) or b"%d" % int(self.modified_s[number])
        return b"\0".join((self.names.raw(number), etag, b"%d" % int(self.sizes[number])))

    def _short(self, number: int) -> int:
        """Return a number that identifies an object's content well enough for keeping checksums."""
        return int.from_bytes(hashlib.blake2b(self.identity(number), digest_size=8).digest(), "little")

    def check_same(self, number: int, now: ObjectStatus) -> None:
        """Compare an object's current status with that of the indexed one.

        Raises:
            DatasetError: it was replaced.
        """
        etag, size_bytes = self.etags[number], int(self.sizes[number])
        same = now.size_bytes == size_bytes
        if etag or now.etag:
            same = same and etag == now.etag
        else:
            same = same and int(self.modified_s[number]) == now.modified_s
        if not same:
            raise DatasetError(
                f"an object must not change while it is served: {self.path(number)} was replaced, it had "
                f"{size_bytes} bytes and the tag {etag or 'none'}, now {now.size_bytes} bytes and the tag "
                f"{now.etag or 'none'}. {HOW_TO_RENEW}"
            )

    def absent(self, number: int, reason: str) -> DatasetError:
        """Return the error for an object that is not there any more."""
        return DatasetError(
            f"an object must not be removed while it is served: {self.path(number)} is gone: {reason}. {HOW_TO_RENEW}"
        )

    def is_same(self, other: "ObjectTable") -> bool:
        """Return whether these are the same objects of the same place, with the same content."""
        return (
            self.address == other.address
            and self.address.settings == other.address.settings
            and len(self) == len(other)
            and all(self.identity(number) == other.identity(number) for number in range(len(self)))
        )

    def columns(self, numbers: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of some objects, as an index stores them."""
        wanted: list[int] = numbers.tolist()
        names = NameTable.of(self.names[number] for number in wanted)
        etags = NameTable.of(self.etags[number] for number in wanted)
        return {
            "names": names.text,
            "name_bounds": names.bounds,
            "etags": etags.text,
            "etag_bounds": etags.bounds,
            "sizes": self.sizes[numbers],
            "modified_s": self.modified_s[numbers],
            "identities": np.array([self._short(number) for number in wanted], np.uint64),
        }

    @staticmethod
    def stored(address: ObjectAddress, arrays: Mapping[str, npt.NDArray[Any]]) -> "ObjectTable":
        """Return the table that an index stores."""
        return ObjectTable(
            address=address,
            names=NameTable(arrays["names"], arrays["name_bounds"]),
            etags=NameTable(arrays["etags"], arrays["etag_bounds"]),
            sizes=arrays["sizes"],
            modified_s=arrays["modified_s"],
        )


def table_of(address: ObjectAddress, found: Iterable[ObjectStatus]) -> ObjectTable:
    """Return the table of objects in the order of a folder's files; see `emlio.store.folder_store`.

    Hidden ones are left out, those that stand for folders, junk, and those whose keys cannot be paths.
    """
    listed = list(found)
    names = {status.name for status in listed}
    kept: list[ObjectStatus] = []
    junk: list[str] = []
    for status in listed:
        *folders, file = status.name.split("/")
        if file and (_ODD.intersection((*folders, file)) or not _CONTROL.isdisjoint(status.name)):
            junk.append(status.name)
            continue
        if not file or any(part.startswith(".") for part in (*folders, file)):
            continue
        if is_junk(file) or any(is_junk(part, folder=True) for part in folders):
            junk.append(status.name)
        else:
            kept.append(status)
    kept.sort(key=lambda status: _place(status.name))
    return ObjectTable(
        address=address,
        names=NameTable.of(status.name for status in kept),
        etags=NameTable.of(status.etag for status in kept),
        sizes=np.array([status.size_bytes for status in kept], np.int64),
        modified_s=np.array([status.modified_s for status in kept], np.int64),
        junk=tuple(junk),
        marks=ZARR_MARKS & {name.rpartition("/")[2] for name in names},
    )


def _place(name: str) -> list[tuple[bool, bytes]]:
    """Return a key: the files of a folder come before its sub-folders."""
    *folders, file = os.fsencode(name).split(b"/")
    return [*((True, folder) for folder in folders), (False, file)]
