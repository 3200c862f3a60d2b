"""The users and processes that listen at a TCP port of this host, as far as this user may know."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["listening_process", "listening_users"]

_LISTENS = "0A"


def listening_users(port: int) -> set[int]:
    """Return the users that listen at a port, at any address."""
    return {int(row[7]) for row in _rows(port)}


def listening_process(port: int) -> str:
    """Return " by NAME (process NUMBER)", or how to find out, for an error of a port that is taken."""
    wanted = {f"socket:[{row[9]}]" for row in _rows(port)}
    for folder in Path("/proc").glob("[0-9]*/fd") if wanted else ():
        with suppress(OSError):  # processes of other users, and those that end meanwhile
            if any(os.readlink(folder / number) in wanted for number in os.listdir(folder)):
                name = (folder.parent / "comm").read_text(encoding="utf-8", errors="replace").strip()
                return f" by {name!r} (process {folder.parent.name})"
    return f", see by whom with: sudo ss -ltnp 'sport = :{port}'"


def _rows(port: int) -> Iterator[list[str]]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
            rows = (line.split() for line in lines)
            yield from (row for row in rows if row[3] == _LISTENS and row[1].endswith(f":{port:04X}"))
