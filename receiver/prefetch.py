"""Between the receive thread and the user: whole batches wait here, are made into what the user wants, and wait again.

Covers: making them ahead or when asked, the order, errors in their place, waiting with a deadline, starting over. The bound
is the window's (emlio.receiver.window): a batch counts there until the user has it. Does not cover: what making is
(emlio.receiver.making).

The user's thread may be interrupted in any call: a signal's handler may raise. So a batch stays first until it is `taken`, and
that is one step.
"""

import logging
import time
from collections import deque
from dataclasses import dataclass
from threading import RLock, Thread
from typing import Any, Protocol, TypeVar

from emlio.errors import ClosedError
from emlio.receiver.bell import Bell
from emlio.receiver.making import Made, Maker
from emlio.receiver.promise import Promise
from emlio.receiver.reorder import WholeBatch
from emlio.receiver.unended import PATIENCE_S, join_all, running

__all__ = ["MadeBatch", "MadeBatches", "Prefetch"]

_LOG = logging.getLogger("emlio.receiver")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeBatch:
    """A batch as the user gets it.

    Attributes:
        epoch: its epoch.
        step: its number in the rank's epoch.
        count: how many records the plan has for it.
        bad: how many of them were not what they must be.
        size_bytes: of all of it, as received.
        value: what the user gets.
    """

    epoch: int
    step: int
    count: int
    bad: int
    size_bytes: int
    value: Any


class MadeBatches(Protocol):
    """Made batches, one after the other, for the user's thread."""

    @property
    def ready(self) -> bool:
        """Whether `first` would find one at once."""
        ...

    def first(self) -> MadeBatch:
        """The next batch, waiting for it. It stays the first until it is taken; what is raised may come again."""
        ...

    def taken(self, made: MadeBatch) -> None:
        """The next one is the one behind this, and this one's place is free. Saying it again does nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """A batch that is being made."""

    batch: WholeBatch
    made: Promise


class Prefetch:
    """Two queues and a thread. `put` and `fail` belong to the receive thread, `first`, `taken` and `restart` to the user's.

    Each change wakes only the thread that waits for it: on a busy host a wake costs as much as making a small batch.

    Attributes:
        delivered: the generation and size of each batch that was taken, for the receive thread to take note of.
    """

    def __init__(self, maker: Maker) -> None:
        """See the class; owns the maker."""
        self.delivered: deque[tuple[int, int]] = deque()
        self._maker = maker
        self._lock = RLock()  # a signal's handler may close the loader in the midst of another call of the same thread
        self._user, self._making = Bell(), Bell()
        self._whole: deque[WholeBatch] = deque()
        self._pending: deque[_Pending] = deque()
        self._made: tuple[WholeBatch, MadeBatch] | None = None  # when asked, and not taken yet
        self._error: BaseException | None = None  # of the receive thread: for good
        self._spoiled: BaseException | None = None  # of a batch that could not be made by others: until `restart`
        self._generation = 0
        self._closed = False
        self._working = False
        self._hungry = False
        self._hungers = 0
        self._thread = Thread(target=self._run, name="emlio-assemble", daemon=True)

    @property
    def worked_ns(self) -> int:
        """Time spent on making batches."""
        return self._maker.worked_ns

    @property
    def ready(self) -> bool:
        """Whether `first` would find something at once."""
        if not self._maker.ahead:
            return bool(self._whole)
        head = _first(self._pending)
        return head is not None and head.made.done()

    @property
    def making(self) -> bool:
        """Whether the next batch has all its records and is only to be made."""
        # In the order in which a batch goes through them, so that none is missed on its way.
        return bool(self._whole or self._working or self._pending)

    def running(self) -> list[str]:
        """The users' functions that batches are being made with now, but for the calling thread's."""
        return running([self._thread, *self._maker.threads])

    @property
    def hungry(self) -> bool:
        """Whether the user waits and nothing is here."""
        return self._hungry

    @property
    def ahead(self) -> int:
        """How many batches are made before they are asked for."""
        return self._maker.ahead

    @property
    def hungers(self) -> int:
        """How often the user had to wait since nothing was here."""
        return self._hungers

    def start(self) -> None:
        """Start the thread, if there is to be one."""
        if self._maker.ahead:
            self._thread.start()

    def restart(self) -> int:
        """Drop everything; only batches put with the number returned are accepted from now on."""
        with self._lock:
            self._generation += 1
            generation = self._generation
            dropped = self._drop()
            self._spoiled = None
        _cancel(dropped)
        return generation

    def put(self, generation: int, batch: WholeBatch) -> None:
        """A batch is whole."""
        with self._lock:
            # Behind a batch that could not be made nothing may come, or one would be missing and nobody would know.
            if generation == self._generation and self._spoiled is None:
                self._whole.append(batch)
        (self._making if self._maker.ahead else self._user).ring()

    def fail(self, error: BaseException) -> None:
        """No more batches will come; those that are here still go out."""
        self._error = self._error or error
        self._user.ring()

    def first(self, timeout_ns: int) -> MadeBatch | None:
        """The next batch, which stays until `taken`, or None when the time is up.

        Raises what `fail` was given once nothing is left, and in the place of a batch that could not be made what prevented
        that. Where batches are made when asked, asking again makes it again; otherwise only `restart` goes on.
        """
        deadline = time.monotonic() + timeout_ns / 1e9
        while (found := self._find()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._making.ring()  # `taken` may have been interrupted before it did
            try:
                self._hungry = not (self._whole or self._working or self._pending)
                self._hungers += self._hungry
                self._user.wait(left)
            finally:
                self._hungry = False
        return found

    def _find(self) -> MadeBatch | None:
        """The next batch, if it is here and can be made."""
        if self._closed:
            self._user.ring()  # for whoever else waits
            raise ClosedError("the loader was closed while a batch was waited for")
        if self._spoiled is not None:
            raise _again(self._spoiled)
        if not self._maker.ahead:
            batch = _first(self._whole)
            if batch is not None:
                return self._make(batch)
        elif (head := _first(self._pending)) is not None:
            if not head.made.done():
                return None
            if head.made.cancelled():  # since the look above: by `close`, in another thread
                raise ClosedError("the loader was closed while a batch was waited for")
            error = head.made.exception()
            if error is None:
                return _made(head.batch, head.made.result())
            told = _told(error)
            self._spoil(told)
            raise told
        error = self._error  # looked at first: behind it nothing is put
        if error is not None and not self.making:
            raise _again(error)
        return None

    def _make(self, batch: WholeBatch) -> MadeBatch:
        kept = self._made
        if kept is not None and kept[0] is batch:
            return kept[1]
        try:
            made = self._maker.make(batch)
        except StopIteration as error:
            raise _told(error) from error
        found = _made(batch, made.result() if isinstance(made, Promise) else made)
        self._made = batch, found
        return found

    def taken(self, made: MadeBatch) -> bool:
        """The user has this batch, if it is the first; saying it again does nothing. Returns whether it was."""
        with self._lock:
            if self._maker.ahead:
                pending = _first(self._pending)
                batch = None if pending is None else pending.batch
            else:
                batch = _first(self._whole)
            if batch is None or (batch.epoch, batch.step) != (made.epoch, made.step):
                return False
            queue: deque[Any] = self._pending if self._maker.ahead else self._whole
            note = [(self._generation, made.size_bytes)]
            # Signals are handled where a call ends, not between these.
            del queue[0]
            self.delivered += note
            self._made = None
        if self._maker.ahead:
            self._making.ring()
        return True

    def _spoil(self, error: BaseException) -> None:
        again = _again(error)
        with self._lock:
            self._spoiled = again
            dropped = self._drop()
        _cancel(dropped)

    def _drop(self) -> list[Promise]:
        """Forget all batches; what is being made of them is returned, to be cancelled without the lock."""
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
            made = _begin(self._maker, batch)
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
            # Nothing of this batch may stay referred to from here: its memory is the user's to free.
            del batch, begun, made

    def _begin(self) -> tuple[WholeBatch, int] | None:
        """The next batch to make, and its generation; None while there is none or enough are made."""
        with self._lock:
            if not self._whole or len(self._pending) >= self._maker.ahead:
                return None
            self._working = True
            return self._whole.popleft(), self._generation

    def _tell(self, _: Promise) -> None:
        self._user.ring()

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """End the threads and wake who waits; closing again goes on with it.

        Args:
            patience_s: how long users' functions that run are waited for.
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
    """What is first in a queue that another thread may empty."""
    try:
        return queue[0]
    except IndexError:
        return None


