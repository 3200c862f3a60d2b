"""The resources of a process, as the kernel reports them."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.errors import TransportError

__all__ = ["Census", "take_census"]

_LISTENS: Final = "0A"
_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """The resources of a process at one time.

    Attributes:
        ports: TCP ports on which it listens.
        descriptors: number of open descriptors.
        threads_ns: processor time by thread name, summed over threads of the same name; the first
            thread is called "main".
        anonymous_bytes: memory that is not backed by a file.
    """

    ports: frozenset[int]
    descriptors: int
    threads_ns: Mapping[str, int]
    anonymous_bytes: int

    def threads_since(self, earlier: "Census") -> dict[str, int]:
        """Return the processor time of threads since an earlier census, by name."""
        return {name: spent - earlier.threads_ns.get(name, 0) for name, spent in self.threads_ns.items()}


def take_census(pid: int, proc: Path = Path("/proc")) -> Census:
    """Read the resources of a process, which must be alive.

    Args:
        pid: process id.
        proc: the proc file system.
    """
    own = proc / str(pid)
    try:
        links = _links(own / "fd")
        return Census(
            ports=frozenset(_listening(own / "net", links)),
            descriptors=len(links),
            threads_ns=_threads_ns(own / "task", pid),
            anonymous_bytes=_anonymous_bytes(own / "smaps_rollup"),
        )
    except FileNotFoundError as error:
        raise TransportError(f"process {pid} must live to be looked at: {error}") from error


def _links(folder: Path) -> list[str]:
    links: list[str] = []
    for name in os.listdir(folder):
        try:
            links.append(os.readlink(folder / name))
        except FileNotFoundError:
            continue  # it was closed meanwhile
    return links


def _listening(folder: Path, links: list[str]) -> Iterator[int]:
    # The tables list all sockets of the network namespace. The inode shows which process a socket
    # belongs to.
    own = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}
    for table in ("tcp", "tcp6"):
        path = folder / table
        for line in path.read_text(encoding="ascii").splitlines()[1:] if path.exists() else ():
            fields = line.split()
            if fields[3] == _LISTENS and fields[9] in own:
                yield int(fields[1].rpartition(":")[2], 16)


def _threads_ns(folder: Path, pid: int) -> dict[str, int]:
    spent: Counter[str] = Counter()
    for task in folder.iterdir():
        try:
            text = (task / "stat").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            continue  # it ended meanwhile
        before, _, after = text.rpartition(")")
        fields = after.split()
        name = "main" if task.name == str(pid) else before.partition("(")[2]
        spent[name] += (int(fields[11]) + int(fields[12])) * _TICK_NS
    return dict(spent)


def _anonymous_bytes(path: Path) -> int:
    for line in path.read_text(encoding="ascii").splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    raise TransportError(f"the kernel must tell the anonymous memory of a process, {path} does not")
