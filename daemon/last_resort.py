"""A guard against defects of the daemon: one message must not end the sessions of all peers.

Does not cover: expected errors.
"""

import logging
from collections.abc import Callable

__all__ = ["INTERNAL", "guarded"]

_LOG = logging.getLogger("emlio.daemon")

INTERNAL = "internal error, see the daemon's log"


def guarded(action: Callable[[], None], instead: Callable[[], None] = lambda: None) -> None:
    """Run `action` in the control thread; if it raises, log the error and run `instead`."""
    try:
        action()
    except Exception:  # noqa: BLE001  # a defect must not end the thread that all sessions share
        _LOG.exception("internal error in the control thread")
        instead()
