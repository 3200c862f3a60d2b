"""The work of the agent on the storage host.

It runs the same code as a race on one machine: a system makes its data and starts its servers here,
and the training host learns their URL. Only the systems of the race can be run, no other programs.

Covers: each request. Does not cover: the connection (emlio_bench.race.storage.agent).
"""

import socket
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from threading import Thread
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

from emlio.errors import ConfigError
from emlio_bench.harness.data import shard_paths
from emlio_bench.harness.environment import read_environment
from emlio_bench.link.contract import LinkEnd
from emlio_bench.link.kinds.real import RealLink
from emlio_bench.link.spec import LinkSpec
from emlio_bench.race.needs.environments import cache_folder
from emlio_bench.race.records.corpus import Corpus, make_records
from emlio_bench.race.records.halves import in_halves
from emlio_bench.race.run.host_time import children, trees_cpu_ns
from emlio_bench.race.run.joules import Joules
from emlio_bench.race.run.one_machine import warm
from emlio_bench.race.servers.scratch import remove_leftovers
from emlio_bench.race.storage.messages import (
    AskClock,
    AskDigest,
    AskEcho,
    AskLacks,
    AskServed,
    AskUsed,
    EndServing,
    Greet,
    Greeting,
    Prepare,
    Request,
    Serve,
    Served,
    StartEnergy,
    TakePlace,
    Used,
)
from emlio_bench.race.systems.entries import all_rivals
from emlio_bench.race.systems.system import System
from emlio_bench.subjects.iperf import find_iperf

__all__ = ["FORMS", "Duties", "boot_id", "digest_of"]

FORMS: Final = "data"
"""The folder of all formats in the cache."""

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_ECHO_S: Final = 30.0
_CHUNK_BYTES: Final = 1 << 20


def boot_id() -> str:
    """Return the id of the running kernel; empty if there is none."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def digest_of(corpus: Corpus, forms: Path) -> str:
    """Return a digest of all shards of a corpus, which are made if they are missing."""
    digest = blake2b(digest_size=16)
    for path in shard_paths(make_records(corpus, forms)):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()


class Duties:
    """All that one training host asks for. Used by one thread, which must outlive the servers."""

    def __init__(self, environment: Mapping[str, str], *, reached_at: str) -> None:
        """Start with nothing running.

        Args:
            environment: environment variables; XDG_CACHE_HOME is used if present.
            reached_at: address at which the training host reached this one; empty if unknown.
        """
        remove_leftovers()
        self._cache = cache_folder(None, environment)
        self._forms = self._cache / FORMS
        self._systems: dict[str, System] = {system.name: system for system in all_rivals(self._cache)}
        self._reached_at = reached_at
        self._end = LinkEnd(address=reached_at, listen=reached_at, namespace=None)
        self._serving = ExitStack()
        self._recording = ExitStack()
        self._servers: frozenset[int] = frozenset()
        self._joules: Joules | None = None

    def carry_out(self, request: Request) -> object:
        """Carry out a request, and return its answer.

        Raises:
            EmlioError: it cannot be done, with the reason.
        """
        match request:
            case Greet():
                return self._greeting()
            case TakePlace():
                return self._take_place(request.address)
            case AskLacks():
                return self._lacks(request.systems)
            case AskClock():
                return time.monotonic_ns()
            case AskEcho():
                return self._echo()
            case AskDigest():
                return digest_of(request.corpus, self._forms)
            case Prepare():
                return str(self._system(request.system).prepare(request.corpus, self._forms))
            case Serve():
                return self._serve(request)
            case AskServed():
                return trees_cpu_ns(self._servers)
            case EndServing():
                self._serving.close()
                return None
            case StartEnergy():
                return self._start_energy()
            case AskUsed():
                return self._used(request)

    def _greeting(self) -> Greeting:
        world = read_environment(find_iperf())
        return Greeting(
            version=world.emlio,
            commit=world.commit,
            boot=boot_id(),
            node=socket.gethostname(),
            reached_at=self._reached_at,
            world=f"{world.cpu or 'unknown processor'}, {world.cores} cores, {world.memory_bytes / 1e9:.0f} GB of memory, "
            f"Linux {world.kernel}, {world.python}",
            iperf3=world.iperf3 is not None,
        )

    def _take_place(self, address: str) -> str:
        """Listen at an address of this host: the given one, or behind NAT the one it was reached at."""
        for listen in (address, self._reached_at):
            if listen and _is_here(listen):
                self._end = LinkEnd(address=address, listen=listen, namespace=None)
                return listen
        raise ConfigError(f"the storage must have the IPv4 address {address}, {socket.gethostname()} has not")

    def _lacks(self, names: list[str]) -> dict[str, str]:
        found = {name: self._system(name).why_no_server() for name in names}
        return {name: f"{reason} (on the storage host)" for name, reason in found.items() if reason is not None}

    def _system(self, name: str) -> System:
        if name not in self._systems:
            raise ConfigError(f"a system must be one of {', '.join(self._systems)}, got {name!r}")
        return self._systems[name]

    def _echo(self) -> int:
        listener = self._end.make_socket()
        listener.settimeout(_ECHO_S)
        listener.bind((self._end.listen, 0))
        listener.listen(1)
        Thread(target=_send_back, args=(listener,), name="emlio-echo", daemon=True).start()
        return int(listener.getsockname()[1])

    def _serve(self, request: Serve) -> Served:
        self._serving.close()
        prepared = Path(request.prepared or self._forms)
        if not prepared.resolve().is_relative_to(self._cache.resolve()):
            raise ConfigError(f"data must be in {self._cache}, got {prepared}")
        if request.prepared:
            warm(prepared)
        link = RealLink(
            LinkSpec(rtt_ns=request.rtt_ns),
            storage=self._end,
            training=LinkEnd(address="", listen="", namespace=None),
        )
        others = children()
        try:
            served = in_halves(prepared).storage if request.halves else prepared
            url = self._serving.enter_context(self._system(request.system).serve(served, link))
        except BaseException:
            self._serving.close()
            raise
        self._servers = children() - others
        return Served(url=url, keys=_keys(url))

    def _start_energy(self) -> float:
        if self._joules is None:
            folder = self._recording.enter_context(tempfile.TemporaryDirectory(prefix="emlio-race-energy-"))
            self._joules = self._recording.enter_context(Joules(Path(folder)))
        return self._joules.rest()

    def _used(self, request: AskUsed) -> Used:
        if self._joules is None:
            return Used(energy=None)
        return Used(energy=self._joules.used(request.from_ns, request.to_ns, steps=request.steps, whole="storage"))

    def close(self) -> None:
        """End all servers and the recorder."""
        try:
            self._serving.close()
        finally:
            self._recording.close()

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


def _send_back(listener: socket.socket) -> None:
    """Send back each byte of one connection, from its own thread."""
    try:
        with listener:
            connection, _ = listener.accept()
        with connection:
            connection.settimeout(_ECHO_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while piece := connection.recv(1):
                connection.sendall(piece)
    except OSError:
        return  # the training host says what it missed


def _keys(url: str) -> dict[str, str]:
    """Return the contents of the key files that a URL names."""
    paths = parse_qs(urlsplit(url).query).get("key", [])
    return {path: Path(path).read_text(encoding="ascii") for path in paths}
