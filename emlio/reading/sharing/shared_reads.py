"""The reads of one stream that shares records with the streams of other jobs.

What is kept is copied from memory. The rest is read as without sharing: submitted ahead, and
completed when the message's turn comes, or when another stream needs it.
"""

import time
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.clock import Clock
from emlio.errors import EmlioError
from emlio.planner.future import NEVER
from emlio.reading.buffers import BufferPool
from emlio.reading.engine import Reads
from emlio.reading.gather import Gatherer
from emlio.reading.message_planner import MessagePlan, StreamFuture
from emlio.reading.ranges import RangeRead
from emlio.reading.sharing.shared_records import Copies, Fetch, Kept, Member, SharedRecords
from emlio.store.opened.slices import Borrower

__all__ = ["SharedReads"]

_Ints = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]


class _Message(msgspec.Struct, kw_only=True, eq=False):
    """A message that is put together.

    Attributes:
        numbers: of its records.
        sizes: of each.
        places: where each begins in the message.
        missing: which records there are no bytes of yet.
        copies: what fills it.
        held: entries that are held until it is filled, with their places among the records.
    """

    numbers: _Ints
    sizes: _Ints
    places: _Ints
    missing: npt.NDArray[np.bool_]
    copies: Copies
    held: list[tuple[_Ints, _Ints]] = msgspec.field(default_factory=list[tuple[_Ints, _Ints]])

    def use_kept(self, kept: Kept) -> int:
        """Take what is kept, and hold it; return the bytes. With the lock."""
        if not kept.memory.nbytes:
            return 0  # it is kept no longer
        left = np.flatnonzero(self.missing)
        entries = kept.foresight.kept.find(self.numbers[left])
        there = left[entries >= 0]
        if not there.size:
            return 0
        entries = entries[entries >= 0]
        kept.foresight.kept.hold(entries)
        self.held.append((entries, there))
        sizes = self.sizes[there]
        at, lengths, within = kept.pieces(entries, sizes)
        dense = np.cumsum(sizes) - sizes
        self.copies.add(
            kept.memory, at, lengths, within + np.repeat(self.places[there] - dense, kept.pages_needed(sizes))
        )
        self.missing[there] = False
        return int(sizes.sum())

    def use_read(self, numbers: _Ints, sizes: _Ints, source: _Bytes) -> None:
        """Take what was read: records one after the other."""
        order = np.argsort(numbers, kind="stable")
        left = np.flatnonzero(self.missing)
        found = order[np.minimum(np.searchsorted(numbers[order], self.numbers[left]), len(order) - 1)]
        mine = numbers[found] == self.numbers[left]
        found, left = found[mine], left[mine]
        if left.size:
            starts = np.cumsum(sizes) - sizes
            self.copies.add(source, starts[found], sizes[found], self.places[left])
            self.missing[left] = False


