"""Records of the formats that are served in place."""

import hashlib
import io
import secrets
import shutil
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats import mds
from emlio.formats.each_record import IMAGE, LABEL
from emlio.formats.folders.names import chosen_files
from emlio.formats.registry import form_of, format_named
from emlio.formats.tabular import tables
from emlio.formats.whole_file import WholeFiles
from emlio.index.dataset import Dataset
from emlio.index.groups import FileGroups, Group
from emlio.index.indexed import open_folder
from emlio.planner.catalog import Catalog
from emlio.prepare.disk import disk_error
from emlio.prepare.sample import Sample
from emlio.prepare.sources.class_names import ClassFolders, ClassNames, class_folders, pictures_in
from emlio.prepare.sources.format_samples import Told, sample_of
from emlio.prepare.sources.record_source import Fingerprint, Ignored, Listing, check_listed, source_folder
from emlio.reading.group_engine import GroupMaker
from emlio.reading.random_reader import RandomReader
from emlio.store.file_read import read_into
from emlio.store.folder_store import walk

__all__ = ["AnyFormat"]


_FORMATS: Final = {"image-folder": "files", "webdataset": "tar"}
"""The format that reads a kind of source, by kind, where it has another name."""

_ROLES: Final[Mapping[str, Callable[[bytes], Mapping[str, str]]]] = {
    "arrow": tables.role_columns,
    "mds": mds.role_columns,
    "parquet": tables.role_columns,
}
"""Return the columns of a picture and a label from a format's settings, by kind of source."""


class AnyFormat:
    """Records in the order of the dataset. The constructor indexes it."""

    def __init__(
        self,
        path: Path,
        kind: str,
        scratch: Path,
        classes: ClassNames | None = None,
        options: Mapping[str, str] | None = None,
        unpacked_in: Path | None = None,
    ) -> None:
        """Index the dataset.

        Args:
            path: its folder, or its only file.
            kind: a format's name, "image-folder" or "webdataset".
            scratch: a folder for the index, which may be made.
            classes: the names of its labels; by default those that the format knows.
            options: those of the format.
            unpacked_in: where processes that read the same dataset share what they unpack; by default in `scratch`.

        Raises:
            ConfigError: an option is not known.
            DatasetError: it is not of this format.
        """
        self._kind = kind
        self._options = dict(options or {})
        self._scratch = scratch
        self._shared = unpacked_in or scratch
        self._reader: RandomReader | None = None
        folders = class_folders(path) if kind == "image-folder" else []
        self._dataset = _open(path, scratch, {**(options or {}), "format": _FORMATS.get(kind, kind)})
        try:
            self._list(path, folders, classes)
        except BaseException:
            self.close()
            raise

    def _list(self, path: Path, folders: list[str], classes: ClassNames | None) -> None:
        dataset, contents = self._dataset, self._dataset.contents
        chosen = format_named(contents.format)
        self._content = chosen.read if isinstance(chosen, WholeFiles) else None
        self._form = form_of(contents, None)
        self._reader = RandomReader(dataset)
        self._roles: Mapping[str, str] = _ROLES[self._kind](contents.settings) if self._kind in _ROLES else {}
        # Archives that a daemon would unpack are unpacked here anyway.
        groups = dataset.groups if self._content is None else None
        records = [shard.records for shard in dataset.shards]
        self._firsts = [0, *accumulate(records[:-1])]
        sizes = np.concatenate([shard.ends - shard.starts for shard in dataset.shards]).astype(np.int64)
        self._places: npt.NDArray[np.int64] | None = None
        if self._kind == "image-folder":
            self._places = pictures_in(path, folders, dataset.files.names)
            sizes = sizes[self._places]
        elif self._content is not None:
            folders = _folders(path, dataset, refuse_mixed=self._kind == "npy")
        self._folders = ClassFolders.numbered(path, folders, classes) if folders else None
        if self._folders is not None:
            self._names: Mapping[int, str] = self._folders.classes.texts
        elif self._content is not None:
            # Files that do not lie in folders have no classes, whatever list of them is given.
            self._names = {}
        else:
            self._names = contents.label_names if classes is None else classes.texts
        fingerprint = Fingerprint(self._kind)
        fingerprint.add(Catalog(shards=dataset.entries).fingerprint)
        # Names and sizes alone would not tell that a file was written again.
        fingerprint.add(hashlib.blake2b(np.ascontiguousarray(dataset.folder_store.table.mtimes_ns).data).hexdigest())
        if self._places is not None:
            fingerprint.add(hashlib.blake2b(self._places.data).hexdigest())
        for label, name in self._names.items():
            fingerprint.add(label, name)
        if self._folders is not None:
            fingerprint.add(*(str(entry) for entry in sorted(self._folders.classes.numbers.items())))
        found = fingerprint.hexdigest()
        self._groups = None if groups is None else UnpackedGroups(dataset, groups, self._shared / f"groups-{found}")
        self.listing = Listing(
            sizes_bytes=sizes,
            fingerprint=found,
            label_names=self._names,
            ignored=self._ignored(path),
        )

    def _ignored(self, path: Path) -> Ignored:
        """Return the files of the folder of which no record is made."""
        if path.is_file():
            return Ignored()
        names = self._dataset.files.names
        places: Sequence[int] = range(len(names)) if self._places is None else self._places.tolist()
        used = {names[place] for place in places}
        with source_folder(path) as folder:
            tree = walk(folder)
        numbers = chosen_files(tree.names, self._options, str(path))
        there = tree.names if numbers is None else [tree.names[number] for number in numbers]
        return Ignored.of(sorted((*(name for name in there if name not in used), *tree.junk)))

    def key(self, place: int) -> str:
        """Return the file, and the record in it if it holds several."""
        shard, record, file = self._where(place)
        path = self._dataset.files.path(file)
        if self._content is not None:
            return str(path)
        if self._kind == "webdataset":
            try:
                return f"{path}: {self._row(shard, record, file)[1]['__key__']}"
            except DatasetError:
                pass  # the number is what is left to say
        return f"{path}: record {record}"

    def record(self, place: int) -> Sample:
        """Read one record."""
        shard, record, file = self._where(place)
        data, row = self._row(shard, record, file)
        path = self._dataset.files.names[file] if self._content is not None else ""
        folders = self._folders
        told = Told(
            path=path,
            label=None if folders is None else folders.label(path),
            folder="" if folders is None else ClassFolders.folder_of(path),
            class_names=self._names,
            picture=self._roles.get(IMAGE, ""),
            labels=self._roles.get(LABEL, ""),
        )
        return sample_of(self._kind, data, row, told)

    def close(self) -> None:
        """Close the dataset and remove its index. Closing again does nothing."""
        if self._reader is not None:
            self._reader.close()
        self._dataset.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _where(self, place: int) -> tuple[int, int, int]:
        """Return the shard of an item, its record, and its file."""
        if self._places is not None:
            place = int(self._places[place])
        shard = bisect_right(self._firsts, place) - 1
        record = place - self._firsts[shard]
        return shard, record, self._dataset.shards[shard].file_of(record)

    def _row(self, shard: int, record: int, file: int) -> tuple[memoryview, Mapping[str, Any]]:
        """Return the bytes and the columns of a record."""
        held = self._dataset.shards[shard]
        if self._groups is not None:
            start = int(held.starts[record])
            data, note = memoryview(self._groups.read(file, start, int(held.ends[record]) - start)), b""
        else:
            data, note = self._read(shard, record, file)
        return data, self._form.row(data, note) if self._content is None else self._content(data)

    def _read(self, shard: int, record: int, file: int) -> tuple[memoryview, bytes]:
        if self._reader is None:
            raise AssertionError("records are read of a source that is listed")
        try:
            found = self._reader.record(shard, record)
        except DatasetError:
            check_listed(self._dataset.folder_store, file)
            raise
        return found.data, found.note


