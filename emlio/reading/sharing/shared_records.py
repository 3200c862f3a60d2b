"""Records that several jobs share: one read serves all who need it soon.

The jobs' plans tell when each record is needed next, so the memory keeps what is needed first
(emlio.reading.sharing.foresight). A record that is kept lies in pages of one large memory, into which it is
copied once. A record that another stream has asked the disk for holds no stream up: the one
that needs it first fetches it.

No stream waits for another one's rank, and nothing is kept for a rank that stands still.
"""

import ctypes
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from threading import Lock, RLock
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from emlio import native
from emlio.clock import Clock, SystemClock
from emlio.index.dataset import Dataset
from emlio.planner.future import Future, expected_hits
from emlio.reading.engine import Reads
from emlio.reading.message_planner import StreamFuture
from emlio.reading.ranges import RangeRead
from emlio.reading.sharing.foresight import Foresight, Needs
from emlio.reading.sharing.pauses import Pauses
from emlio.reading.yielding_lock import YieldingLock
from emlio.units import format_duration

__all__ = ["Copies", "Fetch", "Kept", "Member", "SharedMemory", "SharedRecords"]

_LOG = logging.getLogger("emlio.reading")

_Ints = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]

_LEAST_JOBS: Final = 2
_LEAST_HITS: Final = 0.125
"""One job would find in memory only what was there when its epoch began. Several jobs are served by a memory from which
at least this part of all reads is expected to come: each record costs a copy more."""

_PAGES_EACH: Final = 8
_LEAST_PAGE: Final = 256
_MOST_PAGE: Final = 64 << 10
"""A record of usual size has so many pages: half a page is lost of each record."""

_PAGE_OVERHEAD: Final = 40
_RECORD_OVERHEAD: Final = 12
"""Memory of the tables."""

_REST: Final = 50
"""Asking all jobs about all records again takes at most one part in so many of a processor's time."""


