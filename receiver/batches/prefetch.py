"""The queues between the receive thread and the user.

Complete batches wait here, are made into what the user wants, and wait again. The user's thread may
be interrupted in any call, because a signal handler may raise. So a batch stays first until it is
`taken`, and that is a single step.

Covers: making batches ahead or on request, the order, errors in their place, waiting with a
deadline, restarting. The queues are bounded by credit (emlio.receiver.placement.grants): a batch
counts there until the user has it. Does not cover: how batches are made
(emlio.receiver.batches.makers).
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from threading import RLock, Thread
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET, UnsetType

from emlio.errors import ClosedError
from emlio.receiver.batches.hunger import Hunger, TurnWork
from emlio.receiver.batches.makers import Made, Maker
from emlio.receiver.machine.surroundings import Came
from emlio.receiver.placement.reorder import PLACE_BYTES, WholeBatch
from emlio.receiver.records.bad_records import RecordFault
from emlio.receiver.threads.bell import Bell
from emlio.receiver.threads.promise import Promise
from emlio.receiver.threads.unended import PATIENCE_S, join_all, running
from emlio.receiver.timing.observers import UNOBSERVED_WORK, WorkObserver
from emlio.wire.status import UserWaits

__all__ = ["MadeBatch", "Prefetch", "again"]

_LOG = logging.getLogger("emlio.receiver")

_T = TypeVar("_T")


class MadeBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as the user gets it.

    Attributes:
        epoch: its epoch.
        step: its number in the rank's epoch.
        count: how many records the plan has for it.
        bad: the number of bad records in it.
        size_bytes: of all its records, as received.
        value: the value for the user.
        fault: the first bad record that was found, if there is any.
        by_dataset: of a mixture, how many of the records are of each dataset; else 0.
    """

    epoch: int
    step: int
    count: int
    bad: int
    size_bytes: int
    value: Any
    fault: RecordFault | None = None
    by_dataset: Any = 0

    @property
    def held_bytes(self) -> int:
        """The bytes of the window that it took."""
        return self.size_bytes + PLACE_BYTES * self.count


