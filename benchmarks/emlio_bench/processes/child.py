"""The processes of a benchmark: starting them, reading their messages, ending them.

Each side of a measurement is a process of its own, so that the driver's work is not counted. A
child reports to the driver with one JSON object per line.
"""

import os
import select
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar

import msgspec

from emlio.errors import TransportError

__all__ = ["Child", "say", "start_worker", "worker_command"]

_Value = TypeVar("_Value")
_END_S = 5.0
_START_S = 60.0
_LOOK_S = 0.005
_COMPLAINT_BYTES = 2000


def say(message: object) -> None:
    """Report to the driver. For children."""
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


class Child:
    """A process that ends with its `with` block, whatever happens in the block."""

    def __init__(self, name: str, command: Sequence[str], *, talks: bool = False) -> None:
        """Start the process.

        Args:
            name: name of the process in errors.
            command: program and arguments.
            talks: whether its input is a pipe, for `ask`.
        """
        self._name = name
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `close`
        try:
            # A session of its own, so that Ctrl-C reaches only the driver, which then ends its
            # children in order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                start_new_session=True,
            )
        except OSError as error:
            self._complaints.close()
            raise TransportError(f"{name} must start: {command[0]}: {error.strerror}") from error
        # This also ends the process if an interruption comes before the `with` block is entered.
        self._finish = weakref.finalize(self, _end, self._process)
        self._unread = b""

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the process has not ended."""
        return self._process.poll() is None

    def line(self, timeout_s: float) -> bytes | None:
        """Return the next line of output, or None after the timeout.

        This raises if the process has ended.
        """
        stream = self._process.stdout
        assert stream is not None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if not select.select([stream], [], [], max(left, 0))[0]:
                return None
            chunk = os.read(stream.fileno(), 65536)
            if not chunk:
                raise self._failure("ended early")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def wait_until(self, ready: Callable[[], bool], look_s: float = _LOOK_S) -> None:
        """Wait for files, which appear without an event; nothing is measured meanwhile.

        This raises if the process ends instead.

        Args:
            ready: whether they have appeared.
            look_s: time from one look to the next.
        """
        deadline = time.monotonic() + _START_S
        while not ready():
            self.line(look_s)
            if time.monotonic() > deadline:
                raise TransportError(f"{self._name} must be ready within {_START_S:g} s, it was not")

    def hear(self, kind: type[_Value], timeout_s: float) -> _Value:
        """Return the next object that the process reports."""
        line = self.line(timeout_s)
        if line is None:
            raise self._failure(f"said nothing for {timeout_s:g} s")
        return msgspec.json.decode(line, type=kind)

    def ask(self, request: object, kind: type[_Value], timeout_s: float) -> _Value:
        """Write a request, and return the answer; for a process that talks."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(request) + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._failure("ended early") from error
        return self.hear(kind, timeout_s)

    def finish(self, patience_s: float) -> None:
        """End a process that talks by the end of its input, and by signals if it does not end in time."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        self.__exit__()

    def rest(self, timeout_s: float) -> bytes:
        """Return the remaining output until the process ends, which must be with status 0."""
        stream = self._process.stdout
        assert stream is not None
        said = [self._unread]
        deadline = time.monotonic() + timeout_s
        while True:
            if not select.select([stream], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise self._failure(f"did not end within {timeout_s:g} s")
            chunk = os.read(stream.fileno(), 65536)
            if not chunk:
                break
            said.append(chunk)
        self._unread = b""
        try:
            status = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            raise self._failure(f"did not end within {_END_S:g} s after it had closed its output") from None
        if status != 0:
            raise self._failure("failed")
        return b"".join(said)

    def _failure(self, what: str) -> TransportError:
        self.end()
        self._complaints.seek(0, os.SEEK_END)
        self._complaints.seek(max(self._complaints.tell() - _COMPLAINT_BYTES, 0))
        complaint = self._complaints.read().decode(errors="replace").strip()
        return TransportError(
            f"{self._name} must work through, it {what} (exit status {self._process.returncode})"
            + (f":\n{complaint}" if complaint else "")
        )

    def end(self) -> None:
        """End the process with SIGTERM, then with SIGKILL. A second call does nothing."""
        self._finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.end()
        finally:
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with suppress(OSError):  # what could not be written
                        stream.close()
            self._complaints.close()


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
    finally:
        process.kill()  # also if a signal broke off the wait; does nothing if the process has ended
        process.wait()


def worker_command(role: str, job: Any) -> list[str]:
    """Return the command line of a child with a role of emlio_bench.processes.worker.

    Args:
        role: name of the role.
        job: configuration of the role.
    """
    return [sys.executable, "-m", "emlio_bench.processes.worker", role, msgspec.json.encode(job).decode()]


def start_worker(role: str, job: Any, within: Callable[[Sequence[str]], list[str]] = list) -> Child:
    """Start a child with a role; see `worker_command`.

    Args:
        role: name of the role.
        job: configuration of the role.
        within: returns the command line that runs a program in the right place, such as at one end
            of a link.
    """
    return Child(role, within(worker_command(role, job)))
