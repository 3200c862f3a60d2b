"""The process of one part, with a time limit.

Covers: showing its output line by line, keeping the end of it, ending it in time. Does not cover:
what it does.
"""

import fcntl
import os
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Ended", "run_process"]

_KEPT_LINES: Final = 12
_LINE_BYTES: Final = 4096
"""An unfinished line of this length is shown as it is."""
_CHUNK_BYTES: Final = 65536
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
    """Run a program to its end or to its limit.

    The process has ended when this returns or raises. An exception of `tell`, or an interruption,
    ends it in order; a second interruption kills it.

    Args:
        command: program and arguments.
        limit_s: it gets SIGTERM after so many seconds.
        tell: called with each line of its output until it gets SIGTERM.
        folder: folder that it runs in.
        environment: its environment variables; None for those of this process.
        grace_s: its process group gets SIGKILL so many seconds after SIGTERM.
    """
    begun_s = time.monotonic()
    # A callback runs even if another one raises, last first.
    with ExitStack() as stack:
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
        assert process.stdout is not None
        stack.callback(process.stdout.close)
        stack.callback(process.wait)
        # Before the leader is collected: until then, the number of the group cannot be another's.
        stack.callback(_kill_group, process.pid)
        leader = os.pidfd_open(process.pid)
        stack.callback(os.close, leader)
        output = _Output(process.stdout.fileno(), tell)
        stack.callback(_terminate, output, leader, grace_s)
        in_time = output.until(begun_s + limit_s, leader)
    return Ended(
        status=process.returncode if in_time else None, seconds=time.monotonic() - begun_s, last=tuple(output.last)
    )


class _Output:
    """The output of a process, until it closes it."""

    def __init__(self, descriptor: int, tell: Callable[[str], None]) -> None:
        self.last: deque[str] = deque(maxlen=_KEPT_LINES)
        self._descriptor = descriptor
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
            # The end and the deadline count first: output may never pause.
            if leader in ready:
                self._drain()
                return True
            if left_s <= 0:
                return False
            if self._descriptor in ready:
                self._read(_CHUNK_BYTES)

    def hush(self) -> None:
        """Show no more lines, but keep them."""
        self._tell = _nothing

    def _drain(self) -> None:
        """Show what the process left in the pipe, and no more than the pipe can hold."""
        left_bytes = fcntl.fcntl(self._descriptor, fcntl.F_GETPIPE_SZ)
        while self._open and left_bytes > 0 and select.select([self._descriptor], [], [], 0)[0]:
            left_bytes -= self._read(min(left_bytes, _CHUNK_BYTES))
        self._show(self._unread)
        self._unread = b""

    def _read(self, most_bytes: int) -> int:
        """Read once, show the lines that are whole, and return the number of bytes."""
        chunk = os.read(self._descriptor, most_bytes)
        self._open = bool(chunk)
        *whole, self._unread = (self._unread + chunk).split(b"\n")
        if len(self._unread) >= _LINE_BYTES:
            whole.append(self._unread)
            self._unread = b""
        for line in whole:
            self._show(line)
        return len(chunk)

    def _show(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if text:
            self.last.append(text)
            self._tell(text)


def _nothing(line: str) -> None:
    """Show nothing."""


def _terminate(output: _Output, leader: int, grace_s: float) -> None:
    """Ask the process to end, and wait for it; do nothing if it has ended."""
    if select.select([leader], [], [], 0)[0]:
        return
    output.hush()
    signal.pidfd_send_signal(leader, signal.SIGTERM)
    output.until(time.monotonic() + grace_s, leader)


def _kill_group(group: int) -> None:
    """End what the process left in its group, and the process itself if it has not ended."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