def _open(path: Path, scratch: Path, options: Mapping[str, str]) -> Dataset:
    only = path.name if path.is_file() else None
    place = path.parent if only is not None else path
    folder = source_folder(place)
    try:
        return open_folder(path.name, folder, scratch, options, only=only)
    except BaseException:
        folder.close()
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _folders(path: Path, dataset: Dataset, *, refuse_mixed: bool) -> list[str]:
    """Return the folders that are classes; none if the files do not lie in one for each class."""
    names = dataset.files.names
    if dataset.contents.label_names:
        return sorted({ClassFolders.folder_of(name) for name in names})
    if refuse_mixed:
        flat, below = (next((name for name in names if ("/" in name) == nested), None) for nested in (False, True))
        if flat is not None and below is not None:
            raise DatasetError(
                f"{path}: arrays must be either in this folder or in its subfolders, not both: {flat} is beside "
                f"{ClassFolders.folder_of(below)}/"
            )
    return []


class UnpackedGroups:
    """The groups of a dataset, each unpacked on the disk when it is first needed. Thread-safe; its owner removes the folder.

    A conversion reads records in any order, and each from its group. Without this every record of a
    large table would unpack a whole group again.
    """

    def __init__(self, dataset: Dataset, groups: FileGroups, folder: Path) -> None:
        """Unpack nothing yet.

        Args:
            dataset: an open one.
            groups: of its files.
            folder: for the unpacked groups; made if it does not exist.
        """
        self._dataset = dataset
        self._groups = groups
        self._maker = GroupMaker(dataset)
        self._folder = folder
        self._lock = Lock()
        self._locks: defaultdict[Group, Lock] = defaultdict(Lock)
        self._unpacked: set[Group] = set()

    def read(self, file: int, start: int, size_bytes: int) -> bytes:
        """Return a record.

        Args:
            file: the number of its file.
            start: where it begins, among the records of the file.
            size_bytes: its length.

        Raises:
            DatasetError: the file cannot be read or has changed, or the disk is full.
        """
        group = self._groups.at(file, start)
        path = self._folder / f"group-{file}-{group.place}"
        with self._lock:
            one_group = self._locks[group]
        with one_group:
            if group not in self._unpacked:
                self._unpack(group, path)
                self._unpacked.add(group)
        record = bytearray(size_bytes)
        try:
            with path.open("rb", buffering=0) as opened:
                got = read_into(opened.fileno(), memoryview(record), start - group.begin, path)
        except OSError as error:
            raise DatasetError(f"{path}: cannot be read: {error.strerror or error}") from error
        if got < size_bytes:
            raise DatasetError(f"{path}: must have at least {start - group.begin + size_bytes} bytes, was shortened")
        return bytes(record)

    def _unpack(self, group: Group, path: Path) -> None:
        if path.exists():
            return  # another process of this conversion unpacked it
        store = self._dataset.folder_store
        check_listed(store, group.file)
        with cast("io.RawIOBase", store.open(group.file)) as file:
            made = self._maker.make(group, file)
        check_listed(store, group.file)  # again: it may have been rewritten meanwhile
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            written = path.with_name(f"{path.name}-{secrets.token_hex(6)}")
            written.write_bytes(made.data)
            written.replace(path)  # another process may look for it
        except OSError as error:
            raise disk_error(path, made.nbytes, error) from error
