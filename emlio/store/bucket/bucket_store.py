"""The objects of a bucket: listing, reading ranges, whether an object is the one that was indexed."""

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import IO, Any, Final, cast

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from emlio.errors import DatasetError
from emlio.store.bucket.address import ObjectAddress
from emlio.store.bucket.block_cache import BlockCache, CachedBlocks
from emlio.store.bucket.object_table import ObjectTable, table_of
from emlio.store.bucket.requests import PIECE_BYTES, AbsentError, Requests, wait_for
from emlio.store.store import Store

__all__ = ["BucketStore", "ObjectReader"]

_FIRST_BYTES: Final = 16 << 10
_MOST_BYTES: Final = 8 << 20
_GROWTH: Final = 4
_LEAP_BYTES: Final = 256 << 10
"""Shorter leaps are taken for reading on. This reads at most so much per header that is not needed,
and saves the wait for a request."""


class ObjectReader(io.RawIOBase):
    """An object as a file that is open for reading. Used by one thread.

    A request costs as much time as reading about 1 MiB. So what is read front to back comes in ever
    larger steps. Where a reader leaps from header to header, only a little is read at each.
    """

    def __init__(self, fetch: Callable[[int, int], Buffer], size_bytes: int) -> None:
        """See the class.

        Args:
            fetch: returns the bytes [start, end).
            size_bytes: the object's size.
        """
        super().__init__()
        self.size_bytes = size_bytes
        self._fetch = fetch
        self._at = 0
        self._window = memoryview(b"")
        self._begin = 0
        self._next = 0
        self._step = _FIRST_BYTES

    def read_at(self, length: int, offset: int) -> memoryview:
        """Return bytes from an offset on; fewer only at the object's end."""
        length = max(min(length, self.size_bytes - offset), 0)
        end = offset + length
        if not length:
            return memoryview(b"")
        leap = offset - self._next
        self._next = end
        if not self._begin <= offset or end > self._begin + len(self._window):
            going_on = bool(self._window) and 0 <= leap <= _LEAP_BYTES
            self._step = min(self._step * _GROWTH, _MOST_BYTES) if going_on else _FIRST_BYTES
            kept = bytes(self._window[offset - self._begin :]) if self._begin <= offset else b""
            begin = offset + len(kept)
            upto = min(max(end, begin + self._step), self.size_bytes)
            self._window = memoryview(kept + bytes(self._fetch(begin, upto)))
            self._begin = offset
        return self._window[offset - self._begin : end - self._begin]

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """See `io.RawIOBase`."""
        view = memoryview(buffer).cast("B")
        data = self.read_at(len(view), self._at)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See `io.RawIOBase`."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size_bytes}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def tell(self) -> int:
        """See `io.RawIOBase`."""
        return self._at

    def close(self) -> None:
        """See `io.RawIOBase`."""
        self._window = memoryview(b"")
        super().close()


