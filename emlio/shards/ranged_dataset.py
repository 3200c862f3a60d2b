"""Opening a dataset whose records are ranges of files, or whole files, of any format but TFRecord.

The index is kept in the user's cache folder, never beside the data. At a later start it is used as
long as no file came or went. What changed is indexed again, the rest is taken over.

Covers: finding the format, making and checking the index, the dataset's values. Does not cover:
TFRecord (emlio.shards.tfrecord_dataset), the formats themselves (emlio.formats).
"""

import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.formats.contents import TFRECORD, Contents, FieldType
from emlio.formats.format import Format, Layout, Ranges, ShardFiles
from emlio.formats.registry import find_format, format_named
from emlio.formats.whole_file import file_notes
from emlio.progress import Progress
from emlio.shards.bucket import Bucket
from emlio.shards.checksums import Checksums
from emlio.shards.dataset import Dataset, Notes, RangeShard
from emlio.shards.file_table import FileTable, NameTable
from emlio.shards.folder import Folder
from emlio.shards.indexed_files import IndexedFiles
from emlio.shards.object_table import ObjectTable
from emlio.shards.parallel import for_each_shard
from emlio.shards.range_index import About, RangeIndex, load_index, save_index
from emlio.shards.tree import FolderTimes, Tree, unchanged, walk
from emlio.wire.limits import MAX_NAME_LENGTH

