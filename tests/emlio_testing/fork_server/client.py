"""Starting processes by the fork server, with the same calls as `subprocess.Popen`."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Lock
from typing import IO, Final, Self

__all__ = ["ForkServer", "ForkedProcess"]

_MODULES: Final = (
    "emlio.daemon.cli",
    "emlio.receiver.loader",
    "emlio.receiver.engine",
    "emlio.cli.energy",
    "emlio.cli.keys",
    "runpy",
)
_SET_AFTER_START: Final = (
    "EMLIO_",
    "GLOO_",
    "PYTEST_",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
)
"""Beginnings of names that no interpreter and no library reads while it starts."""

_UNBUFFERED: Final = "PYTHONUNBUFFERED"
_MOST_BYTES: Final = 100
_END_S: Final = 60.0


class ForkedProcess:
    """A child of the fork server.

    Attributes:
        pid: number of the process.
        stdin: its standard input; None unless it was asked for.
        stdout: its standard output.
        stderr: its standard error.
        returncode: exit status, negative for a signal; None until it is known.
    """

    def __init__(self, pid: int, handle: int, status: int, stdin: IO[str] | None, out: IO[str], err: IO[str]) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = out
        self.stderr = err
        self.returncode: int | None = None
        self._handle = handle
        self._status = status
        self._lock = Lock()

    def poll(self) -> int | None:
        """Return the exit status; None if the process has not ended."""
        return self._look(0)

    def wait(self, timeout: float) -> int:
        """Wait for the end and return the exit status.

        Raises:
            subprocess.TimeoutExpired: it has not ended in time.
        """
        status = self._look(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing happens when the process has ended."""
        with self._lock:
            if self.returncode is None:
                with suppress(ProcessLookupError):  # it has ended just now
                    signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close its pipes and wait for its end."""
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()
        self.wait(_END_S)

    def _look(self, timeout_s: float) -> int | None:
        if self.returncode is None and self._ended(timeout_s):
            with self._lock:
                if self.returncode is None:
                    told = os.read(self._status, 4)
                    if told:
                        os.read(self._status, 1)  # its end: the process is gone
                        self.returncode = int.from_bytes(told, "little", signed=True)
                    else:
                        self._give_up()
                    os.close(self._status)
                    os.close(self._handle)
                    if not told:
                        raise AssertionError("the fork server must outlive its children; this one was killed")
        return self.returncode

    def _give_up(self) -> None:
        """Kill the process, whose exit status will never be known."""
        self.returncode = -signal.SIGKILL
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _ended(self, timeout_s: float) -> bool:
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))


class ForkServer:
    """The client of a fork server, and its owner."""

    def __init__(self, modules: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        """Start the server.

        Args:
            modules: what it imports besides the modules of daemons and ranks.
            environment: variables in addition to this process's.
        """
        self._lock = Lock()
        self._requests = 0
        self._environment = {**os.environ, **(environment or {})}
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [sys.executable, "-m", "emlio_testing.fork_server.server", str(theirs.fileno()), *_MODULES, *modules]
        # One thread of OpenBLAS: a process with several cannot be forked safely.
        environment = {**self._environment, "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            words, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        theirs.close()

    def serves(self, environment: Mapping[str, str]) -> bool:
        """True if a process with this environment may be forked.

        A variable that an interpreter or a library reads while it starts needs a new interpreter.
        """
        changed = {
            name
            for name in self._environment.keys() | environment.keys()
            if self._environment.get(name) != environment.get(name)
        }
        return environment.get(_UNBUFFERED) == "1" and all(
            name == _UNBUFFERED or name.startswith(_SET_AFTER_START) for name in changed
        )

    def start(
        self, program: Sequence[str], environment: Mapping[str, str], *, folder: Path | None = None, told: bool = False
    ) -> ForkedProcess:
        """Fork a process.

        Args:
            program: arguments of Python: -m or -c, the module or the script, and its own arguments.
            environment: its whole environment, for which `serves` is true.
            folder: its working directory; by default this process's.
            told: whether its standard input is a pipe; else it is empty.
        """
        flag, what, *words = program
        request = {
            "argv": [what if flag == "-m" else flag, *words],
            "environment": dict(environment),
            "folder": os.path.abspath(folder or os.curdir),
            "module": what if flag == "-m" else "",
            "script": what if flag == "-c" else "",
        }
        # If the start is interrupted, all of `kept` is closed. A child whose status no process reads is killed by the server.
        with ExitStack() as kept, ExitStack() as passed:
            status, inner_status = os.pipe()
            kept.callback(os.close, status)
            if told:
                inner_in, outer_in = os.pipe()
                stdin = kept.enter_context(open(outer_in, "w", encoding="utf-8"))
            else:
                inner_in, stdin = os.open(os.devnull, os.O_RDONLY), None
            outer_out, inner_out = os.pipe()
            outer_err, inner_err = os.pipe()
            out, err = (kept.enter_context(open(outer, encoding="utf-8")) for outer in (outer_out, outer_err))
            inners = [inner_in, inner_out, inner_err, inner_status]
            for inner in inners:
                passed.callback(os.close, inner)
            pid, handle = self._forked(request, inners)
            kept.callback(os.close, handle)
            process = ForkedProcess(pid, handle, status, stdin, out, err)
            kept.pop_all()
            return process

    def _forked(self, request: Mapping[str, object], descriptors: Sequence[int]) -> tuple[int, int]:
        """Return the number and the handle of the process that the server forks."""
        with self._lock:
            self._requests += 1
            message = json.dumps({**request, "number": self._requests}).encode()
            socket.send_fds(self._channel, [message], descriptors)
            while True:
                answer, handles, _, _ = socket.recv_fds(self._channel, _MOST_BYTES, 1)
                if not answer:
                    raise AssertionError("the fork server must answer; it has ended")
                number, pid = json.loads(answer)
                if number == self._requests:
                    return pid, handles[0]
                os.close(handles[0])  # the caller of that start was interrupted while it waited

    def load(self, *modules: str) -> None:
        """Let it import more modules, for the processes that are started from now on."""
        with self._lock:
            self._channel.send(json.dumps({"modules": modules}).encode())

    @property
    def pid(self) -> int:
        """Number of the server's process."""
        return self._process.pid

    def close(self) -> None:
        """End the server. Processes that it forked go on, except those whose start was interrupted."""
        with suppress(OSError):  # it was closed before
            self._channel.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(_END_S)
        finally:
            # Only now: closing a channel with unread answers is an error for the server.
            self._channel.close()
            self._process.kill()
            self._process.wait(_END_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
