"""The process of one part, with a time limit: its output is shown line by line, and it ends in time."""

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Final

__all__ = ["Ended", "run_process"]

_KEPT_LINES: Final = 12
_GRACE_S: Final = 20.0
"""Time to end daemons and to undo links, after SIGTERM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a process.

    Attributes:
        status: its exit status; None if it was ended at its limit.
        seconds: how long it ran.
        last: the last lines of its output.
    """

    status: int | None
    seconds: float
    last: tuple[str, ...]


def run_process(
    command: Sequence[str],
    limit_s: float,
    tell: Callable[[str], None],
    *,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    grace_s: float = _GRACE_S,
) -> Ended:
    """Run a program to its end or to its limit; its whole process group has ended when this returns or raises.

    Args:
        command: program and arguments.
        limit_s: it gets SIGTERM after so many seconds.
        tell: called with each line of its output, in a thread.
        folder: folder that it runs in.
        environment: its environment variables; None for those of this process.
        grace_s: its process group gets SIGKILL so many seconds after SIGTERM.
    """
    begun_s, last = time.monotonic(), deque[str](maxlen=_KEPT_LINES)
    # A session of its own: Ctrl-C reaches this process only, which then ends the part in order.
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        cwd=folder,
        env=environment,
    ) as process:

        def show() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                if text := line.rstrip():
                    last.append(text)
                    tell(text)

        showing = Thread(target=show, name="emlio-gpu-output")
        showing.start()
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            try:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(grace_s)
            finally:  # also where a second interruption ends the wait
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                showing.join()
    return Ended(status=status, seconds=time.monotonic() - begun_s, last=tuple(last))
