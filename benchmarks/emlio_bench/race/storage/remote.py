"""The storage side of a run on another host, as the training host uses it: ssh and one command."""

import shlex
import socket
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote_plus

import msgspec
import psutil

from emlio import __version__
from emlio.errors import ClosedError, ConfigError, DatasetError, TransportError
from emlio_bench.harness.contest import Corpus
from emlio_bench.link.accuracy import LinkReport, Load, judge
from emlio_bench.link.contract import NETWORK, Link, LinkEnd, LinkKind, LinkSpec
from emlio_bench.link.iperf import find_iperf, read_end
from emlio_bench.processes.child import Child
from emlio_bench.race.records.halves import in_halves
from emlio_bench.race.run.joules import Energy, Joules
from emlio_bench.race.run.one_machine import Serving, warm
from emlio_bench.race.storage.agent import Looked, Said, Served, digest_of
from emlio_bench.race.systems.system import System

__all__ = ["Remote", "RemoteEnergy", "ssh_command"]

_Answer = TypeVar("_Answer")

_AGENT: Final = "emlio_bench.race.storage.agent"
_OPTIONS: Final = ("BatchMode=yes", "ConnectTimeout=20", "ServerAliveInterval=15", "ServerAliveCountMax=4")
_USUAL_S: Final = 60.0
_START_S: Final = 180.0
_MAKE_S: Final = 7200.0
_END_S: Final = 20.0
_PINGS: Final = 201
_STREAMS: Final = (1, 16)
_SPAN_S: Final = 2
_CLOCK_TRIES: Final = 15


def ssh_command(ssh: str, host: str, python: str) -> list[str]:
    """Return the command that starts the agent on the storage host.

    Raises:
        ConfigError: host or command are none.
    """
    if not host or host.startswith("-") or any(letter.isspace() for letter in host):
        raise ConfigError(f"--storage must be a host as ssh knows it, got {host!r}")
    try:
        words = shlex.split(ssh)
    except ValueError as error:
        raise ConfigError(f"--ssh must be a command as for a shell, got {ssh!r}: {error}") from error
    if not words:
        raise ConfigError("--ssh must be a command, got nothing")
    options = [word for option in _OPTIONS for word in ("-o", option)]
    # `exec`, so that no shell stays between sshd and the agent.
    return [*words, "-T", *options, "--", host, f"exec {shlex.quote(python)} -m {_AGENT}"]


