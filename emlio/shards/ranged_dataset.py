"""Opening a dataset whose records are ranges of files, or whole files, of any format but TFRecord.

The index is kept in the user's cache folder, never beside the data. At a later start it is used as
long as no file came or went, and no file that holds several records changed. What changed is indexed
again, the rest is taken over. Files that are one record each may be millions, so they are compared
only when they are opened; one that changed is an error then, and noted, so that the next start looks
at all of them.

Covers: finding the format, making and checking the index, the dataset's values. Does not cover:
TFRecord (emlio.shards.tfrecord_dataset), the formats themselves (emlio.formats).
"""

import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.formats.contents import Contents, FieldType
from emlio.formats.format import Format, Layout, Ranges, ShardFiles
from emlio.formats.registry import find_format, format_named
from emlio.formats.whole_file import file_notes
from emlio.open_limits import refusal_of
from emlio.progress import Progress
from emlio.shards.checksums import Checksums
from emlio.shards.dataset import Dataset, Notes, RangeShard
from emlio.shards.file_table import FileTable, NameTable, inode_number
from emlio.shards.folder import Folder
from emlio.shards.parallel import for_each_shard
from emlio.shards.range_index import About, RangeIndex, load_index, save_index
from emlio.shards.tree import FolderTimes, Tree, unchanged, walk
from emlio.wire.limits import MAX_NAME_LENGTH

__all__ = ["open_ranges"]

