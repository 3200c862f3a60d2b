"""Servers at one end of a link.

Covers: free ports there, starting a program there until it can be reached, and that it ends with whoever started it, also with
one who was killed. Does not cover: which programs.
"""

import shutil
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from emlio.benchmarks.link.emulated import LinkEnd
from emlio.benchmarks.processes import Child
from emlio.errors import TransportError

__all__ = ["free_port", "served", "until_orphaned"]

_START_S: Final = 60.0
_LOOK_S: Final = 0.02
_CONNECT_S: Final = 5.0


def free_port(end: LinkEnd) -> int:
    """A port nobody listens on at this end."""
    with end.make_socket() as probe:
        probe.bind((end.address, 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(name: str, command: Sequence[str], end: LinkEnd, port: int) -> Generator[Child, None, None]:
    """A program that runs at this end while the block lasts; it begins when the program takes connections.

    Args:
        name: how errors call it.
        command: the program and its arguments.
        end: where.
        port: on which it listens at the end's address.

    The calling thread must outlive the block: for the kernel it is whose death the program hears of.
    """
    with Child(name, end.command(until_orphaned(command))) as child:
        deadline = time.monotonic() + _START_S
        # Nobody tells when a server of others listens; nothing is measured meanwhile. One that ends raises in `line`.
        while not _listens(end, port):
            child.line(_LOOK_S)
            if time.monotonic() > deadline:
                raise TransportError(f"{name} must listen on {end.address}:{port} within {_START_S:g} s, it did not")
        yield child


def until_orphaned(command: Sequence[str]) -> list[str]:
    """The command, told to end when its parent does. Where util-linux lacks setpriv, nobody would end it after a `kill -9`."""
    return ["setpriv", "--pdeathsig", "TERM", *command] if shutil.which("setpriv") is not None else list(command)


def _listens(end: LinkEnd, port: int) -> bool:
    with end.make_socket() as probe:
        probe.settimeout(_CONNECT_S)
        return probe.connect_ex((end.address, port)) == 0
