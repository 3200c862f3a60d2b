"""The storage side of a run on another host: one program, which ssh starts there.

Each line of its input is a request for one of its methods, each line of its output an answer. When its input
ends, it ends everything that it started.
"""

import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

import msgspec

from emlio.errors import ConfigError, EmlioError
from emlio_bench.harness.contest import Corpus
from emlio_bench.harness.data import shard_paths
from emlio_bench.harness.environment import read_environment
from emlio_bench.link.contract import Link, LinkEnd, LinkSpec
from emlio_bench.link.iperf import find_iperf
from emlio_bench.race.needs.environments import cache_folder
from emlio_bench.race.records.corpus import make_records
from emlio_bench.race.records.halves import in_halves
from emlio_bench.race.run.joules import Energy, Joules
from emlio_bench.race.run.one_machine import children, trees_cpu_ns, warm
from emlio_bench.race.run.race import FORMS
from emlio_bench.race.servers.scratch import remove_leftovers
from emlio_bench.race.systems.entries import all_rivals

__all__ = ["Looked", "Said", "Served", "Storage", "boot_id", "digest_of"]

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_CHUNK_BYTES: Final = 1 << 20
_PINGED: Final = 512
"""Connections that the kernel completes for pings before anything accepts them."""
_METHODS: Final = ("look", "listen", "clock", "digest", "prepare", "serve", "cpu_ns", "end", "rest", "used")


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, or why there is none."""

    answer: msgspec.Raw = msgspec.Raw(b"null")
    problem: str | None = None


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """The storage host."""

    version: str
    commit: str | None
    boot: str
    node: str
    world: str
    address: str
    lacks: dict[str, str]


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """The URL of the data, and the keys that it names, by path."""

    url: str
    keys: dict[str, str]


def boot_id() -> str:
    """Return the id of this boot; empty if it is not known."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def digest_of(corpus: Corpus, forms: Path) -> str:
    """Return a digest of all records."""
    digest = blake2b(digest_size=16)
    for path in shard_paths(make_records(corpus, forms)):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()


class Storage:
    """Answers for the storage host. Close it to end everything."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        remove_leftovers()
        self._cache = cache_folder(None, environment)
        self._forms = self._cache / FORMS
        self._systems = {system.name: system for system in all_rivals(self._cache)}
        words = environment.get("SSH_CONNECTION", "").split()
        self._reached_at = words[2] if len(words) == 4 else ""
        self._serving = ExitStack()
        self._ending = ExitStack()
        self._servers: frozenset[int] = frozenset()
        self._joules: Joules | None = None

    def look(self, address: str, systems: list[str]) -> Looked:
        """Choose the address for data, and tell about this host and what these systems lack here."""
        self._address = address or self._reached_at
        self._listen = next((one for one in (self._address, self._reached_at) if one and _is_here(one)), "")
        if not self._listen:
            raise ConfigError(f"the storage must have the IPv4 address {self._address}, {socket.gethostname()} has not")
        world = read_environment(find_iperf())
        found = {name: self._systems[name].why_no_server() for name in systems}
        return Looked(
            version=world.emlio,
            commit=world.commit,
            boot=boot_id(),
            node=socket.gethostname(),
            world=f"{world.cpu or 'unknown processor'}, {world.cores} cores, {world.memory_bytes / 1e9:.0f} GB of memory, "
            f"Linux {world.kernel}, {world.python}",
            address=self._address,
            lacks={name: f"{reason} (on the storage host)" for name, reason in found.items() if reason is not None},
        )

    def listen(self) -> int:
        """Return a port at which the kernel answers pings: connections that nothing accepts."""
        listener = self._ending.enter_context(socket.create_server((self._listen, 0), backlog=_PINGED))
        return int(listener.getsockname()[1])

    def clock(self) -> int:
        """Return the monotonic clock."""
        return time.monotonic_ns()

    def digest(self, corpus: dict[str, Any]) -> str:
        """Return the digest of a corpus here."""
        return digest_of(msgspec.convert(corpus, Corpus), self._forms)

    def prepare(self, system: str, corpus: dict[str, Any]) -> str:
        """Make the records in a system's format; return where they are."""
        return str(self._systems[system].prepare(msgspec.convert(corpus, Corpus), self._forms))

    def serve(self, system: str, prepared: str, *, halves: bool, rtt_ns: int) -> Served:
        """Start a system's servers, in place of those before."""
        self.end()
        data = Path(prepared or self._forms)
        if not data.resolve().is_relative_to(self._cache.resolve()):
            raise ConfigError(f"data must be in {self._cache}, got {data}")
        if prepared:
            warm(data)
        end = LinkEnd(address=self._address, listen=self._listen, namespace=None)
        link, others = Link(LinkSpec(rtt_ns=rtt_ns), storage=end), children()
        try:
            served = in_halves(data).storage if halves else data
            url = self._serving.enter_context(self._systems[system].serve(served, link))
        except BaseException:
            self._serving.close()
            raise
        self._servers = children() - others
        paths = parse_qs(urlsplit(url).query).get("key", [])
        return Served(url=url, keys={path: Path(path).read_text(encoding="ascii") for path in paths})

    def cpu_ns(self) -> int:
        """Return the processor time of the servers."""
        return trees_cpu_ns(self._servers)

    def end(self) -> None:
        """End the servers."""
        self._serving.close()

    def rest(self) -> float:
        """Begin to record energy; return how busy the host is at rest."""
        if self._joules is None:
            folder = self._ending.enter_context(tempfile.TemporaryDirectory(prefix="emlio-race-energy-"))
            self._joules = self._ending.enter_context(Joules(Path(folder)))
        return self._joules.rest()

    def used(self, from_ns: int, to_ns: int, steps: list[tuple[int, int]]) -> list[Energy]:
        """Return the energy between two moments of this host's clock; nothing where it is not known."""
        used = self._joules and self._joules.used(from_ns, to_ns, steps=steps, whole="storage")
        return [used] if used else []

    def close(self) -> None:
        """End everything."""
        with self._ending:
            self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_here(address: str) -> bool:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except (OSError, UnicodeError):
        return False
    return True


def _answer(storage: Storage, line: bytes) -> Said:
    try:
        name, arguments = msgspec.json.decode(line, type=tuple[str, dict[str, Any]])
        if name not in _METHODS:
            raise ConfigError(f"a request must be one of {', '.join(_METHODS)}, got {name!r}")
        answer = getattr(storage, name)(**arguments)
    except (EmlioError, OSError, msgspec.MsgspecError, TypeError, KeyError) as error:
        return Said(problem=f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error))
    return Said(answer=msgspec.Raw(msgspec.json.encode(answer)))


def main() -> None:
    """Answer until the input ends, or a signal comes."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, end)
    # Whatever a program writes to standard output must not come between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with Storage(os.environ) as storage:
        for line in sys.stdin.buffer:
            answers.write(msgspec.json.encode(_answer(storage, line)) + b"\n")
            answers.flush()


if __name__ == "__main__":
    main()
