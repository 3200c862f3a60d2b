"""One pass over an epoch, or over its rest.

Covers: handing out batches, the time between them, the bar. Does not cover: where batches come from (emlio.receiver.loader).
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from emlio.progress import Progress
from emlio.receiver.prefetch import MadeBatch

__all__ = ["Iteration"]


class Iteration(Iterator[Any]):
    """What `iter(loader)` returns."""

    def __init__(
        self, take: "Callable[[Iteration], MadeBatch]", count_time: Callable[[int, int], None], bar: Progress | None
    ) -> None:
        """See the class.

        Args:
            take: gives the next batch, and StopIteration after the last.
            count_time: told after each batch for how long it was waited for, and how long the user was away before, in ns.
            bar: shows how far it is.
        """
        self._take = take
        self._count_time = count_time
        self._bar = bar
        self._handed: set[int] = set()
        self._left_ns: int | None = None
        self._ended = False

    @property
    def is_prefix(self) -> bool:
        """Whether the batches handed out are the first ones of the epoch, without a gap."""
        return not self._handed or max(self._handed) == len(self._handed) - 1

    def __next__(self) -> Any:
        came_ns = time.monotonic_ns()
        if self._ended:
            raise StopIteration
        try:
            made = self._take(self)
        except BaseException as error:
            self._ended = isinstance(error, StopIteration)
            if self._bar is not None:
                self._bar.close()
            raise
        now_ns = time.monotonic_ns()
        self._count_time(now_ns - came_ns, came_ns - self._left_ns if self._left_ns is not None else 0)
        self._handed.add(made.step)
        if self._bar is not None:
            self._bar.add(1)
        self._left_ns = now_ns
        return made.value