class Remote:
    """A storage side on another host; see `StorageSide`. Close it to end everything there.

    Attributes:
        looked: the host.
        rtt_ns: its round trip, the least of many pings, with two digits.
    """

    def __init__(
        self, command: Sequence[str], systems: Sequence[System], *, name: str, address: str, forms: Path
    ) -> None:
        self._name = name
        self._forms = forms
        self._same: dict[str, bool] = {}
        self._child = Child(f"the agent on {name}", command, talks=True)
        try:
            asked = [system.name for system in systems if not system.reads_here]
            try:
                self.looked = self.ask("look", Looked, address=_numeric(address, name), systems=asked)
            except ClosedError as error:
                raise ConfigError(
                    f"{error}; `ssh {name}` must work without a password, and --storage-python must be a Python there with "
                    f"emlio {__version__} and emlio-bench, as `pip install --editable '.[images]' --editable ./benchmarks` "
                    "makes it in a checkout"
                ) from error
            if self.looked.version != __version__:
                raise ConfigError(f"{name} must have emlio {__version__}, it has {self.looked.version}")
            self._pings_ns, near = self._ping()
        except BaseException:
            self.close()
            raise
        self._training = LinkEnd(address=near, listen=near, namespace=None)
        self.rtt_ns = _sensible_ns(min(self._pings_ns))

    def ask(self, method: str, kind: type[_Answer], within_s: float = _USUAL_S, **arguments: Any) -> _Answer:
        """Ask the agent for something.

        Raises:
            ClosedError: the host has gone.
            TransportError: it cannot do it; the message says why.
        """
        try:
            said = self._child.ask((method, arguments), Said, within_s)
        except TransportError as error:
            raise ClosedError(str(error)) from error
        if said.problem is not None:
            raise TransportError(f"{self._name}: {said.problem}")
        return msgspec.json.decode(bytes(said.answer), type=kind)

    def lacks(self, systems: Sequence[System]) -> Mapping[str, str]:
        """Return why systems cannot serve there."""
        return self.looked.lacks

    def measure(self, spec: LinkSpec) -> LinkReport:
        """Return the report of the network."""
        return judge(spec, LinkKind.REAL, self._pings_ns, self._loads(), moved_by=NETWORK)

    def prepare(self, system: System, corpus: Corpus, forms: Path) -> Path:
        """Make a system's data where its servers, or its readers, are."""
        if system.reads_here:
            self._check_same(corpus)
            return system.prepare(corpus, forms)
        return Path(self.ask("prepare", str, _MAKE_S, system=system.name, corpus=corpus))

    @contextmanager
    def serving(
        self, system: System, prepared: Path, *, spec: LinkSpec, halves: bool, corpus: Corpus, folder: Path
    ) -> Generator[Serving, None, None]:
        """Serve while the block lasts."""
        here = self._half_here(system, corpus) if halves else ""
        if system.reads_here:
            warm(prepared)
            end = LinkEnd(address=self.looked.address, listen=self.looked.address, namespace=None)
            link = Link(spec, storage=end, training=self._training)
            with system.serve(in_halves(prepared).storage if halves else prepared, link) as url:
                yield self._serving(url, here, lambda: 0)
            return
        order: dict[str, Any] = {"system": system.name, "prepared": str(prepared), "halves": halves}
        answer = self.ask("serve", Served, _START_S, rtt_ns=spec.rtt_ns, **order)
        try:
            yield self._serving(_with_keys(answer, folder), here, lambda: self.ask("cpu_ns", int))
        finally:
            self.ask("end", type(None))

    def _serving(self, url: str, here: str, servers_cpu_ns: Callable[[], int]) -> Serving:
        addresses = psutil.net_if_addrs().items()
        ours = (name for name, found in addresses if any(one.address == self._training.address for one in found))
        interface = next(ours, "")

        def wire() -> tuple[int, int]:
            found = psutil.net_io_counters(pernic=True).get(interface)
            return (found.bytes_recv + found.bytes_sent if found is not None else 0), 0

        return Serving(url, here, self._training, servers_cpu_ns=servers_cpu_ns, wire=wire)

    def _half_here(self, system: System, corpus: Corpus) -> str:
        self._check_same(corpus)
        half = in_halves(system.on_own_disk().prepare(corpus, self._forms)).training
        warm(half)
        return str(half)

    def _check_same(self, corpus: Corpus) -> None:
        if corpus.name not in self._same:
            self._same[corpus.name] = digest_of(corpus, self._forms) == self.ask("digest", str, _MAKE_S, corpus=corpus)
        if not self._same[corpus.name]:
            raise DatasetError(
                f"both hosts must make the same records, {corpus.text} differ on {self._name}: install the same versions of "
                "NumPy and Pillow"
            )

    def _ping(self) -> tuple[tuple[int, ...], str]:
        """Return the times of connecting, which the kernel there answers, and this host's address."""
        place = self.looked.address, self.ask("listen", int)
        pings: list[int] = []
        near = ""
        try:
            for _ in range(_PINGS):
                begun_ns = time.monotonic_ns()
                with socket.create_connection(place, timeout=_USUAL_S) as connection:
                    pings.append(time.monotonic_ns() - begun_ns)
                    near = str(connection.getsockname()[0])
        except OSError as error:
            raise ConfigError(
                f"{self._name} must be reachable at {place[0]}, port {place[1]} is not: {error}; open all ports above 1024 for "
                "this host, or name another address by --storage-address"
            ) from error
        return tuple(pings), near

    def _loads(self) -> tuple[Load, ...]:
        iperf, found = find_iperf(), list[Load]()
        for streams in _STREAMS if iperf is not None and "iperf3" not in self.looked.lacks else ():
            answer = self.ask("serve", Served, _START_S, system="iperf3", prepared="", halves=False, rtt_ns=0)
            host, _, port = answer.url.rpartition(":")
            words = ["-c", host, "-p", port, "-t", str(_SPAN_S), "-O", "1", "-J", "-R", "-P", str(streams)]
            try:
                with Child("iperf3 -c", [str(iperf), *words]) as asker:
                    received = read_end(asker.rest(_USUAL_S)).sum_received
            finally:
                self.ask("end", type(None))
            found.append(Load(streams=streams, payload_bytes=received.bytes, elapsed_ns=round(received.seconds * 1e9)))
        return tuple(found)

    def close(self) -> None:
        """End the agent, and all that it started."""
        self._child.finish(_END_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteEnergy:
    """The energy of both hosts; see `EnergyMeter`.

    Attributes:
        storage_busy: how busy the storage host was at rest.
    """

    def __init__(self, own: Joules, host: Remote) -> None:
        self._own = own
        self._host = host
        self.storage_busy = host.ask("rest", float, _START_S)

    def used(
        self,
        from_ns: int,
        to_ns: int,
        *,
        steps: Iterable[tuple[int, int]] = (),
        compute_cpu_ns: int | None = None,
        storage_cpu_ns: int | None = None,
    ) -> Energy | None:
        """Return the energy of both; None if that of one is not known."""
        known = list(steps)
        own = self._own.used(from_ns, to_ns, steps=known, whole="compute")
        offset_ns = self._offset_ns()
        theirs = self._host.ask(
            "used",
            list[Energy],
            from_ns=from_ns + offset_ns,
            to_ns=to_ns + offset_ns,
            steps=[(start + offset_ns, end + offset_ns) for start, end in known],
        )
        return None if own is None or not theirs else added(own, theirs[0])

    def _offset_ns(self) -> int:
        """Return the other clock minus this one, from the quickest of several answers."""
        found: list[tuple[int, int]] = []
        for _ in range(_CLOCK_TRIES):
            asked_ns = time.monotonic_ns()
            theirs_ns = self._host.ask("clock", int)
            answered_ns = time.monotonic_ns()
            found.append((answered_ns - asked_ns, theirs_ns - (asked_ns + answered_ns) // 2))
        return min(found)[1]


def added(compute: Energy, storage: Energy) -> Energy:
    """Return the energy of both hosts."""
    parts = (compute, storage)
    train = [one.train_joules for one in parts if one.train_joules is not None]
    read = [one.read_joules for one in parts if one.read_joules is not None]
    return Energy(
        joules=compute.joules + storage.joules,
        method=f"compute {compute.method}, storage {storage.method}",
        train_joules=sum(train) if len(train) == len(parts) else None,
        read_joules=sum(read) if len(read) == len(parts) else None,
        hosts=(*compute.hosts, *storage.hosts) if compute.hosts and storage.hosts else (),
    )


def _sensible_ns(rtt_ns: int) -> int:
    """Round to two digits, and to 10 µs at least."""
    step_ns = 10_000
    while rtt_ns >= 100 * step_ns:
        step_ns *= 10
    return max((rtt_ns + step_ns // 2) // step_ns * step_ns, step_ns)


def _numeric(address: str, name: str) -> str:
    """Return an IPv4 address; "" stays, for the address that ssh reached."""
    try:
        found = socket.getaddrinfo(address, None, socket.AF_INET, socket.SOCK_STREAM) if address else []
    except OSError as error:
        raise ConfigError(f"{name} must have an IPv4 address for data, got {address!r}: {error}") from error
    return str(found[0][4][0]) if found else ""


def _with_keys(answer: Served, folder: Path) -> str:
    """Write the keys here, and name them in the URL."""
    url = answer.url
    for number, (path, text) in enumerate(answer.keys.items()):
        key = folder / f"key-{number}"
        key.touch(mode=0o600)
        key.write_text(text, encoding="ascii")
        url = url.replace(quote_plus(path), quote_plus(str(key)))
    return url
