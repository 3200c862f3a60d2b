"""An open dataset on this host's disks: its shards, their numbers of records and record offsets.

Covers: opening, which finds, indexes and checks the shards, and detecting later changes of a file.
Does not cover: reading records (emlio.reading), joining the shards of several hosts
(emlio.planner.catalog).
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from emlio.errors import ClosedError, DatasetError
from emlio.open_limits import refusal_of
from emlio.planner.catalog import ShardEntry
from emlio.shards.discover import Discovery, discover, open_folder
from emlio.shards.folder import AFTER_RESTART, Folder
from emlio.shards.mapping import ShardMapping, content_digest
from emlio.shards.parallel import for_each_shard
from emlio.shards.store import IndexStore
from emlio.shards.tfrecord import Framing, scan

__all__ = ["Dataset", "Shard", "open_dataset"]

_LOG = logging.getLogger(__name__)
_SCANS = 4
"""The limit of scans of a shard whose ctime changes during the scan although its content does not.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard:
    """One shard's file, as it was when the dataset was opened.

    Attributes:
        name: the file's name.
        path: for people; the file is opened by its name in the dataset's folder.
        size_bytes: its size.
        mtime_ns: time of the last change of its content.
        inode: its number in its file system.
        ctime_ns: time of the last change of content or metadata, which no program can set back.
        records: how many records it holds.
        digest: of its content, see `emlio.shards.mapping`.
        offsets: start of each record's frame, and finally the file's size; possibly mapped,
            read-only.
        mapping: its description, if there is one.
    """

    name: str
    path: Path
    size_bytes: int
    mtime_ns: int
    inode: int
    ctime_ns: int
    records: int
    digest: str
    offsets: npt.NDArray[np.int64]
    mapping: ShardMapping | None = None

    def check_content(self, folder: Folder) -> None:
        """Scan the file again after its ctime changed.

        The ctime changes, for example, after `chmod` or when a time is set back.

        Raises:
            DatasetError: it holds other records.
        """
        digest = content_digest(scan(self.path, None, folder.opener))
        if digest != self.digest:
            raise DatasetError(
                f"shard {self.path}: changed while it was served: its content had digest {self.digest}, now "
                f"{digest}. {AFTER_RESTART}"
            )

    def check_unchanged(self, now: os.stat_result) -> None:
        """Compare the file's current status with that of the indexed file.

        Raises:
            DatasetError: it is another file, or has another size or time of change.
        """
        if now.st_ino != self.inode:
            raise DatasetError(
                f"a shard must not change while it is served: {self.path} was replaced by another file. {AFTER_RESTART}"
            )
        if now.st_size != self.size_bytes or now.st_mtime_ns != self.mtime_ns:
            raise DatasetError(
                f"shard {self.path}: changed while it was served: had {self.size_bytes} bytes and mtime "
                f"{self.mtime_ns} ns, now {now.st_size} bytes and mtime {now.st_mtime_ns} ns. {AFTER_RESTART}"
            )


class Dataset:
    """The open shards of one directory. Immutable until `close`, so threads may share it."""

    def __init__(self, *, name: str, folder: Folder, shards: tuple[Shard, ...], missing: tuple[str, ...]) -> None:
        """Create a dataset from its parts.

        Args:
            name: its name in sessions.
            folder: its folder; closed with the dataset.
            shards: those on this host, sorted by name.
            missing: names of the dataset's other shards.
        """
        self.name = name
        self.folder = folder
        self.missing = missing
        self._shards: tuple[Shard, ...] | None = shards
        self._entries = tuple(
            ShardEntry(name=shard.name, records=shard.records, size_bytes=shard.size_bytes, digest=shard.digest)
            for shard in shards
        )

    @property
    def directory(self) -> Path:
        """Its path when it was opened."""
        return self.folder.path

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards on this host, sorted by name."""
        if self._shards is None:
            raise ClosedError(f"dataset {self.name!r} is closed")
        return self._shards

    @property
    def records(self) -> int:
        """The number of records in the shards on this host."""
        return sum(shard.records for shard in self.shards)

    @property
    def size_bytes(self) -> int:
        """The total size of the shards' files."""
        return sum(shard.size_bytes for shard in self.shards)

    @property
    def entries(self) -> tuple[ShardEntry, ...]:
        """The planner's entries for the shards on this host, in the same order."""
        return self._entries

    def close(self) -> None:
        """Release the indexes and the folder. Closing again does nothing.

        A mapped index is unmapped with the last array that uses it.
        """
        self._shards = None
        self.folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_dataset(
    name: str,
    directory: Path,
    cache_dir: Path | None = None,
    progress: bool = False,
    *,
    rebuild: bool = False,
    use_mappings: bool = True,
) -> Dataset:
    """Open the dataset in a directory.

    Shards without a valid index are scanned, several at a time, and the index is stored.

    Args:
        name: its name in sessions.
        directory: its directory; sub-folders are ignored.
        cache_dir: store new indexes under this folder; by default beside the shards, or in the
            user's cache folder if the shards' folder cannot be written.
        progress: show a line while scanning.
        rebuild: scan everything even where there are indexes.
        use_mappings: if False, ignore existing mappings.

    Raises:
        DatasetError: there is no dataset, or a file of it is invalid.
    """
    folder = open_folder(directory)
    try:
        found = discover(folder, use_mappings=use_mappings)
        with IndexStore(folder, cache_dir) as store:
            shards = _open_shards(name, folder, found, store, progress=progress, rebuild=rebuild)
        if not any(shard.records for shard in shards):
            raise DatasetError(f"dataset directory {directory}: its {len(shards)} shards must hold records, hold none")
    except BaseException:
        folder.close()
        raise
    return Dataset(name=name, folder=folder, shards=shards, missing=found.missing)


