"""The files below the folders of datasets: their trees, and ranges of them.

A folder is walked when the first rank asks, once for each generation: the tree stays as it was then.
"""

import logging
from collections.abc import Callable
from functools import partial
from threading import Lock

import numpy as np

from emlio.daemon.control.questions.work import InPlace, Place, Work
from emlio.daemon.datasets.served import ServedDataset
from emlio.errors import DatasetError, EmlioError
from emlio.native import joined_checksum
from emlio.reading.tree_reader import TreeReader
from emlio.session.questions import RANGE, SHORT_ANSWER_BYTES, answer_bytes
from emlio.session.trees import cut_tree
from emlio.store.folder_store import FolderStore
from emlio.store.tree_walk import walk_tree
from emlio.units import counted
from emlio.wire.control import room_before
from emlio.wire.limits import MAX_REASON, MAX_TREE_ENTRIES, RANGE_BYTES_PER_REPLY
from emlio.wire.questions import (
    FILE_CHANGED,
    NO_TREE,
    OTHER_TREE,
    Absent,
    AskRanges,
    AskTree,
    Ranges,
    Told,
)

__all__ = ["FolderTrees"]

_LOG = logging.getLogger("emlio.daemon")

_MOST_READING = 4
_MOST_EACH = 2
"""Threads that read files of one dataset, and of them for one client: those of a disk that is slow to answer it are left."""

_RECORDS_ONLY = "the files of datasets cannot be listed: the daemon was started with --records-only"


class FolderTrees:
    """The trees of datasets' folders. Any thread may use it."""

    def __init__(self, *, records_only: bool) -> None:
        """Show the folders, or none where clients may read records only."""
        self._records_only = records_only
        self._lock = Lock()
        self._walking: dict[str, Lock] = {}
        self._readers: dict[str, TreeReader] = {}
        self._closed = False

    def find(self, served: ServedDataset, about: AskTree | AskRanges) -> Work:
        """Return how a question about a dataset's folder is answered."""
        why = _RECORDS_ONLY if self._records_only else _why_none(served)
        if why:
            return Work(make=partial(Absent, code=NO_TREE, text=why))
        if isinstance(about, AskTree):
            place = Place(subject="tree", dataset=served.key)
            return Work(make=partial(_told, served, partial(self._part, served, about)), place=place)
        short = answer_bytes(about) <= SHORT_ANSWER_BYTES
        place = Place(subject="files", dataset=served.key, short=short, threads=_MOST_READING, each=_MOST_EACH)
        return Work(make=partial(_told, served, partial(self._ranges, served, about)), place=place)

    def forget(self, served: ServedDataset) -> None:
        """Drop the tree of a dataset that is closed."""
        with self._lock:
            reader = self._readers.pop(served.key, None)
            self._walking.pop(served.key, None)
        if reader is not None:
            reader.close()

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            self._closed = True
            readers = list(self._readers.values())
            self._readers.clear()
        for reader in readers:
            reader.close()

    def _part(self, served: ServedDataset, about: AskTree) -> Told:
        tree = self._reader(served).tree
        if about.tree and about.tree != tree.digest:
            return _other(served)
        if about.first >= len(tree):
            return Absent(code=NO_TREE, text=f"an entry must be in [0, {len(tree)}), got {about.first}")
        return cut_tree(tree, about.first)

    def _ranges(self, served: ServedDataset, about: AskRanges) -> Told | InPlace:
        reader = self._reader(served)
        tree = reader.tree
        if about.tree != tree.digest:
            return _other(served)
        asked = np.frombuffer(about.ranges, RANGE)
        files, lengths = (asked[name].astype(np.int64) for name in ("file", "length"))
        known = files < len(tree)
        sizes = np.where(known, tree.sizes[np.where(known, files, 0)], 0)
        left = sizes - np.minimum(asked["offset"], np.uint64(1) << np.uint64(62)).astype(np.int64)
        good = known & tree.are_files(np.where(known, files, 0)) & (lengths <= left)
        count = len(good) if good.all() else int(np.argmin(good))
        if not count:
            return Absent(
                code=FILE_CHANGED,
                text=f"a range must lie in a file of the tree of {served.name}, got {int(lengths[0])} bytes from byte "
                f"{int(asked['offset'][0])} of entry {int(files[0])}",
            )
        starts = asked["offset"][:count].astype(np.int64)
        room = room_before(count)
        found = reader.read(files[:count], starts, lengths[:count], RANGE_BYTES_PER_REPLY, room_bytes=room)
        return InPlace(
            told=Ranges(crcs=found.crcs.astype("<u4").tobytes(), payload=memoryview(b"")),
            memory=found.memory,
            first=room,
            crc=joined_checksum(found.crcs, found.sizes),
        )

    def _reader(self, served: ServedDataset) -> TreeReader:
        """Return what reads a dataset's folder; walk it if that was not done."""
        with self._lock:
            walking = self._walking.setdefault(served.key, Lock())
        with walking:
            with self._lock:
                reader = self._readers.get(served.key)
            if reader is None:
                reader = _walk(served)
                with self._lock:
                    if self._closed:
                        reader.close()
                    self._readers[served.key] = reader
            return reader


def _why_none(served: ServedDataset) -> str:
    """Return why a dataset's folder is not shown; "" if it is."""
    dataset = served.dataset
    if not isinstance(dataset.files, FolderStore):
        return f"the files of {served.name} cannot be listed: it lies in a bucket"
    if dataset.chosen:
        return (
            f"the files of {served.name} cannot be listed: it is a choice of the files in its folder. Serve the folder "
            "without files= and split="
        )
    return ""


def _walk(served: ServedDataset) -> TreeReader:
    walked = walk_tree(served.dataset.folder_store.folder, MAX_TREE_ENTRIES)
    _LOG.info("dataset %s: its folder has %s", served.name, counted(len(walked.tree) - 1, "entry", "entries"))
    whats = ("links that lead out of it", "entries that are no file, folder or link", "folders that cannot be read")
    left_out = [f"{count:,} {what}" for count, what in zip(walked.left_out, whats, strict=True) if count]
    if left_out:
        _LOG.warning("dataset %s: not shown of its folder: %s", served.name, ", ".join(left_out))
    if walked.tree.links_out():  # a link or its target was replaced between two looks
        walked.store.close()
        raise DatasetError(f"the folder of {served.name} changed while it was listed", passing=True)
    return TreeReader(walked)


def _told(served: ServedDataset, make: Callable[[], Told | InPlace]) -> Told | InPlace:
    """Return the answer, or why there is none."""
    try:
        return make()
    except DatasetError as error:
        return Absent(code="no-session" if error.passing else FILE_CHANGED, text=str(error)[:MAX_REASON])
    except EmlioError as error:
        return Absent(code="internal", text=str(error)[:MAX_REASON])
    except Exception as error:  # noqa: BLE001  # the client must get an answer
        _LOG.exception("reading files of %s failed", served.name)
        return Absent(code="internal", text=f"internal error while reading: {error!r}"[:MAX_REASON])


def _other(served: ServedDataset) -> Absent:
    return Absent(code=OTHER_TREE, text=f"the folder of {served.name} has changed since its files were listed")
