"""Who runs in a network namespace.

Covers: finding processes, ending them when their owner is gone. Does not cover: ending them in order, which is their owner's
(emlio.benchmarks.processes).
"""

import os
import select
import signal
from collections.abc import Sequence
from pathlib import Path

__all__ = ["end_inhabitants", "inhabitants"]

_MOST_LOOKS = 100
_END_S = 1.0


def inhabitants(namespaces: Sequence[int]) -> list[int]:
    """Processes in any of these namespaces, this one left out.

    Args:
        namespaces: descriptors.
    """
    others = (int(process.name) for process in Path("/proc").glob("[0-9]*"))
    return [process for process in others if process != os.getpid() and _lives_in(process, namespaces)]


def end_inhabitants(namespaces: Sequence[int]) -> None:
    """Kill them, and those they started meanwhile: nobody is left who could end them in order."""
    for _ in range(_MOST_LOOKS):
        found = inhabitants(namespaces)
        if not found:
            return
        for process in found:
            _kill(process, namespaces)


def _lives_in(process: int, namespaces: Sequence[int]) -> bool:
    try:
        seen = os.stat(f"/proc/{process}/ns/net")
    except OSError:
        return False  # it has ended, or is nobody's business
    return any(os.path.samestat(seen, os.fstat(namespace)) for namespace in namespaces)


def _kill(process: int, namespaces: Sequence[int]) -> None:
    try:
        held = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        # Looked at again: from here on the number cannot be another process's.
        if _lives_in(process, namespaces):
            signal.pidfd_send_signal(held, signal.SIGKILL)
            select.select([held], [], [], _END_S)
    except ProcessLookupError:
        return
    finally:
        os.close(held)
