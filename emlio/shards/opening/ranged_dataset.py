"""Opening a dataset whose records are ranges of files, or whole files, of any format but TFRecord.

The index is kept in the user's cache folder, never beside the data. At a later start it is used as
long as no file came or went, and no file that holds several records changed. What changed is indexed
again, the rest is taken over. Files that are one record each may be millions, so they are compared
only when they are opened; one that changed is an error then, and noted, so that the next start looks
at all of them.

Covers: finding the format, making the index, the dataset's values. Does not cover: what is taken over
from an earlier index (emlio.shards.ranges.earlier_index), TFRecord (emlio.shards.opening.tfrecord_dataset), the
formats themselves (emlio.formats).
"""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.formats.array_rows import header_of
from emlio.formats.contents import TFRECORD, Contents, FieldType
from emlio.formats.folders.names import (
    CHOOSING,
    chosen_files,
    chosen_names,
    format_options,
    needed_files,
    require_one_split,
)
from emlio.formats.format import Format, Layout, Ranges, ShardFiles
from emlio.formats.mds import mds
from emlio.formats.registry import find_format, format_named
from emlio.formats.side_by_side import MOST_SIDE_BY_SIDE, side_by_side
from emlio.formats.whole_file import any_files, array_files, file_notes
from emlio.progress import Progress
from emlio.shards.dataset import Dataset, Notes, RangeShard
from emlio.shards.files.file_table import FileTable
from emlio.shards.files.folder import Folder
from emlio.shards.files.indexed_files import IndexedFiles
from emlio.shards.files.parallel import for_each_shard
from emlio.shards.files.tree import UNWRITTEN, Tree, unchanged, walk, walk_file
from emlio.shards.objects.bucket import Bucket
from emlio.shards.objects.object_table import ObjectTable
from emlio.shards.ranges.change_notes import ChangeNotes
from emlio.shards.ranges.checksums import Checksums
from emlio.shards.ranges.earlier_index import EarlierIndex, kept_checksums, ranged_files_unchanged
from emlio.shards.ranges.groups import group_columns, groups_of, has_groups
from emlio.shards.ranges.index import About, RangeIndex, load_index, save_index
from emlio.shards.ranges.shard_digest import ContentCheck, shard_digest
from emlio.units import counted
from emlio.wire.limits import MAX_NAME_LENGTH

__all__ = ["index_place", "indexed_dataset", "make_index", "open_ranges"]

_LOG = logging.getLogger(__name__)

_HINTS = {
    **dict.fromkeys(
        (".gz", ".zst", ".bz2", ".xz"), "Compressed files are not looked into: unpack them to serve what they hold"
    ),
    ".bin": "If they hold tokens, say so: ?format=tokens&window=LENGTH&dtype=uint16",
}
"""By the ending that most files of a folder have."""


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
    only: str | None = None,
    progress: bool = False,
    rebuild: bool = False,
) -> Dataset:
    """Open a dataset.

    Args:
        name: its name in sessions.
        folder: its folder; closed with the dataset.
        cache: the folder of its indexes.
        options: the user's: "format", "split", "files", and those of the format.
        only: the name of a file of the folder that is the dataset; by default all files are.
        progress: show a line while indexing.
        rebuild: index everything again.

    Raises:
        ConfigError: an option is not known.
        DatasetError: there is no dataset, or a file of it is invalid.
    """
    # A slash is in the name of no option.
    place = index_place(cache, options if only is None else {**options, "/": only})
    notes = ChangeNotes(place)
    changed = notes.take_up()
    kept = None if rebuild else load_index(place)
    if kept is not None and not changed and unchanged(folder, kept.folders()) and ranged_files_unchanged(kept, folder):
        return indexed_dataset(name, folder, _files(kept, folder, notes), kept)
    tree = _walk(name, folder, progress=progress) if only is None else walk_file(folder, only)
    numbers = needed_files(tree.names, options, str(folder.path))
    tree = tree if numbers is None else tree.only(numbers)
    index = make_index(name, tree, str(folder.path), place, options, kept, unwritten=UNWRITTEN, progress=progress)
    if index.is_stored:
        notes.remove(changed)  # not before: after a failure the next start must look again
    return indexed_dataset(name, folder, _files(index, folder, notes), index)


