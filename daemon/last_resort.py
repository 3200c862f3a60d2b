"""A guard against the daemon's own defects: one message must not end the sessions of all peers.

Covers: running an action so that its defect is logged, and ends what it was done for. Does not cover: errors that are expected.
"""

import logging
from collections.abc import Callable

__all__ = ["INTERNAL", "guarded"]

_LOG = logging.getLogger("emlio.daemon")

INTERNAL = "internal error: the daemon's log says more"


def guarded(action: Callable[[], None], instead: Callable[[], None] = lambda: None) -> None:
    """Do something in the control thread; where that raises, log it and do the other."""
    try:
        action()
    except Exception:  # noqa: BLE001  # a defect that one message finds must not end the thread all sessions share
        _LOG.exception("internal error in the control thread")
        instead()
