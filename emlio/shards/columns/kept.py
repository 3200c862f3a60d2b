"""Columns kept beside the indexes, so that records are read for them once.

A file's name is a hash of the column's name, the shards with their digests, and the identity of each file at that moment: its
times, inode and size, or an object's entity tag. So columns of other files, or of changed ones, are never found. The oldest
files are removed when there are many.

Covers: identities, finding, keeping and removing columns. Does not cover: their bytes (values.py).
"""

import hashlib
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from emlio.errors import DatasetError
from emlio.objects.client import ObjectStatus
from emlio.planner.choice.matching import Column
from emlio.shards.columns.values import pack_column, unpack_column
from emlio.shards.dataset import Dataset
from emlio.shards.files.atomic_file import write_atomically
from emlio.shards.files.file_table import inode_number
from emlio.shards.objects.object_table import ObjectTable
from emlio.shards.opening.cache_folder import cache_folder

__all__ = ["KeptColumns", "files_identity"]

_LOG = logging.getLogger("emlio.shards")
_ENDING: Final = ".column"
_MOST_FILES: Final = 64
_MOST_BYTES: Final = 32 << 30


def files_identity(dataset: Dataset) -> bytes:
    """Return what identifies the files of a dataset as they are now.

    Raises:
        DatasetError: one is not the one that was indexed, or cannot be looked at.
    """
    digest = hashlib.blake2b(digest_size=16)
    if dataset.bucket is not None and isinstance(dataset.files, ObjectTable):
        table, now = dataset.files, dataset.bucket.objects()
        places = {now.names.raw(number): number for number in range(len(now))}
        for number in range(len(table)):
            place = places.get(table.names.raw(number))
            if place is None:
                raise table.absent(number, "it is not listed any more")
            status = ObjectStatus(
                name=now.names[place],
                size_bytes=int(now.sizes[place]),
                etag=now.etags[place],
                modified_s=int(now.modified_s[place]),
            )
            table.check_same(number, status)
            digest.update(table.identity(number))
        return digest.digest()
    files = dataset.file_table
    found = np.empty((len(files), 4), np.int64)
    for number, name in enumerate(files.names):
        try:
            file = dataset.folder.stat(name)
        except OSError as error:
            raise DatasetError(f"{files.path(number)}: cannot be read: {error.strerror or error}") from error
        files.check_unchanged(number, file)
        found[number] = file.st_size, file.st_mtime_ns, file.st_ctime_ns, inode_number(file)
    digest.update(found.data)
    return digest.digest()


class KeptColumns:
    """The kept columns of a dataset."""

    def __init__(self, dataset: Dataset, identity: bytes, cache_dir: Path | None) -> None:
        """See the class.

        Args:
            dataset: the dataset.
            identity: of its files.
            cache_dir: the folder of indexes, by default the user's.
        """
        self._folder = cache_folder(os.fsencode(dataset.place), cache_dir).parent / "columns"
        state = hashlib.blake2b(f"emlio.columns/2/{dataset.contents.format}/".encode(), digest_size=16)
        state.update(identity + dataset.contents.settings)
        for entry in dataset.entries:
            text = f"\0{entry.name}\0{entry.records}\0{entry.size_bytes}\0{entry.digest}"
            state.update(text.encode(errors="surrogateescape"))
        self._state = state

    def find(self, name: str) -> tuple[bool, Column | None]:
        """Return whether a column was kept, and the column: None if no record has a value."""
        path = self._path(name)
        try:
            data = path.read_bytes()
            column = unpack_column(data)
        except FileNotFoundError:
            return False, None
        except (OSError, DatasetError) as error:
            _LOG.warning("column %s is read from the records again: %s", name, error)
            return False, None
        with suppress(OSError):
            os.utime(path)  # the oldest ones are removed
        return True, column

    def keep(self, name: str, column: Column | None) -> None:
        """Keep a column. Where that is not possible it is read again the next time."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path(name), [pack_column(column)])
            self._remove_oldest()
        except OSError as error:
            _LOG.warning("column %s is not kept: %s", name, error)

    def _remove_oldest(self) -> None:
        found: list[tuple[float, int, Path]] = []
        for path in self._folder.glob(f"*{_ENDING}"):
            with suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        found.sort(reverse=True)
        total = 0
        for number, (_, size, path) in enumerate(found):
            total += size
            if number >= _MOST_FILES or (number and total > _MOST_BYTES):
                with suppress(OSError):
                    path.unlink()

    def _path(self, name: str) -> Path:
        state = self._state.copy()
        state.update(b"\0\0" + name.encode(errors="surrogateescape"))
        return self._folder / (state.hexdigest() + _ENDING)
