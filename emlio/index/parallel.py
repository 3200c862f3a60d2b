"""Parallel work on many shards."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from emlio.progress import Progress

__all__ = ["Adds", "Engine", "ForEachShard", "Gate", "Opens", "Work", "for_each_shard"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

Work = Callable[[_Item, Callable[[int], None]], _Result]
"""Called with an item and a function that it must call, from time to time, with the number of bytes done since then."""

Opens = Callable[[], Work[_Item, _Result]]
"""Opens in another process what the work needs there. It can be pickled."""


class ForEachShard(Protocol[_Item, _Result]):
    """Does work for every item; see `for_each_shard`."""

    def __call__(
        self,
        items: Sequence[_Item],
        work: Work[_Item, _Result],
        *,
        label: str,
        total_bytes: int,
        progress: bool,
        threads: int = ...,
    ) -> list[_Result]:
        """Return the results in the items' order."""
        ...


class Adds(Protocol):
    """An object to which the work for each shard adds."""

    def add(self, shard: int, found: Sequence[str], /) -> None:
        """Add what was found in a shard; again for the same shard does nothing."""
        ...


class Gate(Adds, Protocol):
    """Lets one process alone finish a shard: the one that began it last. It can be pickled."""

    def begin(self, shard: int, /) -> None:
        """Begin a shard; a process that began it before must not finish it any more."""
        ...

    def close(self) -> None:
        """Let no one through any more. Its owner calls this."""
        ...


class Engine(Protocol):
    """Makes work run in other processes."""

    def each(self, opens: Opens[_Item, _Result]) -> ForEachShard[_Item, _Result]:
        """Return what does the work that `opens` opens there, in place of the work that is given here."""
        ...

    def gate(self, place: str, make: Callable[[], Adds] | None) -> Gate:
        """Return a gate, the only one for this place, that adds to what `make` returns.

        Raises:
            ConfigError: there is one already.
        """
        ...


_THREADS = 8
"""Enough to keep a disk busy with the short reads of a scan; Python code shares one core anyway."""


class _StoppedError(Exception):
    """Raised to end a thread whose result is no longer needed."""


def for_each_shard(
    items: Sequence[_Item],
    work: Work[_Item, _Result],
    *,
    label: str,
    total_bytes: int,
    progress: bool,
    threads: int = _THREADS,
) -> list[_Result]:
    """Do `work` for every item and return the results in the items' order.

    Args:
        items: the items.
        work: called with an item and a function that it must call, from time to time, with the
            number of bytes done since the previous call.
        label: of the progress line.
        total_bytes: of all the work.
        progress: whether to show a progress line, if a terminal can show it.
        threads: the limit of items worked on at once.

    Raises:
        Exception: that of the first failed item, in the items' order; the others are stopped.
    """
    if not items:
        return []
    stop = threading.Event()
    lock = threading.Lock()
    line = Progress(label, total_bytes, in_bytes=True) if progress else None

    def advance(done_bytes: int) -> None:
        if stop.is_set():
            raise _StoppedError
        if line is not None:
            with lock:
                line.add(done_bytes)

    pool = ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix="emlio-shards")
    try:
        futures = [pool.submit(work, item, advance) for item in items]
        return [future.result() for future in futures]
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
        if line is not None:
            line.close()
