"""The command `emlio`, run to its end."""

import io
import os
import selectors
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from emlio_testing.fork_server.client import ForkedProcess
from emlio_testing.processes import start_python

__all__ = ["Ended", "run_emlio"]

_COMMAND: Final = "import sys; from emlio.cli import main; sys.exit(main())"
_OF_THE_USER: Final = ("EMLIO_HOME", "XDG_CONFIG_HOME")
_CHUNK_BYTES: Final = 65_536


_Started = ForkedProcess | subprocess.Popen[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that has ended.

    Attributes:
        status: its exit status; negative for a signal.
        out: its output.
        err: its standard error.
    """

    status: int
    out: str
    err: str


def run_emlio(
    *words: object,
    home: Path,
    timeout_s: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run `emlio` with these arguments for a user whose home folder is `home`.

    Args:
        words: its arguments.
        home: the home folder, which holds all settings of the user.
        timeout_s: how long it may take.
        folder: its working directory; by default this process's.
        environment: variables in addition to this process's.

    Raises:
        AssertionError: it showed a traceback.
        subprocess.TimeoutExpired: it did not end in time and was killed, or a process that it left holds its pipes.
    """
    usual = {name: value for name, value in os.environ.items() if name not in _OF_THE_USER}
    whole = {**usual, "PYTHONUNBUFFERED": "1", "HOME": str(home), **(environment or {})}
    process = start_python(["-c", _COMMAND, *map(str, words)], whole, folder=folder)
    with process:
        deadline = time.monotonic() + timeout_s
        try:
            out, err = _read_to_end(process, deadline, timeout_s)
            status = process.wait(max(deadline - time.monotonic(), 0))
        except BaseException:
            _kill_tree(process)
            raise
    assert "Traceback" not in err, err
    return Ended(status=status, out=out, err=err)


def _read_to_end(process: _Started, deadline: float, timeout_s: float) -> tuple[str, str]:
    """Read the output and the standard error of a command to their ends.

    No thread does it: one that reads could be ended only by the processes that hold the pipes.
    """
    if process.stdout is None or process.stderr is None:
        raise AssertionError("pipes were asked for")
    out, err = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, out)
        selector.register(process.stderr, selectors.EVENT_READ, err)
        while selector.get_map():
            ready = selector.select(max(deadline - time.monotonic(), 0))
            if not ready or time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {process.pid}", timeout_s, bytes(out), bytes(err))
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK_BYTES)
                key.data.extend(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
    return _text(out), _text(err)


def _text(read: bytearray) -> str:
    """Decode as a pipe of text does, with its ends of lines."""
    return io.TextIOWrapper(io.BytesIO(read), encoding="utf-8").read()


def _kill_tree(process: _Started) -> None:
    """Kill a command and the processes that it started."""
    started: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        started = psutil.Process(process.pid).children(recursive=True)
    for one in started:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    process.kill()
