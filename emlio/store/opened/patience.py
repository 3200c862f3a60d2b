"""Retries while the system has no descriptor or memory left; others may free some within seconds.

Covers: how often and how long. Does not cover: closing this process's own files first
(emlio.store.opened.open_set), what a rank does if that does not help (emlio.receiver.machine.retry).
"""

from collections.abc import Callable
from typing import TypeVar

from emlio.errors import DatasetError

__all__ = ["PAUSES_S", "patiently"]

PAUSES_S = (0.005, 0.01, 0.02, 0.05, *(0.1,) * 49)
"""Five seconds in all, as long as a peer that sends nothing may keep a connection."""

_T = TypeVar("_T")


def patiently(action: Callable[[], _T], pause: Callable[[float], bool]) -> _T:
    """Return the result of an action; retry it if it fails for such a reason.

    Args:
        action: may be repeated after it failed.
        pause: waits for so many seconds; returns True if there is no use in a retry.

    Raises:
        DatasetError: for another reason, or after all retries.
    """
    for seconds in PAUSES_S:
        try:
            return action()
        except DatasetError as error:
            if not error.passing or pause(seconds):
                raise
    return action()
