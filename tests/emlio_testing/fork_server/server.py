"""The fork server: `python -m emlio_testing.fork_server.server DESCRIPTOR MODULE ...`.

A child leaves the server's loop and runs its program at the top level of the interpreter. So the end of the
program, its exit status, its tracebacks and Ctrl-C are those of any Python.
"""

import contextlib
import gc
import importlib
import io
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["main"]

_MOST_BYTES = 1 << 20
_NOT_FOR_THE_SERVER = {signal.SIGINT, signal.SIGHUP}
"""Ctrl-C and the end of a terminal are for the tests, which end what they started."""

_STANDARD = 3
"""Standard input, output and error come first among a request's descriptors; the status pipe is the last."""


def _report(pid: int, status: int) -> None:
    """Wait for a child that has ended, and write its exit status; negative for a signal."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if ended is None:
        raise AssertionError("a child whose handle is ready must have ended")
    code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    with contextlib.suppress(BrokenPipeError):  # the start was interrupted
        os.write(status, code.to_bytes(4, "little", signed=True))
    os.waitpid(pid, 0)  # only now: where the process is gone, its status can be read
    os.close(status)  # where this is read, it is gone


class _Children:
    """The running children of the server.

    A child whose status pipe has no reader is killed: its start was interrupted, and no test knows it.
    """

    def __init__(self) -> None:
        self.poll = select.poll()
        self._ends: dict[int, tuple[int, int]] = {}  # from the handle to the process and its status pipe
        self._handles: dict[int, int] = {}  # from the status pipe to the handle

    def add(self, pid: int, status: int) -> int:
        """Return the handle of a new child."""
        handle = os.pidfd_open(pid)
        self._ends[handle] = (pid, status)
        self._handles[status] = handle
        self.poll.register(handle, select.POLLIN)
        self.poll.register(status, 0)  # POLLERR is always reported: the pipe has no reader
        return handle

    def attend(self, ready: int) -> None:
        """Handle the end of a child, or the end of the reader of its status pipe.

        Args:
            ready: the descriptor that is ready.
        """
        if ready in self._ends:
            pid, status = self._ends.pop(ready)
            self.poll.unregister(ready)
            if self._handles.pop(status, None) is not None:
                self.poll.unregister(status)
            _report(pid, status)
            os.close(ready)
        elif ready in self._handles:
            self.poll.unregister(ready)
            signal.pidfd_send_signal(self._handles.pop(ready), signal.SIGKILL)

    def end(self) -> None:
        """Kill the children whose status pipe has no reader. The others go on."""
        for ready, _ in self.poll.poll(0):
            if ready in self._handles:
                handle = self._handles[ready]
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                os.waitid(os.P_PIDFD, handle, os.WEXITED)

    def forget(self) -> None:
        """Close the descriptors of all children. For a new child."""
        for handle, (_, status) in self._ends.items():
            os.close(handle)
            os.close(status)


def _serve(channel: socket.socket) -> dict[str, Any] | None:
    """Fork for each request.

    Returns:
        In a child its request; in the server None, when the channel has ended.
    """
    children = _Children()
    children.poll.register(channel, select.POLLIN)
    while True:
        # The channel comes last: a new descriptor may get the number of one that was ready and is closed now.
        for ready, _ in sorted(children.poll.poll(), key=lambda event: event[0] == channel.fileno()):
            if ready != channel.fileno():
                children.attend(ready)
                continue
            message, descriptors, _, _ = socket.recv_fds(channel, _MOST_BYTES, _STANDARD + 1)
            if not message:
                children.poll.unregister(channel)
                children.end()
                return None
            asked: dict[str, Any] = json.loads(message)
            if "modules" in asked:
                _load(asked["modules"])
                continue
            *standard, status = descriptors
            pid = os.fork()
            if pid == 0:
                children.forget()
                os.close(status)
                channel.close()
                for number, descriptor in enumerate(standard):
                    os.dup2(descriptor, number)
                    os.close(descriptor)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _NOT_FOR_THE_SERVER)
                return asked
            handle = children.add(pid, status)
            socket.send_fds(channel, [json.dumps([asked["number"], pid]).encode()], [handle])
            for descriptor in standard:
                os.close(descriptor)


def _load(modules: Sequence[str]) -> None:
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a child's collector must not touch, and so copy, what it shares with the server


def _become(request: dict[str, Any]) -> None:
    """Give this process the environment, folder, arguments and streams of the request."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = request["argv"]
    sys.path[0] = os.getcwd() if request["module"] else ""
    # As in an interpreter with PYTHONUNBUFFERED: nothing waits in a buffer.
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors=sys.stdin.errors, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    for number, name in ((1, "stdout"), (2, "stderr")):
        errors = getattr(sys, name).errors
        file: Any = io.FileIO(number, "w", closefd=False)
        stream = io.TextIOWrapper(file, encoding="utf-8", errors=errors, write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def main(words: Sequence[str]) -> dict[str, Any] | None:
    """Import the modules, then serve; return a child's request in the child.

    Args:
        words: the descriptor of the channel, and names of modules.
    """
    descriptor, *modules = words
    # A thread that an import starts blocks them, too.
    signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_THE_SERVER)
    _load(modules)
    request = _serve(socket.socket(fileno=int(descriptor)))
    if request is not None:
        _become(request)
    return request


if __name__ == "__main__":
    _request = main(sys.argv[1:])
    if _request is not None:
        _main = type(sys)("__main__")
        _main.__dict__["__builtins__"] = __builtins__
        sys.modules["__main__"] = _main
        if _request["module"]:
            import runpy

            sys.modules.pop(_request["module"], None)  # it is imported already, and runs anew as __main__
            runpy.run_module(_request["module"], run_name="__main__", alter_sys=True)
        else:
            exec(compile(_request["script"], "<string>", "exec"), _main.__dict__)
