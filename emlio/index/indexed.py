"""Datasets from an index that is still right, or from a new one.

The index is kept in the user's cache folder, never beside the data. At a later start it is used as
long as no file came or went, and no file that holds several records changed. What changed is indexed
again, the rest is taken over. In a folder, files that are one record each may be millions, so they are
compared only when they are opened; one that changed is an error then, and noted, so that the next
start looks at all of them. Objects in a bucket are listed at each start.
"""

import hashlib
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from emlio.formats.contents import Contents, FieldType
from emlio.formats.folders.names import ALL
from emlio.formats.whole_file import file_notes
from emlio.index.building import chosen_format, make_index
from emlio.index.checksums import Checksums
from emlio.index.dataset import Dataset, Notes, Shard
from emlio.index.earlier_index import ranged_files_unchanged
from emlio.index.elsewhere import each_in_folder, each_in_place
from emlio.index.groups import groups_of
from emlio.index.parallel import Engine
from emlio.index.range_index import RangeIndex, load_index
from emlio.index.shard_digest import ContentCheck
from emlio.progress import Progress
from emlio.store.bucket.bucket_store import BucketStore
from emlio.store.bucket.object_table import ObjectTable
from emlio.store.folder import Folder
from emlio.store.folder_store import FolderStore, unchanged, walk, walk_files
from emlio.store.store import Store
from emlio.units import counted

__all__ = ["ChangeNotes", "open_folder", "open_objects"]


class ChangeNotes:
    """The notes beside one index that a file was found changed. Thread-safe, and for several processes.

        INDEX.changed          a note, written while the dataset is served
        INDEX.changed-NUMBER   a note that a rebuild of the index has taken up

    A rebuild may fail, and files may change while it runs. So it takes up the notes that it finds under
    names of their own, and removes exactly those when the new index is stored.
    """

    def __init__(self, place: Path) -> None:
        """See the class.

        Args:
            place: the file of the index.
        """
        self._note = place.with_suffix(".changed")

    def add(self) -> None:
        """Note a change. Where the folder cannot be written, it is not noted."""
        with suppress(OSError):
            self._note.touch()

    def take_up(self) -> list[Path]:
        """Return the notes that there are; a change from here on is noted anew."""
        with suppress(OSError):
            os.rename(self._note, f"{self._note}-{secrets.token_hex(6)}")
        try:
            return sorted(self._note.parent.glob(f"{self._note.name}*"))
        except OSError:
            return []

    def remove(self, taken_up: Iterable[Path]) -> None:
        """Remove notes: an index was made since they were taken up."""
        for note in taken_up:
            with suppress(OSError):
                note.unlink()


_LOG = logging.getLogger(__name__)

_OF_OBJECTS = frozenset({"identities", "etags", "etag_bounds", "modified_s", "all_names", "all_name_bounds"})
"""The arrays that only an index of objects has."""


def open_folder(
    name: str,
    folder: Folder,
    cache: Path,
    options: Mapping[str, str],
    *,
    only: str | None = None,
    progress: bool = False,
    rebuild: bool = False,
    engine: Engine | None = None,
) -> Dataset:
    """Open a dataset in a folder.

    Args:
        name: its name in sessions.
        folder: its folder; closed with the dataset.
        cache: the folder of its indexes.
        options: the user's: "format", "split", "files", and those of the format.
        only: the name of a file of the folder that is the dataset; by default all files are.
        progress: show a line while indexing.
        rebuild: index everything again.
        engine: where shards are looked through; by default in this process.

    Raises:
        ConfigError: an option is not known.
        DatasetError: there is no dataset, or a file of it is invalid.
    """
    # A slash is in the name of no option.
    place = _index_place(cache, options if only is None else {**options, "/": only})
    notes = ChangeNotes(place)
    chosen_ones = only is not None or "files" in options or options.get("split", ALL) != ALL

    def opened(index: RangeIndex) -> Dataset:
        check = ContentCheck(index, notes.add).check
        files = FolderStore.stored(folder, index.arrays, notes.add, check)
        return _indexed(name, files, index, chosen=chosen_ones)

    changed = notes.take_up()
    kept = None if rebuild else load_index(place)
    if kept is not None and not {"folders"} <= kept.arrays.keys():
        kept = None
    if kept is not None and not changed:
        folders = FolderStore.stored(folder, kept.arrays).folders
        if unchanged(folder, folders) and ranged_files_unchanged(kept, folder):
            return opened(kept)

    def found(owns: Callable[[str], bool] | None) -> FolderStore:
        return _walk(name, folder, owns, progress=progress) if only is None else walk_files(folder, [only])

    chosen, store = chosen_format(found, options, str(folder.path))
    each = each_in_folder(engine, store, folder.path, only, options)
    index = make_index(name, chosen, store, place, options, kept, each, progress=progress)
    if index.is_stored:
        notes.remove(changed)  # not before: after a failure the next start must look again
    return opened(index)


