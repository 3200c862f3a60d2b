"""Trying again while the system has no descriptor or memory left: others may give theirs back within seconds.

Covers: how often and how long. Does not cover: giving up our own first (emlio.reading.open_set), what a rank makes of it when
that does not help (emlio.receiver.retry).
"""

from collections.abc import Callable
from typing import TypeVar

from emlio.errors import DatasetError

__all__ = ["PAUSES_S", "patiently"]

PAUSES_S = (0.005, 0.01, 0.02, 0.05, *(0.1,) * 49)
"""Five seconds in all, as long as a stranger who says nothing may keep a connection."""

_T = TypeVar("_T")


def patiently(action: Callable[[], _T], pause: Callable[[float], bool]) -> _T:
    """The outcome of an action that is tried again where it fails for such a reason.

    Args:
        action: may be done again after it failed.
        pause: waits for so many seconds; True where there is no use in trying again.

    Raises:
        DatasetError: also after all pauses.
    """
    for seconds in PAUSES_S:
        try:
            return action()
        except DatasetError as error:
            if not error.passing or pause(seconds):
                raise
    return action()
