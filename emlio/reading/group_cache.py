"""Groups of records that were made of files, kept for the messages that need them next.

A group, such as a row group of a table, is made once and used by many messages. What was requested
ahead stays until it is read; of the rest, what was not used for longest goes first.

Covers: the groups and their limit in bytes, threads that make them. Does not cover: making one
(emlio.shards.group_records), which ones are needed (emlio.reading.group_source).
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import RLock
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ClosedError

__all__ = ["DEFAULT_GROUP_BYTES", "GroupCache", "KeptGroup"]

DEFAULT_GROUP_BYTES: Final = 1 << 30

_THREADS: Final = 2
"""They make groups ahead of reading. More would take processors from sending."""

Bytes = npt.NDArray[np.uint8]


@dataclass(slots=True, kw_only=True, eq=False)
class KeptGroup:
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


class GroupCache:
    """Groups by key. Thread-safe.

    Attributes:
        most_bytes: the limit of all groups that are kept; a single one may be larger.
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
        # Reentrant: the garbage collector may drop a stream, which gives groups back, while it is held.
        self._lock = RLock()

    @property
    def held_bytes(self) -> int:
        """The bytes of the groups that are kept."""
        return self._held_bytes

    def ahead(self, key: Hashable, size_bytes: int, make: Callable[[], Bytes]) -> KeptGroup | None:
        """Use a group from now on, and let it be made; return None if there is no room for that now."""
        with self._lock:
            group = self._groups.get(key)
            more = 0 if group is not None and group.users else size_bytes
            # The one that is read next may be large, and must not be dropped between two messages.
            room = min(self.most_bytes // 2, self.most_bytes - self._largest_bytes)
            if self._closed or self._used_bytes + more > room:
                return None
            group, new = self._use(key, size_bytes)
            if new:
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(_THREADS, "emlio-groups")
                self._pool.submit(self._make, group, make)
        return group

    def use(self, key: Hashable, size_bytes: int, make: Callable[[], Bytes]) -> KeptGroup:
        """Use a group from now on; it is made by this thread unless it is there, or another makes it.

        Raises:
            ClosedError: this is closed.
        """
        with self._lock:
            if self._closed:
                raise ClosedError("the groups of records are closed")
            group, new = self._use(key, size_bytes)
        if new:
            self._make(group, make)
        return group

    def _use(self, key: Hashable, size_bytes: int) -> tuple[KeptGroup, bool]:
        self._largest_bytes = max(self._largest_bytes, size_bytes)
        group = self._groups.get(key)
        new = group is None
        if group is None:
            self._make_room(size_bytes)
            group = self._groups[key] = KeptGroup(key=key, made=Future(), size_bytes=size_bytes)
            self._held_bytes += size_bytes
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
        """Keep a group no longer, whoever uses it."""
        if group.kept:
            group.kept = False
            del self._groups[group.key]
            self._held_bytes -= group.size_bytes
            if group.users:
                self._used_bytes -= group.size_bytes

    def _make(self, group: KeptGroup, make: Callable[[], Bytes]) -> None:
        try:
            made = make()
        except BaseException as error:  # noqa: BLE001  # whoever waits for the group gets the error
            with self._lock:
                self._drop(group)  # the next one to need it tries again
                if not group.made.done():
                    group.made.set_exception(error)
            return
        with self._lock:
            self.made_bytes += group.size_bytes
            if not group.made.done():
                group.made.set_result(made)

    def give_back(self, group: KeptGroup) -> None:
        """Use a group no longer, once for each time that it was used."""
        with self._lock:
            group.users -= 1
            if group.kept and not group.users:
                self._used_bytes -= group.size_bytes
                self._make_room(0)

    def forget(self, is_one: Callable[[Hashable], bool]) -> None:
        """Keep the groups with these keys no longer."""
        with self._lock:
            for group in [group for key, group in self._groups.items() if is_one(key)]:
                self._drop(group)

    def close(self) -> None:
        """Drop all groups; who waits for one gets an error. Closing again does nothing.

        Waits for those that are just being made.
        """
        with self._lock:
            self._closed = True
            for group in list(self._groups.values()):
                self._drop(group)
                if not group.made.done():
                    group.made.set_exception(ClosedError("the groups of records are closed"))
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)