class SharedReads(Reads):
    """See `Reads`. As long as there is nothing to share, it is the same as without it."""

    def __init__(self, reads: Reads, shared: SharedRecords, pool: BufferPool) -> None:
        """See the class.

        Args:
            reads: read what is not kept. Several threads may complete different reads of it. Closed with this.
            shared: what is shared.
            pool: the source of memory for what is read.
        """
        self._reads = reads
        self._shared = shared
        self._pool = pool
        self._member: Member | None = None
        self._fetches: dict[int, tuple[Kept, Fetch]] = {}
        self._alone: set[int] = set()  # reads that were submitted as they are
        self._closed = False

    def foresee(self, stream: StreamFuture, clock: Clock) -> None:
        """See `Reads`."""
        self._reads.foresee(stream, clock)
        self._member = self._shared.join(stream, clock)

    def wants(self, planned: Sequence[RangeRead], gatherer: Gatherer) -> bool:
        """See `Reads`."""
        return self._reads.wants(planned, gatherer)

    def submit(self, read: RangeRead, gatherer: Gatherer) -> bool:
        """See `Reads`."""
        kept = self._sharing(read)
        if kept is None:
            submitted = self._reads.submit(read, gatherer)
            if submitted:
                self._alone.add(id(read))
            return submitted
        numbers = self._shared.numbers(read.shard, read.record)
        with self._shared.lock:
            missing = (kept.foresight.kept.find(numbers) < 0) & (kept.asked[numbers] < 0)
        if not missing.any():
            return True
        part, numbers = _part(read, missing), numbers[missing]
        if not self._reads.submit(part, gatherer):
            return False
        fetch = Fetch(reads=self._reads, read=part, numbers=numbers, places=missing)
        with self._shared.lock:
            if not self._closed:
                kept.ask(fetch)
                self._fetches[id(read)] = kept, fetch
        return True

    def _sharing(self, read: RangeRead) -> Kept | None:
        if self._member is not None and self._reads.keeps(read):
            if not self._fetches:
                self._shared.lock.later(self._leave)  # reading windows is cheaper than sharing records one by one
            return None
        return self._shared.kept if self._member is not None and isinstance(read, MessagePlan) else None

    def borrow(
        self, read: RangeRead, gatherer: Gatherer, borrower: Borrower, now_ns: int
    ) -> npt.NDArray[np.uint8] | None:
        """See `Reads`. What is shared is copied."""
        if id(read) not in self._alone and (id(read) in self._fetches or self._sharing(read) is not None):
            return None
        lent = self._reads.borrow(read, gatherer, borrower, now_ns)
        if lent is not None:
            self._alone.discard(id(read))
        return lent

    def complete(self, read: RangeRead, gatherer: Gatherer, out: _Bytes, now_ns: int) -> None:
        """See `Reads`."""
        own, alone = self._fetches.pop(id(read), None), id(read) in self._alone
        self._alone.discard(id(read))
        # A read goes on as it was submitted, though more, less or nothing is shared meanwhile.
        kept = (self._shared.kept or own[0]) if own else None if alone else self._sharing(read)
        if kept is None:
            self._reads.complete(read, gatherer, out, now_ns)
            return
        assert isinstance(read, MessagePlan)
        try:
            self._complete(read, kept, own[1] if own else None, gatherer, out, now_ns)
        finally:
            if own is not None:
                with self._shared.lock:
                    own[0].forget(own[1])

    def _complete(
        self, read: MessagePlan, kept: Kept, own: Fetch | None, gatherer: Gatherer, out: _Bytes, now_ns: int
    ) -> None:
        shared, member = self._shared, self._member
        numbers = shared.numbers(read.shard, read.record)
        message = _Message(
            numbers=numbers,
            sizes=read.sizes,
            places=np.cumsum(read.sizes) - read.sizes,
            missing=np.ones(len(numbers), np.bool_),
            copies=Copies(),
        )
        hit_bytes, due = 0, np.full(len(numbers), NEVER)
        begun_ns = time.thread_time_ns()
        try:
            with shared.lock:
                hit_bytes += message.use_kept(kept)
                asked = {int(number) for number in np.unique(kept.asked[numbers[message.missing]])}
                fetches = [kept.fetches[number] for number in sorted(asked) if number in kept.fetches]
                if own is not None and own not in fetches:
                    fetches.append(own)
                if member is not None:
                    member.needs.future.moved(member.rank, read.epoch, member.needs.id_of(int(numbers[-1])), now_ns)
                due = kept.foresight.due(numbers, now_ns)
            for fetch in fetches:
                source = self._take(fetch, kept, gatherer, now_ns, due if fetch is own else None)
                if source is not None:
                    message.use_read(fetch.numbers, fetch.read.sizes, source)
            with shared.lock:
                hit_bytes += message.use_kept(kept)
            if message.missing.any():
                left, part = message.missing.copy(), _part(read, message.missing)
                source = self._pool.take(part.size_bytes, _ignore)
                self._reads.complete(part, gatherer, source, now_ns)
                with shared.lock:
                    shared.admit(kept, numbers[left], part.sizes, source, due[left], now_ns)
                message.use_read(numbers[left], part.sizes, source)
            message.copies.carry_out(out)
        finally:
            with shared.lock:
                for entries, places in message.held:
                    kept.foresight.kept.let_go(entries)
                    kept.foresight.kept.retime(entries, due[places])
                shared.hit_bytes += hit_bytes
                shared.spent(time.thread_time_ns() - begun_ns)

    def _take(
        self, fetch: Fetch, kept: Kept, gatherer: Gatherer, now_ns: int, due: npt.NDArray[np.float64] | None
    ) -> _Bytes | None:
        """Complete a fetch, and keep what is needed soon; return its bytes, None if another thread did so before.

        `due` tells when the records of the own message are needed next, None for another stream's.
        """
        with fetch.lock:
            if fetch.taken:
                return None
            fetch.taken = True
            source = self._pool.take(fetch.read.size_bytes, _ignore)
            try:
                fetch.reads.complete(fetch.read, gatherer, source, now_ns)
            except EmlioError:
                if due is not None:
                    raise
                return None  # its stream is gone, or will raise the error itself
            with self._shared.lock:
                then = kept.foresight.due(fetch.numbers, now_ns) if due is None else due[fetch.places]
                self._shared.admit(kept, fetch.numbers, fetch.read.sizes, source, then, now_ns)
                kept.forget(fetch)
            return source

    def close(self) -> None:
        """See `Reads`."""
        if not self._closed:
            self._closed = True
            self._reads.close()
            self._shared.lock.later(self._leave)

    def _leave(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            self._shared.leave(member)
        if self._closed:
            for kept, fetch in tuple(self._fetches.values()):  # its own thread may take one meanwhile
                kept.forget(fetch)
            self._fetches.clear()


def _part(read: RangeRead, which: npt.NDArray[np.bool_]) -> RangeRead:
    """Return the read of some of its records."""
    sizes = read.sizes[which]
    return RangeRead(
        shard=read.shard[which],
        record=read.record[which],
        file=read.file[which],
        starts=read.starts[which],
        sizes=sizes,
        size_bytes=int(sizes.sum()),
    )


def _ignore(_: int) -> None:
    """Do nothing: what is read for a message is counted as that message."""
