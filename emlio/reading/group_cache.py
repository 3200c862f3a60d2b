"""Groups of records that were made of files, kept for the messages that need them next.

A group, such as a row group of a table, is made once and used by many messages. What was requested
ahead stays until it is read; of the rest, what was not used for longest goes first.

A thread that reads uses one group at a time, and waits if there is no room for it. It never waits
while no other thread reads: so one group may be larger than the limit, and no thread waits forever,
since a thread that reads needs nothing more to get done. Those who wait come in their order, or a
large group would be overtaken by small ones again and again.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock, Semaphore, current_thread, main_thread
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import ClosedError

__all__ = ["DEFAULT_GROUP_BYTES", "GroupCache", "KeptGroup"]

DEFAULT_GROUP_BYTES: Final = 1 << 30

_THREADS: Final = 2
"""So many groups are made at once. More would take processors from sending, and each takes two to three times its size
while it is made."""

Bytes = npt.NDArray[np.uint8]


class KeptGroup(msgspec.Struct, kw_only=True, eq=False):
    """A group that is there or is being made.

    Attributes:
        key: names it.
        made: its bytes.
        size_bytes: their number.
        users: how many use it, each of whom gives it back.
        kept: whether the cache still has it.
    """

    key: Hashable
    made: "Future[Bytes]"
    size_bytes: int
    users: int = 0
    kept: bool = True


def _rung_later() -> Lock:
    silence = Lock()
    silence.acquire()
    return silence


class _Waiting(msgspec.Struct, kw_only=True, eq=False):
    """A thread that waits for room.

    Attributes:
        key, size_bytes: of the group that it reads next.
        bell: released when it may go on. A lock of its own: `threading.Condition` and `Event` take theirs in
            Python code, where the garbage collector may give groups back.
        admitted: the group, and whether this thread makes it; None if the cache was closed.
    """

    key: Hashable
    size_bytes: int
    bell: Lock = msgspec.field(default_factory=_rung_later)
    admitted: tuple[KeptGroup, bool] | None = None


class GroupCache:
    """Groups by key. Thread-safe.

    Attributes:
        most_bytes: the limit of all groups that are kept or read; a single one may be larger.
        made_bytes: the bytes of all groups made so far.
    """

    def __init__(self, most_bytes: int = DEFAULT_GROUP_BYTES) -> None:
        self.most_bytes = most_bytes
        self.made_bytes = 0
        self._groups: OrderedDict[Hashable, KeptGroup] = OrderedDict()
        self._held_bytes = 0
        self._used_bytes = 0
        self._largest_bytes = 0
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False
        self._lock = Lock()
        # The garbage collector may drop a stream, which gives groups back, at any place, also where this
        # thread has the lock. So groups that are given back wait here until a thread takes the lock.
        self._given_back: deque[tuple[KeptGroup, bool]] = deque()
        self._readers = 0
        self._waiting: deque[_Waiting] = deque()
        self._making = Semaphore(_THREADS)

    @property
    def held_bytes(self) -> int:
        """The bytes of the groups that are kept."""
        with self._locked():
            return self._held_bytes

    def ahead(self, key: Hashable, size_bytes: int, make: Callable[[], Bytes]) -> KeptGroup | None:
        """Use a group from now on, and let it be made; return None if there is no room for that now."""
        with self._locked():
            group = self._groups.get(key)
            more = 0 if group is not None and group.users else size_bytes
            # The one that is read next may be large, and must not be dropped between two messages.
            room = min(self.most_bytes // 2, max(self.most_bytes - self._largest_bytes, self.most_bytes // 8))
            if self._closed or self._used_bytes + more > room:
                return None
            group, new = self._use(key, size_bytes)
            if not new:
                return group
            return group if self._make_later(group, make) else None

    def use(self, key: Hashable, size_bytes: int, make: Callable[[], Bytes]) -> KeptGroup:
        """Read a group until `done`; it is made by this thread unless it is there, or another makes it.

        Waits until there is room for it. A thread reads one group at a time.

        Raises:
            ClosedError: this is closed.
        """
        waiting = _Waiting(key=key, size_bytes=size_bytes)
        try:
            with self._locked():
                if self._closed:
                    raise ClosedError("the groups of records are closed")
                self._waiting.append(waiting)
                self._admit()
            waiting.bell.acquire()
            if waiting.admitted is None:
                raise ClosedError("the groups of records are closed")
            group, new = waiting.admitted
            if new:
                self._make(group, make)
        except BaseException:  # the handler of a signal, such as that of Ctrl-C, may raise anywhere here
            self._give_up(waiting, make)
            raise
        return group

    def done(self, group: KeptGroup) -> None:
        """Read a group no longer, once for each `use`."""
        self._given_back.append((group, True))
        self._settle()

    def give_back(self, group: KeptGroup) -> None:
        """Use a group no longer, once for each `ahead`."""
        self._given_back.append((group, False))
        self._settle()

    def forget(self, is_one: Callable[[Hashable], bool]) -> None:
        """Keep the groups with these keys no longer."""
        with self._locked():
            for group in [group for key, group in self._groups.items() if is_one(key)]:
                self._drop(group)

    def close(self) -> None:
        """Drop all groups; who waits for one gets an error. Closing again does nothing.

        Waits for those that are just being made.
        """
        with self._locked():
            self._closed = True
            for group in list(self._groups.values()):
                self._drop(group)
                if not group.made.done():
                    group.made.set_exception(ClosedError("the groups of records are closed"))
            while self._waiting:
                self._waiting.popleft().bell.release()
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    # ---- with the lock --------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Generator[None]:
        try:
            with self._lock:
                self._take_back()
                yield
        finally:
            self._settle()

    def _settle(self) -> None:
        """Take back what waits for that. The thread that has the lock now does so when it lets the lock go."""
        while self._given_back and self._lock.acquire(blocking=False):
            try:
                self._take_back()
            finally:
                self._lock.release()

    def _take_back(self) -> None:
        while self._given_back:
            group, was_read = self._given_back.popleft()
            group.users -= 1
            self._readers -= was_read
            if group.kept and not group.users:
                self._used_bytes -= group.size_bytes
        self._make_room(0)
        self._admit()

    def _admit(self) -> None:
        """Let those who wait read, as many as there is room for."""
        while self._waiting and not self._closed:
            first = self._waiting[0]
            group = self._groups.get(first.key)
            more = 0 if group is not None and group.users else first.size_bytes
            if more and self._readers and self._used_bytes + more > self.most_bytes:
                return
            self._waiting.popleft()
            first.admitted = self._use(first.key, first.size_bytes)
            self._readers += 1
            first.bell.release()

    def _use(self, key: Hashable, size_bytes: int) -> tuple[KeptGroup, bool]:
        group = self._groups.get(key)
        new = group is None
        if group is None:
            self._make_room(size_bytes)
            group = self._groups[key] = KeptGroup(key=key, made=Future(), size_bytes=size_bytes)
            self._held_bytes += size_bytes
            self._largest_bytes = max(self._largest_bytes, size_bytes)
        self._groups.move_to_end(key)
        if not group.users:
            self._used_bytes += group.size_bytes
        group.users += 1
        return group, new

    def _make_room(self, size_bytes: int) -> None:
        if self._held_bytes + size_bytes <= self.most_bytes:
            return
        for group in [group for group in self._groups.values() if not group.users]:
            self._drop(group)
            if self._held_bytes + size_bytes <= self.most_bytes:
                return

    def _drop(self, group: KeptGroup) -> None:
        """Keep a group no longer, even if it is in use."""
        if group.kept:
            group.kept = False
            del self._groups[group.key]
            self._held_bytes -= group.size_bytes
            if group.users:
                self._used_bytes -= group.size_bytes
            if group.size_bytes == self._largest_bytes:
                self._largest_bytes = max((one.size_bytes for one in self._groups.values()), default=0)

    def _make_later(self, group: KeptGroup, make: Callable[[], Bytes]) -> bool:
        """Let a thread of the pool make a group; return False if there is none, and drop the group."""
        try:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, "emlio-groups")
            self._pool.submit(self._make, group, make)
        except RuntimeError as error:  # the system has no thread left
            self._drop(group)
            group.made.set_exception(error)
            return False
        return True

    # ---- without it -----------------------------------------------------------------------------------------------

    def _give_up(self, waiting: _Waiting, make: Callable[[], Bytes]) -> None:
        """Take back what an interrupted `use` holds, or other readers would wait for it forever."""
        with self._locked():
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._admit()
            if waiting.admitted is None:
                return
            group, new = waiting.admitted
            if new and not group.made.done():
                if group.kept and group.users > 1:  # others wait for the group
                    self._make_later(group, make)
                else:
                    self._drop(group)
                    group.made.set_exception(ClosedError("making the group was interrupted"))
        self.done(group)

    def _make(self, group: KeptGroup, make: Callable[[], Bytes]) -> None:
        if not group.kept:
            # Only threads that already wait for it can still get it.
            with self._locked():
                done = group.made.done()
            if done:
                return
        try:
            with self._making:  # making one takes several times its memory
                made = make()
        except BaseException as error:  # those that wait for the group get the error
            if not isinstance(error, Exception) and current_thread() is main_thread():
                raise  # an interrupt is of this thread alone, see `_give_up`
            with self._locked():
                self._drop(group)  # the next one to need it tries again
                if not group.made.done():
                    group.made.set_exception(error)
            return
        with self._locked():
            self.made_bytes += group.size_bytes
            if not group.made.done():
                group.made.set_result(made)
