"""Between the receive thread and the user: whole batches wait here, are made into what the user wants, and wait again.

Covers: assembling in a thread or when asked, the order, errors in their place, waiting with a deadline, starting over. The bound
is the window's (emlio.receiver.window): a batch counts there until the user has it. Does not cover: what assembling is.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition, Lock, Thread
from typing import Any

from emlio.errors import ClosedError
from emlio.receiver.reorder import WholeBatch

__all__ = ["MadeBatch", "Prefetch"]

_MADE_AHEAD = 2
"""Batches assembled before the user asks: one to hand out at once and one being made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeBatch:
    """A batch as the user gets it.

    Attributes:
        epoch: its epoch.
        step: its number in the rank's epoch.
        count: how many records the plan has for it.
        bad: how many of them failed their check.
        size_bytes: of all of it, as received.
        value: what the user gets.
    """

    epoch: int
    step: int
    count: int
    bad: int
    size_bytes: int
    value: Any


class Prefetch:
    """Two queues and a thread. `put` and `fail` belong to the receive thread, `get` and `restart` to the user's.

    Each change wakes only the thread that waits for it: on a busy host a wake costs as much as assembling a small batch.
    """

    def __init__(self, assemble: Callable[[WholeBatch], Any], *, ahead: bool = True) -> None:
        """See the class.

        Args:
            assemble: makes of a whole batch what the user gets.
            ahead: do so in a thread, before the user asks. Without, it is done when he asks: for what takes microseconds,
                handing over to a thread and back takes longer than the work.
        """
        self.worked_ns = 0  # on making batches
        self._assemble = assemble
        self._ahead = ahead
        lock = Lock()
        self._user, self._maker = Condition(lock), Condition(lock)
        self._whole: deque[WholeBatch] = deque()
        self._made: deque[MadeBatch] = deque()
        self._error: BaseException | None = None  # of the receive thread: for good
        self._spoiled: BaseException | None = None  # of a batch that could not be made: until `restart`
        self._generation = 0
        self._closed = False
        self._working = False
        self._thread = Thread(target=self._run, name="emlio-assemble", daemon=True)

    def start(self) -> None:
        """Start the thread, if there is to be one."""
        if self._ahead:
            self._thread.start()

    def restart(self) -> int:
        """Drop everything; only batches put with the number returned are accepted from now on."""
        with self._user:
            self._generation += 1
            self._spoiled = None
            self._whole.clear()
            self._made.clear()
            return self._generation

    def put(self, generation: int, batch: WholeBatch) -> None:
        """A batch is whole."""
        with self._user:
            # Behind a batch that could not be made nothing may come, or one would be missing and nobody would know.
            if generation == self._generation and self._spoiled is None:
                self._whole.append(batch)
                (self._maker if self._ahead else self._user).notify()

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
        with self._user:
            while not self._made:
                if self._closed:
                    raise ClosedError("the loader was closed while a batch was waited for")
                if self._spoiled is not None:
                    raise self._spoiled
                if self._whole and not self._ahead:
                    batch = self._whole.popleft()
                    break
                if self._error is not None and not self._whole and not self._working:
                    raise self._error
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._user.wait(left)
            else:
                made = self._made.popleft()
                self._maker.notify()
                return made
        try:
            return self._make(batch)
        except BaseException as error:
            with self._user:
                self._spoil(error)
            raise

    def _make(self, batch: WholeBatch) -> MadeBatch:
        begun_ns = time.monotonic_ns()
        made = MadeBatch(
            epoch=batch.epoch,
            step=batch.step,
            count=batch.count,
            bad=len(batch.bad),
            size_bytes=batch.size_bytes,
            value=self._assemble(batch),
        )
        self.worked_ns += time.monotonic_ns() - begun_ns
        return made

    def _spoil(self, error: BaseException) -> None:
        self._spoiled = error
        self._whole.clear()

    def _run(self) -> None:
        while True:
            with self._maker:
                self._maker.wait_for(lambda: self._closed or (self._whole and len(self._made) < _MADE_AHEAD))
                if self._closed:
                    return
                batch, generation = self._whole.popleft(), self._generation
                self._working = True
            made: MadeBatch | None = None
            spoiled: BaseException | None = None
            try:
                made = self._make(batch)
            except BaseException as error:  # noqa: BLE001  # a transform's error belongs to the user's thread, whatever it is
                spoiled = error
            with self._maker:
                self._working = False
                if generation == self._generation and made is not None:
                    self._made.append(made)
                elif generation == self._generation and spoiled is not None:
                    self._spoil(spoiled)
                self._user.notify()
            # Nothing of this batch may stay referred to from here: its memory is the user's to free.
            del batch, made, spoiled

    def close(self) -> None:
        """End the thread and wake who waits. Closing again does nothing."""
        with self._user:
            self._closed = True
            self._whole.clear()
            self._made.clear()
            self._user.notify_all()
            self._maker.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
