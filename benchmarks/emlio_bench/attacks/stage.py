"""The daemon, the rank and the attackers of a run, and the measurements of a span.

Covers: their processes and keys; records, processor time and memory in a span. Does not cover: the
rank (emlio_bench.attacks.rank), the attackers (emlio_bench.attacks.attackers), figures
(emlio_bench.attacks.figures).
"""

import os
import signal
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
import psutil

from emlio.errors import TransportError
from emlio.keys.folder import KeyFolder
from emlio_bench.attacks.attackers import Attacked, AttackOrder, Begun
from emlio_bench.attacks.figures import Span, records_until
from emlio_bench.attacks.rank import Finished, RankOrder, Tick
from emlio_bench.harness.meter import process_cpu_ns
from emlio_bench.harness.protected import RankTrust
from emlio_bench.harness.resident import read_resident
from emlio_bench.processes.child import start_worker
from emlio_bench.processes.daemon import RunningDaemon, running_daemon

__all__ = ["Besieged", "Store", "opened_store"]

_ENCRYPTION: Final = "aead"
_MEMORY: Final = "64MiB"
"""The daemon's memory for records. It is small, so that memory taken by an attack shows."""

_ANSWER_S: Final = 60.0
_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A daemon with keys, and the keys of all its peers.

    Attributes:
        daemon: the running daemon.
        keys: folder with a key folder for each peer.
    """

    daemon: RunningDaemon
    keys: Path

    @property
    def daemon_key(self) -> str:
        """The daemon's public key."""
        return str(KeyFolder(self.keys / "store").pair().public)

    def rank_order(self, batch_records: int, interval_ns: int) -> RankOrder:
        """Return the configuration of the legitimate rank."""
        trust = RankTrust(keys=str(self.keys / "rank"), daemon_key=self.daemon_key, encryption=_ENCRYPTION)
        return RankOrder(address=self.daemon.address, trust=trust, batch_records=batch_records, interval_ns=interval_ns)

    def attack_order(self, name: str) -> AttackOrder:
        """Return the configuration of an attacker that starts now."""
        peer, _, dataset = self.daemon.address.removeprefix("emlio://").partition("/")
        return AttackOrder(
            name=name,
            peer=peer,
            lane_ports=self._lane_ports(int(peer.rpartition(":")[2])),
            dataset=dataset,
            stranger=str(self.keys / "stranger"),
            insider=str(self.keys / "insider"),
            daemon_key=self.daemon_key,
        )

    def _lane_ports(self, control: int) -> tuple[int, ...]:
        found = psutil.Process(self.daemon.pid).net_connections("tcp")
        ports = sorted(one.laddr.port for one in found if one.status == psutil.CONN_LISTEN)
        return tuple(port for port in ports if port != control)


@contextmanager
def opened_store(directory: Path) -> Generator[Store, None, None]:
    """Serve a dataset to a rank and to an insider that attacks, while the block lasts."""
    with tempfile.TemporaryDirectory(prefix="emlio-bench-keys-") as name:
        keys = Path(name)
        store, *others = (KeyFolder(keys / who) for who in ("store", "rank", "insider", "stranger"))
        for folder in (store, *others):
            folder.make(folder.path.name)
        for folder in others[:2]:
            store.allow(folder.path.name, folder.pair().public)
        flags = ("--keys", str(store.path), "--encryption", _ENCRYPTION, "--memory", _MEMORY)
        with running_daemon(directory, flags) as daemon:
            yield Store(daemon=daemon, keys=keys)


