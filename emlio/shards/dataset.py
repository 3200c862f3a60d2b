"""A dataset on this host's disks, opened: its shards, how many records each has, and where they begin.

Covers: opening, which finds, indexes and checks the shards, and noticing that a file changed since. Does not cover:
reading records (emlio.reading), joining the shards of several hosts (emlio.planner.catalog).
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
"""How often a shard is scanned at most, where its time of change moves meanwhile though nothing of it is written."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard:
    """One shard's file, as it was when the dataset was opened.

    Attributes:
        name: the file's name.
        path: where it lies, for people; it is opened by its name in the dataset's folder.
        size_bytes: its size.
        mtime_ns: when it was last changed.
        inode: which file of its file system it is.
        ctime_ns: when anything about it was last changed, which no program can set back.
        records: how many records it holds.
        digest: of its content, see `emlio.shards.mapping`.
        offsets: start of each record's frame, and last the file's size; possibly mapped, never to be written.
        mapping: what is said about it, where somebody wrote that down.
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
        """Scan the file once more: its time of change is another one, as after `chmod` or when a time was set back.

        Raises:
            DatasetError: it holds other records.
        """
        digest = content_digest(scan(self.path, None, folder.opener))
        if digest != self.digest:
            raise DatasetError(
                f"shard {self.path}: changed while it was served: its content had the digest {self.digest}, has {digest}; "
                f"{AFTER_RESTART}"
            )

    def check_unchanged(self, now: os.stat_result) -> None:
        """Compare the file as it is now with the one that was indexed.

        Raises:
            DatasetError: it is another file, or has another size or time of change.
        """
        if now.st_ino != self.inode:
            raise DatasetError(
                f"a shard must not change while it is served: {self.path} was replaced by another file; {AFTER_RESTART}"
            )
        if now.st_size != self.size_bytes or now.st_mtime_ns != self.mtime_ns:
            raise DatasetError(
                f"shard {self.path}: changed while it was served: had {self.size_bytes} bytes and time "
                f"{self.mtime_ns} ns, has {now.st_size} bytes and time {now.st_mtime_ns} ns; {AFTER_RESTART}"
            )


class Dataset:
    """The opened shards of one directory. Immutable until `close`, so it may be shared by threads."""

    def __init__(self, *, name: str, folder: Folder, shards: tuple[Shard, ...], missing: tuple[str, ...]) -> None:
        """See the class.

        Args:
            name: how sessions call it.
            folder: where it lies; closed with the dataset.
            shards: those that are here, sorted by name.
            missing: names of those that belong to it and are not here.
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
        """Where it lies, or lay when it was opened."""
        return self.folder.path

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards that are here, sorted by name."""
        if self._shards is None:
            raise ClosedError(f"dataset {self.name!r} is closed")
        return self._shards

    @property
    def records(self) -> int:
        """How many records the shards here hold."""
        return sum(shard.records for shard in self.shards)

    @property
    def size_bytes(self) -> int:
        """The size of the shards' files."""
        return sum(shard.size_bytes for shard in self.shards)

    @property
    def entries(self) -> tuple[ShardEntry, ...]:
        """What the planner must know about the shards that are here, in the same order."""
        return self._entries

    def close(self) -> None:
        """Let the indexes go; their mappings end with the last array that uses them. Closing again does nothing."""
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

    Shards without a valid index are scanned, several at a time, and the index is kept.

    Args:
        name: how sessions call it.
        directory: where it lies; folders in it are not entered.
        cache_dir: keep new indexes under this folder; by default beside the shards, or in the user's cache folder where
            theirs cannot be written.
        progress: show a line while scanning.
        rebuild: scan everything even where there are indexes.
        use_mappings: otherwise treat the files as if nobody had described them.

    Raises:
        DatasetError: there is no dataset, or a file of it is not what it must be.
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
    """The shards that are here, by their indexes where there are, else scanned."""
    known: dict[str, Shard] = {}
    unknown: list[_Unscanned] = []
    for file in found.present:
        path = folder.path / file
        mapping = found.mappings.get(file)
        status = _stat(folder, file)
        if mapping is not None and mapping.size_bytes != status.st_size:
            raise _changed(path, f"has {status.st_size} bytes, its mapping says {mapping.size_bytes}")
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
            "dataset %s: the indexes of %d of %d shards cannot be kept and are built again at every start: %s",
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
    """The shard's records, and its status, which was the same before they were looked for and after.

    Raises:
        DatasetError: somebody writes to it.
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
            now  # its time of change alone: by a hard link, or other permissions; or by more, so it is scanned again
        )
    raise DatasetError(f"shard {shard.path}: changed while it was scanned; open the dataset when nobody writes to it")


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
    """A shard, once its index and its mapping agree."""
    records = len(offsets) - 1
    if mapping is not None:
        if mapping.records != records:
            raise _changed(path, f"has {records} records by its index, its mapping says {mapping.records}")
        if digest is not None and digest != mapping.digest:
            raise _changed(path, f"has the digest {digest}, its mapping says {mapping.digest}")
    known = digest if digest is not None else mapping.digest if mapping is not None else None
    if known is None:
        raise AssertionError("an index without a digest is taken for a mapped shard only")
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
        f"shard {path}: changed after it was described: it {how}. Bring the file back, or describe it as it is now: "
        f"emlio index --force --mapping {path.parent}"
    )
