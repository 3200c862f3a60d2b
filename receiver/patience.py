"""Waiting for the next batch: never silently, and never without an end.

Covers: what is said meanwhile, and the error in the end. Does not cover: what is waited for (emlio.receiver.engine).
"""

import logging
from typing import Final

from emlio.errors import PeerLostError
from emlio.receiver.energy_work import WorkLog
from emlio.receiver.engine import Engine
from emlio.receiver.prefetch import MadeBatch, Prefetch
from emlio.units import format_duration

__all__ = ["wait_for_batch"]

_LOG = logging.getLogger("emlio.receiver")
_WARN_AFTER_NS: Final = 5_000_000_000


def wait_for_batch(prefetch: Prefetch, engine: Engine, timeout_ns: int, work: WorkLog | None = None) -> MadeBatch:
    """The next batch made.

    Args:
        prefetch: has it, or will.
        engine: knows what it waits for.
        timeout_ns: for how long.
        work: told that this thread does not work meanwhile; None where nobody wants to know.

    Raises:
        PeerLostError: it was not complete in time.
    """
    if work is None:
        return _wait(prefetch, engine, timeout_ns)
    work.end()
    made = _wait(prefetch, engine, timeout_ns)
    work.begin()
    return made


def _wait(prefetch: Prefetch, engine: Engine, timeout_ns: int) -> MadeBatch:
    waited_ns, patience_ns = 0, min(_WARN_AFTER_NS, timeout_ns // 2)
    made = prefetch.get(patience_ns)
    while made is None and waited_ns + patience_ns < timeout_ns and not prefetch.making:
        waited_ns += patience_ns
        _LOG.warning("waiting for %s: %s", format_duration(waited_ns), engine.describe_wait())
        patience_ns = min(2 * patience_ns, timeout_ns - waited_ns)
        made = prefetch.get(patience_ns)
    while made is None and prefetch.making:
        # Its records are here. How long a transform takes is the user's affair and nobody else's fault.
        made = prefetch.get(_WARN_AFTER_NS)
        if made is None:
            _LOG.warning("waiting for the transform or collate_fn of a batch all records of which are here")
    if made is None:
        raise PeerLostError(f"a batch must be complete within {format_duration(timeout_ns)}: {engine.describe_wait()}")
    return made
