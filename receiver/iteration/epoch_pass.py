"""One pass over an epoch, or over its rest.

A signal handler may raise in the user's thread at any moment. Either `next` returns and the batch
is counted, or it raises and the batch is not; then the next call hands it out.

Covers: handing out batches, counting them, the time between them, telling an observer, the progress
bar. Does not cover: where batches come from (emlio.receiver.loader).
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from emlio.errors import ConfigError
from emlio.progress import Progress
from emlio.receiver.batches.prefetch import MadeBatch
from emlio.receiver.iteration.position import UserPosition
from emlio.receiver.iteration.tally import Tally
from emlio.receiver.records.bad_records import RecordFault
from emlio.receiver.threads.interrupts import shorten_trace
from emlio.receiver.timing.observers import UNOBSERVED_PASS, PassObserver

__all__ = ["TWO_THREADS", "Handed", "Iteration"]

TWO_THREADS = (
    "another thread is inside next() of this iterator: only one thread at a time may take batches. Hold a lock around "
    "next(), or give each thread a loader of its own"
)


class Handed:
    """The batches handed out by one pass. Its identity tells one pass from another.

    Attributes:
        ready: the next batch, if it is known; it is counted when it is handed out.
        ended: whether the pass reached the end of its epoch.
        count: how many batches were handed out.
        furthest: the highest number among them.
        records: how many records the plan has for them.
        bad: how many of these are bad.
        fault: the first bad one.
        told: whether the user was told of them.
    """

    def __init__(self) -> None:
        self.ready: MadeBatch | None = None
        self.ended = False
        self.count = 0
        self.furthest = -1
        self.records = self.bad = 0
        self.fault: RecordFault | None = None
        self.told = False

    @property
    def is_prefix(self) -> bool:
        """Return whether the batches handed out are the first ones of the epoch, without a gap."""
        return self.furthest == self.count - 1


class Iteration(Iterator[Any]):
    """The iterator that `iter(loader)` returns.

    It refers to the loader, but the loader does not refer to it: dropping both frees both at once.

    Attributes:
        handed: the batches it handed out.
    """

    _observer = UNOBSERVED_PASS  # for an object that was interrupted in its construction
    _inside = False

    def __init__(
        self,
        enter: Callable[[Handed], None],
        take: Callable[[Handed, Any], MadeBatch],
        position: UserPosition,
        tally: Tally,
        bar: Progress | None,
        observer: PassObserver = UNOBSERVED_PASS,
        owner: object = None,
    ) -> None:
        """Begin a pass.

        Args:
            enter: waits until this pass may have another batch; raises StopIteration after the last.
            take: returns the next batch at the position, the same one until it is counted.
            position: counts the batches.
            tally: counts them, too, and the time.
            bar: shows the progress.
            observer: told when a batch is requested and handed out.
            owner: the loader, which lives as long as this.
        """
        self.handed = Handed()
        self._enter = enter
        self._take = take
        self._owner = owner
        self._position = position
        self._tally = tally
        self._bar = bar
        self._observer = observer
        self._left_ns: int | None = None

    def __next__(self) -> Any:
        came_ns = time.monotonic_ns()
        handed, tally, observer = self.handed, self._tally, self._observer
        if handed.ended:
            raise StopIteration
        # Python changes threads only where it handles signals, see below: not between these lines.
        if self._inside:
            raise ConfigError(TWO_THREADS)
        self._inside = True
        tally.ongoing = came_ns, True
        try:
            observer.asked(came_ns)
            self._enter(handed)
            made = self._take(handed, self._position)
            if self._bar is not None:
                self._bar.add(1)
            now_ns = time.monotonic_ns()
            observer.handed(came_ns, now_ns)
        except BaseException as error:
            self._inside = False
            tally.ongoing, tally.ended_ns = None, time.monotonic_ns()
            observer.failed()
            if self._bar is not None:
                self._bar.close()
            shorten_trace(error)
            del self, handed, tally, observer  # this frame stays in the traceback, see `shorten_trace`
            raise
        # Python handles signals where a call begins or ends and where a loop goes round. From here
        # to the return there is neither, so a batch is counted exactly if it is handed out.
        self._position.steps_done += 1
        handed.count += 1
        if made.step > handed.furthest:
            handed.furthest = made.step
        handed.records += made.count
        handed.bad += made.bad
        if handed.fault is None:
            handed.fault = made.fault
        tally.batches += 1
        tally.bad += made.bad
        tally.size_bytes += made.size_bytes
        tally.records += made.count - made.bad if tally.skips else made.count
        tally.by_dataset = tally.by_dataset + made.by_dataset  # a new array: the old one may be in a figure
        tally.wait_ns += now_ns - came_ns
        if self._left_ns is not None:
            tally.busy_ns += came_ns - self._left_ns
        if tally.first_batch_ns is None:
            tally.first_wait_ns = now_ns - came_ns
            tally.first_batch_ns = now_ns - tally.born_ns
        self._left_ns = now_ns
        tally.ongoing = now_ns, False
        handed.ready = None
        self._inside = False
        return made.value

    def __del__(self) -> None:
        self._observer.left()
