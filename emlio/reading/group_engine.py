"""The engine of datasets whose records are made of groups, such as the row groups of tables."""

import io
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from threading import Event, Lock, RLock
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ClosedError, DatasetError
from emlio.formats.registry import group_format
from emlio.index.dataset import Dataset
from emlio.index.groups import Group
from emlio.reading.engine import ReadEngine, Reads
from emlio.reading.gather import Gatherer
from emlio.reading.group_cache import GroupCache, KeptGroup
from emlio.reading.ranges import RangeRead, run_starts
from emlio.store.opened.open_files import patiently
from emlio.units import format_size

__all__ = ["GroupEngine", "GroupMaker"]

_MOST_FILES = 64
"""Files of which what all their groups need, such as a table's footer, is kept."""


class GroupMaker:
    """Makes the groups of a dataset. Thread-safe."""

    def __init__(self, dataset: Dataset) -> None:
        """See the class; the dataset is one of groups."""
        maker = group_format(dataset.contents)
        if maker is None:
            raise AssertionError(f"format {dataset.contents.format} has no groups")
        self._dataset = dataset
        self._format = maker
        self._common: OrderedDict[int, object] = OrderedDict()
        self._lock = Lock()

    def make(self, group: Group, opened: io.RawIOBase) -> npt.NDArray[np.uint8]:
        """Return the bytes of a group's records, one after the other.

        Args:
            group: one of the dataset's groups.
            opened: its file, found unchanged since it was indexed; closed.

        Raises:
            DatasetError: the file cannot be read, or has other records than when it was indexed.
        """
        path, settings = str(self._dataset.files.path(group.file)), self._dataset.contents.settings
        with io.BufferedReader(opened) as file:
            with self._lock:
                common = self._common.get(group.file)
            if common is None:
                common = self._format.common(file, path)
                with self._lock:
                    self._common[group.file] = common
                    while len(self._common) > _MOST_FILES:
                        self._common.popitem(last=False)
            made = self._format.unpack(file, group.place, settings, path, common)
        if len(made) != group.size_bytes:
            raise DatasetError(
                f"{path}: must be as it was when it was indexed, with {group.size_bytes} bytes of records in this group, "
                f"has {len(made)}"
            )
        return made


_LOG = logging.getLogger(__name__)

_AHEAD: Final = 64
"""Messages whose groups are requested ahead: making a group takes as long as sending many messages."""

_COSTLY: Final = 4
"""Groups are made too often if so many times the bytes that are sent are made again."""

_LOOK_AFTER_BYTES: Final = 1 << 30


