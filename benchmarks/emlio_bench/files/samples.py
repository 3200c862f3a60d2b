"""One sample: a fresh client, a reader, and two epochs."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from emlio.errors import ConfigError, TransportError
from emlio.files import hint
from emlio_bench.files.library import LIBRARIES, LibraryOrder, Read, Ready
from emlio_bench.files.servers import Server
from emlio_bench.link.contract import Link
from emlio_bench.processes.child import Child, worker_command
from emlio_bench.race.consumers.mounted import mounted
from emlio_bench.race.run.one_machine import children, trees_cpu_ns

__all__ = ["COMPILED", "EPOCHS", "SUBJECTS", "Epoch", "Place", "Subject", "Way", "compiled", "sample"]

EPOCHS: Final = ("first", "second")
"""The first one looks up each name; in the second the client knows them, and pages that its kernel has kept."""

_FOLDER: Final = Path(__file__).parent
COMPILED: Final = {"c": (), "nfs": ("-DNFS", "-lnfs")}
"""The readers that are compiled, with flags."""
_COMPILE_S: Final = 60.0
_START_S: Final = 60.0
_EPOCH_S: Final = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A way to see the files of the storage end.

    Attributes:
        order: what is known of the order in which they are read.
        server: "emlio", "sshfs" or "nfs"; empty for none.
        trips: the least round trips for a file and reader; 0 if files come ahead.
        programs: the readers it has; empty for a library, which reads itself.
    """

    order: str = ""
    server: str = ""
    trips: int = 0
    programs: tuple[str, ...] = ("c", "python")


