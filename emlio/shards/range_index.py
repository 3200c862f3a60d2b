"""The stored index of a dataset that is not TFRecord: its files, its records' ranges and checksums.

    FOLDER.json         what the index is of, and the name and checksum of each array
    FOLDER-NUMBER/      one .npy file for each array, mapped when the index is opened

Covers: writing both, opening and checking them. Does not cover: making the arrays
(emlio.shards.ranged_dataset), where the index lies (emlio.shards.opening).
"""

import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.checksum import crc32c
from emlio.shards.atomic_file import write_atomically

__all__ = ["About", "RangeIndex", "load_index", "save_index"]

_VERSION = 1
_CHECKSUMS = "checksums"
_MOST_BYTES = 64 << 20


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What an index is of.

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
        arrays: the checksum of each array's bytes.
        folder: the name of the folder with the arrays.
        version: of this form.
    """

    format: str
    options: dict[str, str]
    settings: bytes
    label_names: dict[int, str]
    schema: dict[str, tuple[str, tuple[int, ...] | None]]
    shards: list[tuple[str, int, int, int, int, str, bool]]
    told: bool
    missing: list[str] = []
    arrays: dict[str, int] = {}
    folder: str = ""
    version: int = _VERSION


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeIndex:
    """An index.

    Attributes:
        about: what it is of.
        arrays: by name, mapped and read-only.
        checksums: (records,) mapped and writable: what is written stays on disk.
    """

    about: About
    arrays: Mapping[str, npt.NDArray[Any]]
    checksums: npt.NDArray[np.uint32]


def load_index(place: Path) -> RangeIndex | None:
    """Return the index at a place; None if there is none, or it is damaged."""
    try:
        with place.open("rb") as file:
            about = msgspec.json.decode(file.read(_MOST_BYTES), type=About)
        if about.version != _VERSION or os.path.basename(about.folder) != about.folder:
            return None
        arrays: dict[str, npt.NDArray[Any]] = {}
        for name, crc in about.arrays.items():
            array = np.load(place.parent / about.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            if crc32c(array.view(np.uint8).data if array.size else b"") != crc:
                return None
            arrays[name] = array
        records = sum(shard[4] for shard in about.shards)
        checksums = np.load(place.parent / about.folder / f"{_CHECKSUMS}.npy", mmap_mode="r+", allow_pickle=False)
        if checksums.dtype != np.uint32 or checksums.shape != (records,):
            return None
    except (OSError, ValueError, EOFError, msgspec.MsgspecError):
        return None
    return RangeIndex(about=about, arrays=arrays, checksums=checksums)


def save_index(
    place: Path, about: About, arrays: Mapping[str, npt.NDArray[Any]], checksums: npt.NDArray[np.uint32]
) -> RangeIndex:
    """Store an index in place of the one before, and return it as `load_index` does.

    Raises:
        OSError: the folder cannot be written.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    before = load_about(place)
    folder = place.parent / f"{place.stem}-{secrets.token_hex(6)}"
    folder.mkdir()
    crcs: dict[str, int] = {}
    try:
        for name, array in arrays.items():
            flat = np.ascontiguousarray(array)
            np.save(folder / f"{name}.npy", flat, allow_pickle=False)
            crcs[name] = crc32c(flat.view(np.uint8).data if flat.size else b"")
        np.save(folder / f"{_CHECKSUMS}.npy", np.ascontiguousarray(checksums, np.uint32), allow_pickle=False)
        kept = msgspec.structs.replace(about, arrays=crcs, folder=folder.name)
        write_atomically(place, (msgspec.json.encode(kept),))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if before is not None:
        # A process that has mapped them keeps them until it ends.
        with suppress(OSError):
            shutil.rmtree(place.parent / before.folder)
    found = load_index(place)
    if found is None:
        raise OSError(f"the index {place} cannot be read back")
    return found


def load_about(place: Path) -> About | None:
    """Return what the index at a place is of, without its arrays; None if there is none."""
    try:
        with place.open("rb") as file:
            about = msgspec.json.decode(file.read(_MOST_BYTES), type=About)
    except (OSError, msgspec.MsgspecError):
        return None
    return about if about.folder and os.path.basename(about.folder) == about.folder else None
