"""A real daemon for a benchmark."""

import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import zmq

from emlio import EmlioLoader, Recovery, Security
from emlio.keys.folder import KeyFolder
from emlio.wire.protection import CLEAR
from emlio.wire.seal import CIPHERS
from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.scenario import Window
from emlio_bench.link.contract import Link
from emlio_bench.processes.child import Child, say, start_worker

__all__ = [
    "ANSWER_S",
    "WAYS",
    "Endpoint",
    "KeyedSides",
    "RankTrust",
    "ReceiveOrder",
    "RunningDaemon",
    "bound_push",
    "connected_pull",
    "hear_sample",
    "joint_address",
    "make_keys",
    "measure_pair",
    "open_rank",
    "rank_arguments",
    "running_daemon",
]

_DATASET = "bench"


class _Ready(msgspec.Struct, frozen=True):
    endpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningDaemon:
    """The address and the process of a daemon.

    Attributes:
        address: emlio://HOST:PORT/DATASET.
        pid: process id.
    """

    address: str
    pid: int


@contextmanager
def running_daemon(
    directory: Path,
    flags: Sequence[str] = (),
    *,
    link: Link | None = None,
    within: Callable[[Sequence[str]], list[str]] = list,
) -> Generator[RunningDaemon, None, None]:
    """Serve one dataset on a free port of this machine while the block lasts.

    Args:
        directory: directory of the dataset.
        flags: more flags for `emlio-daemon`.
        link: link at whose storage end it runs; None for loopback.
        within: returns the command line that runs a program in the right place, such as at one end
            of a link; the process id must not change.
    """
    with tempfile.TemporaryDirectory(prefix="emlio-bench-") as folder:
        ready = Path(folder) / "ready.json"
        command = [sys.executable, "-m", "emlio.daemon.cli", "--data", f"{_DATASET}={directory}"]
        address = link.storage.address if link is not None else "127.0.0.1"
        command += ["--ready-file", str(ready), "--bind", f"tcp://{address}:0"]
        command += ["--insecure"] if link is not None and "--keys" not in flags else []
        command = within([*command, *flags])
        with Child("emlio-daemon", command if link is None else link.storage.command(command)) as child:
            child.wait_until(ready.exists)  # it appears by a rename, as a whole
            endpoint = msgspec.json.decode(ready.read_bytes(), type=_Ready).endpoint
            address = endpoint.replace("tcp://", "emlio://") + "/" + _DATASET
            yield RunningDaemon(address=address, pid=child.pid)


def joint_address(daemons: Sequence[RunningDaemon]) -> str:
    """Return the address for a loader that reads from all daemons."""
    peers = [daemon.address.removeprefix("emlio://").removesuffix(f"/{_DATASET}") for daemon in daemons]
    return f"emlio://{','.join(peers)}/{_DATASET}"


WAYS: Final = {"sealed": ("aead", CIPHERS), "keyed": ("off", (CLEAR,))}
"""The encryption setting of both sides, and the protections that may result, for each way."""


class RankTrust(msgspec.Struct, frozen=True, kw_only=True):
    """The key settings of a loader.

    Attributes:
        keys: the loader's key folder.
        daemon_key: the public key that the daemon must have.
        encryption: the encryption setting.
    """

    keys: str
    daemon_key: str
    encryption: str

    @property
    def security(self) -> Security:
        """The same as an argument of the loader."""
        return Security(keys=self.keys, daemon_key=self.daemon_key, encryption=self.encryption)


class KeyedSides(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a daemon and a rank that have each other's keys.

    Attributes:
        daemon_flags: flags for `emlio-daemon`.
        rank: settings of the loader.
    """

    daemon_flags: tuple[str, ...]
    rank: RankTrust


@contextmanager
def make_keys(way: str) -> Generator[KeyedSides, None, None]:
    """Make new key pairs, and add the rank's key to the daemon's clients, while the block lasts.

    Args:
        way: a key of `WAYS`.
    """
    encryption, _ = WAYS[way]
    with tempfile.TemporaryDirectory(prefix="emlio-bench-keys-") as name:
        daemon, rank = KeyFolder(Path(name) / "daemon"), KeyFolder(Path(name) / "rank")
        daemon.make("daemon")
        rank.make("rank")
        daemon.allow("rank", rank.pair().public)
        yield KeyedSides(
            daemon_flags=("--keys", str(daemon.path), "--encryption", encryption),
            rank=RankTrust(keys=str(rank.path), daemon_key=str(daemon.pair().public), encryption=encryption),
        )


ANSWER_S: Final = 30.0
"""The longest time that a process may stay silent."""

_HIGH_WATER_MARK: Final = 16
"""Messages queued on either side, as in the daemon and in the paper's system."""


class Endpoint(msgspec.Struct, frozen=True):
    """The address of a sender, reported once it accepts connections."""

    endpoint: str


class ReceiveOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a receiver."""

    endpoint: str
    sender_pid: int
    window: Window


def measure_pair(subject: str, send_order: Any, window: Window) -> Measurement:
    """Take one sample with the roles SUBJECT-send and SUBJECT-receive."""
    with start_worker(f"{subject}-send", send_order) as sender:
        endpoint = sender.hear(Endpoint, ANSWER_S).endpoint
        order = ReceiveOrder(endpoint=endpoint, sender_pid=sender.pid, window=window)
        with start_worker(f"{subject}-receive", order) as receiver:
            return hear_sample(receiver, window)


def hear_sample(receiver: Child, window: Window) -> Measurement:
    """Return the receiver's measurement after the receiver has ended without an error."""
    sample = receiver.hear(Measurement, window.most_ns / 1e9 + ANSWER_S)
    receiver.rest(ANSWER_S)
    return sample


@contextmanager
def bound_push() -> Generator["zmq.Socket[bytes]", None, None]:
    """Bind a PUSH socket to a free port, and report its address on standard output."""
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.setsockopt(zmq.SNDHWM, _HIGH_WATER_MARK)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        say(Endpoint(f"tcp://127.0.0.1:{port}"))
        yield socket


@contextmanager
def connected_pull(endpoint: str) -> Generator["zmq.Socket[bytes]", None, None]:
    """Connect a PULL socket that raises if nothing arrives for `ANSWER_S` seconds."""
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        socket.setsockopt(zmq.RCVHWM, _HIGH_WATER_MARK)
        socket.setsockopt(zmq.RCVTIMEO, round(ANSWER_S * 1000))
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(endpoint)
        yield socket


def rank_arguments(batch_records: int, trust: RankTrust | None = None, **options: Any) -> dict[str, Any]:
    """Return the arguments of a loader whose records are checked and handed out as memory views.

    Those that are objects, `recovery` and `security`, are dictionaries of their fields: the
    arguments can be sent to another process, which may run another version.

    Args:
        batch_records: records in a batch.
        trust: its keys; None without keys.
        options: further arguments, or others than these.
    """
    usual: dict[str, Any] = {
        "batch_size": batch_records,
        "raw": True,
        "to": "numpy",
        "rank": 0,
        "world_size": 1,
        "recovery": {"timeout": f"{ANSWER_S:g}s", "verify": "all"},
        "security": msgspec.structs.asdict(trust) if trust is not None else {},
    }
    return usual | options


def open_rank(address: str, batch_records: int, trust: RankTrust | None = None, **options: Any) -> EmlioLoader:
    """Open a loader; see `rank_arguments`."""
    arguments = rank_arguments(batch_records, trust, **options)
    arguments |= {
        "recovery": Recovery(**arguments["recovery"]),
        "security": Security(**arguments["security"]),
    }
    return EmlioLoader(address, **arguments)