class _Pending(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that is being made."""

    batch: WholeBatch
    made: Promise


class Prefetch:
    """Two queues and a thread that makes batches.

    `put` and `fail` are called by the receive thread, `first`, `taken` and `restart` by the user's.
    Each change wakes only the thread that waits for it: on a busy host a wake-up costs as much as
    making a small batch.

    Attributes:
        delivered: the generation of each taken batch and what it took of the window, to be read by
            the receive thread.
        delivered_bytes: the sum over all batches that were ever taken.
        taken_batches: their number.
        receiving: the work of the receive thread.
        hunger: the waits in which no batch was here.
        count: counts the records of a batch by the datasets of a mixture; set before `start`.
        user_waits: returns the times of the user so far; set before `start`.
        came: told of each message, see `Surroundings`; set before the receive thread is made.
    """

    def __init__(self, maker: Maker, work: WorkObserver = UNOBSERVED_WORK) -> None:
        """Create the queues; owns the maker, and tells `work` when it makes batches."""
        self.delivered: deque[tuple[int, int]] = deque()
        self.delivered_bytes = 0
        self.taken_batches = 0
        self.receiving = TurnWork()
        self.hunger = Hunger(self.receiving)
        self.count: Callable[[npt.NDArray[np.int64]], Any] = _one_dataset
        self.user_waits: Callable[[], UserWaits | UnsetType] = lambda: UNSET
        self.came: Came | None = None
        self._maker = maker
        self._work = work
        self._lock = RLock()  # a signal handler may close the loader during another call of the same thread
        self._user, self._making = Bell(), Bell()
        self._whole: deque[WholeBatch] = deque()
        self._pending: deque[_Pending] = deque()
        self._made: tuple[WholeBatch, MadeBatch] | None = None  # made on request, and not taken yet
        self._error: BaseException | None = None  # of the receive thread: permanent
        self._spoiled: BaseException | None = None  # of a batch that could not be made: until `restart`
        self._generation = 0
        self._closed = False
        self._working = False
        self._thread = Thread(target=self._run, name="emlio-assemble", daemon=True)

    @property
    def worked_ns(self) -> int:
        """Time spent making batches."""
        return self._maker.worked_ns

    @property
    def ready(self) -> bool:
        """Return whether `first` would return at once."""
        if not self._maker.ahead:
            return bool(self._whole)
        head = _first(self._pending)
        return head is not None and head.made.done()

    @property
    def making(self) -> bool:
        """Return whether the next batch has all its records and only has to be made."""
        # Checked in the order in which a batch passes through them, so that none is missed on its
        # way.
        return bool(self._whole or self._working or self._pending)

    def running(self) -> list[str]:
        """Return the users' functions that make batches now, except in the calling thread."""
        elsewhere = [self._maker.elsewhere] if self._maker.elsewhere else []
        return running([self._thread, *self._maker.threads]) or elsewhere

    @property
    def hungry(self) -> bool:
        """Return whether the user waits and no batch is here."""
        return self.hunger.now

    def tune(self, *, threads: int, ahead: int) -> None:
        """Work with so many threads, and make so many batches ahead, from now on; 0 for the usual numbers."""
        self._maker.tune(threads=threads, ahead=ahead)
        self._making.ring()

    def start(self) -> None:
        """Start the thread, if batches are made ahead."""
        if self._maker.ahead:
            self._thread.start()

    def restart(self) -> int:
        """Drop everything and return a new generation.

        From now on only batches put with this generation are accepted.
        """
        with self._lock:
            self._generation += 1
            generation = self._generation
            dropped = self._drop()
            self._spoiled = None
        _cancel(dropped)
        return generation

    def put(self, generation: int, *batches: WholeBatch) -> None:
        """Add complete batches."""
        with self._lock:
            # Nothing may follow a batch that could not be made, or one would be missing unnoticed.
            if generation == self._generation and self._spoiled is None:
                self._whole.extend(batches)
        if self._maker.ahead:
            self.hunger.came()
        (self._making if self._maker.ahead else self._user).ring()

    def fail(self, error: BaseException) -> None:
        """End the queue with an error; batches that are here are still handed out."""
        self._error = self._error or error
        self._user.ring()

    def first(self, timeout_ns: int) -> MadeBatch | None:
        """Return the next batch, which stays first until `taken`; None when the time is up.

        Raises the error given to `fail` once no batch is left, and in place of a batch that could
        not be made the error that prevented it. If batches are made on request, the next call makes
        it again; otherwise only `restart` helps.
        """
        deadline = time.monotonic() + timeout_ns / 1e9
        while (found := self._find()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._making.ring()  # `taken` may have been interrupted before it did this
            try:
                if not (self._whole or self._working or self._pending):
                    self.hunger.begin()
                self._user.wait(left)
            finally:
                self.hunger.now = False  # no call, so no interrupt can come before it
                self.hunger.end()
        if isinstance(found, MadeBatch):
            return found
        try:
            made = self._maker_of(found)(found)
        except StopIteration as error:
            raise _told(error) from error
        batch = _made(found, made.result() if isinstance(made, Promise) else made, self.count)
        self._made = found, batch
        return batch

    def _find(self) -> MadeBatch | WholeBatch | None:
        """Return the next batch if it is made, or its records if it is to be made now."""
        if self._closed:
            self._user.ring()  # for other waiting threads
            raise ClosedError("the loader was closed while it waited for a batch")
        if self._spoiled is not None:
            raise again(self._spoiled)
        if not self._maker.ahead:
            whole, kept = _first(self._whole), self._made
            if whole is not None:
                return kept[1] if kept is not None and kept[0] is whole else whole
        elif (head := _first(self._pending)) is not None:
            if not head.made.done():
                return None
            if head.made.cancelled():  # since the check above, by `close` in another thread
                raise ClosedError("the loader was closed while it waited for a batch")
            error = head.made.exception()
            if error is None:
                return _made(head.batch, head.made.result(), self.count)
            told = _told(error)
            self._spoil(told)
            raise told
        error = self._error  # read before `making`: no batch is put after it
        if error is not None and not self.making:
            raise again(error)
        return None

    def taken(self, made: MadeBatch) -> bool:
        """Remove this batch if it is the first; return whether it was."""
        with self._lock:
            if self._maker.ahead:
                pending = _first(self._pending)
                batch = None if pending is None else pending.batch
            else:
                batch = _first(self._whole)
            if batch is None or (batch.epoch, batch.step) != (made.epoch, made.step):
                return False
            queue: deque[Any] = self._pending if self._maker.ahead else self._whole
            held_bytes = made.held_bytes
            note = [(self._generation, held_bytes)]
            # Python handles signals where a call ends, so not between these lines.
            del queue[0]
            self.delivered += note
            self.delivered_bytes += held_bytes
            self.taken_batches += 1
            self._made = None
        if self._maker.ahead:
            self._making.ring()
        return True

    def _spoil(self, error: BaseException) -> None:
        copied = again(error)
        with self._lock:
            self._spoiled = copied
            dropped = self._drop()
        _cancel(dropped)

    def _maker_of(self, batch: WholeBatch) -> Callable[[WholeBatch], Made | Promise]:
        return self._work.observed(self._maker.make, epoch=batch.epoch, batch=batch.step)

    def _drop(self) -> list[Promise]:
        """Drop all batches; return those in progress, to be cancelled without the lock."""
        dropped = [pending.made for pending in self._pending]
        self._whole.clear()
        self._pending.clear()
        self._made = None
        return dropped

    def _run(self) -> None:
        while not self._closed:
            begun = self._begin()
            if begun is None:
                self._making.wait()
                continue
            batch, generation = begun
            made = _begin(self._maker_of(batch), batch)
            with self._lock:
                wanted = generation == self._generation and self._spoiled is None and not self._closed
                if wanted:
                    self._pending.append(_Pending(batch=batch, made=made))
                self._working = False
            if wanted:
                made.add_done_callback(self._tell)
            else:
                made.cancel()
            self._user.ring()
            # No reference to this batch may stay here: its memory is the user's to free.
            del batch, begun, made

    def _begin(self) -> tuple[WholeBatch, int] | None:
        """Return the next batch to make and its generation; None if there is nothing to do."""
        with self._lock:
            if not self._whole or len(self._pending) >= self._maker.ahead:
                return None
            self._working = True
            return self._whole.popleft(), self._generation

    def _tell(self, _: Promise) -> None:
        self._user.ring()

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """Stop the threads and wake all waiters; a second call continues an interrupted one.

        Args:
            patience_s: how long to wait for users' functions that are running.
        """
        self._closed = True
        with self._lock:
            dropped = self._drop()
        self._user.ring()
        self._making.ring()
        _cancel(dropped)
        join_all([self._thread], patience_s)
        self._maker.close(patience_s)


def _first(queue: "deque[_T]") -> _T | None:
    """Return the first item of a queue that another thread may empty."""
    try:
        return queue[0]
    except IndexError:
        return None


def _cancel(dropped: list[Promise]) -> None:
    """Cancel dropped work, which must not occupy the threads that make wanted batches."""
    for made in dropped:
        made.cancel()


def _told(error: BaseException) -> BaseException:
    """Return the error to raise in place of a user's error."""
    if not isinstance(error, StopIteration):
        return error
    # It would end the user's loop silently in the middle of the epoch.
    told = RuntimeError(f"collate_fn must not raise StopIteration, raised {error!r}")
    told.__cause__ = error
    return told


def again(error: BaseException) -> BaseException:
    """Return a copy of the error, to be kept or raised once more.

    An error that was raised refers to its traceback, and so to all the user's variables, including
    the loader. Keeping it here would keep the loader alive after the user dropped it.
    """
    kind: Any = type(error)
    again: BaseException = RuntimeError(f"a batch could not be made: {kind.__name__}: {error}")
    try:
        same: BaseException = kind.__new__(kind, *error.__reduce__()[1])
        same.__dict__.update(error.__dict__)
        if str(same) == str(error):
            again = same
    except Exception:  # noqa: BLE001  # a user's class may have any constructor
        _LOG.debug("cannot copy the error %r for a second caller", error)
    again.__cause__ = error.__cause__
    return again


def _begin(make: Callable[[WholeBatch], Made | Promise], batch: WholeBatch) -> Promise:
    """Return the batch as a promise, whether or not the maker returns one."""
    try:
        made = make(batch)
    except BaseException as error:  # noqa: BLE001  # any error of a user's function belongs to the user's thread
        failed = Promise()
        failed.set_exception(error)
        return failed
    if isinstance(made, Promise):
        return made
    done = Promise()
    done.set_result(made)
    return done


def _one_dataset(_: npt.NDArray[np.int64]) -> int:
    return 0


def _made(batch: WholeBatch, made: Made, count: Callable[[npt.NDArray[np.int64]], Any]) -> MadeBatch:
    return MadeBatch(
        epoch=batch.epoch,
        step=batch.step,
        count=batch.count,
        bad=made.bad,
        size_bytes=batch.size_bytes,
        value=made.value,
        fault=made.fault,
        by_dataset=count(batch.ids),
    )
