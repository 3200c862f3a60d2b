"""Columns kept beside the indexes, so that records are read for them once.

A file's name is a hash of the column's name, the shards with their digests, and the identity of each file at that moment: its
times, inode and size, or an object's entity tag. So columns of other files, or of changed ones, are never found. The oldest
files are removed when there are many.

Covers: finding, keeping and removing columns. Does not cover: their bytes (values.py).
"""

import hashlib
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from emlio.errors import DatasetError
from emlio.index.cache_folder import cache_folder
from emlio.index.columns.values import pack_column, unpack_column
from emlio.index.dataset import Dataset
from emlio.planner.choice.matching import Column
from emlio.store.atomic_file import write_atomically

__all__ = ["KeptColumns"]

_LOG = logging.getLogger("emlio.index")
_ENDING: Final = ".column"
_MOST_FILES: Final = 64
_MOST_BYTES: Final = 32 << 30


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
