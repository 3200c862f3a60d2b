"""A storage side on another machine, through its agent.

Covers: the address of the storage, its round trip and throughput, data at both hosts, servers and
their meters. Does not cover: the connection to the agent (emlio_bench.race.storage.over_ssh),
energy (emlio_bench.race.storage.two_hosts).
"""

import socket
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote_plus

import psutil

from emlio.errors import ConfigError, DatasetError
from emlio_bench.link.contract import LinkEnd, LinkKind
from emlio_bench.link.kinds.real import NETWORK, RealLink
from emlio_bench.link.measurement.accuracy import LinkReport, summarise_pings
from emlio_bench.link.measurement.throughput import Load, read_iperf
from emlio_bench.link.spec import LinkSpec
from emlio_bench.processes.child import Child
from emlio_bench.race.records.corpus import Corpus
from emlio_bench.race.records.halves import in_halves
from emlio_bench.race.run.one_machine import warm
from emlio_bench.race.run.sides import Serving, Traffic
from emlio_bench.race.storage.dialogue import Dialogue
from emlio_bench.race.storage.duties import digest_of
from emlio_bench.race.storage.messages import (
    AskDigest,
    AskEcho,
    AskLacks,
    AskServed,
    EndServing,
    Greeting,
    Prepare,
    Serve,
    Served,
    TakePlace,
)
from emlio_bench.race.systems.iperf import Iperf3
from emlio_bench.race.systems.system import System
from emlio_bench.subjects.iperf import find_iperf

__all__ = ["OtherHost", "sensible_ns"]

_PINGS: Final = 201
_WARM_UP_PINGS: Final = 50
"""The first pings find cold caches and processors at rest."""
_CONNECT_S: Final = 10.0
_STREAMS: Final = (1, 16)
_WARM_UP_S: Final = 1
_SPAN_S: Final = 2
_ANSWER_S: Final = 30.0
_START_S: Final = 180.0
_MAKE_S: Final = 7200.0


class OtherHost:
    """See `StorageSide`.

    Attributes:
        address: address of the storage host, as this one reaches it.
        rtt_ns: round trip that was measured, rounded: the least of many pings, since other work on
            either host only makes pings longer.
    """

    def __init__(self, dialogue: Dialogue, greeting: Greeting, *, name: str, address: str, forms: Path) -> None:
        """Agree on an address, and measure the round trip to it.

        Args:
            dialogue: connection to the agent.
            greeting: description of the storage host.
            name: name of the storage host, for errors.
            address: its address for data; empty for the one that the agent was reached at.
            forms: folder of all formats on this machine.
        """
        self._dialogue = dialogue
        self._greeting = greeting
        self._name = name
        self._forms = forms
        self._same: dict[str, bool] = {}
        self._report: LinkReport | None = None
        self.address = _numeric(address or greeting.reached_at, name)
        dialogue.ask(TakePlace(address=self.address), str)
        pings_ns, near = self._ping()
        self._training = LinkEnd(address=near, listen=near, namespace=None)
        self.rtt_ns = sensible_ns(min(pings_ns))

    def lacks(self, systems: Sequence[System]) -> Mapping[str, str]:
        """Return what the storage lacks for these systems, by their names."""
        asked = [system.name for system in systems if not system.reads_here]
        return self._dialogue.ask(AskLacks(systems=asked), dict[str, str])

    def measure(self, spec: LinkSpec) -> LinkReport:
        """See `StorageSide`. Nothing was asked of a network that is there, so nothing is missed.

        It is measured once, since all contests have the same network.
        """
        if self._report is None:
            pings_ns, _ = self._ping()
            self._report = LinkReport(
                kind=LinkKind.REAL,
                rtt_ns=spec.rtt_ns,
                jitter_ns=0,
                loss=0.0,
                rate_bytes_per_s=None,
                tuned=False,
                measured=summarise_pings(pings_ns),
                loads=self._loads(),
                missed=(),
                moved_by=NETWORK,
            )
        return self._report

    def prepare(self, system: System, corpus: Corpus, forms: Path) -> Path:
        """See `StorageSide`."""
        if system.reads_here:
            self._check_same(corpus)
            return system.prepare(corpus, forms)
        return Path(self._dialogue.ask(Prepare(system=system.name, corpus=corpus), str, _MAKE_S))

    @contextmanager
    def serving(
        self, system: System, prepared: Path, *, spec: LinkSpec, halves: bool, corpus: Corpus, folder: Path
    ) -> Generator[Serving, None, None]:
        """See `StorageSide`."""
        here = self._half_here(system, corpus) if halves else ""
        if system.reads_here:
            warm(prepared)
            end = LinkEnd(address=self.address, listen=self.address, namespace=None)
            link = RealLink(spec, storage=end, training=self._training)
            with system.serve(in_halves(prepared).storage if halves else prepared, link) as url:
                yield _Serving(url, here, self._training, None)
            return
        order = Serve(system=system.name, prepared=str(prepared), halves=halves, rtt_ns=spec.rtt_ns)
        answer = self._dialogue.ask(order, Served, _START_S)
        try:
            yield _Serving(_with_keys(answer, folder), here, self._training, self._dialogue)
        finally:
            self._dialogue.ask(EndServing(), type(None))

    def _half_here(self, system: System, corpus: Corpus) -> str:
        self._check_same(corpus)
        whole = system.on_own_disk().prepare(corpus, self._forms)
        half = in_halves(whole).training
        warm(half)
        return str(half)

    def _check_same(self, corpus: Corpus) -> None:
        """Require the same records at both hosts, which each makes by itself from one seed."""
        if corpus.name not in self._same:
            theirs = self._dialogue.ask(AskDigest(corpus=corpus), str, _MAKE_S)
            self._same[corpus.name] = digest_of(corpus, self._forms) == theirs
        if not self._same[corpus.name]:
            raise DatasetError(
                f"both hosts must make the same records, {corpus.text} differ on {self._name}: install the same versions of "
                "NumPy and Pillow"
            )

    def _ping(self) -> tuple[tuple[int, ...], str]:
        """Return the durations of some pings, and the address that they came from."""
        port = self._dialogue.ask(AskEcho(), int)
        try:
            with socket.create_connection((self.address, port), timeout=_CONNECT_S) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for _ in range(_WARM_UP_PINGS):
                    _ping(connection)
                return tuple(_ping(connection) for _ in range(_PINGS)), str(connection.getsockname()[0])
        except OSError as error:
            raise ConfigError(
                f"{self._name} must be reachable at {self.address}, port {port} is not: {error}; open all ports above 1024 "
                "for this host, or name another address by --storage-address"
            ) from error

    def _loads(self) -> tuple[Load, ...]:
        """Measure streams by iperf3, if both hosts have it."""
        iperf, limit = find_iperf(), Iperf3()
        if iperf is None or not self._greeting.iperf3:
            return ()
        loads: list[Load] = []
        for streams in _STREAMS:
            answer = self._dialogue.ask(Serve(system=limit.name, prepared="", halves=False, rtt_ns=0), Served, _START_S)
            try:
                host, _, port = answer.url.rpartition(":")
                command = [iperf, "-c", host, "-p", port, "-t", str(_SPAN_S), "-O", str(_WARM_UP_S), "-J", "-R"]
                with Child("iperf3 -c", [*command, "-P", str(streams)]) as asker:
                    loads.append(read_iperf(asker.rest(_WARM_UP_S + _SPAN_S + _ANSWER_S), streams))
            finally:
                self._dialogue.ask(EndServing(), type(None))
        return tuple(loads)


