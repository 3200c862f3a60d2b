"""Checks that a dataset's files are still those that were indexed, shared by all ranks.

A check takes a system call for each shard. This takes seconds if there are many shards or a network
file system, and forever if that does not answer. So each dataset is checked by a thread of its own,
at most once a second, and all ranks that ask within that second get the same result.

Covers: who waits for which check, the threads. Does not cover: the check itself
(emlio.store.opened.open_files).
"""

import logging
from collections.abc import Callable
from threading import Event, Thread

import msgspec

from emlio.clock import Clock
from emlio.daemon.datasets.served import ServedDataset
from emlio.errors import DatasetError, EmlioError

__all__ = ["Inspections"]

_LOG = logging.getLogger("emlio.daemon")
_FRESH_NS = 1_000_000_000
"""The largest age of a check, counted from its beginning."""

_ENDING_S = 1.0

Heard = Callable[[EmlioError | None], None]


class _Look(msgspec.Struct, kw_only=True, eq=False):
    """One check of a dataset's files.

    Attributes:
        began_ns: its beginning; it answers later questions as long as it is fresh.
        thread: the thread that checks.
        asked: called when it ends.
        ended: whether it has ended.
        error: the problem with the files; None if there is none.
    """

    began_ns: int
    thread: Thread
    asked: list[Heard] = msgspec.field(default_factory=list[Heard])
    ended: bool = False
    error: EmlioError | None = None


class Inspections:
    """The checks of all datasets. Used by the control thread."""

    def __init__(self, clock: Clock, call: Callable[[Callable[[], None]], None]) -> None:
        """See the class.

        Args:
            clock: for the age of checks.
            call: runs a function in the control thread.
        """
        self._clock = clock
        self._call = call
        self._last: dict[ServedDataset, _Look] = {}
        self._asked_next: dict[ServedDataset, list[Heard]] = {}
        self._closing = Event()

    def ask(self, served: ServedDataset, heard: Heard) -> None:
        """Call `heard` with the problem of the dataset's files, or None.

        It is called now, or in this thread when the result is known.
        """
        look = self._last.get(served)
        if look is not None and self._clock.monotonic_ns() - look.began_ns < _FRESH_NS:
            if look.ended:
                heard(look.error)
            else:
                look.asked.append(heard)
        elif look is None or look.ended:
            self._begin(served, [heard])
        else:
            self._asked_next.setdefault(served, []).append(heard)

    def _begin(self, served: ServedDataset, asked: list[Heard]) -> None:
        thread = Thread(target=lambda: self._run(served, look), name=f"emlio-look-{served.dataset.name}", daemon=True)
        look = _Look(began_ns=self._clock.monotonic_ns(), thread=thread, asked=asked)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread left
            refused = EmlioError(f"the files of {served.dataset.name} cannot be checked: {error}")
            for heard in asked:
                heard(refused)
        else:
            self._last[served] = look

    def _run(self, served: ServedDataset, look: _Look) -> None:
        error: EmlioError | None = None
        try:
            served.files.check_paths(self._closing.is_set)
        except EmlioError as wrong:
            error = wrong
        except OSError as wrong:
            error = DatasetError(f"the shards in {served.dataset.place} must be readable: {wrong.strerror}")
        except Exception as wrong:  # noqa: BLE001  # the waiting loaders must get an answer
            _LOG.exception("checking the files of %s failed", served.dataset.name)
            error = EmlioError(f"internal error while checking the files of {served.dataset.name}: {wrong!r}")
        if not self._closing.is_set():
            self._call(lambda: self._end(served, look, error))

    def _end(self, served: ServedDataset, look: _Look, error: EmlioError | None) -> None:
        look.ended, look.error = True, error
        look.thread.join()
        asked, look.asked = look.asked, []
        later = self._asked_next.pop(served, [])
        if later:
            self._begin(served, later)
        for heard in asked:
            heard(error)

    def forget(self, served: ServedDataset) -> bool:
        """Drop what is known of a dataset that is closed; return False while a check runs."""
        look = self._last.get(served)
        if look is not None and not look.ended:
            return False
        self._last.pop(served, None)
        return True

    def close(self) -> None:
        """Report no more results.

        A check that hangs on a disk is waited for only briefly: its thread ends when the disk
        answers.
        """
        self._closing.set()
        for served, look in self._last.items():
            if not look.ended:
                look.thread.join(_ENDING_S)
                if look.thread.is_alive():
                    _LOG.warning(
                        "a disk has not answered for %s s: the check of %s ends without a result",
                        _ENDING_S,
                        served.dataset.name,
                    )