def open_objects(
    name: str,
    store: BucketStore,
    cache: Path,
    options: Mapping[str, str],
    *,
    progress: bool = False,
    rebuild: bool = False,
    engine: Engine | None = None,
) -> Dataset:
    """Open a dataset in a bucket, given all its objects; see `open_folder`."""
    table = store.table
    place = _index_place(cache, options)
    index = None if rebuild else load_index(place)
    if index is not None and not index.arrays.keys() >= _OF_OBJECTS:
        index = None
    if index is None or not _is_current(index, table):
        chosen, some = chosen_format(lambda owns: store if owns is None else store.top(owns), options, store.shown)
        each = each_in_place(engine, some, store.address, options)
        index = make_index(name, chosen, some, place, options, index, each, progress=progress)
    return _indexed(name, store.stored(index.arrays), index)


def _is_current(index: RangeIndex, table: ObjectTable) -> bool:
    """Return whether an index is of exactly these objects."""
    names, bounds = index.arrays["all_names"], index.arrays["all_name_bounds"]
    if not np.array_equal(bounds, table.names.bounds) or not np.array_equal(names, table.names.text):
        return False
    before = ObjectTable.stored(table.address, index.arrays)
    now = {table.names.raw(number): number for number in range(len(table))}
    return all(
        before.identity(number) == table.identity(now[before.names.raw(number)]) for number in range(len(before))
    )


def _index_place(cache: Path, options: Mapping[str, str]) -> Path:
    """Return where the index for these options is kept."""
    key = hashlib.blake2b(repr(sorted(options.items())).encode(), digest_size=6).hexdigest()
    return cache / f"ranges-{key}.json"


def _walk(name: str, folder: Folder, owns: Callable[[str], bool] | None, *, progress: bool) -> FolderStore:
    line = Progress(f"looking through {name}", None) if progress else None
    try:
        store = walk(folder, line.add if line is not None else lambda _: None, owns)
    finally:
        if line is not None:
            line.close()
    if store.passed_over and owns is None:
        _LOG.warning(
            "dataset %s: %s to folders, or to nothing, %s not followed, such as %s",
            name,
            counted(len(store.passed_over), "link"),
            "is" if len(store.passed_over) == 1 else "are",
            store.passed_over[0],
        )
    return store


def _indexed(name: str, store: Store, index: RangeIndex, *, chosen: bool = False) -> Dataset:
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
    shards: list[Shard] = []
    for number, row in enumerate(about.shards):
        starts, ends = index.ranges(number)
        shards.append(
            Shard(
                name=row.name,
                records=row.records,
                size_bytes=row.size_bytes,
                digest=row.digest,
                starts=starts,
                ends=ends,
                first_file=row.first_file,
                files=row.files,
                whole_files=row.whole_files,
            )
        )
    bases = np.array([row.first for row in about.shards], np.int64)
    return Dataset(
        name=name,
        files=store,
        shards=tuple(shards),
        missing=tuple(about.missing),
        contents=Contents(
            format=about.format,
            settings=about.settings,
            label_names=about.label_names,
            schema={column: FieldType(*kind) for column, kind in about.schema.items()},
        ),
        checksums=None if about.framed else Checksums(index.checksums, bases),
        notes=_notes(shards, store, arrays.get("labels")) if about.told else None,
        groups=groups_of(arrays, shards),
        chosen=chosen,
    )


def _notes(shards: Sequence[Shard], store: Store, labels: npt.NDArray[np.int32] | None) -> Notes:
    def tell(number: int, records: npt.NDArray[np.int64]) -> list[bytes]:
        return file_notes(store.names, labels, shards[number].files_of(records))

    return tell