class BucketStore(Store):
    """The objects of a bucket. See `Store`.

    Attributes:
        requests: asks the server; closed with this.
        table: the objects' names and identities.
        listed: all objects that were listed.
    """

    remote = True
    unwritten = ("identities",)

    def __init__(
        self,
        requests: Requests,
        table: ObjectTable,
        listed: ObjectTable | None = None,
        blocks: CachedBlocks | None = None,
    ) -> None:
        """See the class.

        Args:
            requests: asks the server.
            table: the objects.
            listed: all that were listed, if these are some of them.
            blocks: keeps what was read.
        """
        self.listed = listed or table
        super().__init__(table.names, table.sizes, marks=table.marks, junk=self.listed.junk)
        self.requests = requests
        self.table = table
        self._blocks = blocks
        self._place = f"{self.address}\0{self.address.settings.get('endpoint', '')}".encode()

    @staticmethod
    def list(
        requests: Requests, cache: BlockCache | None = None, advance: Callable[[int], None] = lambda _: None
    ) -> "BucketStore":
        """Return all objects of a place.

        Args:
            requests: asks the server.
            cache: keeps what was read; closed by its owner.
            advance: called with the number of objects found since.

        Raises:
            DatasetError: there are none, or they cannot be listed.
        """
        table = table_of(requests.address, requests.list(advance))
        if not len(table):
            reason = f"holds only files such as {table.junk[0]!r}" if table.junk else _why_empty(requests)
            raise DatasetError(f"{requests.address}: must hold a dataset, {reason}")
        return BucketStore(requests, table, blocks=None if cache is None else CachedBlocks(cache))

    def stored(self, arrays: Mapping[str, npt.NDArray[Any]]) -> "BucketStore":
        """Return the objects that an index stores."""
        return BucketStore(self.requests, ObjectTable.stored(self.address, arrays), blocks=self._blocks)

    @property
    def address(self) -> ObjectAddress:
        """The place."""
        return self.requests.address

    @property
    def shown(self) -> str:
        """See `Store`."""
        return str(self.address)

    def path(self, number: int) -> str:
        """See `Store`."""
        return self.table.path(number)

    def fetch(self, number: int, start: int, end: int) -> Buffer:
        """Return bytes of an object; they must lie inside it.

        Raises:
            DatasetError: it cannot be read, is gone, or is not the one that was indexed.
        """
        if end - start <= PIECE_BYTES:
            return self._piece(number, start, end)
        return b"".join(
            bytes(self._piece(number, at, min(at + PIECE_BYTES, end))) for at in range(start, end, PIECE_BYTES)
        )

    def _piece(self, number: int, start: int, end: int) -> Buffer:
        if start == end:
            return b""
        if self._blocks is None:
            return self._get(number, start, end)
        identity = b"\0".join((self._place, self.table.identity(number)))
        return self._blocks.read(identity, self.size_bytes(number), start, end, partial(self._get, number))

    def _get(self, number: int, start: int, end: int) -> Buffer:
        try:
            status, data = self.requests.get(self.names[number], start, end)
        except AbsentError as absent:
            raise self.table.absent(number, absent.reason) from None
        self.table.check_same(number, status)
        got = len(memoryview(data))
        if got != end - start:
            raise DatasetError(f"{self.path(number)}: the server sent {got} bytes for bytes {start} to {end}")
        return data

    def read(self, number: int, offset: int, length: int) -> bytes:
        """See `Files`."""
        end = min(offset + length, self.size_bytes(number))
        return bytes(self.fetch(number, offset, end)) if offset < end else b""

    def open(self, number: int) -> IO[bytes]:
        """See `Files`."""
        return cast("IO[bytes]", self.reader(number))

    def reader(self, number: int) -> ObjectReader:
        """Open an object for reading, until the bucket is closed: then no answer is waited for any more."""

        def fetch(start: int, end: int) -> Buffer:
            return wait_for(self.requests.submit(partial(self.fetch, number, start, end)))

        return ObjectReader(fetch, self.size_bytes(number))

    def only(self, numbers: Sequence[int]) -> "BucketStore":
        """See `Store`."""
        return BucketStore(self.requests, self.table.only(numbers), self.listed, self._blocks)

    def check(self, number: int) -> None:
        """See `Store`. The server is asked."""
        try:
            status = self.requests.head(self.names[number])
        except AbsentError as absent:
            raise self.table.absent(number, absent.reason) from None
        self.table.check_same(number, status)

    def identity(self) -> bytes:
        """See `Store`. The objects are listed again."""
        now = table_of(self.address, self.requests.list())
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

    def columns(self, numbers: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
        """See `Store`."""
        names = self.listed.names
        return {**self.table.columns(numbers), "all_names": names.text, "all_name_bounds": names.bounds}

    def same(self, arrays: Mapping[str, npt.NDArray[Any]], old: slice, numbers: npt.NDArray[np.int64]) -> bool:
        """See `Store`."""
        before = ObjectTable.stored(self.address, arrays)
        pairs = zip(range(old.start, old.stop), numbers.tolist(), strict=True)
        return all(before.identity(then) == self.table.identity(now) for then, now in pairs)

    def close(self) -> None:
        """See `Store`. Nothing more is sent."""
        self.requests.close()


def _why_empty(requests: Requests) -> str:
    """Return why there are no objects, as the end of an error."""
    try:
        requests.head("")
    except (AbsentError, DatasetError):
        return "holds no objects"
    folder, _, name = f"{requests.address}".rpartition("/")
    return f"is itself one object. Give the prefix that it lies below, and choose it: '{folder}?files={name}'"
