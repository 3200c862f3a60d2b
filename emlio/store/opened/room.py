"""Limits on the open files of all datasets in this process.

A descriptor or a mapping too many is not only an error here: the program around EMLIO cannot open a
file any more either. So all datasets together get a part of what the system allows, and share it.
"""

import functools
from collections.abc import Callable, Sequence
from threading import RLock
from typing import Protocol
from weakref import WeakSet

from emlio.open_limits import descriptor_limit, mapping_limit

__all__ = ["Room", "Sharer", "file_room", "lease_room", "level_of", "mapping_room"]

_PART_OF_DESCRIPTORS = 4
"""One in four descriptors is for shards, so 256 of the usual 1,024. The rest is for the program,
and in a daemon for lanes."""

_PART_OF_MAPPINGS = 4
"""As many again may be indexes, see `emlio.index.dali_index`; the rest is for libraries, threads and
memory."""

_PART_OF_LEASES = 8
"""A file under a lease takes one of each kind in addition."""

_LEAST = 16
"""The number of files that a dataset may always have open: a reader uses one file at a time."""


class Sharer(Protocol):
    """One dataset's open files of one kind."""

    @property
    def wanted(self) -> int:
        """The most files that it could ever use."""
        ...

    def allow(self, most: int) -> None:
        """Keep at most `most` files from now on. Thread-safe."""
        ...


class Room:
    """A limit that several datasets share. Thread-safe."""

    def __init__(self, limit: Callable[[], int]) -> None:
        """See the class.

        Args:
            limit: returns the limit for all together; called whenever a dataset comes or goes.
        """
        self._limit = limit
        # Weak: a loader that is never closed must not take from the others forever.
        self._sharers: WeakSet[Sharer] = WeakSet()
        # Reentrant: the garbage collector may drop a loader, which leaves the room, while the lock
        # is held.
        self._lock = RLock()

    def join(self, sharer: Sharer) -> None:
        """Add a dataset; tell it and the others their shares."""
        with self._lock:
            self._sharers.add(sharer)
            self._divide()

    def leave(self, sharer: Sharer) -> None:
        """Remove a closed dataset; harmless when it was removed before."""
        with self._lock:
            if sharer in self._sharers:
                self._sharers.discard(sharer)
                self._divide()

    def _divide(self) -> None:
        sharers = list(self._sharers)
        level = level_of(self._limit(), [sharer.wanted for sharer in sharers])
        for sharer in sharers:
            sharer.allow(max(min(sharer.wanted, level), _LEAST))


def level_of(limit: int, wanted: Sequence[int]) -> int:
    """Return the largest share at which all sharers together stay within `limit`.

    A sharer that wants less leaves the rest to the others.
    """
    left = limit
    for place, least in enumerate(sorted(wanted)):
        share = left // (len(wanted) - place)
        if least > share:
            return share
        left -= least
    return max(wanted, default=0)


@functools.cache
def file_room() -> Room:
    """Return this process's limit of descriptors for reading."""
    return Room(lambda: descriptor_limit() // _PART_OF_DESCRIPTORS)


@functools.cache
def mapping_room() -> Room:
    """Return this process's limit of mappings for reading."""
    return Room(lambda: mapping_limit() // _PART_OF_MAPPINGS)


@functools.cache
def lease_room() -> Room:
    """Return this process's limit of files under a lease.

    Each takes a descriptor and a mapping.
    """
    return Room(lambda: min(descriptor_limit(), mapping_limit()) // _PART_OF_LEASES)