class _Serving:
    """See `Serving`. Traffic is that of the whole interface to the storage."""

    def __init__(self, url: str, here: str, training: LinkEnd, dialogue: Dialogue | None) -> None:
        self.url = url
        self.here = here
        self.training = training
        self._dialogue = dialogue
        self._interface = _interface_of(training.address)

    def begin(self) -> None:
        """See `Serving`."""
        self._received, self._sent = self._counts()
        self._begun_cpu_ns = self._servers_cpu_ns()

    def cpu_ns(self) -> int:
        """See `Serving`."""
        return self._servers_cpu_ns() - self._begun_cpu_ns

    def traffic(self) -> Traffic:
        """See `Serving`."""
        received, sent = self._counts()
        return Traffic(to_training_bytes=received - self._received, to_storage_bytes=sent - self._sent)

    def _servers_cpu_ns(self) -> int:
        return self._dialogue.ask(AskServed(), int) if self._dialogue is not None else 0

    def _counts(self) -> tuple[int, int]:
        found = psutil.net_io_counters(pernic=True).get(self._interface or "")
        return (found.bytes_recv, found.bytes_sent) if found is not None else (0, 0)


def sensible_ns(rtt_ns: int) -> int:
    """Round a measured time to two digits, and at least to 10 microseconds."""
    step_ns = 10_000
    while rtt_ns >= 100 * step_ns:
        step_ns *= 10
    return max((rtt_ns + step_ns // 2) // step_ns * step_ns, step_ns)


def _numeric(host: str, name: str) -> str:
    """Return the IPv4 address of a host."""
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM) if host else []
    except OSError:
        found = []
    if not found:
        raise ConfigError(f"{name} must have an IPv4 address for data, got {host!r}; name one by --storage-address")
    return str(found[0][4][0])


def _ping(connection: socket.socket) -> int:
    begun_ns = time.monotonic_ns()
    connection.sendall(b"?")
    if not connection.recv(1):
        raise ConnectionResetError("the echo ended")
    return time.monotonic_ns() - begun_ns


def _interface_of(address: str) -> str | None:
    for name, found in psutil.net_if_addrs().items():
        if any(one.address == address for one in found):
            return name
    return None


def _with_keys(answer: Served, folder: Path) -> str:
    """Write the keys of a URL to this host, and return the URL that names them here."""
    url = answer.url
    for number, (path, text) in enumerate(answer.keys.items()):
        key = folder / f"key-{number}"
        key.touch(mode=0o600)
        key.write_text(text, encoding="ascii")
        url = url.replace(quote_plus(path), quote_plus(str(key)))
    return url
