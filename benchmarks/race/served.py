"""Servers at one end of a link.

Covers: free ports there, starting a program there until it can be reached, and that it ends with whoever started it, also with
one who was killed. Does not cover: which programs.
"""

import shutil
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from emlio.benchmarks.link.contract import Link, LinkEnd
from emlio.benchmarks.processes import Child
from emlio.errors import TransportError

__all__ = ["DATA_PORTS", "free_port", "offer_data_ports", "served", "until_orphaned"]

DATA_PORTS: Final = (20_000, 20_063)
"""For servers that open ports as readers come: from where to where, so that a relay can be told before."""

_START_S: Final = 60.0
_LOOK_S: Final = 0.02
_CONNECT_S: Final = 5.0


def free_port(end: LinkEnd) -> int:
    """A port nobody listens on at this end."""
    with end.make_socket() as probe:
        probe.bind((end.listen, 0))
        return int(probe.getsockname()[1])


def offer_data_ports(link: Link) -> None:
    """Let DATA_PORTS be reached."""
    first, last = DATA_PORTS
    link.offer(range(first, last + 1))


@contextmanager
def served(name: str, command: Sequence[str], link: Link, port: int) -> Generator[Child, None, None]:
    """A program that runs at this end while the block lasts; it begins when the program takes connections.

    Args:
        name: how errors call it.
        command: the program and its arguments.
        link: at whose storage's end.
        port: on which it listens there.

    The calling thread must outlive the block: for the kernel it is whose death the program hears of.
    """
    end = link.storage
    with Child(name, end.command(until_orphaned(command))) as child:
        deadline = time.monotonic() + _START_S
        # Nobody tells when a server of others listens; nothing is measured meanwhile. One that ends raises in `line`.
        while not _listens(end, port):
            child.line(_LOOK_S)
            if time.monotonic() > deadline:
                raise TransportError(f"{name} must listen on {end.listen}:{port} within {_START_S:g} s, it did not")
        link.offer([port])
        yield child


def until_orphaned(command: Sequence[str]) -> list[str]:
    """The command, told to end when its parent does. Where util-linux lacks setpriv, nobody would end it after a `kill -9`."""
    return ["setpriv", "--pdeathsig", "TERM", *command] if shutil.which("setpriv") is not None else list(command)


def _listens(end: LinkEnd, port: int) -> bool:
    with end.make_socket() as probe:
        probe.settimeout(_CONNECT_S)
        return probe.connect_ex((end.listen, port)) == 0