def _files(index: RangeIndex, folder: Folder, notes: ChangeNotes) -> FileTable:
    return index.files(folder.path, notes.add, ContentCheck(index, notes.add).check)


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
            "dataset %s: %s to folders, or to nothing, %s not followed, such as %s",
            name,
            counted(len(tree.passed_over), "link"),
            "is" if len(tree.passed_over) == 1 else "are",
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
    unwritten: Sequence[str],
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
        options: the user's: "format", "split", "files", and those of the format.
        before: the earlier index.
        unwritten: see `kept_checksums`.
        chosen: the format, if it is known.
        threads: how many shards are indexed at once, if not as many as a disk is good for.
        progress: show a line.
    """
    wanted = options.get("format")
    if chosen is None:
        chosen = find_format(tree, where) if wanted is None else format_named(wanted)
    given = format_options(options)
    strange = sorted(given.keys() - chosen.options.keys())
    if strange:
        known = ", ".join(f"{option} ({what})" for option, what in {**chosen.options, **CHOOSING}.items())
        raise ConfigError(f"{where}: format {chosen.name} must have options it knows, {known}; got {strange[0]}")
    layout = _chosen(chosen.layout(tree, given, where), tree, options, where)
    if not (layout.shards[0].whole_files or chosen.name == mds.name):  # an index names the shards that belong together
        require_one_split((tree.names[shard.files[0]] for shard in layout.shards), options, where)
    _check_names(layout, where)
    made = _made(name, chosen, tree, layout, before, threads=threads, progress=progress)
    if not sum(shard.records for shard in made):
        told = " with " + ", ".join(f"{name}={value}" for name, value in given.items()) if given else ""
        raise DatasetError(
            f"dataset directory {where}: must hold records, there are none in its {counted(len(made), 'shard')}{told}"
        )
    _tell_unpacked(name, chosen, tree, layout)
    if not any(_holds_bytes(one, tree) for one in made):
        raise DatasetError(f"dataset directory {where}: its records must hold bytes, all of them are empty")
    about, arrays, checksums = _packed(chosen, dict(options), tree, layout, made, before, unwritten)
    try:
        return save_index(place, about, arrays, checksums)
    except OSError as error:
        _LOG.warning("dataset %s: its index cannot be saved, so every start builds it again: %s", name, error)
        return RangeIndex(about=about, arrays=arrays, checksums=checksums)


def _chosen(layout: Layout, tree: IndexedFiles, options: Mapping[str, str], where: str) -> Layout:
    """Return the shards that the user chose: an index of shards names others, too."""
    if layout.shards[0].whole_files:
        return layout
    numbers = chosen_files([tree.names[shard.files[0]] for shard in layout.shards], options, where)
    if numbers is None:
        return layout
    missing = tuple(chosen_names(layout.missing, options))
    return replace(layout, shards=tuple(layout.shards[number] for number in numbers), missing=missing)


def _tell_unpacked(name: str, chosen: Format, tree: IndexedFiles, layout: Layout) -> None:
    """Warn of files that are records whole and may be meant otherwise."""
    files = layout.shards[0].files
    if chosen.name == array_files.name and len(files) <= MOST_SIDE_BY_SIDE:
        with suppress(DatasetError):  # an error of the record, when it is read
            advice = side_by_side({tree.names[number]: header_of(tree, number) for number in files})
            if advice:
                _LOG.warning("dataset %s: %s", name, advice)
    if chosen.name != any_files.name:
        return
    ending = max(tree.endings, key=lambda each: tree.endings[each])
    hint = _HINTS.get(ending)
    if hint is not None:
        _LOG.warning("dataset %s: each of its %s files is a record, as a whole. %s", name, ending, hint)


def _left_out(tree: IndexedFiles, layout: Layout, options: Mapping[str, str]) -> tuple[int, str]:
    """Return how many chosen files belong to no shard, and one of them: they may be records by mistake."""
    numbers = chosen_files(tree.names, options, "")
    used = np.zeros(len(tree.names), np.bool_)
    if numbers is not None:
        used[:] = True
        used[numbers] = False
    for shard in layout.shards:
        used[np.asarray(shard.files)] = True
    unused = np.flatnonzero(~used)
    there = tree.names[int(unused[0])] if unused.size else next(iter(tree.junk), "")
    return len(unused) + len(tree.junk), there


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
    known = EarlierIndex(before, chosen.name, layout.settings) if before is not None else None
    kept: dict[str, _Made] = {}
    new: list[ShardFiles] = []
    for shard in layout.shards:
        found = known.shard(shard, tree) if known is not None else None
        if found is not None:
            kept[shard.name] = _Made(
                shard=shard, ranges=found.ranges, records=len(found.ranges.starts), digest=found.digest
            )
        else:
            new.append(shard)

    def make(shard: ShardFiles, advance: Callable[[int], None]) -> _Made:
        whole = shard.whole_files and not shard.unpacked
        ranges = None if whole else chosen.ranges(tree, shard, layout.settings)
        if ranges is not None and ranges.groups is None:
            _check(ranges, int(tree.sizes[shard.files[0]]), str(tree.path(shard.files[0])))
        advance(int(tree.sizes[np.asarray(shard.files)].sum()))
        records = len(shard.files) if ranges is None else len(ranges.starts)
        digest = shard_digest(chosen.name, layout.settings, tree, layout.labels, shard, ranges)
        return _Made(shard=shard, ranges=ranges, records=records, digest=digest)

    total = sum(int(tree.sizes[np.asarray(shard.files)].sum()) for shard in new)
    many = {} if threads is None else {"threads": threads}
    for one in for_each_shard(new, make, label=f"indexing {name}", total_bytes=total, progress=progress, **many):
        kept[one.shard.name] = one
    return [kept[shard.name] for shard in layout.shards]


def _check_names(layout: Layout, where: str) -> None:
    for shard in layout.shards:
        try:
            shard.name.encode()
        except UnicodeEncodeError as error:
            raise DatasetError(f"{where}: names of shards must be UTF-8, rename {shard.name!r}") from error
        if len(shard.name) > MAX_NAME_LENGTH:
            raise DatasetError(
                f"{where}: names of shards must have at most {MAX_NAME_LENGTH} characters, {shard.name} has "
                f"{len(shard.name)}"
            )


def _holds_bytes(made: _Made, tree: IndexedFiles) -> bool:
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


def _packed(
    chosen: Format,
    options: dict[str, str],
    tree: IndexedFiles,
    layout: Layout,
    made: Sequence[_Made],
    before: RangeIndex | None,
    unwritten: Sequence[str],
) -> tuple[About, dict[str, npt.NDArray[Any]], npt.NDArray[np.uint64]]:
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
        left_out=_left_out(tree, layout, options),
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
    groups = [(one.ranges.groups, one.shard.whole_files) for one in made if one.ranges is not None]
    arrays.update(group_columns([(found, whole) for found, whole in groups if found is not None]))
    if before is not None and has_groups(arrays) and before.about.settings != layout.settings:
        before = None  # the bytes of rows depend on the columns, which are those of the first file
    return about, arrays, kept_checksums(rows, arrays, before, unwritten)


def indexed_dataset(name: str, origin: Folder | Bucket, files: FileTable | ObjectTable, index: RangeIndex) -> Dataset:
    """Return the dataset that an index describes."""
    about, arrays = index.about, index.arrays
    if about.left_out[0]:
        count, such_as = about.left_out
        _LOG.warning(
            "dataset %s (format %s): %s %s left out, such as %s",
            name,
            about.format,
            counted(count, "file"),
            "is" if count == 1 else "are",
            such_as if such_as.isprintable() else repr(such_as),
        )
    shards: list[RangeShard] = []
    nowhere = np.zeros(1, np.int64)
    range_base, grouped = 0, has_groups(arrays)
    for shard, first, count, _, records, digest, whole in about.shards:
        if whole and not grouped:
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
        groups=groups_of(arrays, shards),
    )


def _notes(shards: Sequence[RangeShard], files: FileTable | ObjectTable, labels: npt.NDArray[np.int32] | None) -> Notes:
    def tell(number: int, records: npt.NDArray[np.int64]) -> list[bytes]:
        return file_notes(files.names, labels, shards[number].files_of(number, records))

    return tell