class Besieged:
    """A daemon and its rank, which reads until the `with` block ends."""

    def __init__(self, store: Store, order: RankOrder) -> None:
        self._store = store
        self._rank = start_worker("attacked-read", order)
        self._ticks: list[Tick] = []
        self._most_bytes = 0

    def settle(self, duration_s: float) -> None:
        """Let the rank read for a time, after resetting the memory maximum."""
        self._most_bytes = 0
        self._listen_until(time.monotonic_ns() + round(duration_s * 1e9))

    def reads(self) -> None:
        """Wait until the rank receives batches."""
        self._hear_until(0)

    def quiet(self, duration_s: float) -> Span:
        """Measure a quiet span. The memory maximum counts from the last `settle`."""
        return self._span(duration_s, None)

    def attacked(self, name: str, duration_s: float, settle_s: float) -> Span:
        """Measure an attacked span.

        It starts `settle_s` after the attack has reached its full rate.
        """
        with start_worker("attack", self._store.attack_order(name)) as attacker:
            deadline = time.monotonic() + _ANSWER_S
            while (line := attacker.line(0.0)) is None:
                if time.monotonic() > deadline:
                    raise TransportError(f"attack {name!r} must begin within {_ANSWER_S:g} s, it did not")
                self._listen_until(time.monotonic_ns() + round(_LOOK_S * 1e9))
            msgspec.json.decode(line, type=Begun)
            self.settle(settle_s)
            span = self._span(duration_s, attacker.pid)
            os.kill(attacker.pid, signal.SIGTERM)
            done = attacker.hear(Attacked, _ANSWER_S)
            attacker.rest(_ANSWER_S)
        return replace(span, acts_per_s=done.acts * 1e9 / done.elapsed_ns)

    def end(self) -> Finished:
        """End the rank, and return its last report."""
        os.kill(self._rank.pid, signal.SIGTERM)
        deadline = time.monotonic() + _ANSWER_S
        while (finished := self._hear(1.0)) is None:
            if time.monotonic() > deadline:
                raise TransportError(f"the rank must end within {_ANSWER_S:g} s, it did not")
        self._rank.rest(_ANSWER_S)
        return finished

    def _span(self, duration_s: float, attacker: int | None) -> Span:
        pids = [self._store.daemon.pid, self._rank.pid, *([attacker] if attacker is not None else [])]
        begun_ns, before = time.monotonic_ns(), [process_cpu_ns(pid) for pid in pids]
        self._listen_until(begun_ns + round(duration_s * 1e9))
        ended_ns, after = time.monotonic_ns(), [process_cpu_ns(pid) for pid in pids]
        most_bytes = self._most_bytes
        self._hear_until(ended_ns)
        times = [(now - then) / 1e9 for then, now in zip(before, after, strict=True)]
        waits = [tick.longest_wait_ns for tick in self._ticks if begun_ns < tick.at_ns <= ended_ns]
        records = records_until(self._ticks, ended_ns) - records_until(self._ticks, begun_ns)
        return Span(
            attacked=attacker is not None,
            records_per_s=records * 1e9 / (ended_ns - begun_ns),
            longest_wait_s=max(waits, default=ended_ns - begun_ns) / 1e9,
            daemon_s=times[0],
            rank_s=times[1],
            attacker_s=times[2] if attacker is not None else 0.0,
            daemon_bytes=most_bytes,
        )

    def _listen_until(self, deadline_ns: int) -> None:
        looked_ns = 0
        while (now_ns := time.monotonic_ns()) < deadline_ns:
            if now_ns - looked_ns >= _LOOK_S * 1e9:
                looked_ns = now_ns
                self._most_bytes = max(self._most_bytes, read_resident(self._store.daemon.pid).own_bytes)
            self._hear(min(_LOOK_S, (deadline_ns - now_ns) / 1e9))

    def _hear_until(self, at_ns: int) -> None:
        """Read the rank's messages until it has reported for this time."""
        deadline = time.monotonic() + _ANSWER_S
        while not self._ticks or self._ticks[-1].at_ns < at_ns:
            if time.monotonic() > deadline:
                raise TransportError(f"the rank must get a batch within {_ANSWER_S:g} s, it got none")
            self._hear(1.0)

    def _hear(self, timeout_s: float) -> Finished | None:
        line = self._rank.line(timeout_s)
        said = msgspec.json.decode(line, type=Tick | Finished) if line is not None else None
        if isinstance(said, Tick):
            self._ticks.append(said)
            return None
        return said

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rank.__exit__(kind, error, trace)
