"""The objects of a bucket: listing, reading ranges, whether an object is the one that was indexed."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from emlio.errors import DatasetError
from emlio.store.bucket.address import ObjectAddress
from emlio.store.bucket.block_cache import BlockCache
from emlio.store.bucket.cached_blocks import CachedBlocks
from emlio.store.bucket.object_table import ObjectTable, table_of
from emlio.store.bucket.reader import ObjectReader
from emlio.store.bucket.requests import PIECE_BYTES, AbsentError, Requests, wait_for
from emlio.store.folder_store import endings_of
from emlio.store.store import Store

__all__ = ["Bucket", "BucketStore"]


class Bucket:
    """A place with objects, which threads may share.

    Attributes:
        address: the place.
        requests: sends its requests.
    """

    def __init__(self, address: ObjectAddress, requests: Requests, cache: BlockCache | None = None) -> None:
        """See the class.

        Args:
            address: the place.
            requests: closed with the bucket.
            cache: keeps what was read; closed by its owner.
        """
        self.address = address
        self.requests = requests
        self._blocks = CachedBlocks(cache) if cache is not None else None
        self._name = f"{address}\0{address.settings.get('endpoint', '')}".encode()

    def objects(self, advance: Callable[[int], None] = lambda _: None) -> ObjectTable:
        """Return all objects.

        Raises:
            DatasetError: they cannot be listed.
        """
        return table_of(self.address, self.requests.list(advance))

    def read(self, table: ObjectTable, number: int, start: int, end: int) -> Buffer:
        """Return bytes of an object; they must lie inside it.

        Raises:
            DatasetError: it cannot be read, is gone, or is not the one that was indexed.
        """
        if end - start <= PIECE_BYTES:
            return self._piece(table, number, start, end)
        return b"".join(
            bytes(self._piece(table, number, at, min(at + PIECE_BYTES, end))) for at in range(start, end, PIECE_BYTES)
        )

    def _piece(self, table: ObjectTable, number: int, start: int, end: int) -> Buffer:
        if start == end:
            return b""
        if self._blocks is None:
            return self._get(table, number, start, end)
        return self._blocks.read(
            b"\0".join((self._name, table.identity(number))),
            table.size_bytes(number),
            start,
            end,
            lambda begin, upto: self._get(table, number, begin, upto),
        )

    def _get(self, table: ObjectTable, number: int, start: int, end: int) -> Buffer:
        try:
            status, data = self.requests.get(table.names[number], start, end)
        except AbsentError as absent:
            raise table.absent(number, absent.reason) from None
        table.check_same(number, status)
        got = len(memoryview(data))
        if got != end - start:
            raise DatasetError(f"{table.path(number)}: the server sent {got} bytes for bytes {start} to {end}")
        return data

    def check(self, table: ObjectTable, number: int) -> None:
        """Ask the server whether an object is the one that was indexed.

        Raises:
            DatasetError: it is not, or the server does not say.
        """
        try:
            status = self.requests.head(table.names[number])
        except AbsentError as absent:
            raise table.absent(number, absent.reason) from None
        table.check_same(number, status)

    def why_empty(self) -> str:
        """Return why there are no objects, as the end of an error."""
        try:
            self.requests.head("")
        except (AbsentError, DatasetError):
            return "holds no objects"
        folder, _, name = f"{self.address}".rpartition("/")
        return f"is itself one object. Give the prefix that it lies below, and choose it: '{folder}?files={name}'"

    def close(self) -> None:
        """Send nothing more. Closing again does nothing."""
        self.requests.close()


class BucketStore:
    """The objects of a bucket. See `Store`.

    Attributes:
        bucket: closed with this.
        table: their names and identities.
        endings: see `Files`.
        passed_over: always empty; see `Store`.
        junk: see `Store`.
        remote: see `Store`.
        unwritten: see `Store`.
    """

    remote: bool = True
    unwritten: Sequence[str] = ("identities",)

    def __init__(self, bucket: Bucket, table: ObjectTable, listed: ObjectTable | None = None) -> None:
        """See the class.

        Args:
            bucket: where they lie.
            table: the objects.
            listed: all that were listed, if these are some of them.
        """
        self.bucket = bucket
        self.table = table
        self.listed = listed or table
        self.passed_over: tuple[str, ...] = ()
        self.junk = self.listed.junk

    @cached_property
    def endings(self) -> Mapping[str, int]:
        """See `Files`."""
        endings = endings_of(self.table.names)
        endings.update(self.table.marks)
        return endings

    def __len__(self) -> int:
        return len(self.table)

    @property
    def shown(self) -> str:
        """See `Store`."""
        return str(self.bucket.address)

    @property
    def names(self) -> Sequence[str]:
        """See `Files`."""
        return self.table.names

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """See `Files`."""
        return self.table.sizes

    def path(self, number: int) -> str:
        """See `Store`."""
        return self.table.path(number)

    def size_bytes(self, number: int) -> int:
        """See `Store`."""
        return self.table.size_bytes(number)

    def fetch(self, number: int, start: int, end: int) -> Buffer:
        """Return bytes of an object, which must lie inside it."""
        return self.bucket.read(self.table, number, start, end)

    def read(self, number: int, offset: int, length: int) -> bytes:
        """See `Files`."""
        end = min(offset + length, self.table.size_bytes(number))
        return bytes(self.fetch(number, offset, end)) if offset < end else b""

    def open(self, number: int) -> IO[bytes]:
        """See `Files`."""
        return cast("IO[bytes]", self.reader(number))

    def reader(self, number: int) -> ObjectReader:
        """Open an object for reading, until the bucket is closed: then no answer is waited for any more."""

        def fetch(start: int, end: int) -> Buffer:
            return wait_for(self.bucket.requests.submit(partial(self.fetch, number, start, end)))

        return ObjectReader(fetch, self.table.size_bytes(number))

    def only(self, numbers: Sequence[int]) -> "BucketStore":
        """See `Store`."""
        return BucketStore(self.bucket, self.table.only(numbers), self.listed)

    def top(self, owns: Callable[[str], bool]) -> "BucketStore":
        """See `Store`."""
        return self.only([number for number, name in enumerate(self.names) if "/" not in name and owns(name)])

    def check(self, number: int) -> None:
        """See `Store`."""
        self.bucket.check(self.table, number)

    def identity(self) -> bytes:
        """See `Store`. The objects are listed again."""
        now = self.bucket.objects()
        places = {now.names.raw(number): number for number in range(len(now))}
        digest = hashlib.blake2b(digest_size=16)
        for number in range(len(self)):
            place = places.get(self.table.names.raw(number))
            if place is None:
                raise self.table.absent(number, "it is not listed any more")
            self.table.check_same(number, now.status(place))
            digest.update(self.table.identity(number))
        return digest.digest()

    def is_same(self, other: Store) -> bool:
        """See `Store`."""
        return isinstance(other, BucketStore) and self.table.is_same(other.table)

    def missing(self, name: str) -> str:
        """See `Store`."""
        return name

    def columns(self, numbers: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
        """See `Store`."""
        names = self.listed.names
        return {**self.table.columns(numbers), "all_names": names.text, "all_name_bounds": names.bounds}

    def same(self, arrays: Mapping[str, npt.NDArray[Any]], old: slice, numbers: npt.NDArray[np.int64]) -> bool:
        """See `Store`."""
        before = ObjectTable.stored(self.table.address, arrays)
        pairs = zip(range(old.start, old.stop), numbers.tolist(), strict=True)
        return all(before.identity(then) == self.table.identity(now) for then, now in pairs)

    def close(self) -> None:
        """See `Store`."""
        self.bucket.close()