def _cancel(dropped: list[Promise]) -> None:
    """What was begun and is not wanted must not keep busy the threads that make what is."""
    for made in dropped:
        made.cancel()


def _told(error: BaseException) -> BaseException:
    """What to tell the user of an error of his."""
    if not isinstance(error, StopIteration):
        return error
    # It would end the user's loop in the middle of the epoch, and nobody would know.
    told = RuntimeError(f"a collate_fn must not raise StopIteration: {error!r}")
    told.__cause__ = error
    return told


def _again(error: BaseException) -> BaseException:
    """The same error to be kept, or raised once more.

    One that was raised knows its trace, and so all the user's variables, the loader among them. Kept here it would keep them,
    and a loader that is dropped would never end.
    """
    kind: Any = type(error)
    again: BaseException = RuntimeError(f"a batch could not be made: {kind.__name__}: {error}")
    try:
        same: BaseException = kind.__new__(kind, *error.__reduce__()[1])
        same.__dict__.update(error.__dict__)
        if str(same) == str(error):
            again = same
    except Exception:  # noqa: BLE001  # a user's class may want to be made in whatever way
        _LOG.debug("no second one can be made of %r", error)
    again.__cause__ = error.__cause__
    return again


def _begin(maker: Maker, batch: WholeBatch) -> Promise:
    """The batch as a promise, whether the maker gives one or not."""
    try:
        made = maker.make(batch)
    except BaseException as error:  # noqa: BLE001  # a user's function's error belongs to the user's thread, whatever it is
        failed = Promise()
        failed.set_exception(error)
        return failed
    if isinstance(made, Promise):
        return made
    done = Promise()
    done.set_result(made)
    return done


def _made(batch: WholeBatch, made: Made) -> MadeBatch:
    return MadeBatch(
        epoch=batch.epoch,
        step=batch.step,
        count=batch.count,
        bad=made.bad,
        size_bytes=batch.size_bytes,
        value=made.value,
    )
