"""Making an index: the format of a dataset, and where its records lie."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.formats.array_rows import MOST_SIDE_BY_SIDE, header_of, side_by_side
from emlio.formats.folders.names import (
    CHOOSING,
    chosen_files,
    chosen_names,
    format_options,
    needed_files,
    require_one_split,
)
from emlio.formats.format import Format, Layout, ShardFiles, TopFormat
from emlio.formats.mds import mds
from emlio.formats.registry import FORMATS, find_format, format_named
from emlio.formats.whole_file import any_files, array_files
from emlio.index.earlier_index import EarlierIndex, kept_checksums
from emlio.index.groups import group_columns, has_groups
from emlio.index.made_shard import MadeShard, ShardMaker
from emlio.index.parallel import ForEachShard
from emlio.index.range_index import About, RangeIndex, ShardRow, range_arrays, save_index
from emlio.interrupts import is_interrupt
from emlio.store.store import Store
from emlio.units import counted
from emlio.wire.limits import MAX_NAME_LENGTH

__all__ = ["chosen_format", "make_index"]

_LOG = logging.getLogger(__name__)

_REMOTE_THREADS = 32
"""Objects indexed at once. Each waits for one request at a time, most of it for the server."""

_HINTS = {
    **dict.fromkeys(
        (".gz", ".zst", ".bz2", ".xz"), "Compressed files are not looked into: unpack them to serve what they hold"
    ),
    ".bin": "If they hold tokens, say so: ?format=tokens&window=LENGTH&dtype=uint16",
}
"""By the ending that most files of a folder have."""


def chosen_format(
    found: Callable[[Callable[[str], bool] | None], Store], options: Mapping[str, str], where: str
) -> tuple[Format, Store]:
    """Return the format of a dataset, and its files.

    Args:
        found: returns the files at the top with such names, or all files.
        options: the user's.
        where: the dataset's place, for errors.
    """
    wanted, given = options.get("format"), format_options(options)
    chosen = None if wanted is None else format_named(wanted)
    for each in FORMATS if chosen is None else (chosen,):
        if isinstance(each, TopFormat) and given.keys() <= each.options.keys():
            store = found(each.owns)
            if chosen is not None or any(each.owns(name) for name in chosen_names(store.names, options)):
                return each, _needed(store, options, where)
    store = _needed(found(None), options, where)
    return find_format(store, where) if chosen is None else chosen, store


def _needed(store: Store, options: Mapping[str, str], where: str) -> Store:
    numbers = needed_files(store.names, options, where)
    return store if numbers is None else store.only(numbers)


def make_index(
    name: str,
    chosen: Format,
    store: Store,
    place: Path,
    options: Mapping[str, str],
    before: RangeIndex | None,
    each: ForEachShard[ShardFiles, MadeShard],
    *,
    progress: bool,
) -> RangeIndex:
    """Return a new index; shards that have not changed are taken over from the one before.

    Args:
        name: the dataset's name.
        chosen: its format.
        store: its files.
        place: where the index is kept.
        options: the user's: "format", "split", "files", and those of the format.
        before: the earlier index.
        each: makes the work for each shard be done.
        progress: show a line.
    """
    where, given = store.shown, format_options(options)
    strange = sorted(given.keys() - chosen.options.keys())
    if strange:
        known = ", ".join(f"{option} ({what})" for option, what in {**chosen.options, **CHOOSING}.items())
        raise ConfigError(f"{where}: format {chosen.name} takes the options {known}; got {strange[0]}")
    layout = _chosen_shards(chosen.layout(store, given, where), store, options, where)
    if not (layout.shards[0].whole_files or chosen.name == mds.name):  # an index names the shards that belong together
        require_one_split((store.names[shard.files[0]] for shard in layout.shards), options, where)
    _check_names(layout, where)
    made = _made(name, chosen, store, layout, before, each, progress=progress)
    if not sum(one.records for one in made):
        told = " with " + ", ".join(f"{name}={value}" for name, value in given.items()) if given else ""
        first = layout.shards[0]
        size = int(store.sizes[np.asarray(first.files)].sum())
        raise DatasetError(
            f"dataset directory {where}: must hold records, there are none in its {counted(len(made), 'shard')}{told}, "
            f"such as {first.name} of {counted(size, 'byte')}"
        )
    _tell_unpacked(name, chosen, store, layout)
    if not any(one.size_bytes for one in made):
        raise DatasetError(f"dataset directory {where}: its records must hold bytes, all of them are empty")
    about, arrays = _packed(chosen, dict(options), store, layout, made)
    if before is not None and has_groups(arrays) and before.about.settings != layout.settings:
        before = None  # the bytes of rows depend on the columns, which are those of the first file
    index = RangeIndex(about=about, arrays=arrays, checksums=np.zeros(0, np.uint64))
    index = replace(index, checksums=kept_checksums(index, before, store.unwritten))
    try:
        return save_index(place, about, arrays, index.checksums)
    except OSError as error:
        if is_interrupt(error):
            raise
        _LOG.warning("dataset %s: its index cannot be saved, so every start builds it again: %s", name, error)
        return index


def _chosen_shards(layout: Layout, store: Store, options: Mapping[str, str], where: str) -> Layout:
    """Return the shards that the user chose: an index of shards names others, too."""
    if layout.shards[0].whole_files:
        return layout
    numbers = chosen_files([store.names[shard.files[0]] for shard in layout.shards], options, where)
    if numbers is None:
        return layout
    missing = tuple(chosen_names(layout.missing, options))
    return replace(layout, shards=tuple(layout.shards[number] for number in numbers), missing=missing)


def _tell_unpacked(name: str, chosen: Format, store: Store, layout: Layout) -> None:
    """Warn of files that are records whole and may be meant otherwise."""
    files = layout.shards[0].files
    if chosen.name == array_files.name and len(files) <= MOST_SIDE_BY_SIDE:
        with suppress(DatasetError):  # an error of the record, when it is read
            advice = side_by_side({store.names[number]: header_of(store, number) for number in files})
            if advice:
                _LOG.warning("dataset %s: %s", name, advice)
    if chosen.name != any_files.name:
        return
    ending = max(store.endings, key=lambda each: store.endings[each])
    hint = _HINTS.get(ending)
    if hint is not None:
        _LOG.warning("dataset %s: each of its %s files is a record, as a whole. %s", name, ending, hint)


def _left_out(chosen: Format, store: Store, layout: Layout, options: Mapping[str, str]) -> tuple[int, str]:
    """Return how many chosen files belong to no shard, and one of them: they may be records by mistake."""
    numbers = chosen_files(store.names, options, "")
    used = np.zeros(len(store), np.bool_)
    if numbers is not None:
        used[:] = True
        used[numbers] = False
    for shard in layout.shards:
        used[np.asarray(shard.files)] = True
    unused = np.flatnonzero(~used).tolist()
    if isinstance(chosen, TopFormat):
        unused = [number for number in unused if not chosen.describes(store.names[number])]
    there = store.names[unused[0]] if unused else next(iter(store.junk), "")
    return len(unused) + len(store.junk), there


def _made(
    name: str,
    chosen: Format,
    store: Store,
    layout: Layout,
    before: RangeIndex | None,
    each: ForEachShard[ShardFiles, MadeShard],
    *,
    progress: bool,
) -> list[MadeShard]:
    known = EarlierIndex(before, chosen.name, layout.settings) if before is not None else None
    kept: dict[str, MadeShard] = {}
    new: list[ShardFiles] = []
    for shard in layout.shards:
        found = known.shard(shard, store) if known is not None else None
        if found is not None:
            kept[shard.name] = MadeShard.of(shard, found.ranges, found.digest)
        else:
            new.append(shard)
    make = ShardMaker(chosen, store, layout)
    total = sum(int(store.sizes[np.asarray(shard.files)].sum()) for shard in new)
    many = {"threads": _REMOTE_THREADS} if store.remote else {}
    for one in each(new, make, label=f"indexing {name}", total_bytes=total, progress=progress, **many):
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


def _packed(
    chosen: Format, options: dict[str, str], store: Store, layout: Layout, made: Sequence[MadeShard]
) -> tuple[About, dict[str, npt.NDArray[Any]]]:
    """Return the index's parts. Files are numbered anew, shard by shard."""
    numbers = np.concatenate([np.asarray(one.shard.files, np.int64) for one in made])
    rows: list[ShardRow] = []
    first_file = first = 0
    for one in made:
        rows.append(
            ShardRow(
                name=one.shard.name,
                records=one.records,
                size_bytes=one.size_bytes,
                digest=one.digest,
                first=first,
                first_file=first_file,
                files=len(one.shard.files),
                whole_files=one.shard.whole_files,
            )
        )
        first_file, first = first_file + len(one.shard.files), first + one.records
    ranges = [one.ranges for one in made if one.ranges is not None]
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
        framed=any(one.framed for one in ranges),
        told=layout.told,
        missing=list(layout.missing),
        left_out=_left_out(chosen, store, layout, options),
    )
    arrays: dict[str, npt.NDArray[Any]] = {
        **store.columns(numbers),
        **range_arrays([(one.starts, one.ends) for one in ranges]),
    }
    if layout.labels is not None:
        arrays["labels"] = layout.labels[numbers]
    groups = [(one.ranges.groups, one.shard.whole_files) for one in made if one.ranges is not None]
    arrays.update(group_columns([(found, whole) for found, whole in groups if found is not None]))
    return about, arrays
