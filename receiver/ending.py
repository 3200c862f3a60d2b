"""The end of a loader that was not closed: it is dropped, or the interpreter exits.

Covers: the thread in which its parts are closed. Does not cover: closing them
(emlio.receiver.parts).
"""

import os
from collections.abc import Callable
from threading import Thread

from emlio.receiver.parts import LoaderParts
from emlio.receiver.threads.unended import AT_EXIT_S, PATIENCE_S

__all__ = ["let_go"]


def let_go(owner: Callable[[], object], parts: LoaderParts) -> None:
    """Close the parts of a loader, as its finalizer; `owner` is a weak reference to the loader."""
    if owner() is not None:  # the interpreter exits
        parts.close(AT_EXIT_S)
    elif os.getpid() == parts.pid:
        # The garbage collector may run in any thread, even one that holds a lock or that would wait
        # here for itself.
        Thread(target=parts.close, args=(PATIENCE_S,), name="emlio-close").start()
