"""Servers at one end of a link."""

import shutil
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from emlio.errors import TransportError
from emlio_bench.link.contract import Link, LinkEnd
from emlio_bench.processes.child import Child

__all__ = ["DATA_PORTS", "free_port", "served", "until_orphaned"]

DATA_PORTS: Final = (20_000, 20_063)
"""The range of ports for servers that open ports on demand."""

_START_S: Final = 60.0
_LOOK_S: Final = 0.02
_CONNECT_S: Final = 5.0


def free_port(end: LinkEnd) -> int:
    """Return a port at this end that is not in use."""
    with end.make_socket() as probe:
        probe.bind((end.listen, 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(name: str, command: Sequence[str], link: Link, port: int) -> Generator[Child, None, None]:
    """Run a program at the storage end while the block lasts.

    The block starts once the program accepts connections.

    Args:
        name: name of the program in errors.
        command: the program and its arguments.
        link: link at whose storage end it runs.
        port: port on which it listens there.

    The calling thread must outlive the block, because the kernel ends the program when that thread
    ends.
    """
    end = link.storage
    with Child(name, end.command(until_orphaned(command))) as child:
        deadline = time.monotonic() + _START_S
        # Other systems' servers do not report that they listen, so this polls; nothing is measured
        # meanwhile. If the program ends, `line` raises.
        while not _listens(end, port):
            child.line(_LOOK_S)
            if time.monotonic() > deadline:
                raise TransportError(f"{name} must listen on {end.listen}:{port} within {_START_S:g} s, it did not")
        yield child


def until_orphaned(command: Sequence[str]) -> list[str]:
    """Return the command, wrapped so that it ends with its parent.

    Without util-linux's setpriv, it would survive a `kill -9` of its parent.
    """
    return ["setpriv", "--pdeathsig", "TERM", *command] if shutil.which("setpriv") is not None else list(command)


def _listens(end: LinkEnd, port: int) -> bool:
    with end.make_socket() as probe:
        probe.settimeout(_CONNECT_S)
        return probe.connect_ex((end.listen, port)) == 0