_LOG = logging.getLogger(__name__)
_FILES = ("sizes", "mtimes_ns", "ctimes_ns", "inodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A shard's records."""

    shard: ShardFiles
    ranges: Ranges | None
    records: int
    digest: str


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
    key = hashlib.blake2b(repr(sorted(options.items())).encode(), digest_size=6).hexdigest()
    place = cache / f"ranges-{key}.json"
    change = place.with_suffix(".changed")
    kept = None if rebuild else load_index(place)
    if (
        kept is not None
        and not change.exists()
        and unchanged(folder, _folder_times(kept))
        and _files_unchanged(kept, folder)
    ):
        return _dataset(name, folder, kept, change)
    with suppress(OSError):
        change.unlink()  # now, so that a change from here on is noted again
    return _dataset(name, folder, _index(name, folder, place, options, kept, progress=progress), change)


def _files_unchanged(index: RangeIndex, folder: Folder) -> bool:
    """Return whether the files that hold several records, or say where records are, have not changed."""
    table = _table(index, folder.path)
    for _, first, count, _, _, _, whole in index.about.shards:
        for number in () if whole else range(first, first + count):
            try:
                now = folder.stat(table.names[number])
            except FileNotFoundError:
                return False
            except OSError as error:
                path = str(table.path(number))
                raise refusal_of(error, path) or DatasetError(f"{path}: cannot be read: {error.strerror}") from error
            if (now.st_size, now.st_mtime_ns, now.st_ctime_ns, inode_number(now)) != tuple(
                int(getattr(table, column)[number]) for column in _FILES
            ):
                return False
    return True


def _note(change: Path) -> None:
    with suppress(OSError):
        change.touch()


def _index(
    name: str,
    folder: Folder,
    place: Path,
    options: Mapping[str, str],
    before: RangeIndex | None,
    *,
    progress: bool,
) -> RangeIndex:
    """Return a new index; shards that have not changed are taken over from the one before."""
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
    where = str(folder.path)
    wanted = options.get("format")
    chosen = find_format(tree, where) if wanted is None else format_named(wanted)
    given = {option: value for option, value in options.items() if option != "format"}
    strange = sorted(given.keys() - chosen.options.keys())
    if strange:
        known = ", ".join(f"{option} ({what})" for option, what in chosen.options.items()) or "none"
        raise ConfigError(f"{where}: format {chosen.name} must have options it knows, {known}; got {strange[0]}")
    layout = chosen.layout(tree, given, where)
    made = _made(name, chosen, tree, layout, before, progress=progress)
    if not sum(shard.records for shard in made):
        raise DatasetError(f"dataset directory {where}: its {len(made)} shards must hold records, hold none")
    if not any(_holds_bytes(one, tree) for one in made):
        raise DatasetError(f"dataset directory {where}: its records must hold bytes, all of them are empty")
    about, arrays, checksums = _packed(chosen, dict(options), tree, layout, made, before)
    try:
        return save_index(place, about, arrays, checksums)
    except OSError as error:
        _LOG.warning("dataset %s: its index cannot be saved, so every start builds it again: %s", name, error)
        return RangeIndex(about=about, arrays=arrays, checksums=checksums)


def _made(
    name: str, chosen: Format, tree: Tree, layout: Layout, before: RangeIndex | None, *, progress: bool
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
            _check(ranges, int(tree.sizes[shard.files[0]]), str(tree.table.path(shard.files[0])))
        advance(int(tree.sizes[np.asarray(shard.files)].sum()))
        records = len(shard.files) if ranges is None else len(ranges.starts)
        return _Made(shard=shard, ranges=ranges, records=records, digest=_digest(chosen, tree, layout, shard, ranges))

    total = sum(int(tree.sizes[np.asarray(shard.files)].sum()) for shard in new)
    for one in for_each_shard(new, make, label=f"indexing {name}", total_bytes=total, progress=progress):
        kept[one.shard.name] = one
    return [kept[shard.name] for shard in layout.shards]


def _holds_bytes(made: _Made, tree: Tree) -> bool:
    if made.ranges is None:
        return bool(tree.sizes[np.asarray(made.shard.files)].any())
    return bool((made.ranges.ends > made.ranges.starts).any())


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


def _digest(chosen: Format, tree: Tree, layout: Layout, shard: ShardFiles, ranges: Ranges | None) -> str:
    """Return what identifies a shard: names, sizes and ranges, as far as no bytes are read."""
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
        self._files = _table(index, Path("."))

    def shard(self, shard: ShardFiles, tree: Tree) -> _Made | None:
        """Return the shard if its files are those of the earlier index."""
        row = self._rows.get(shard.name)
        if not self._usable or row is None or row[2] != len(shard.files) or row[6] != shard.whole_files:
            return None
        _, first, count, base, records, digest, whole = row
        old, now = range(first, first + count), np.asarray(shard.files)
        if [self._files.names[number] for number in old] != [tree.names[number] for number in shard.files]:
            return None
        for column in _FILES:
            if not np.array_equal(getattr(self._files, column)[old], getattr(tree.table, column)[now]):
                return None
        if whole:
            return _Made(shard=shard, ranges=None, records=records, digest=digest)
        part = slice(base, base + records)
        starts, ends = self._index.arrays["starts"][part], self._index.arrays["ends"][part]
        return _Made(shard=shard, ranges=Ranges(starts=starts, ends=ends), records=records, digest=digest)


def _packed(
    chosen: Format,
    options: dict[str, str],
    tree: Tree,
    layout: Layout,
    made: Sequence[_Made],
    before: RangeIndex | None,
) -> tuple[About, dict[str, npt.NDArray[Any]], npt.NDArray[np.uint32]]:
    """Return the index's parts. Files are numbered anew, shard by shard."""
    numbers = np.concatenate([np.asarray(one.shard.files, np.int64) for one in made])
    same = len(numbers) == len(tree.names) and bool((numbers == np.arange(len(numbers))).all())
    wanted: list[int] = numbers.tolist()
    names = tree.table.names if same else NameTable.of(tree.names[number] for number in wanted)
    if not isinstance(names, NameTable):
        raise AssertionError("a tree has its names in a table")
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
    )
    nothing = np.empty(0, np.int64)
    ranges = [one.ranges for one in made if one.ranges is not None]
    arrays: dict[str, npt.NDArray[Any]] = {
        "names": names.text,
        "name_bounds": names.bounds,
        **{column: getattr(tree.table, column)[numbers] for column in _FILES},
        "folders": tree.folders.names.text,
        "folder_bounds": tree.folders.names.bounds,
        "folder_ctimes_ns": tree.folders.ctimes_ns,
        "starts": np.concatenate([nothing, *(one.starts for one in ranges)]),
        "ends": np.concatenate([nothing, *(one.ends for one in ranges)]),
    }
    if layout.labels is not None:
        arrays["labels"] = layout.labels[numbers]
    return about, arrays, _checksums(rows, arrays, before)


def _checksums(
    rows: Sequence[tuple[str, int, int, int, int, str, bool]],
    arrays: Mapping[str, npt.NDArray[Any]],
    before: RangeIndex | None,
) -> npt.NDArray[np.uint32]:
    """Return the table of checksums, with those of files that nothing has written to.

    A file that was changed on purpose has a new mtime, or is a new file. One with another ctime only keeps its
    checksums: if its bytes changed they are found.
    """
    table = np.zeros(sum(row[4] for row in rows), np.uint32)
    old = {row[0]: row for row in before.about.shards} if before is not None else {}
    for name, first, count, base, records, digest, whole in rows:
        row = old.get(name)
        if before is None or row is None or row[4:6] != (records, digest):
            continue
        same = np.ones(count, np.bool_)
        for column in ("mtimes_ns", "inodes"):
            same &= arrays[column][first : first + count] == before.arrays[column][row[1] : row[1] + count]
        if whole or same.all():
            found = before.checksums[row[3] : row[3] + records]
            table[base : base + records] = np.where(same, found, 0) if whole else found
    return table


def _table(index: RangeIndex, folder: Path, on_change: Callable[[], None] = lambda: None) -> FileTable:
    return FileTable(
        folder=folder,
        names=NameTable(index.arrays["names"], index.arrays["name_bounds"]),
        sizes=index.arrays["sizes"],
        mtimes_ns=index.arrays["mtimes_ns"],
        ctimes_ns=index.arrays["ctimes_ns"],
        inodes=index.arrays["inodes"],
        on_change=on_change,
    )


def _folder_times(index: RangeIndex) -> FolderTimes:
    return FolderTimes(
        names=NameTable(index.arrays["folders"], index.arrays["folder_bounds"]),
        ctimes_ns=index.arrays["folder_ctimes_ns"],
    )


def _dataset(name: str, folder: Folder, index: RangeIndex, change: Path) -> Dataset:
    about, arrays = index.about, index.arrays
    files = _table(index, folder.path, partial(_note, change))
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
        folder=folder,
        shards=tuple(shards),
        missing=(),
        files=files,
        contents=Contents(
            format=about.format,
            settings=about.settings,
            label_names=about.label_names,
            schema={column: FieldType(*kind) for column, kind in about.schema.items()},
        ),
        checksums=Checksums(index.checksums, bases),
        notes=_notes(shards, files, arrays.get("labels")) if about.told else None,
    )


def _notes(shards: Sequence[RangeShard], files: FileTable, labels: npt.NDArray[np.int32] | None) -> Notes:
    def tell(number: int, records: npt.NDArray[np.int64]) -> list[bytes]:
        return file_notes(files.names, labels, shards[number].files_of(number, records))

    return tell
