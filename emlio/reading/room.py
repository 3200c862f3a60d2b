"""How many files of all datasets may be open in this process at once.

A descriptor or a mapping too many does not only fail here: the program around us cannot open a file any more either. So all
datasets together get a part of what the system allows, and divide it.

Covers: the limits and dividing them. Does not cover: which file is
closed for another one (emlio.reading.open_set).
"""

import functools
from collections.abc import Callable, Sequence
from threading import RLock
from typing import Protocol
from weakref import WeakSet

from emlio.open_limits import descriptor_limit, mapping_limit

__all__ = ["Room", "Sharer", "file_room", "lease_room", "level_of", "mapping_room"]

_PART_OF_DESCRIPTORS = 4
"""One in four is for shards, so 256 of the usual 1,024: the rest is the program's, and in a daemon the lanes'."""

_PART_OF_MAPPINGS = 4
"""As many again may be indexes, see `emlio.shards.index`; the rest are libraries, threads, memory."""

_PART_OF_LEASES = 8
"""A file under a lease takes one of each kind besides."""

_LEAST = 16
"""What a dataset may have open however many share: a reader uses one file at a time."""


class Sharer(Protocol):
    """One dataset's open files of one kind."""

    @property
    def wanted(self) -> int:
        """As many as it could ever use."""
        ...

    def allow(self, most: int) -> None:
        """Have no more than `most` from now on. Thread-safe."""
        ...


class Room:
    """A limit that several datasets share. Thread-safe."""

    def __init__(self, limit: Callable[[], int]) -> None:
        """See the class.

        Args:
            limit: of all together; asked whenever a dataset comes or goes.
        """
        self._limit = limit
        # Weak: who forgets to close a loader must not take from the others for ever.
        self._sharers: WeakSet[Sharer] = WeakSet()
        # Reentrant: the collector may drop a loader, and so leave, in the midst of this.
        self._lock = RLock()

    def join(self, sharer: Sharer) -> None:
        """One more dataset; it and the others are told what they may have."""
        with self._lock:
            self._sharers.add(sharer)
            self._divide()

    def leave(self, sharer: Sharer) -> None:
        """A dataset is closed; harmless when it left before."""
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
    """The most that each may have so that all have at most `limit` together: who wants less leaves the rest to the others."""
    left = limit
    for place, least in enumerate(sorted(wanted)):
        share = left // (len(wanted) - place)
        if least > share:
            return share
        left -= least
    return max(wanted, default=0)


@functools.cache
def file_room() -> Room:
    """For descriptors that are read from; of this process."""
    return Room(lambda: descriptor_limit() // _PART_OF_DESCRIPTORS)


@functools.cache
def mapping_room() -> Room:
    """For mappings that are read from; of this process."""
    return Room(lambda: mapping_limit() // _PART_OF_MAPPINGS)


@functools.cache
def lease_room() -> Room:
    """For files under a lease, which have a descriptor and a mapping each; of this process."""
    return Room(lambda: min(descriptor_limit(), mapping_limit()) // _PART_OF_LEASES)
