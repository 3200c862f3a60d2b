"""The stored index of a dataset: its files, its records' ranges and checksums.

    FOLDER.json         what the index is of, and the name and checksum of each array
    FOLDER-NUMBER/      one .npy file for each array, mapped when the index is opened

Records that follow each other without gaps have one array `bounds`, with one entry more for each
shard; others have `starts` and `ends`.
"""

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.checksum import crc32c
from emlio.errors import DatasetError
from emlio.formats.npy_header import MOST_HEADER_BYTES, read_npy_header
from emlio.interrupts import is_interrupt
from emlio.store.atomic_file import write_atomically
from emlio.store.mapped_file import MappedFile

__all__ = ["About", "ArrayFolders", "RangeIndex", "ShardRow", "load_index", "range_arrays", "save_index"]

_NUMBER_BYTES = 6


def is_array_folder(place: Path, name: str) -> bool:
    """Return whether a folder of this name was made for the index at a place."""
    return re.fullmatch(f"{re.escape(place.stem)}-[0-9a-f]{{{2 * _NUMBER_BYTES}}}", name) is not None


class ArrayFolders:
    """The folders beside one index, while another one is stored. Used by one thread.

    Several processes may store an index of the same dataset at once. Each writes a folder of its own,
    under a shared lock. The process that is done last has the lock alone, and removes all folders but
    the one that the index names by then. So no process waits while another one writes, and nothing is
    left behind, not even by a process that was killed. A process that has mapped the arrays of a removed
    folder keeps them. One that is just opening them opens the new ones.

    Attributes:
        is_locked: whether the file system has locks.
    """

    def __init__(self, place: Path) -> None:
        """See the class.

        Args:
            place: the file of the index.

        Raises:
            OSError: its folder cannot be written.
        """
        self._place = place
        self._lock_file = os.open(place.with_suffix(".lock"), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        # This waits for a removal only.
        self.is_locked = self._lock(fcntl.LOCK_SH)

    def new(self) -> Path:
        """Return a new folder.

        Raises:
            OSError: it cannot be made.
        """
        folder = self._place.parent / f"{self._place.stem}-{secrets.token_hex(_NUMBER_BYTES)}"
        folder.mkdir()
        return folder

    def alone(self) -> bool:
        """Return whether no other process stores this index. If so, none begins until the end of the block."""
        return self.is_locked and self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove_all_but(self, kept: str) -> None:
        """Remove all folders but the one of this name; to be called while `alone`."""
        with suppress(OSError):
            for name in os.listdir(self._place.parent):
                if name != kept and is_array_folder(self._place, name):
                    shutil.rmtree(self._place.parent / name, ignore_errors=True)

    def _lock(self, how: int) -> bool:
        try:
            fcntl.flock(self._lock_file, how)
        except OSError:  # held by another process, or the file system has no locks
            return False
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock(fcntl.LOCK_UN)  # a forked child may have the descriptor, too
        os.close(self._lock_file)


_VERSION = 3
_CHECKSUMS = "checksums"
_MOST_BYTES = 64 << 20
_TRIES = 10
"""Attempts to open an index while other processes store new ones."""


class ShardRow(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One shard of an index; see `Shard`. `first` is the number of its first record in the index."""

    name: str
    records: int
    size_bytes: int
    digest: str
    first: int
    first_file: int
    files: int
    whole_files: bool


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The description of an index.

    Attributes:
        format: the name of the format.
        options: those that the user gave.
        settings: see `Contents`.
        label_names: see `Contents`.
        schema: see `Contents`, as lists.
        shards: the shards.
        framed: see `Ranges`.
        told: whether ranks are told of each file.
        missing: names of shards that must be on other hosts.
        left_out: how many files of the dataset's place hold no records, and one of them.
        arrays: the checksum of each array's bytes.
        folder: the name of the folder with the arrays.
        version: of this form.
        crc: the CRC32C of all this with 0 in its place.
    """

    format: str
    options: dict[str, str]
    settings: bytes
    label_names: dict[int, str]
    schema: dict[str, tuple[str, tuple[int, ...] | None]]
    shards: list[ShardRow]
    framed: bool
    told: bool
    missing: list[str] = []
    left_out: tuple[int, str] = (0, "")
    arrays: dict[str, int] = {}
    folder: str = ""
    version: int = _VERSION
    crc: int = 0

    @property
    def checked_records(self) -> int:
        """The number of records whose checksums the index keeps: framed ones bring theirs."""
        return 0 if self.framed else sum(shard.records for shard in self.shards)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeIndex:
    """An index.

    Attributes:
        about: what it is of.
        arrays: by name, mapped and read-only.
        checksums: (records,) entries of `Checksums`, mapped and writable: what is written stays on disk, if the
            cache folder can be written. Of framed records there are none.
    """

    about: About
    arrays: Mapping[str, npt.NDArray[Any]]
    checksums: npt.NDArray[np.uint64]

    @property
    def is_stored(self) -> bool:
        """True if it lies on disk, where a later start finds it."""
        return bool(self.about.folder)

    def ranges(self, number: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return where the records of a shard begin and end in its file."""
        row, arrays = self.about.shards[number], self.arrays
        if "bounds" in arrays:
            bounds = arrays["bounds"][row.first + number : row.first + number + row.records + 1]
            return bounds[:-1], bounds[1:]
        if "starts" in arrays:
            part = slice(row.first, row.first + row.records)
            return arrays["starts"][part], arrays["ends"][part]
        sizes = arrays["sizes"][row.first_file : row.first_file + row.files]
        return np.broadcast_to(np.zeros(1, np.int64), sizes.shape), sizes


def range_arrays(
    ranges: Sequence[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]],
) -> dict[str, npt.NDArray[np.int64]]:
    """Return the arrays that hold where the records of all shards begin and end; nothing if there are no shards."""
    if not ranges:
        return {}
    if all(np.array_equal(starts[1:], ends[:-1]) for starts, ends in ranges):
        nothing = np.zeros(1, np.int64)
        return {
            "bounds": np.concatenate(
                [part for starts, ends in ranges for part in (starts, ends[-1:] if len(ends) else nothing)]
            )
        }
    return {
        "starts": np.concatenate([starts for starts, _ in ranges]),
        "ends": np.concatenate([ends for _, ends in ranges]),
    }


def load_index(place: Path) -> RangeIndex | None:
    """Return the index at a place; None if there is none, or it is damaged."""
    seen: str | None = None
    for _ in range(_TRIES):
        about = load_about(place)
        if about is None or about.version != _VERSION or about.crc != _crc(about) or about.folder == seen:
            return None
        try:
            return _load_arrays(place, about)
        except FileNotFoundError:
            seen = about.folder  # removed by a process that has just stored another one, or damaged
        except (OSError, DatasetError) as error:
            if is_interrupt(error):
                raise
            return None
    return None


def _load_arrays(place: Path, about: About) -> RangeIndex | None:
    """Return the index with its arrays; None if one is damaged.

    Raises:
        OSError: an array cannot be read.
        DatasetError: it is not a whole .npy file.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, crc in about.arrays.items():
        array = _mapped(place.parent / about.folder / f"{name}.npy")
        if crc32c(array.view(np.uint8).data if array.size else b"") != crc:
            return None
        arrays[name] = array
    checksums = _map_checksums(place.parent / about.folder / f"{_CHECKSUMS}.npy")
    if checksums.dtype != np.uint64 or checksums.shape != (about.checked_records,):
        return None
    return RangeIndex(about=about, arrays=arrays, checksums=checksums)


def _mapped(path: Path, mode: str = "rb", *, writable: bool = False, private: bool = False) -> npt.NDArray[Any]:
    """Return the array of a .npy file. Not mapped by NumPy, whose mappings keep a descriptor each.

    Raises:
        OSError: it cannot be mapped.
        DatasetError: it is not a whole .npy file.
    """
    with path.open(mode) as file:
        header = read_npy_header(file.read(MOST_HEADER_BYTES))
        size = os.fstat(file.fileno()).st_size
        if len(header.shape) != 1 or size != header.begin + header.size_bytes:
            raise DatasetError(f"{path}: must be one row of {header.dtype} in {size} bytes, is of shape {header.shape}")
        mapped = MappedFile(file.fileno(), size, writable=writable, private=private)
    found: npt.NDArray[Any] = mapped.array()[header.begin :].view(header.dtype)
    return found


def _map_checksums(path: Path) -> npt.NDArray[np.uint64]:
    try:
        return _mapped(path, "r+b", writable=True)
    except PermissionError:
        # Another user made the index: new checksums are kept by this process only.
        return _mapped(path, writable=True, private=True)


def _crc(about: About) -> int:
    return crc32c(msgspec.json.encode(msgspec.structs.replace(about, crc=0)))


def save_index(
    place: Path, about: About, arrays: Mapping[str, npt.NDArray[Any]], checksums: npt.NDArray[np.uint64]
) -> RangeIndex:
    """Store an index in place of the one before, and return it as `load_index` does.

    Raises:
        OSError: the folder cannot be written.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    before = load_about(place)
    with ArrayFolders(place) as folders:
        folder = folders.new()
        crcs: dict[str, int] = {}
        try:
            for name, array in arrays.items():
                flat = np.ascontiguousarray(array)
                np.save(folder / f"{name}.npy", flat, allow_pickle=False)
                crcs[name] = crc32c(flat.view(np.uint8).data if flat.size else b"")
            np.save(folder / f"{_CHECKSUMS}.npy", np.ascontiguousarray(checksums, np.uint64), allow_pickle=False)
            kept = msgspec.structs.replace(about, arrays=crcs, folder=folder.name)
            kept = msgspec.structs.replace(kept, crc=_crc(kept))
            write_atomically(place, (msgspec.json.encode(kept),))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if folders.alone():
            now = load_about(place)  # another process may have stored one since
            folders.remove_all_but(folder.name if now is None else now.folder)
        elif before is not None and not folders.is_locked:
            shutil.rmtree(place.parent / before.folder, ignore_errors=True)
    found = load_index(place)
    if found is None:
        raise OSError(f"the index {place} cannot be read back")
    return found


def load_about(place: Path) -> About | None:
    """Return what the index at a place is of, without its arrays; None if there is none."""
    try:
        with place.open("rb") as file:
            about = msgspec.json.decode(file.read(_MOST_BYTES), type=About)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if is_interrupt(error):
            raise
        return None
    # Others of its kind are removed later: it must be a folder that was made for this index.
    return about if is_array_folder(place, about.folder) else None