def _open_shards(
    name: str, folder: Folder, found: Discovery, store: IndexStore, *, progress: bool, rebuild: bool
) -> tuple[Shard, ...]:
    """Return the shards on this host, from their indexes if there are any, else scanned."""
    known: dict[str, Shard] = {}
    unknown: list[_Unscanned] = []
    for file in found.present:
        path = folder.path / file
        mapping = found.mappings.get(file)
        status = _stat(folder, file)
        if mapping is not None and mapping.size_bytes != status.st_size:
            raise _changed(path, f"has {status.st_size} bytes, {mapping.size_bytes} in its mapping")
        kept = None
        if not rebuild:
            kept = store.load(file, status, mapped=mapping is not None)
        if kept is None:
            unknown.append(_Unscanned(path=path, status=status, mapping=mapping))
        else:
            known[file] = _shard(path, status, kept.offsets, kept.digest, mapping)

    refused: list[OSError] = []

    def scan_one(shard: _Unscanned, advance: Callable[[int], None]) -> Shard:
        now, framing = _scan_unchanged(folder, shard, advance)
        digest = content_digest(framing)
        made = _shard(shard.path, now, framing.offsets, digest, shard.mapping)
        if (refusal := store.save(made.name, made.offsets, now, digest=digest)) is not None:
            refused.append(refusal)
        return made

    total = sum(shard.status.st_size for shard in unknown)
    scanned = for_each_shard(unknown, scan_one, label=f"indexing {name}", total_bytes=total, progress=progress)
    known.update((shard.name, shard) for shard in scanned)
    if refused:
        _LOG.warning(
            "dataset %s: the indexes of %d of %d shards cannot be saved, so every start builds them again: %s",
            name,
            len(refused),
            len(known),
            refused[0],
        )
    return tuple(known[file] for file in found.present)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unscanned:
    """A shard whose records are not known yet."""

    path: Path
    status: os.stat_result
    mapping: ShardMapping | None


def _scan_unchanged(
    folder: Folder, shard: _Unscanned, advance: Callable[[int], None]
) -> tuple[os.stat_result, Framing]:
    """Scan the shard, and return its status, which was the same before and after the scan.

    Raises:
        DatasetError: another process writes to it.
    """
    before = shard.status
    for _ in range(_SCANS):
        framing = scan(shard.path, advance, folder.opener)
        now = _stat(folder, shard.path.name)
        if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            break
        if now.st_ctime_ns == before.st_ctime_ns:
            return now, framing
        before = (
            now  # only the ctime changed: by a hard link, by other permissions, or by a write, so it is scanned again
        )
    raise DatasetError(
        f"shard {shard.path}: changed while it was scanned. Open the dataset when no process writes to it"
    )


def _stat(folder: Folder, name: str) -> os.stat_result:
    try:
        return folder.stat(name)
    except OSError as error:
        raise refusal_of(error, f"shard {folder.path / name}") or DatasetError(
            f"shard {folder.path / name}: cannot be read: {error.strerror or error}"
        ) from error


def _shard(
    path: Path,
    status: os.stat_result,
    offsets: npt.NDArray[np.int64],
    digest: str | None,
    mapping: ShardMapping | None,
) -> Shard:
    """Return a shard after checking that its index and its mapping agree."""
    records = len(offsets) - 1
    if mapping is not None:
        if mapping.records != records:
            raise _changed(path, f"has {records} records in its index, {mapping.records} in its mapping")
        if digest is not None and digest != mapping.digest:
            raise _changed(path, f"has digest {digest}, {mapping.digest} in its mapping")
    known = digest if digest is not None else mapping.digest if mapping is not None else None
    if known is None:
        raise AssertionError("an index without a digest is accepted only for a shard with a mapping")
    return Shard(
        name=path.name,
        path=path,
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        inode=status.st_ino,
        ctime_ns=status.st_ctime_ns,
        records=records,
        digest=known,
        offsets=offsets,
        mapping=mapping,
    )


def _changed(path: Path, how: str) -> DatasetError:
    return DatasetError(
        f"shard {path}: does not match its mapping: it {how}. Restore the file, or write the mapping again: emlio "
        f"index --force --mapping {path.parent}"
    )
