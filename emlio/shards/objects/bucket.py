"""An open bucket that is served; see `emlio.shards.files.folder.Folder`, which stands for a folder.

Covers: listing, reading ranges, whether an object is the one that was indexed. Does not cover:
requests (emlio.objects), reading many ranges for messages (emlio.reading).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from emlio.errors import DatasetError
from emlio.objects.address import ObjectAddress
from emlio.objects.block_cache import BlockCache
from emlio.objects.cached_blocks import CachedBlocks
from emlio.objects.reader import ObjectReader
from emlio.objects.requests import PIECE_BYTES, AbsentError, Requests
from emlio.shards.files.tree import endings_of
from emlio.shards.objects.object_table import ObjectTable, table_of

__all__ = ["Bucket", "ObjectTree"]


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

    @property
    def shown(self) -> str:
        """Its address, for people."""
        return str(self.address)

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


class ObjectTree:
    """The objects of a bucket, to be indexed. See `emlio.shards.files.indexed_files.IndexedFiles`.

    Attributes:
        table: their names and identities.
        endings: see `Files`.
        passed_over: always empty; see `emlio.shards.files.tree.Tree`.
        junk: see `emlio.shards.files.tree.Tree`.
    """

    def __init__(self, bucket: Bucket, table: ObjectTable, listed: ObjectTable | None = None) -> None:
        """See the class.

        Args:
            bucket: where they lie.
            table: the objects.
            listed: all that were listed, if these are some of them.
        """
        self.table = table
        self._listed = listed or table
        self.passed_over: tuple[str, ...] = ()
        self.junk = self._listed.junk
        endings = endings_of(table.names)
        endings.update(table.marks)
        self.endings: Mapping[str, int] = endings
        self._bucket = bucket

    @property
    def names(self) -> Sequence[str]:
        """See `Files`."""
        return self.table.names

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """See `Files`."""
        return self.table.sizes

    def path(self, number: int) -> str:
        """See `IndexedFiles`."""
        return self.table.path(number)

    def read(self, number: int, offset: int, length: int) -> bytes:
        """See `Files`."""
        end = min(offset + length, self.table.size_bytes(number))
        return bytes(self._bucket.read(self.table, number, offset, end)) if offset < end else b""

    def open(self, number: int) -> IO[bytes]:
        """See `Files`."""
        return cast("IO[bytes]", self.reader(number))

    def reader(self, number: int) -> ObjectReader:
        """Return an object as a file."""
        return ObjectReader(
            lambda start, end: self._bucket.read(self.table, number, start, end), self.table.size_bytes(number)
        )

    def columns(self, numbers: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
        """See `IndexedFiles`."""
        names = self._listed.names
        return {**self.table.columns(numbers), "all_names": names.text, "all_name_bounds": names.bounds}

    def same(self, arrays: Mapping[str, npt.NDArray[Any]], old: slice, numbers: npt.NDArray[np.int64]) -> bool:
        """See `IndexedFiles`."""
        before = ObjectTable.stored(self.table.address, arrays)
        pairs = zip(range(old.start, old.stop), numbers.tolist(), strict=True)
        return all(before.identity(then) == self.table.identity(now) for then, now in pairs)
