"""A real daemon for a benchmark.

Covers: starting `emlio-daemon` in a process and waiting until it accepts ranks. Does not cover:
ranks.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from emlio.errors import TransportError
from emlio_bench.processes.child import Child

__all__ = ["RunningDaemon", "joint_address", "running_daemon"]

_START_S = 60.0
_LOOK_S = 0.005
_DATASET = "bench"


class _Ready(msgspec.Struct, frozen=True):
    endpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningDaemon:
    """The address and the process of a daemon.

    Attributes:
        address: emlio://HOST:PORT/DATASET.
        pid: process id.
    """

    address: str
    pid: int


@contextmanager
def running_daemon(
    directory: Path, flags: Sequence[str] = (), *, within: Callable[[Sequence[str]], list[str]] = list
) -> Generator[RunningDaemon, None, None]:
    """Serve one dataset on a free port of this machine while the block lasts.

    Args:
        directory: directory of the dataset.
        flags: more flags for `emlio-daemon`.
        within: returns the command line that runs a program in the right place, such as at one end
            of a link; the process id must not change.
    """
    with tempfile.TemporaryDirectory(prefix="emlio-bench-") as folder:
        ready = Path(folder) / "ready.json"
        command = [sys.executable, "-m", "emlio.daemon.cli", "--data", f"{_DATASET}={directory}"]
        command += ["--bind", "tcp://127.0.0.1:0", "--ready-file", str(ready), *flags]
        with Child("emlio-daemon", within(command)) as child:
            endpoint = _wait(child, ready).endpoint
            address = endpoint.replace("tcp://", "emlio://") + "/" + _DATASET
            yield RunningDaemon(address=address, pid=child.pid)


def joint_address(daemons: Sequence[RunningDaemon]) -> str:
    """Return the address for a loader that reads from all daemons."""
    peers = [daemon.address.removeprefix("emlio://").removesuffix(f"/{_DATASET}") for daemon in daemons]
    return f"emlio://{','.join(peers)}/{_DATASET}"


def _wait(child: Child, ready: Path) -> _Ready:
    deadline = time.monotonic() + _START_S
    # The file appears by a rename, for which there is no event; nothing is measured meanwhile. If
    # the daemon dies, reading its output raises.
    while not ready.exists():
        child.line(_LOOK_S)
        if time.monotonic() > deadline:
            raise TransportError(f"emlio-daemon must be ready within {_START_S:g} s, it was not")
    return msgspec.json.decode(ready.read_bytes(), type=_Ready)
