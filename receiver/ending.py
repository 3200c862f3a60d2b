"""How a loader ends that was not closed: it is dropped, or the interpreter ends.

Covers: in which thread its parts are closed. Does not cover: closing them (emlio.receiver.loader_parts).
"""

import os
from collections.abc import Callable
from threading import Thread

from emlio.receiver.loader_parts import LoaderParts
from emlio.receiver.unended import AT_EXIT_S, PATIENCE_S

__all__ = ["let_go"]


def let_go(owner: Callable[[], object], parts: LoaderParts) -> None:
    """What a finalizer calls; `owner` is a weak reference to the loader."""
    if owner() is not None:  # the interpreter ends
        parts.close(AT_EXIT_S)
    elif os.getpid() == parts.pid:
        # The garbage collector may have found it in any thread, also in one that would now wait for itself or holds a lock.
        Thread(target=parts.close, args=(PATIENCE_S,), name="emlio-close").start()