__all__ = ["index_place", "indexed_dataset", "make_index", "open_ranges"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A shard's records; `same` says that its files are those of the earlier index."""

    shard: ShardFiles
    ranges: Ranges | None
    records: int
    digest: str
    same: bool = False


def open_ranges(
    name: str,
    folder: Folder,
    cache: Path,
    options: Mapping[str, str],
    *,
    progress: bool = False,
    rebuild: bool = False,
) -> Dataset:
    """Open a dataset.

    Args:
        name: its name in sessions.
        folder: its folder; closed with the dataset.
        cache: the folder of its indexes.
        options: the user's: "format", and those of the format.
        progress: show a line while indexing.
        rebuild: index everything again.

    Raises:
        ConfigError: an option is not known.
        DatasetError: there is no dataset, or a file of it is invalid.
    """
    place = index_place(cache, options)
    kept = None if rebuild else load_index(place)
    index = kept
    if index is None or not unchanged(folder, _folder_times(index)):
        tree = _walk(name, folder, progress=progress)
        index = make_index(name, tree, str(folder.path), place, options, kept, progress=progress)
    return indexed_dataset(name, folder, _table(index, folder.path), index)


def index_place(cache: Path, options: Mapping[str, str]) -> Path:
    """Return where the index for these options is kept."""
    key = hashlib.blake2b(repr(sorted(options.items())).encode(), digest_size=6).hexdigest()
    return cache / f"ranges-{key}.json"


def _walk(name: str, folder: Folder, *, progress: bool) -> Tree:
    line = Progress(f"looking through {name}", None) if progress else None
    try:
        tree = walk(folder, line.add if line is not None else lambda _: None)
    finally:
        if line is not None:
            line.close()
    if tree.passed_over:
        _LOG.warning(
            "dataset %s: %d links to folders, or to nothing, are not followed, such as %s",
            name,
            len(tree.passed_over),
            tree.passed_over[0],
        )
    return tree


def make_index(
    name: str,
    tree: IndexedFiles,
    where: str,
    place: Path,
    options: Mapping[str, str],
    before: RangeIndex | None,
    *,
    chosen: Format | None = None,
    threads: int | None = None,
    progress: bool,
) -> RangeIndex:
    """Return a new index; shards that have not changed are taken over from the one before.

    Args:
        name: the dataset's name.
        tree: its files.
        where: its folder or address, for errors.
        place: where the index is kept.
        options: the user's: "format", and those of the format.
        before: the earlier index.
        chosen: the format, if it is known; its options are not checked.
        threads: how many shards are indexed at once, if not as many as a disk is good for.
        progress: show a line.
    """
    wanted = options.get("format")
    if chosen is None:
        chosen = find_format(tree, where) if wanted is None else format_named(wanted)
    given = {option: value for option, value in options.items() if option != "format"}
    strange = sorted(given.keys() - chosen.options.keys())
    if strange:
        known = ", ".join(f"{option} ({what})" for option, what in chosen.options.items()) or "none"
        raise ConfigError(f"{where}: format {chosen.name} must have options it knows, {known}; got {strange[0]}")
    layout = chosen.layout(tree, given, where)
    made = _made(name, chosen, tree, layout, before, threads=threads, progress=progress)
    if not sum(shard.records for shard in made):
        raise DatasetError(f"dataset directory {where}: its {len(made)} shards must hold records, hold none")
    about, arrays, checksums = _packed(chosen, dict(options), tree, layout, made, before)
    try:
        return save_index(place, about, arrays, checksums)
    except OSError as error:
        _LOG.warning("dataset %s: its index cannot be saved, so every start builds it again: %s", name, error)
        return RangeIndex(about=about, arrays=arrays, checksums=checksums)


def _made(
    name: str,
    chosen: Format,
    tree: IndexedFiles,
    layout: Layout,
    before: RangeIndex | None,
    *,
    threads: int | None,
    progress: bool,
) -> list[_Made]:
    known = _Before(before, chosen.name, layout.settings) if before is not None else None
    kept: dict[str, _Made] = {}
    new: list[ShardFiles] = []
    for shard in layout.shards:
        found = known.shard(shard, tree) if known is not None else None
        if found is not None:
            kept[shard.name] = found
        else:
            new.append(shard)

    def make(shard: ShardFiles, advance: Callable[[int], None]) -> _Made:
        ranges = None if shard.whole_files else chosen.ranges(tree, shard, layout.settings)
        if ranges is not None:
            _check(ranges, int(tree.sizes[shard.files[0]]), str(tree.path(shard.files[0])))
        advance(int(tree.sizes[np.asarray(shard.files)].sum()))
        records = len(shard.files) if ranges is None else len(ranges.starts)
        return _Made(shard=shard, ranges=ranges, records=records, digest=_digest(chosen, tree, layout, shard, ranges))

    total = sum(int(tree.sizes[np.asarray(shard.files)].sum()) for shard in new)
    many = {} if threads is None else {"threads": threads}
    for one in for_each_shard(new, make, label=f"indexing {name}", total_bytes=total, progress=progress, **many):
        kept[one.shard.name] = one
    return [kept[shard.name] for shard in layout.shards]


def _check(ranges: Ranges, size_bytes: int, path: str) -> None:
    if len(ranges.starts) and not (
        int(ranges.starts.min()) >= 0
        and int(ranges.ends.max()) <= size_bytes
        and bool((ranges.starts <= ranges.ends).all())
    ):
        wrong = (ranges.starts < 0) | (ranges.ends > size_bytes) | (ranges.starts > ranges.ends)
        record = int(np.flatnonzero(wrong)[0])
        raise DatasetError(
            f"{path}: record {record} must lie in its {size_bytes} bytes, got bytes {int(ranges.starts[record])} to "
            f"{int(ranges.ends[record])}"
        )


def _digest(chosen: Format, tree: IndexedFiles, layout: Layout, shard: ShardFiles, ranges: Ranges | None) -> str:
    """Return what identifies a shard: names, sizes and ranges, as far as no bytes are read."""
    if ranges is not None and ranges.digest:
        return ranges.digest
    digest = hashlib.blake2b(f"{chosen.name}/1/".encode() + layout.settings, digest_size=16)
    for number in shard.files:
        encoded = os.fsencode(tree.names[number])
        digest.update(len(encoded).to_bytes(4, "little") + encoded + int(tree.sizes[number]).to_bytes(8, "little"))
    if layout.labels is not None:
        digest.update(np.ascontiguousarray(layout.labels[np.asarray(shard.files)], "<i4").data)
    if ranges is not None:
        digest.update(np.ascontiguousarray(ranges.starts, "<i8").data)
        digest.update(np.ascontiguousarray(ranges.ends, "<i8").data)
    return digest.hexdigest()


class _Before:
    """An earlier index, from which shards that have not changed are taken over."""

    def __init__(self, index: RangeIndex, chosen: str, settings: bytes) -> None:
        about = index.about
        self._index = index
        self._usable = about.format == chosen and about.settings == settings
        self._rows = {row[0]: row for row in about.shards}

    def shard(self, shard: ShardFiles, tree: IndexedFiles) -> _Made | None:
        """Return the shard if its files are those of the earlier index."""
        row = self._rows.get(shard.name)
        if not self._usable or row is None or row[2] != len(shard.files) or row[6] != shard.whole_files:
            return None
        _, first, count, base, records, digest, whole = row
        if not tree.same(self._index.arrays, slice(first, first + count), np.asarray(shard.files, np.int64)):
            return None
        if whole:
            return _Made(shard=shard, ranges=None, records=records, digest=digest, same=True)
        part = slice(base, base + records)
        starts, ends = self._index.arrays["starts"][part], self._index.arrays["ends"][part]
        return _Made(shard=shard, ranges=Ranges(starts=starts, ends=ends), records=records, digest=digest, same=True)


def _packed(
    chosen: Format,
    options: dict[str, str],
    tree: IndexedFiles,
    layout: Layout,
    made: Sequence[_Made],
    before: RangeIndex | None,
) -> tuple[About, dict[str, npt.NDArray[Any]], npt.NDArray[np.uint32]]:
    """Return the index's parts. Files are numbered anew, shard by shard."""
    numbers = np.concatenate([np.asarray(one.shard.files, np.int64) for one in made])
    rows: list[tuple[str, int, int, int, int, str, bool]] = []
    first = base = 0
    for one in made:
        count = len(one.shard.files)
        rows.append((one.shard.name, first, count, base, one.records, one.digest, one.shard.whole_files))
        first, base = first + count, base + one.records
    about = About(
        format=chosen.name,
        options=options,
        settings=layout.settings,
        label_names=dict(layout.label_names),
        schema={
            column: (kind.kind, kind.shape)
            for column, kind in layout.schema.items()
            if 0 < len(column) <= MAX_NAME_LENGTH  # longer names cannot be told to ranks
        },
        shards=rows,
        told=layout.told,
        missing=list(layout.missing),
    )
    nothing = np.empty(0, np.int64)
    ranges = [one.ranges for one in made if one.ranges is not None]
    arrays: dict[str, npt.NDArray[Any]] = {
        **tree.columns(numbers),
        "starts": np.concatenate([nothing, *(one.starts for one in ranges)]),
        "ends": np.concatenate([nothing, *(one.ends for one in ranges)]),
    }
    if layout.labels is not None:
        arrays["labels"] = layout.labels[numbers]
    return about, arrays, _checksums(rows, before, {one.shard.name for one in made if one.same})


def _checksums(
    rows: Sequence[tuple[str, int, int, int, int, str, bool]], before: RangeIndex | None, same: Set[str]
) -> npt.NDArray[np.uint32]:
    """Return the table of checksums, with those of shards that have not changed."""
    table = np.zeros(sum(row[4] for row in rows), np.uint32)
    old = {row[0]: row for row in before.about.shards} if before is not None else {}
    for name, _, _, base, records, digest, _ in rows:
        row = old.get(name)
        if before is not None and row is not None and name in same and row[4:6] == (records, digest):
            table[base : base + records] = before.checksums[row[3] : row[3] + records]
    return table


def _table(index: RangeIndex, folder: Path) -> FileTable:
    return FileTable(
        folder=folder,
        names=NameTable(index.arrays["names"], index.arrays["name_bounds"]),
        sizes=index.arrays["sizes"],
        mtimes_ns=index.arrays["mtimes_ns"],
        ctimes_ns=index.arrays["ctimes_ns"],
        inodes=index.arrays["inodes"],
    )


def _folder_times(index: RangeIndex) -> FolderTimes:
    return FolderTimes(
        names=NameTable(index.arrays["folders"], index.arrays["folder_bounds"]),
        ctimes_ns=index.arrays["folder_ctimes_ns"],
    )


def indexed_dataset(name: str, origin: Folder | Bucket, files: FileTable | ObjectTable, index: RangeIndex) -> Dataset:
    """Return the dataset that an index describes."""
    about, arrays = index.about, index.arrays
    shards: list[RangeShard] = []
    nowhere = np.zeros(1, np.int64)
    range_base = 0
    for shard, first, count, _, records, digest, whole in about.shards:
        if whole:
            starts, ends = np.broadcast_to(nowhere, (records,)), files.sizes[first : first + count]
        else:
            part = slice(range_base, range_base + records)
            starts, ends = arrays["starts"][part], arrays["ends"][part]
            range_base += records
        shards.append(
            RangeShard(
                name=shard,
                records=records,
                size_bytes=int((ends - starts).sum()),
                digest=digest,
                starts=starts,
                ends=ends,
                first_file=first,
                whole_files=whole,
            )
        )
    bases = np.array([row[3] for row in about.shards], np.int64)
    return Dataset(
        name=name,
        folder=origin,
        shards=tuple(shards),
        missing=tuple(about.missing),
        files=files,
        contents=Contents(
            format=about.format,
            settings=about.settings,
            label_names=about.label_names,
            schema={column: FieldType(*kind) for column, kind in about.schema.items()},
        ),
        checksums=Checksums(index.checksums, bases) if about.format != TFRECORD.format else None,
        notes=_notes(shards, files, arrays.get("labels")) if about.told else None,
    )


def _notes(shards: Sequence[RangeShard], files: FileTable | ObjectTable, labels: npt.NDArray[np.int32] | None) -> Notes:
    def tell(number: int, records: npt.NDArray[np.int64]) -> list[bytes]:
        return file_notes(files.names, labels, shards[number].files_of(number, records))

    return tell
