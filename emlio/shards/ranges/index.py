"""The stored index of a dataset that is not TFRecord: its files, its records' ranges and checksums.

    FOLDER.json         what the index is of, and the name and checksum of each array
    FOLDER-NUMBER/      one .npy file for each array, mapped when the index is opened

Covers: writing both, opening and checking them. Does not cover: making the arrays
(emlio.shards.opening.ranged_dataset), where the index lies (emlio.shards.opening.choice).
"""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.checksum import crc32c
from emlio.errors import DatasetError
from emlio.formats.npy_header import MOST_HEADER_BYTES, read_npy_header
from emlio.shards.files.atomic_file import write_atomically
from emlio.shards.files.file_table import FileTable, NameTable
from emlio.shards.files.folder import Folder
from emlio.shards.files.mapped_file import MappedFile
from emlio.shards.files.tree import FolderTimes
from emlio.shards.ranges.array_folders import ArrayFolders, is_array_folder

__all__ = ["About", "RangeIndex", "load_index", "save_index"]

_VERSION = 2
_CHECKSUMS = "checksums"
_MOST_BYTES = 64 << 20
_TRIES = 10
"""Attempts to open an index while other processes store new ones."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The description of an index.

    Attributes:
        format: the name of the format.
        options: those that the user gave.
        settings: see `Contents`.
        label_names: see `Contents`.
        schema: see `Contents`, as lists.
        shards: for each shard its name, its first file, its number of files, its first record, its
            number of records, its digest and whether each of its files is a record.
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
    shards: list[tuple[str, int, int, int, int, str, bool]]
    told: bool
    missing: list[str] = []
    left_out: tuple[int, str] = (0, "")
    arrays: dict[str, int] = {}
    folder: str = ""
    version: int = _VERSION
    crc: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeIndex:
    """An index.

    Attributes:
        about: what it is of.
        arrays: by name, mapped and read-only.
        checksums: (records,) entries of `Checksums`, mapped and writable: what is written stays on disk, if the
            cache folder can be written.
    """

    about: About
    arrays: Mapping[str, npt.NDArray[Any]]
    checksums: npt.NDArray[np.uint64]

    @property
    def is_stored(self) -> bool:
        """True if it lies on disk, where a later start finds it."""
        return bool(self.about.folder)

    def files(
        self,
        folder: Path,
        on_change: Callable[[], None] = lambda: None,
        check_content: Callable[[int, Folder], None] = lambda _, __: None,
    ) -> FileTable:
        """Return its files.

        Args:
            folder: the dataset's folder, for people.
            on_change: see `FileTable`.
            check_content: see `FileTable`.
        """
        return FileTable(
            folder=folder,
            names=NameTable(self.arrays["names"], self.arrays["name_bounds"]),
            sizes=self.arrays["sizes"],
            mtimes_ns=self.arrays["mtimes_ns"],
            ctimes_ns=self.arrays["ctimes_ns"],
            inodes=self.arrays["inodes"],
            check_content=check_content,
            on_change=on_change,
        )

    def folders(self) -> FolderTimes:
        """Return its folders."""
        return FolderTimes(
            names=NameTable(self.arrays["folders"], self.arrays["folder_bounds"]),
            ctimes_ns=self.arrays["folder_ctimes_ns"],
        )


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
        except (OSError, DatasetError):
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
    records = sum(shard[4] for shard in about.shards)
    checksums = _map_checksums(place.parent / about.folder / f"{_CHECKSUMS}.npy")
    if checksums.dtype != np.uint64 or checksums.shape != (records,):
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
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    # Others of its kind are removed later: it must be a folder that was made for this index.
    return about if is_array_folder(place, about.folder) else None
