"""Reading messages of a dataset whose records are made of groups, such as the row groups of tables.

Covers: which groups a message needs, making them ahead, putting records in place, what reading in a
bad order costs. Does not cover: groups that are kept (emlio.reading.group_cache), making one
(emlio.shards.group_records), files that changed (emlio.reading.files).
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Event, RLock
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ClosedError
from emlio.reading.bucket_source import BucketSource
from emlio.reading.files import OpenShards
from emlio.reading.gather import Gatherer, run_starts
from emlio.reading.group_cache import GroupCache, KeptGroup
from emlio.reading.message_planner import MessagePlan
from emlio.reading.patience import patiently
from emlio.reading.slices import Borrower
from emlio.shards.dataset import Dataset
from emlio.shards.group_records import GroupMaker, on_descriptor
from emlio.shards.ranges.groups import Group
from emlio.units import format_size

__all__ = ["GroupSource"]

_LOG = logging.getLogger(__name__)

_AHEAD: Final = 64
"""Messages whose groups are requested ahead: making a group takes as long as sending many messages."""

_COSTLY: Final = 4
"""Groups are made too often if so many times the bytes that are sent are made again."""

_LOOK_AFTER_BYTES: Final = 1 << 30


class GroupSource:
    """One dataset's files; see `Source`."""

    def __init__(self, dataset: Dataset, cache: GroupCache | None, place: OpenShards | BucketSource) -> None:
        """See the class.

        Args:
            dataset: the dataset.
            cache: keeps groups, also those of other datasets; None for one of its own.
            place: the dataset's files, closed with this.
        """
        self.dataset = dataset
        self.on_stuck: Callable[[Path, Collection[Borrower]], None] = _ignore
        self._owns_cache = cache is None
        self._cache = GroupCache() if cache is None else cache
        self._place = place
        if dataset.groups is None:
            raise AssertionError("a dataset that is read by groups has groups")
        self._groups = dataset.groups
        self._maker = GroupMaker(dataset)
        self._known: dict[int, Group] = {}
        self._made = set[Group]()
        self._again_bytes = self._read_bytes = 0
        self._told = False

    def read_ahead(self) -> "GroupReadAhead":
        """See `Source`."""
        return GroupReadAhead(self)

    def check_paths(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """See `Source`."""
        self._place.check_paths(stopped)

    def check(self, files: npt.NDArray[np.int64], now_ns: int) -> None:
        """Raise `DatasetError` if a file is not the one that was indexed; objects are compared when read."""
        if isinstance(self._place, OpenShards):
            self._place.check(files, now_ns)

    def confirm(self, files: npt.NDArray[np.int64]) -> None:
        """Check once more, just now."""
        if isinstance(self._place, OpenShards):
            self._place.confirm(files)

    def groups_of(self, message: MessagePlan) -> list[Group]:
        """Return the groups of a message's records."""
        return [self._group(number) for number in np.unique(self._numbers(message)).tolist()]

    def parts(self, message: MessagePlan) -> Iterator[tuple[Group, list[tuple[int, int]]]]:
        """Yield the groups of a message's records, each with the first and the end of runs of its records."""
        numbers = self._numbers(message)
        joined = np.ones(message.count, np.bool_)
        joined[run_starts(message.file, message.starts, message.sizes)] = False
        # A run may go on into the next group of the file.
        joined[1:] &= numbers[1:] == numbers[:-1]
        firsts: list[int] = np.flatnonzero(~joined).tolist()
        found: dict[int, list[tuple[int, int]]] = {}
        for begin, end in zip(firsts, [*firsts[1:], message.count], strict=True):
            found.setdefault(int(numbers[begin]), []).append((begin, end))
        for number, runs in found.items():
            yield self._group(number), runs

    def _numbers(self, message: MessagePlan) -> npt.NDArray[np.int64]:
        return self._groups.numbers(message.file, message.starts)

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
        if isinstance(self._place, OpenShards):
            with self._place.open(group.file) as descriptor:
                made = self._maker.make(group, on_descriptor(descriptor))
            self.confirm(np.array([group.file], np.int64))
        else:
            made = self._maker.make(group, self._place.opened(group.file))
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

    def idle(self) -> bool:
        """See `Source`. Nothing is lent."""
        return True

    def close(self) -> None:
        """See `Source`."""
        self._cache.forget(lambda key: isinstance(key, tuple) and key[0] is self)
        if self._owns_cache:
            self._cache.close()
        self._place.close()


class GroupReadAhead:
    """See `ReadAhead`."""

    def __init__(self, source: GroupSource) -> None:
        self._source = source
        self._requested: dict[int, list[KeptGroup]] = {}
        self._stopped = Event()
        # Reentrant: the garbage collector may drop a stream, which closes this, while it is held.
        self._lock = RLock()

    def wants(self, planned: Sequence[MessagePlan], gatherer: Gatherer) -> bool:
        """See `ReadAhead`."""
        return len(planned) <= _AHEAD

    def request(self, message: MessagePlan, gatherer: Gatherer) -> bool:
        """See `ReadAhead`."""
        groups: list[KeptGroup] = []
        with self._lock:
            if self._stopped.is_set():
                return False
            for group in self._source.groups_of(message):
                kept = self._source.ahead(group)
                if kept is None:
                    for one in groups:
                        self._source.give_back(one)
                    return False
                groups.append(kept)
            self._requested[id(message)] = groups
        return True

    def borrow(
        self, message: MessagePlan, gatherer: Gatherer, borrower: Borrower, now_ns: int
    ) -> npt.NDArray[np.uint8] | None:
        """See `ReadAhead`. Groups are dropped when others need their memory, so none is lent."""
        return None

    def read(self, message: MessagePlan, gatherer: Gatherer, out: npt.NDArray[np.uint8], now_ns: int) -> None:
        """See `ReadAhead`."""
        with self._lock:
            if self._stopped.is_set():
                raise ClosedError("the stream is closed")
            requested = self._requested.pop(id(message), [])
        try:
            patiently(partial(self._read, message, out, now_ns), self._stopped.wait)
        finally:
            for kept in requested:
                self._source.give_back(kept)
        self._source.count(message.size_bytes)

    def _read(self, message: MessagePlan, out: npt.NDArray[np.uint8], now_ns: int) -> None:
        self._source.check(message.file, now_ns)
        filled = np.concatenate(([0], np.cumsum(message.sizes))).tolist()
        for group, runs in self._source.parts(message):
            kept = self._source.use(group)
            try:
                made = kept.made.result()
                for begin, end in runs:
                    first = int(message.starts[begin]) - group.begin
                    out[filled[begin] : filled[end]] = made[first : first + filled[end] - filled[begin]]
                del made  # it would keep the group in memory while this thread waits for room for the next
            finally:
                self._source.done(kept)
                del kept

    def confirm(self, message: MessagePlan) -> None:
        """See `ReadAhead`."""
        self._source.confirm(message.file)

    def close(self) -> None:
        """See `ReadAhead`."""
        with self._lock:
            if self._stopped.is_set():
                return
            self._stopped.set()
            dropped, self._requested = self._requested, {}
        for groups in dropped.values():
            for kept in groups:
                self._source.give_back(kept)


def _ignore(path: Path, borrowers: Collection[Borrower]) -> None:
    """Do nothing: nothing is lent."""
