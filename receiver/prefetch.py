"""Between the receive thread and the user: whole batches wait here, are made into what the user wants, and wait again.

Covers: making them ahead or when asked, the order, errors in their place, waiting with a deadline, starting over. The bound
is the window's (emlio.receiver.window): a batch counts there until the user has it. Does not cover: what making is
(emlio.receiver.making).
"""

import logging
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Condition, Lock, Thread, current_thread
from typing import Any

from emlio.errors import ClosedError
from emlio.receiver.making import Made, Maker
from emlio.receiver.reorder import WholeBatch

__all__ = ["MadeBatch", "Prefetch"]

_LOG = logging.getLogger("emlio.receiver")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """A batch that is being made."""

    batch: WholeBatch
    made: "Future[Made]"


class Prefetch:
    """Two queues and a thread. `put` and `fail` belong to the receive thread, `get` and `restart` to the user's.

    Each change wakes only the thread that waits for it: on a busy host a wake costs as much as making a small batch.
    """

    def __init__(self, maker: Maker) -> None:
        """See the class; owns the maker."""
        self._maker = maker
        lock = Lock()
        self._user, self._making = Condition(lock), Condition(lock)
        self._whole: deque[WholeBatch] = deque()
        self._pending: deque[_Pending] = deque()
        self._error: BaseException | None = None  # of the receive thread: for good
        self._spoiled: BaseException | None = None  # of a batch that could not be made: until `restart`
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
        """Whether `get` would find something at once."""
        with self._user:
            if self._maker.ahead:
                return bool(self._pending) and self._pending[0].made.done()
            return bool(self._whole)

    @property
    def making(self) -> bool:
        """Whether the next batch has all its records and is only to be made."""
        with self._user:
            return bool(self._whole or self._pending or self._working)

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
        with self._user:
            self._generation += 1
            generation = self._generation
            dropped = self._drop()
            self._spoiled = None
        _cancel(dropped)
        return generation

    def put(self, generation: int, batch: WholeBatch) -> None:
        """A batch is whole."""
        with self._user:
            # Behind a batch that could not be made nothing may come, or one would be missing and nobody would know.
            if generation == self._generation and self._spoiled is None:
                self._whole.append(batch)
                (self._making if self._maker.ahead else self._user).notify()

    def fail(self, error: BaseException) -> None:
        """No more batches will come; those that are here still go out."""
        with self._user:
            self._error = self._error or error
            self._user.notify()

    def get(self, timeout_ns: int) -> MadeBatch | None:
        """The next batch, or None when the time is up.

        Raises what `fail` was given once nothing is left, and in the place of a batch that could not be made what prevented
        that; after the latter only `restart` goes on.
        """
        deadline = time.monotonic() + timeout_ns / 1e9
        pending: _Pending | None = None
        batch: WholeBatch | None = None
        with self._user:
            while True:
                if self._closed:
                    raise ClosedError("the loader was closed while a batch was waited for")
                if self._pending:
                    if self._pending[0].made.done():
                        pending = self._pending.popleft()
                        batch = pending.batch
                        self._making.notify()
                        break
                elif self._spoiled is not None:
                    raise _again(self._spoiled)
                elif self._whole and not self._maker.ahead:
                    batch = self._whole.popleft()
                    break
                elif self._error is not None and not self._whole and not self._working:
                    raise _again(self._error)
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._hungry = not (self._whole or self._pending or self._working)
                self._hungers += self._hungry
                self._user.wait(left)
                self._hungry = False
        try:
            if pending is not None:
                return _made(batch, pending.made.result())
            made = self._maker.make(batch)
            return _made(batch, made.result() if isinstance(made, Future) else made)
        except StopIteration as error:
            # It would end the user's loop in the middle of the epoch, and nobody would know.
            told = RuntimeError(f"a collate_fn must not raise StopIteration: {error!r}")
            self._spoil(told)
            raise told from error
        except BaseException as error:
            self._spoil(error)
            raise

    def _spoil(self, error: BaseException) -> None:
        with self._user:
            self._spoiled = _again(error)
            dropped = self._drop()
        _cancel(dropped)

    def _drop(self) -> list["Future[Made]"]:
        """Forget all batches; what is being made of them is returned, to be cancelled without the lock."""
        dropped = [pending.made for pending in self._pending]
        self._whole.clear()
        self._pending.clear()
        return dropped

    def _run(self) -> None:
        while True:
            with self._making:
                self._making.wait_for(lambda: self._closed or (self._whole and len(self._pending) < self._maker.ahead))
                if self._closed:
                    return
                batch, generation = self._whole.popleft(), self._generation
                self._working = True
            made: Future[Made] = _begin(self._maker, batch)
            with self._making:
                self._working = False
                wanted = generation == self._generation and self._spoiled is None
                if wanted:
                    self._pending.append(_Pending(batch=batch, made=made))
                self._user.notify()
            if wanted:
                made.add_done_callback(self._tell)
            else:
                made.cancel()
            # Nothing of this batch may stay referred to from here: its memory is the user's to free.
            del batch, made

    def _tell(self, _: "Future[Made]") -> None:
        with self._user:
            self._user.notify()

    def close(self) -> None:
        """End the threads and wake who waits. Closing again does nothing."""
        with self._user:
            self._closed = True
            dropped = self._drop()
            self._user.notify_all()
            self._making.notify_all()
        _cancel(dropped)
        if self._thread.ident is not None and self._thread is not current_thread():
            self._thread.join()
        self._maker.close()


def _cancel(dropped: list["Future[Made]"]) -> None:
    """What was begun and is not wanted must not keep busy the threads that make what is."""
    for made in dropped:
        made.cancel()


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


def _begin(maker: Maker, batch: WholeBatch) -> "Future[Made]":
    """The batch as a promise, whether the maker gives one or not."""
    try:
        made = maker.make(batch)
    except BaseException as error:  # noqa: BLE001  # a user's function's error belongs to the user's thread, whatever it is
        failed: Future[Made] = Future()
        failed.set_exception(error)
        return failed
    if isinstance(made, Future):
        return made
    done: Future[Made] = Future()
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
