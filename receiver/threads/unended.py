"""Waiting for threads that run users' functions, which may never return.

Covers: a bound on the wait, a warning that names what still runs. Does not cover: telling the
threads to end.
"""

import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread, current_thread
from types import FrameType

from emlio.units import format_duration

__all__ = ["AT_EXIT_S", "PATIENCE_S", "join_all", "running"]

_LOG = logging.getLogger("emlio.receiver")

PATIENCE_S = 5.0
"""The time that closing waits for users' functions. Their threads are daemon threads: they do not delay
the interpreter's exit."""

AT_EXIT_S = 1.0
"""The same if the process is about to end, by Ctrl-C or by itself."""

_OURS = "emlio."


def join_all(threads: Sequence[Thread], patience_s: float) -> None:
    """Wait until all threads but the calling one have ended; warn of those that are late."""
    deadline = time.monotonic() + patience_s
    begun = [thread for thread in threads if thread.is_alive() and thread is not current_thread()]
    for thread in begun:
        thread.join(max(deadline - time.monotonic(), 0.0))
    left = [thread for thread in begun if thread.is_alive()]
    if left:
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]  # documented all the same
        what = dict.fromkeys(_user_function(frames.get(thread.ident or 0)) for thread in left)
        _LOG.warning(
            "%s still runs in %s, %s after the loader was closed; it is left running until the process ends",
            ", ".join(what),
            "a thread" if len(left) == 1 else f"{len(left)} threads",
            format_duration(patience_s * 1e9),
        )


def running(threads: Sequence[Thread]) -> list[str]:
    """Return the users' functions that these threads run, each once; an idle thread runs none."""
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]  # documented all the same
    outer = (_outermost(frames.get(thread.ident or 0)) for thread in threads)
    return list(dict.fromkeys(_named(frame) for frame in outer if frame is not None and not _is_waiting(frame)))


def _user_function(frame: FrameType | None) -> str:
    outer = _outermost(frame)
    return "a user's function" if outer is None else _named(outer)


def _outermost(frame: FrameType | None) -> FrameType | None:
    """Return the outermost frame of the user's function in a thread's stack."""
    found = None
    while frame is not None and not str(frame.f_globals.get("__name__", "")).startswith(_OURS):
        found, frame = frame, frame.f_back
    return found


def _is_waiting(frame: FrameType) -> bool:
    """Return whether the loader's own code called this, to wait for its work."""
    return frame.f_globals.get("__name__") == Thread.__module__


def _named(frame: FrameType) -> str:
    return f"{frame.f_code.co_qualname} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"
