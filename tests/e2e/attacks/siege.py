"""A daemon with keys and a legitimate rank that reads all the while, and what must hold of both when an attack is over.

Covers: the two processes, keys, two datasets with names and records that can be searched for in what an attacker heard, the
daemon's memory, descriptors, threads and ports before, during and after. Does not cover: the attacks.
"""

import json
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from emlio.keys.folder import KeyFolder
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess, RankProcess, settles

__all__ = ["CLOSED", "HANDSHAKE_S", "MEMORY_BYTES", "OPEN", "RECORDS", "Keys", "Siege", "Things"]

OPEN, CLOSED = "orchid-walk", "quince-vault"
RECORDS = 300
HANDSHAKE_S = 5.0
"""A connection that has not said who it is by then is closed."""

MEMORY_BYTES = 48 << 20
"""What the daemon's own memory may have grown by after any number of attacks. The rank's stream has up to 8 MiB, more or less at
each look; what 2,000 connections took of libzmq (8 MiB), 300 sessions of Python (12 MiB) and the longest messages (20 MiB) is
free, and in part kept by allocators. A leak of 20 kB for each connection or message would be more."""

_SETTLE_S = 20.0
_REST_S = 1.0
_EPOCH_S = 60.0
"""It takes less than a second; on a machine whose cores are busy with an attack, and with other things, much more."""

_MARK = b"RECORD-OF-SOMEBODY"

_RANK = """
import json, signal, sys, time
from emlio import EmlioLoader
from emlio.errors import EmlioError
from emlio_testing.loader_arguments import loader_arguments

address, folder, keys, daemon_key, options = sys.argv[1:]
asked, told, told_to_end = 1, 0, False  # the first epoch is told of without being asked

def ask(*_):
    global asked
    asked += 1

def end(*_):
    global told_to_end
    told_to_end = True

def tell():
    print(json.dumps({
        "records": records, "epochs": epochs, "wrong": wrong, "error": error,
        "reopened": stats.reopened_streams if stats else 0, "lost": stats.lost_daemons if stats else 0,
    }))

signal.signal(signal.SIGUSR1, ask)
signal.signal(signal.SIGTERM, end)
usual = {"batch_size": 20, "seed": 7, "rank": 0, "world_size": 1, "raw": True, "ids": True, "to": "numpy", "prefetch": "1MiB"}
records, epochs, wrong, error, stats = 0, 0, "", "", None
try:
    remote = {"keys": keys, "daemon_key": daemon_key, "timeout": "15s", **json.loads(options)}
    with EmlioLoader(folder, **usual) as truth, EmlioLoader(address, **loader_arguments(**usual, **remote)) as loader:
        while not (told_to_end or wrong):
            seen = set()
            for got, right in zip(loader, truth, strict=True):
                same = got["__id__"].tolist() == right["__id__"].tolist()
                if not same or [bytes(one) for one in got["record"]] != [bytes(one) for one in right["record"]]:
                    wrong = wrong or f"epoch {epochs}, after {records} records"
                seen.update(got["__id__"].tolist())
                records += len(got["record"])
                time.sleep(0.01)  # what training does with a batch; as fast as it can it would be the greatest load itself
            if len(seen) != loader.records:
                wrong = wrong or f"epoch {epochs} has {len(seen)} different records"
            epochs += 1
            stats = loader.stats()
            while told < asked:
                told += 1
                tell()
except EmlioError as failed:
    error = f"{type(failed).__name__}: {failed}"
tell()
"""


class Keys:
    """Of a storage host, of a training host it knows, and of one it does not know."""

    def __init__(self, folder: Path) -> None:
        self.store, self.rank, self.stranger = (_made(folder / name) for name in ("store", "rank", "stranger"))
        self.insider = _made(folder / "insider")
        self.store.allow("rank", self.rank.pair().public, (OPEN,))
        self.store.allow("insider", self.insider.pair().public, (OPEN,))


def _made(path: Path) -> KeyFolder:
    keys = KeyFolder(path)
    keys.make(path.name)
    return keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Things:
    """What a process has."""

    threads: int
    descriptors: int
    ports: int


