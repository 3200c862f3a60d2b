"""Waiting for the next batch, with warnings and a deadline.

Covers: the warnings while waiting, the final error, reporting taken batches to what receives
records. Does not cover: receiving (emlio.receiver.engine.engine).
"""

import logging
from typing import Final, Protocol

from emlio.errors import PeerLostError
from emlio.receiver.batches.prefetch import MadeBatch, Prefetch
from emlio.receiver.timing.observers import UNOBSERVED_WORK, WorkObserver
from emlio.units import format_duration

__all__ = ["PatientBatches", "Receiving"]

_LOG = logging.getLogger("emlio.receiver")
_WARN_AFTER_NS: Final = 5_000_000_000

_GRACE_NS: Final = 250_000_000
"""The receive thread may give up at the same moment, for the same timeout, and its error says more: it is waited for."""


class Receiving(Protocol):
    """The receiving of records, as the user's thread sees it."""

    def use_room(self) -> None:
        """Have records received for the room that the user has freed, if it is enough."""
        ...

    def describe_wait(self) -> str:
        """Return the records and daemons that the next batch waits for, in words."""
        ...


class PatientBatches:
    """The batches made, for the user's thread.

    See `emlio.receiver.batches.prefetch.MadeBatches`.
    """

    def __init__(
        self, prefetch: Prefetch, receiving: Receiving, timeout_ns: int, work: WorkObserver = UNOBSERVED_WORK
    ) -> None:
        """Wrap the queue of batches.

        Args:
            prefetch: the queue of batches.
            receiving: fills the queue, and knows what a batch waits for.
            timeout_ns: the longest time to wait for a batch.
            work: told that this thread is idle while it waits.
        """
        self._prefetch = prefetch
        self._receiving = receiving
        self._timeout_ns = timeout_ns
        self._work = work

    @property
    def ready(self) -> bool:
        """See `MadeBatches`."""
        return self._prefetch.ready

    def first(self) -> MadeBatch:
        """See `MadeBatches`.

        Raises:
            PeerLostError: the batch was not complete in time.
        """
        if not self._prefetch.ready:
            self._receiving.use_room()  # `taken` may have been interrupted before it did this
        self._work.end()
        made = self._wait()
        self._work.begin()
        return made

    def taken(self, made: MadeBatch) -> None:
        """See `MadeBatches`. From here on the batch takes no room in the window.

        A DALI pipeline bounds what it holds itself.
        """
        if self._prefetch.taken(made):
            self._receiving.use_room()

    def _wait(self) -> MadeBatch:
        prefetch, timeout_ns = self._prefetch, self._timeout_ns
        waited_ns, patience_ns = 0, min(_WARN_AFTER_NS, timeout_ns // 2)
        made = prefetch.first(patience_ns)
        while made is None and waited_ns + patience_ns < timeout_ns and not prefetch.making:
            waited_ns += patience_ns
            _LOG.warning("waiting for %s: %s", format_duration(waited_ns), self._receiving.describe_wait())
            patience_ns = min(2 * patience_ns, timeout_ns - waited_ns)
            made = prefetch.first(patience_ns)
        waited_ns += patience_ns
        while made is None and prefetch.making:
            # The batch's records are here. How long a transform takes is up to the user: no
            # timeout.
            made = prefetch.first(_WARN_AFTER_NS)
            waited_ns += _WARN_AFTER_NS
            if made is None:
                what = ", ".join(prefetch.running()) or "the transform or collate_fn"
                text = "waiting for %s: all records of the batch are here, %s still runs"
                _LOG.warning(text, format_duration(waited_ns), what)
        if made is not None:
            return made
        wait = self._receiving.describe_wait()
        made = prefetch.first(_GRACE_NS)
        if made is None:
            raise PeerLostError(f"a batch must be complete within {format_duration(timeout_ns)}: {wait}")
        return made
