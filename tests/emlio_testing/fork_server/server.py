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


def _serve(channel: socket.socket) -> dict[str, Any] | None:
    """Fork for each request.

    Returns:
        In a child its request; in the server None, when the channel has ended.
    """
    children: dict[int, tuple[int, int]] = {}
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready in children:
                poll.unregister(ready)
                _report(*children.pop(ready))
                os.close(ready)
                continue
            message, descriptors, _, _ = socket.recv_fds(channel, _MOST_BYTES, _STANDARD + 1)
            if not message:
                return None
            *standard, status = descriptors
            pid = os.fork()
            if pid == 0:
                for one, (_, other) in children.items():
                    os.close(one)
                    os.close(other)
                os.close(status)
                channel.close()
                for number, descriptor in enumerate(standard):
                    os.dup2(descriptor, number)
                    os.close(descriptor)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
                request: dict[str, Any] = json.loads(message)
                return request
            handle = os.pidfd_open(pid)
            children[handle] = (pid, status)
            poll.register(handle, select.POLLIN)
            number = json.loads(message)["number"]
            socket.send_fds(channel, [json.dumps([number, pid]).encode()], [handle])
            for descriptor in standard:
                os.close(descriptor)


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
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is for the tests, which end what they started
    gc.freeze()  # a child's collector must not touch, and so copy, what it shares with the server
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