SUBJECTS: Final[Mapping[str, Subject]] = {
    "tmpfs": Subject(),
    "mount-known": Subject(order="known: hint", server="emlio"),
    "mount-unknown": Subject(order="unknown", server="emlio", trips=1),
    "read_many": Subject(order="known: one call", server="emlio", programs=()),
    "fsspec": Subject(order="known: one call", server="emlio", programs=()),
    "loader": Subject(order="known: plan", server="emlio", programs=()),
    "nfs": Subject(order="not used", server="nfs", trips=3, programs=("c",)),
    "sshfs": Subject(order="not used", server="sshfs", trips=3),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A subject and its reader.

    Attributes:
        subject: a key of `SUBJECTS`.
        program: "c" or "python"; empty for a library.
        processes: of the reader.
    """

    subject: str
    program: str = ""
    processes: int = 1

    @property
    def name(self) -> str:
        """Its name in results."""
        reader = self.program if self.processes == 1 else f"{self.program}-x{self.processes}"
        return f"{self.subject}, {reader}" if reader else self.subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The surroundings that the samples of a scenario share.

    Attributes:
        folder: the files.
        size_bytes: of each file.
        link: link between clients and servers.
        servers: by the name that subjects give.
        programs: compiled readers, "c" and "nfs".
        scratch: a folder for lists and mounts.
    """

    folder: Path
    size_bytes: int
    link: Link
    servers: Mapping[str, Server]
    programs: Mapping[str, Path]
    scratch: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """An epoch of a sample.

    Attributes:
        read: what the reader said.
        told_ns: how long it took before to tell the order.
        agent_ns: processor time of what serves the mount: EMLIO's agent, or sshfs and ssh.
        server_ns: processor time of the server.
    """

    read: Read
    told_ns: int
    agent_ns: int
    server_ns: int


def compiled(program: str, folder: Path) -> Path:
    """Compile read_files.c.

    Raises:
        ConfigError: there is no compiler, or it failed.
    """
    made, compiler = folder / f"read-{program}", shutil.which("cc")
    if compiler is None:
        raise ConfigError("a C compiler, cc, is needed")
    command = [compiler, "-O2", "-o", str(made), str(_FOLDER / "read_files.c"), *COMPILED[program]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMPILE_S)
    if done.returncode:
        raise ConfigError(f"read_files.c cannot be compiled: {done.stderr.strip()}")
    return made


def sample(way: Way, place: Place, lists: Sequence[Sequence[str]]) -> list[Epoch]:
    """Read each list with a client that has seen nothing before; return an epoch for each.

    Raises:
        TransportError: a process failed, or not all files were read.
    """
    with TemporaryDirectory(dir=place.scratch, ignore_cleanup_errors=True) as name:
        paths = [Path(name, f"list-{number}") for number in range(len(lists))]
        for path, names in zip(paths, lists, strict=True):
            path.write_text("".join(f"{one}\n" for one in names), encoding="ascii")
        before = children()
        with _client(way, place, paths, Path(name, "mount")) as (command, tell):
            agent = children() - before
            with Child(way.name, place.link.training.command(command), talks=True) as reader:
                server = SUBJECTS[way.subject].server
                servers = place.servers[server].pids if server else frozenset[int]()
                epochs = [_epoch(reader, names, tell, agent, servers) for names in lists]
    for epoch, names in zip(epochs, lists, strict=True):
        _check(way, epoch.read, names, place.size_bytes)
    return epochs


def _epoch(
    reader: Child,
    names: Sequence[str],
    tell: Callable[[Sequence[str]], object],
    agent: frozenset[int],
    server: frozenset[int],
) -> Epoch:
    reader.hear(Ready, _START_S)
    before, begun_ns = [trees_cpu_ns(pids) for pids in (agent, server)], time.monotonic_ns()
    tell(names)
    told_ns = time.monotonic_ns() - begun_ns
    read = reader.ask("go", Read, _EPOCH_S)
    agent_ns, server_ns = (trees_cpu_ns(pids) - was for pids, was in zip((agent, server), before, strict=True))
    return Epoch(read=read, told_ns=told_ns, agent_ns=agent_ns, server_ns=server_ns)


def _check(way: Way, read: Read, names: Sequence[str], size_bytes: int) -> None:
    wanted = (len(names), len(names) * size_bytes, sum(int(Path(name).stem) for name in names))
    if (read.files, read.bytes, read.sum) != wanted:
        raise TransportError(f"{way.name} must read (files, bytes, sum) {wanted}, got {read}")


@contextmanager
def _client(
    way: Way, place: Place, lists: Sequence[Path], point: Path
) -> Generator[tuple[list[str], Callable[[Sequence[str]], object]]]:
    """Yield the reader's command, and what is told the names of an epoch before it."""

    def command(root: str, program: str = way.program) -> list[str]:
        start = [str(place.programs[program])] if program in place.programs else _PYTHON
        return [*start, root, str(way.processes), *map(str, lists)]

    def told_nothing(_: Sequence[str]) -> None: ...

    subject = SUBJECTS[way.subject]
    address = place.servers[subject.server].address if subject.server else ""
    if way.subject in LIBRARIES:
        order = LibraryOrder(
            library=way.subject, address=address, size_bytes=place.size_bytes, lists=tuple(map(str, lists))
        )
        yield worker_command("files-library", order), told_nothing
    elif subject.server == "emlio":
        with _mounted(address, point, place.link):
            knows = way.subject == "mount-known"
            yield command(str(point)), lambda names: knows and hint(f"{point}/{name}" for name in names)
    elif subject.server == "sshfs":
        wanted = {"url": address, "folder": str(point), "options": {"mount": "default"}}
        with mounted(wanted, place.link.training.command) as seen:
            yield command(seen["url"]), told_nothing
    elif subject.server == "nfs":
        yield command(address, "nfs"), told_nothing
    else:
        yield command(str(place.folder)), told_nothing


_PYTHON: Final = [sys.executable, "-I", "-S", str(_FOLDER / "read_files.py")]


@contextmanager
def _mounted(address: str, point: Path, link: Link) -> Generator[None]:
    point.mkdir()
    command = [sys.executable, "-m", "emlio", "mount", address, str(point)]
    try:
        with Child("emlio mount", link.training.command(command)) as mount:
            if mount.line(_START_S) is None:
                raise TransportError(f"emlio mount must mount {address} within {_START_S:g} s, it did not")
            yield
    finally:
        if os.path.ismount(point):  # it was killed
            subprocess.run(["umount", "-l", str(point)], check=False)
