"""The processes in a network namespace."""

import os
import select
import signal
from collections.abc import Sequence
from pathlib import Path

__all__ = ["end_inhabitants", "inhabitants"]

_MOST_LOOKS = 100
_END_S = 1.0


def inhabitants(namespaces: Sequence[int]) -> list[int]:
    """Return the ids of all processes in any of these namespaces, except this process.

    Args:
        namespaces: descriptors of the namespaces.
    """
    others = (int(process.name) for process in Path("/proc").glob("[0-9]*"))
    return [process for process in others if process != os.getpid() and _lives_in(process, namespaces)]


def end_inhabitants(namespaces: Sequence[int]) -> None:
    """Kill all processes in the namespaces, and those that they start meanwhile.

    Their owner is gone, so no process is left that could end them in order.
    """
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
        return False  # it has ended, or this process may not inspect it
    return any(os.path.samestat(seen, os.fstat(namespace)) for namespace in namespaces)


def _kill(process: int, namespaces: Sequence[int]) -> None:
    try:
        held = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        # Checked again: from here on the process id cannot be reused for another process.
        if _lives_in(process, namespaces):
            signal.pidfd_send_signal(held, signal.SIGKILL)
            select.select([held], [], [], _END_S)
    except ProcessLookupError:
        return
    finally:
        os.close(held)