class GroupEngine(ReadEngine):
    """See `ReadEngine`. Nothing is lent, as groups are made in memory and dropped when others need theirs."""

    def __init__(self, files: ReadEngine, cache: GroupCache | None = None) -> None:
        """See the class.

        Args:
            files: reads the files of groups; closed with this.
            cache: keeps groups, also those of other datasets; None for one of its own.
        """
        super().__init__(files.dataset)
        dataset = self.dataset
        self._owns_cache = cache is None
        self._cache = GroupCache() if cache is None else cache
        self._files = files
        if dataset.groups is None:
            raise AssertionError("a dataset that is read by groups has groups")
        self._groups = dataset.groups
        self._maker = GroupMaker(dataset)
        self._known: dict[int, Group] = {}
        self._made = set[Group]()
        self._again_bytes = self._read_bytes = 0
        self._told = False

    @property
    def disk_bytes(self) -> int:
        """See `ReadEngine`."""
        return self._files.disk_bytes

    def reads(self) -> "GroupReads":
        """See `ReadEngine`."""
        return GroupReads(self)

    def opened(self, number: int) -> AbstractContextManager[io.RawIOBase]:
        """See `ReadEngine`."""
        return self._files.opened(number)

    def check_paths(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """See `ReadEngine`."""
        self._files.check_paths(stopped)

    def check(self, files: npt.NDArray[np.int64], now_ns: int) -> None:
        """See `ReadEngine`."""
        self._files.check(files, now_ns)

    def confirm(self, files: npt.NDArray[np.int64]) -> None:
        """See `ReadEngine`."""
        self._files.confirm(files)

    def groups_of(self, read: RangeRead) -> list[Group]:
        """Return the groups of a read's records."""
        return [self._group(number) for number in np.unique(self._numbers(read)).tolist()]

    def parts(self, read: RangeRead) -> Iterator[tuple[Group, list[tuple[int, int]]]]:
        """Yield the groups of a read's records, each with the first and the end of runs of its records."""
        numbers = self._numbers(read)
        joined = np.ones(read.count, np.bool_)
        joined[run_starts(read.file, read.starts, read.sizes)] = False
        # A run may go on into the next group of the file.
        joined[1:] &= numbers[1:] == numbers[:-1]
        firsts: list[int] = np.flatnonzero(~joined).tolist()
        found: dict[int, list[tuple[int, int]]] = {}
        for begin, end in zip(firsts, [*firsts[1:], read.count], strict=True):
            found.setdefault(int(numbers[begin]), []).append((begin, end))
        for number, runs in found.items():
            yield self._group(number), runs

    def _numbers(self, read: RangeRead) -> npt.NDArray[np.int64]:
        return self._groups.numbers(read.file, read.starts)

    def _group(self, number: int) -> Group:
        group = self._known.get(number)
        if group is None:
            group = self._known[number] = self._groups.group(number)
        return group

    def ahead(self, group: Group) -> KeptGroup | None:
        """Let a group be made that is needed soon; None if there is no room for that now."""
        return self._cache.ahead((self, group), group.size_bytes, partial(self._make, group))

    def use(self, group: Group) -> KeptGroup:
        """Return a group that is needed now, and is read until `done`."""
        return self._cache.use((self, group), group.size_bytes, partial(self._make, group))

    def done(self, group: KeptGroup) -> None:
        """Read a group no longer."""
        self._cache.done(group)

    def give_back(self, group: KeptGroup) -> None:
        """Use a group that was made ahead no longer."""
        self._cache.give_back(group)

    def _make(self, group: Group) -> npt.NDArray[np.uint8]:
        with self._files.opened(group.file) as file:
            made = self._maker.make(group, file)
        if group in self._made:
            self._again_bytes += group.size_bytes
        self._made.add(group)
        return made

    def count(self, size_bytes: int) -> None:
        """Note that so many bytes of records were read; say once if groups are made too often for that."""
        self._read_bytes += size_bytes
        if self._told or self._again_bytes < max(_LOOK_AFTER_BYTES, _COSTLY * self._read_bytes):
            return
        self._told = True
        _LOG.warning(
            "dataset %s: for %s of records, %s were unpacked again, since records are read in an order that comes back "
            "to each group of rows many times, and at most %s of groups are kept. Shuffle in blocks "
            '(shuffle="block:RECORDS:BLOCKS", with BLOCKS groups in that memory), raise --group-memory, or write '
            "smaller row groups",
            self.dataset.name,
            format_size(self._read_bytes),
            format_size(self._again_bytes),
            format_size(self._cache.most_bytes),
        )

    def close(self) -> None:
        """See `ReadEngine`."""
        self._cache.forget(lambda key: isinstance(key, tuple) and key[0] is self)
        if self._owns_cache:
            self._cache.close()
        self._files.close()


class GroupReads(Reads):
    """See `Reads`."""

    def __init__(self, engine: GroupEngine) -> None:
        self._engine = engine
        self._requested: dict[int, list[KeptGroup]] = {}
        self._stopped = Event()
        # Reentrant: the garbage collector may drop a stream, which closes this, while it is held.
        self._lock = RLock()

    def wants(self, planned: Sequence[RangeRead], gatherer: Gatherer) -> bool:
        """See `Reads`."""
        return len(planned) <= _AHEAD

    def submit(self, read: RangeRead, gatherer: Gatherer) -> bool:
        """See `Reads`."""
        groups: list[KeptGroup] = []
        with self._lock:
            if self._stopped.is_set():
                return False
            for group in self._engine.groups_of(read):
                kept = self._engine.ahead(group)
                if kept is None:
                    for one in groups:
                        self._engine.give_back(one)
                    return False
                groups.append(kept)
            self._requested[id(read)] = groups
        return True

    def complete(self, read: RangeRead, gatherer: Gatherer, out: npt.NDArray[np.uint8], now_ns: int) -> None:
        """See `Reads`."""
        with self._lock:
            if self._stopped.is_set():
                raise ClosedError("the stream is closed")
            requested = self._requested.pop(id(read), [])
        try:
            patiently(partial(self._complete, read, out, now_ns), self._stopped.wait)
        finally:
            for kept in requested:
                self._engine.give_back(kept)
        self._engine.count(read.size_bytes)

    def _complete(self, read: RangeRead, out: npt.NDArray[np.uint8], now_ns: int) -> None:
        self._engine.check(read.file, now_ns)
        filled = np.concatenate(([0], np.cumsum(read.sizes))).tolist()
        for group, runs in self._engine.parts(read):
            kept = self._engine.use(group)
            try:
                made = kept.made.result()
                for begin, end in runs:
                    first = int(read.starts[begin]) - group.begin
                    out[filled[begin] : filled[end]] = made[first : first + filled[end] - filled[begin]]
                del made  # it would keep the group in memory while this thread waits for room for the next
            finally:
                self._engine.done(kept)
                del kept

    def close(self) -> None:
        """See `Reads`."""
        with self._lock:
            if self._stopped.is_set():
                return
            self._stopped.set()
            dropped, self._requested = self._requested, {}
        for groups in dropped.values():
            for kept in groups:
                self._engine.give_back(kept)