class Siege:
    """See the module. Enter it: then the daemon serves, and the rank has read an epoch and reads on, epoch after epoch.

    Attributes:
        keys: of all who take part.
        daemon: its process.
        rank: the legitimate one.
    """

    def __init__(
        self,
        folder: Path,
        *options: str,
        encryption: str = "auto",
        bind: str = "tcp://127.0.0.1:0",
        extra: Mapping[str, Path] | None = None,
    ) -> None:
        """See the class.

        Args:
            folder: for keys and data.
            options: more flags of the daemon.
            encryption: of daemon and rank.
            bind: the daemon's control port.
            extra: more datasets; the insider may read them, the others not.
        """
        self.keys = Keys(folder)
        make_dataset(folder / OPEN, records=RECORDS, shards=3, payload=record_bytes)
        make_dataset(folder / CLOSED, records=20, shards=1, payload=record_bytes)
        self._folder, self._encryption, self._bind = folder, encryption, bind
        self._heard: dict[int, int] = {}
        self._extra = dict(extra or {})
        # Little memory, so that what an attack takes can be told from what reading ahead takes. Messages so long that pyzmq does
        # not copy them, so that its thread for that is there from the beginning.
        usual = ("--memory", "8MiB", "--message-size", "128KiB", "--lanes", "2")
        self._options = (*usual, "--keys", str(self.keys.store.path), "--encryption", encryption, *options)

    def __enter__(self) -> "Siege":
        data = {OPEN: self._folder / OPEN, CLOSED: self._folder / CLOSED, **self._extra}
        self.keys.store.revoke("insider")
        self.keys.store.allow("insider", self.keys.insider.pair().public, (OPEN, *self._extra))
        self.daemon = DaemonProcess(data, *self._options, folder=self._folder, bind=self._bind)
        try:
            self.rank = self.new_rank()
            try:
                self.reads(self.rank)
                self.calm = self._at_rest()
                self._forget_peak()
                self.calm_bytes, self.calm_peak_bytes = self.own_bytes, self.peak_bytes
            except BaseException:
                self.rank.kill()
                raise
        except BaseException:
            self.daemon.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.rank.kill()
        self.daemon.kill()

    def new_rank(self, keys: KeyFolder | None = None, *, at: str = "127.0.0.1", **options: object) -> RankProcess:
        """Another one, with these keys or the same, which calls this host; `reads` asks it how it does."""
        told = {"encryption": self._encryption, "heartbeat": "10s", **options}
        address = self.daemon.address(OPEN).replace("127.0.0.1", at)
        words = (
            address,
            str(self._folder / OPEN),
            str(keys.path if keys else self.keys.rank.path),
            str(self.keys.store.pair().public),
        )
        return RankProcess(_RANK, *words, json.dumps(told))

    # ---- the daemon -----------------------------------------------------------------------------------------------

    def things(self) -> Things:
        """What the daemon has now."""
        process = psutil.Process(self.daemon.pid)
        ports = sum(one.status == psutil.CONN_LISTEN for one in process.net_connections("tcp"))
        return Things(threads=process.num_threads(), descriptors=process.num_fds(), ports=ports)

    def _at_rest(self) -> Things:
        """Wait until what the daemon has stays the same, and return it. A rank first connects more lanes than it is given."""
        seen = [self.things()]

        def stays() -> bool:
            time.sleep(_REST_S)
            seen.append(self.things())
            return seen[-1] == seen[-2]

        assert settles(stays, _SETTLE_S), seen
        return seen[-1]

    @property
    def own_bytes(self) -> int:
        """Of memory, shards' files apart."""
        return self._status("RssAnon")

    @property
    def peak_bytes(self) -> int:
        """The most memory it had since it was last found unharmed, with what it mapped."""
        return self._status("VmHWM")

    def _forget_peak(self) -> None:
        Path(f"/proc/{self.daemon.pid}/clear_refs").write_text("5", encoding="ascii")

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.daemon.pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"the kernel must tell {name}")

    # ---- the end --------------------------------------------------------------------------------------------------

    def told_nothing(self, heard: bytes) -> None:
        """No record, no name of a dataset, no catalog is in what an attacker heard."""
        for secret in (_MARK, OPEN.encode(), CLOSED.encode(), b"train-0", b"tfrecord"):
            assert secret not in heard

    def is_unharmed(self, *, peak_bytes: int = MEMORY_BYTES, connections: int = 0) -> None:
        """The attack is over: the daemon is as it was before all attacks, and the rank got everything once and in order.

        Args:
            peak_bytes: what it may have taken at an attack's height.
            connections: of attackers that are admitted, and still there.
        """
        assert self.daemon.running
        expected = replace(self.calm, descriptors=self.calm.descriptors + connections)
        assert settles(lambda: self.things() == expected, _SETTLE_S), f"must have {expected}, has {self.things()}"
        assert settles(lambda: self.own_bytes - self.calm_bytes <= MEMORY_BYTES, _SETTLE_S), self._memory()
        assert self.peak_bytes - self.calm_peak_bytes <= peak_bytes, self._memory()
        self._forget_peak()
        self.reads(self.rank)
        assert "Traceback" not in self.daemon.log
        assert "internal error" not in self.daemon.log

    def _memory(self) -> str:
        grown, height = self.own_bytes - self.calm_bytes, self.peak_bytes - self.calm_peak_bytes
        return f"grew by {grown >> 10:,} KiB, at its height by {height >> 10:,} KiB"

    def reads(self, rank: RankProcess, *, reopened: int = 0) -> dict[str, Any]:
        """Ask it: it has read on until now, whole epochs, everything in its place, and was never in want of the daemon."""
        if self._heard.setdefault(rank.pid, 0):
            rank.send_signal(signal.SIGUSR1)
        said: dict[str, Any] = rank.line(self._heard[rank.pid], _EPOCH_S)
        self._heard[rank.pid] += 1
        assert said["error"] == ""
        assert said["wrong"] == ""
        assert said["records"] == said["epochs"] * RECORDS > 0
        assert said["lost"] == 0
        assert said["reopened"] <= reopened
        return said

    def fails(self, rank: RankProcess) -> dict[str, Any]:
        """Wait until it has given up; what it says of its life."""
        rank.finish(_EPOCH_S)
        said = rank.lines()
        assert said, rank.log
        last: dict[str, Any] = said[-1]
        return last


def record_bytes(number: int) -> bytes:
    """A record by which it can be told that one was given away."""
    return _MARK + number.to_bytes(8, "little") + bytes(number % 251 for _ in range(900))
