"""A real daemon for a benchmark."""

import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from emlio_bench.link.contract import Link
from emlio_bench.processes.child import Child

__all__ = ["RunningDaemon", "joint_address", "running_daemon"]

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
    directory: Path,
    flags: Sequence[str] = (),
    *,
    link: Link | None = None,
    within: Callable[[Sequence[str]], list[str]] = list,
) -> Generator[RunningDaemon, None, None]:
    """Serve one dataset on a free port of this machine while the block lasts.

    Args:
        directory: directory of the dataset.
        flags: more flags for `emlio-daemon`.
        link: link at whose storage end it runs; None for loopback.
        within: returns the command line that runs a program in the right place, such as at one end
            of a link; the process id must not change.
    """
    with tempfile.TemporaryDirectory(prefix="emlio-bench-") as folder:
        ready = Path(folder) / "ready.json"
        command = [sys.executable, "-m", "emlio.daemon.cli", "--data", f"{_DATASET}={directory}"]
        command += [
            "--ready-file",
            str(ready),
            "--bind",
            f"tcp://{link.storage.address if link is not None else '127.0.0.1'}:0",
        ]
        if link is not None:
            within = link.storage.command
            command += [] if "--keys" in flags else ["--insecure"]
        command += flags
        with Child("emlio-daemon", within(command)) as child:
            child.wait_until(ready.exists)  # it appears by a rename, as a whole
            endpoint = msgspec.json.decode(ready.read_bytes(), type=_Ready).endpoint
            address = endpoint.replace("tcp://", "emlio://") + "/" + _DATASET
            yield RunningDaemon(address=address, pid=child.pid)


def joint_address(daemons: Sequence[RunningDaemon]) -> str:
    """Return the address for a loader that reads from all daemons."""
    peers = [daemon.address.removeprefix("emlio://").removesuffix(f"/{_DATASET}") for daemon in daemons]
    return f"emlio://{','.join(peers)}/{_DATASET}"
