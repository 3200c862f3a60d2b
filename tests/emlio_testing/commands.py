"""The command `emlio`, run to its end.

Covers: its status and output. Does not cover: the daemon and ranks (emlio_testing.processes).
"""

import os
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from emlio_testing.processes import start_python

__all__ = ["Ended", "run_emlio"]

_COMMAND: Final = "import sys; from emlio.cli import main; sys.exit(main())"
_OF_THE_USER: Final = ("EMLIO_HOME", "XDG_CONFIG_HOME")


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
        subprocess.TimeoutExpired: it did not end in time and was killed.
    """
    usual = {name: value for name, value in os.environ.items() if name not in _OF_THE_USER}
    whole = {**usual, "PYTHONUNBUFFERED": "1", "HOME": str(home), **(environment or {})}
    process = start_python(["-c", _COMMAND, *map(str, words)], whole, folder=folder)
    with process, ThreadPoolExecutor(2) as readers:
        out, err = (readers.submit(pipe.read) for pipe in (process.stdout, process.stderr) if pipe is not None)
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            for started in psutil.Process(process.pid).children(recursive=True):  # they hold its pipes
                with suppress(psutil.NoSuchProcess):
                    started.kill()
            process.kill()
            raise
    assert "Traceback" not in err.result(), err.result()
    return Ended(status=status, out=out.result(), err=err.result())
