"""How a loader ends: closed, dropped, or still there when the interpreter ends.

Covers: the order in which its parts are closed, and in which thread. Does not cover: what each part does to end.
"""

import os
from collections.abc import Callable
from threading import Thread

from emlio.receiver.engine import Engine
from emlio.receiver.loader_energy import LoaderEnergy
from emlio.receiver.prefetch import Prefetch
from emlio.receiver.workshop import Workshop

__all__ = ["close_parts", "let_go"]


def close_parts(engine: Engine, prefetch: Prefetch, workshop: Workshop, energy: LoaderEnergy | None, pid: int) -> None:
    """Close a loader's parts, in the process that made them."""
    # In a forked child the threads do not exist; waiting for them would never end.
    if os.getpid() == pid:
        prefetch.close()
        workshop.close()
        if energy is not None:
            energy.close()
        engine.close()


def let_go(
    owner: Callable[[], object],
    engine: Engine,
    prefetch: Prefetch,
    workshop: Workshop,
    energy: LoaderEnergy | None,
    pid: int,
) -> None:
    """What a finalizer calls; `owner` is a weak reference to the loader."""
    if owner() is not None:  # it was closed, or the interpreter ends
        close_parts(engine, prefetch, workshop, energy, pid)
    elif os.getpid() == pid:
        # The garbage collector may have found it in any thread, also in one that would now wait for itself or holds a lock.
        Thread(target=close_parts, args=(engine, prefetch, workshop, energy, pid), name="emlio-close").start()
