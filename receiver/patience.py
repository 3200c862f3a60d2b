"""Waiting for the next batch, with warnings and a deadline.

Covers: the warnings while waiting, the final error, reporting taken batches to the receive thread.
Does not cover: receiving (emlio.receiver.engine.engine).
"""

import logging
from typing import Final

from emlio.errors import PeerLostError
from emlio.receiver.batches.prefetch import MadeBatch, Prefetch
from emlio.receiver.engine.engine import Engine
from emlio.receiver.timing.decode_times import WorkLog
from emlio.units import format_duration

__all__ = ["PatientBatches"]

_LOG = logging.getLogger("emlio.receiver")
_WARN_AFTER_NS: Final = 5_000_000_000


class PatientBatches:
    """The batches made, for the user's thread.

    See `emlio.receiver.batches.prefetch.MadeBatches`.
    """

    def __init__(self, prefetch: Prefetch, engine: Engine, timeout_ns: int, work: WorkLog | None = None) -> None:
        """Wrap the queue of batches.

        Args:
            prefetch: the queue of batches.
            engine: knows what a batch waits for.
            timeout_ns: the longest time to wait for a batch.
            work: told that this thread is idle while it waits; None if this is not recorded.
        """
        self._prefetch = prefetch
        self._engine = engine
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
            self._engine.use_room()  # `taken` may have been interrupted before it did this
        if self._work is None:
            return self._wait()
        self._work.end()
        made = self._wait()
        self._work.begin()
        return made

    def taken(self, made: MadeBatch) -> None:
        """See `MadeBatches`. From here on the batch takes no room in the window.

        A DALI pipeline bounds what it holds itself.
        """
        if self._prefetch.taken(made):
            self._engine.delivered(made.size_bytes)

    def _wait(self) -> MadeBatch:
        prefetch, timeout_ns = self._prefetch, self._timeout_ns
        waited_ns, patience_ns = 0, min(_WARN_AFTER_NS, timeout_ns // 2)
        made = prefetch.first(patience_ns)
        while made is None and waited_ns + patience_ns < timeout_ns and not prefetch.making:
            waited_ns += patience_ns
            _LOG.warning("waiting for %s: %s", format_duration(waited_ns), self._engine.describe_wait())
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
        if made is None:
            wait = self._engine.describe_wait()
            raise PeerLostError(f"a batch must be complete within {format_duration(timeout_ns)}: {wait}")
        return made