class SharedMemory:
    """The memory of all datasets whose records are shared, in equal parts. Thread-safe.

    Attributes:
        most_bytes: the limit.
        held_bytes: what all of them hold.
        on_change: called, by any thread, when more or less is held.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.held_bytes = 0
        self.on_change: Callable[[], None] = lambda: None
        self._held: dict[object, int] = {}
        # Reentrant: the garbage collector may drop the last stream that shares, while it is held.
        self._lock = RLock()

    def share_bytes(self, user: object) -> int:
        """Return the part of a user, one of those now or one more."""
        with self._lock:
            return self.most_bytes // len({*self._held, user})

    def take(self, user: object) -> bool:
        """Count a user, and its part of the memory as held; return False if others must come down to theirs first."""
        with self._lock:
            self._held[user] = 0
            share = self.most_bytes // len(self._held)
            fits = sum(self._held.values()) + share <= self.most_bytes
            self._held[user] = share if fits else 0
            self.held_bytes = sum(self._held.values())
        self.on_change()
        return fits

    def rest(self, user: object) -> None:
        """Count nothing for a user, and keep its part for it: those of others do not change."""
        with self._lock:
            self._held[user] = 0
            self.held_bytes = sum(self._held.values())
        self.on_change()

    def give_back(self, user: object) -> None:
        """Count a user no longer."""
        with self._lock:
            known = self._held.pop(user, None) is not None
            self.held_bytes = sum(self._held.values())
        if known:
            self.on_change()


class Copies:
    """Pieces of memory to be copied to places of one buffer, in one call."""

    def __init__(self) -> None:
        self._columns: list[tuple[_Ints, _Ints, _Ints, _Ints, _Ints]] = []
        self._sources: list[_Bytes] = []

    def add(self, source: _Bytes, starts: _Ints, sizes: _Ints, places: _Ints) -> None:
        """Copy ranges of a source."""
        self._sources.append(source)
        whole = np.full(len(starts), source.ctypes.data), np.full(len(starts), source.nbytes)
        self._columns.append((*whole, starts, sizes, places))

    def carry_out(self, out: _Bytes) -> None:
        """Copy."""
        if not self._columns:
            return
        columns = [np.concatenate(each) for each in zip(*self._columns, strict=True)]
        bases, lengths, starts, sizes, places = columns
        if native.gather(bases, lengths, starts, sizes, places, out) == len(bases):
            return
        for source, size, place in zip((bases + starts).tolist(), sizes.tolist(), places.tolist(), strict=True):
            ctypes.memmove(out.ctypes.data + place, source, size)


class Fetch(msgspec.Struct, kw_only=True, eq=False):
    """A read that a stream has submitted. Who needs it first completes it, and keeps what is needed soon.

    Attributes:
        reads: where it was submitted.
        read: the records.
        numbers: of these.
        places: which they are of the message's.
        lock: held while it is completed.
        taken: whether it was.
        number: names it.
    """

    reads: Reads
    read: RangeRead
    numbers: _Ints
    places: npt.NDArray[np.bool_]
    lock: Lock = msgspec.field(default_factory=Lock)
    taken: bool = False
    number: int = msgspec.field(default_factory=count(1).__next__)


class Kept(msgspec.Struct, kw_only=True, eq=False):
    """The memory of one dataset, and what lies in it.

    Attributes:
        foresight: the records that it keeps.
        page_bytes: the size of a page.
        memory: the pages; none once it is kept no longer.
        asked: (records,) the number of the fetch that brings each record, or -1.
        fetches: those under way, by number.
    """

    foresight: Foresight
    page_bytes: int
    memory: _Bytes
    asked: npt.NDArray[np.int64]
    fetches: "dict[int, Fetch]" = msgspec.field(default_factory=dict[int, "Fetch"])

    def pieces(self, entries: _Ints, sizes: _Ints) -> tuple[_Ints, _Ints, _Ints]:
        """Return where the parts of kept records lie in the memory, their lengths, and their places in the records.

        The place is counted as if the records followed each other.
        """
        counts, pages = self.foresight.kept.pages_of(entries)
        first = np.cumsum(counts) - counts
        step = (np.arange(len(pages)) - np.repeat(first, counts)) * self.page_bytes
        lengths = np.minimum(np.repeat(sizes, counts) - step, self.page_bytes)
        return pages * self.page_bytes, lengths, step + np.repeat(np.cumsum(sizes) - sizes, counts)

    def ask(self, fetch: Fetch) -> None:
        """Note that a fetch brings records."""
        self.fetches[fetch.number] = fetch
        self.asked[fetch.numbers] = fetch.number

    def forget(self, fetch: Fetch) -> None:
        """Note that it brings them no longer."""
        if self.fetches.pop(fetch.number, None) is not None:
            self.asked[fetch.numbers[self.asked[fetch.numbers] == fetch.number]] = -1

    def pages_needed(self, sizes: _Ints) -> _Ints:
        """Return the number of pages of records of these sizes."""
        return np.maximum(-(-sizes // self.page_bytes), 1)


class Member(msgspec.Struct, kw_only=True, eq=False):
    """One stream that shares.

    Attributes:
        needs: its job.
        rank: its rank.
    """

    needs: Needs
    rank: int


@dataclass(slots=True, kw_only=True, eq=False)
class SharedRecords:
    """The records that the streams of one dataset generation share. Thread-safe.

    Attributes:
        dataset: the dataset.
        memory: limits the memory, with other datasets.
        waited_ns: returns the time for which threads have waited for the disk, since it was opened.
        hit_bytes: bytes of records that came from memory, so far.
        lock: is held while what is kept is used.
    """

    dataset: Dataset
    memory: SharedMemory
    waited_ns: Callable[[], int]
    hit_bytes: int = 0
    _bases: _Ints = field(init=False)
    _jobs: list[Needs] = field(default_factory=list[Needs], init=False)
    _kept: Kept | None = field(default=None, init=False)
    _judged_bytes: int = field(default=-1, init=False)  # the part of the memory for which that was decided
    lock: YieldingLock = field(default_factory=YieldingLock, init=False)
    _rests_until_ns: int = field(default=0, init=False)
    _clock: Clock = field(default_factory=SystemClock, init=False)
    _pauses: Pauses = field(default_factory=Pauses, init=False)
    _paused: bool = field(default=False, init=False)  # the last time that was asked

    def __post_init__(self) -> None:
        self._bases = np.cumsum([0, *(shard.records for shard in self.dataset.shards)], dtype=np.int64)

    def numbers(self, shard: _Ints, record: _Ints) -> _Ints:
        """Return the numbers of records, counted through all shards."""
        return self._bases[shard] + record

    def join(self, stream: StreamFuture, clock: Clock) -> Member | None:
        """Let a stream take part; None if its plan does not tell when it needs a record."""
        future = Future(stream.plan)
        if not future.is_told:
            return None
        needs = Needs.of(future, self._bases, stream.local, stream.owned)
        at = stream.position
        with self.lock:
            self._clock = clock
            for job in self._jobs:
                if job.is_like(needs) and not job.future.has(stream.rank):
                    needs = job
                    break
            else:
                self._jobs.append(needs)
            needs.future.begin(stream.rank, at.epoch, at.origin, at.slot, at.end, clock.monotonic_ns())
            self._adapt()
        return Member(needs=needs, rank=stream.rank)

    def leave(self, member: Member) -> None:
        """Let a stream take part no longer; with the lock."""
        member.needs.future.leave(member.rank)
        if not len(member.needs.future) and member.needs in self._jobs:
            self._jobs.remove(member.needs)
            self._adapt()

    @property
    def kept(self) -> Kept | None:
        """The memory, as large as this dataset's part of it is now; None if nothing is shared."""
        if len(self._jobs) >= _LEAST_JOBS and (
            self._paused != self._pauses.is_on(self._clock.monotonic_ns())
            or self._judged_bytes != self.memory.share_bytes(self)
        ):
            with self.lock:
                self._adapt()
        return self._kept

    def spent(self, work_ns: int) -> None:
        """Note the processor time of a message, and pause if sharing costs more than the disk; with the lock."""
        if self._kept is None:
            return
        kept = self._kept.foresight.kept
        pause_ns = self._pauses.spent(
            work_ns, self.waited_ns, self._clock.monotonic_ns(), free=kept.free, pages=kept.pages
        )
        if pause_ns:
            _LOG.info(
                "dataset %r: the disk is faster than sharing records between jobs, which pauses for %s",
                self.dataset.name,
                format_duration(pause_ns),
            )
            self._adapt()

    def admit(
        self, kept: Kept, numbers: _Ints, sizes: _Ints, source: _Bytes, due: npt.NDArray[np.float64], now_ns: int
    ) -> None:
        """Keep those of some records that are needed soon; with the lock.

        Args:
            kept: the memory.
            numbers: (n,) the records.
            sizes: (n,) their sizes.
            source: has their bytes, one after the other.
            due: (n,) when each is needed next.
            now_ns: the time.
        """
        if kept is not self._kept:
            return  # it began anew meanwhile
        starts = np.cumsum(sizes) - sizes
        _, once = np.unique(numbers, return_index=True)
        once = once[kept.foresight.kept.find(numbers[once]) < 0]
        numbers, sizes, starts, due = numbers[once], sizes[once], starts[once], due[once]
        begun_ns = time.monotonic_ns()
        anew = begun_ns >= self._rests_until_ns
        counts = kept.pages_needed(sizes)
        kept.foresight.order(counts, now_ns, anew=anew)
        if anew:
            ended_ns = time.monotonic_ns()
            self._rests_until_ns = ended_ns + _REST * (ended_ns - begun_ns)
        entries = kept.foresight.kept.admit(numbers, counts, due)
        some = entries >= 0
        places, lengths, within = kept.pieces(entries[some], sizes[some])
        # `within` counts as if the records followed each other: from there to where they begin in the source.
        dense = np.cumsum(sizes[some]) - sizes[some]
        copies = Copies()
        copies.add(source, within + np.repeat(starts[some] - dense, counts[some]), lengths, places)
        copies.carry_out(kept.memory)

    def _adapt(self) -> None:
        """Begin or end to keep records, or begin anew with more or less memory."""
        share = self.memory.share_bytes(self)
        records, size_bytes = int(self._bases[-1]), max(self.dataset.size_bytes, 1)
        tables = records * _RECORD_OVERHEAD
        if not self._jobs:  # those that come may be other ones
            self._pauses.forget()
        self._paused = self._pauses.is_on(self._clock.monotonic_ns())
        able = len(self._jobs) >= _LEAST_JOBS and not self._paused
        hits = expected_hits((share - tables) / size_bytes, len(self._jobs)) if able else 0
        if hits < _LEAST_HITS:
            self._end(share)
            if self._paused and len(self._jobs) >= _LEAST_JOBS:
                self.memory.rest(self)
            else:
                self.memory.give_back(self)
            return
        if self._kept is not None and self._judged_bytes == share:
            return
        self._end(-1)
        if not self.memory.take(self):
            return
        self._judged_bytes = self.memory.share_bytes(self)
        self._pauses.begin_anew()
        mean = size_bytes // max(records, 1) // _PAGES_EACH
        page_bytes = min(max(1 << max(mean.bit_length() - 1, 0), _LEAST_PAGE), _MOST_PAGE)
        pages = (self._judged_bytes - tables) // (page_bytes + _PAGE_OVERHEAD)
        try:
            self._kept = Kept(
                foresight=Foresight(records, pages, self._jobs),
                page_bytes=page_bytes,
                memory=np.empty(pages * page_bytes, np.uint8),
                asked=np.full(records, -1, np.int64),
            )
        except MemoryError as error:
            self.memory.rest(self)
            _LOG.warning("dataset %r: jobs do not share records: %s", self.dataset.name, error)

    def _end(self, judged_bytes: int) -> None:
        if self._kept is not None:  # a stream that stands still may hold it, but not its memory
            self._kept.memory = np.empty(0, np.uint8)
        self._kept, self._judged_bytes = None, judged_bytes

    def close(self) -> None:
        """Keep nothing more."""
        with self.lock:
            self._jobs.clear()
            self._adapt()
