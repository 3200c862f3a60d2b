"""The process of one part, with a time limit.

Covers: showing its output line by line, keeping the end of it, ending it in time. Does not cover:
what it does.
"""

import os
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
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
) -> Ended:
    """Run a program to its end or to its limit.

    Args:
        command: program and arguments.
        limit_s: it gets SIGTERM after so many seconds, and SIGKILL with its process group later.
        tell: called with each line of its output.
        folder: folder that it runs in.
        environment: its environment variables; None for those of this process.
    """
    begun_s = time.monotonic()
    # A session of its own: Ctrl-C reaches this process only, which then ends the part in order.
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        cwd=folder,
        env=environment,
    )
    lines = _Lines(process, tell)
    leader = os.pidfd_open(process.pid)
    try:
        in_time = lines.until(begun_s + limit_s, leader)
        if not in_time:
            process.terminate()
            lines.until(time.monotonic() + _GRACE_S, leader)
    finally:
        _end(process, lines, leader)
    return Ended(
        status=process.returncode if in_time else None, seconds=time.monotonic() - begun_s, last=tuple(lines.last)
    )


class _Lines:
    """The output of a process, until it closes it."""

    def __init__(self, process: "subprocess.Popen[bytes]", tell: Callable[[str], None]) -> None:
        assert process.stdout is not None
        self.last: deque[str] = deque(maxlen=_KEPT_LINES)
        self._descriptor = process.stdout.fileno()
        self._tell = tell
        self._unread = b""
        self._open = True

    def until(self, deadline_s: float, leader: int) -> bool:
        """Show lines until the process ends; return False if the deadline comes first.

        What it leaves running may hold its output open, and is not waited for.

        Args:
            deadline_s: time limit, by the monotonic clock.
            leader: descriptor that becomes readable when the process ends.
        """
        while True:
            left_s = deadline_s - time.monotonic()
            watched = [leader, *([self._descriptor] if self._open else [])]
            ready = select.select(watched, [], [], max(left_s, 0))[0]
            if self._descriptor in ready:
                self._read()
            elif leader in ready:
                self._show(self._unread)
                return True
            elif left_s <= 0:
                return False

    def _read(self) -> None:
        chunk = os.read(self._descriptor, 65536)
        self._open = bool(chunk)
        *whole, self._unread = (self._unread + chunk).split(b"\n")
        for line in whole:
            self._show(line)

    def _show(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if text:
            self.last.append(text)
            self._tell(text)


def _end(process: "subprocess.Popen[bytes]", lines: _Lines, leader: int) -> None:
    """End the process and what it left in its group, and close its output."""
    if process.poll() is None:
        process.terminate()
        lines.until(time.monotonic() + _GRACE_S, leader)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    os.close(leader)
    assert process.stdout is not None
    process.stdout.close()
