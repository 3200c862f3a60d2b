"""A thread that writes readings to a file, so that a slow disk delays no reading."""

from collections import deque
from collections.abc import Sequence
from threading import Condition, Thread

from emlio.energy.recording.store import Store
from emlio.energy.values.reading import Reading
from emlio.errors import ConfigError, EmlioError

__all__ = ["Writer"]

_MOST_WAITING = 6000
"""Readings that may wait while the disk stalls: ten minutes at ten per second."""

_FORGET_EVERY_NS = 60_000_000_000
_ENDING_S = 60.0


class Writer:
    """A thread that appends queued readings to the file, with one commit for all that wait.

    If the disk stalls for minutes, readings that do not fit are dropped and counted. Totals are
    cumulative, so no energy is lost, only the times at which it was used.
    """

    def __init__(
        self, store: Store, number: int, *, keep_ns: int | None = None, most_waiting: int = _MOST_WAITING
    ) -> None:
        """Start the thread.

        Args:
            store: the file. Only this writer uses it until the writer is closed; the caller closes
                it then.
            number: of the recording.
            keep_ns: how long a reading is kept; None for ever.
            most_waiting: how many readings may wait.
        """
        self.dropped = 0
        self._store = store
        self._number = number
        self._keep_ns = keep_ns
        self._most_waiting = most_waiting
        self._forgot_ns: int | None = None
        self._waiting: deque[Reading] = deque()
        self._changed = Condition()
        self._ending = False
        self._failure: EmlioError | None = None
        self._thread = Thread(target=self._run, name="energy-writer", daemon=True)
        self._thread.start()

    def put(self, readings: Sequence[Reading]) -> None:
        """Queue readings without waiting for the disk.

        Raises:
            ConfigError: writing has failed.
        """
        with self._changed:
            if self._failure is not None:
                raise self._failure
            fitting = min(len(readings), self._most_waiting - len(self._waiting))
            self._waiting.extend(readings[:fitting])
            self.dropped += len(readings) - fitting
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while batch := self._next():
                self._store.append(self._number, batch)
                self._forget(batch[-1].mono_ns)
        except EmlioError as error:
            with self._changed:
                self._failure = error

    def _next(self) -> list[Reading]:
        """Return the waiting readings; empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ending)
            batch = list(self._waiting)
            self._waiting.clear()
            return batch

    def _forget(self, now_ns: int) -> None:
        if self._keep_ns is None:
            return
        if self._forgot_ns is None or now_ns - self._forgot_ns >= _FORGET_EVERY_NS:
            self._store.forget_before(self._number, now_ns - self._keep_ns)
            self._forgot_ns = now_ns

    def close(self) -> None:
        """Write the waiting readings and end the thread. Closing again does nothing.

        Raises:
            ConfigError: writing has failed, or the disk has stalled.
        """
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._thread.join(_ENDING_S)
        if self._thread.is_alive():
            raise ConfigError(
                f"{self._store.path} could not be written within {_ENDING_S:g} s: its disk does not respond"
            )
        if self._failure is not None:
            raise self._failure
