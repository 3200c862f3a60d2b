"""What somebody hears who records everything that passes between a daemon and a rank.

A tap in the middle keeps each byte of a whole job: hello, two epochs with a lost connection between them, goodbye. In it are
looked for: records, the dataset's and the shards' names, hosts, all long-term keys in every spelling, the secrets of sessions.

What it hears by design. Of control's CURVE (RFC 26 of ZeroMQ): the greeting with the mechanism's name and who is the server, the
client's short-term public key, which is new for every connection, a cookie, the names of its commands, how many messages there
are and how long each is. The client's long-term key and the daemon's short-term one travel in boxes (INITIATE, WELCOME), the
daemon's long-term key does not travel at all. Of lanes whose payloads are sealed: PLAIN's user name, that is the session's
group and the lane's number; the lane's token, which admits once and was used; the lane's name, which nobody else can take while
it is connected; the headers, that is sizes and places of records; and credits, that is how much the rank has read.

Covers: both ciphers; and, so that a tap that is deaf would be noticed, the same without encryption. Does not cover:
changing what passes (tests/integration/test_wire_faults.py), coming in (tests/integration/test_trust.py).
"""

import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.keys.folder import KeyFolder
from emlio.session.rank import RankSession
from emlio.wire.control import Hello
from emlio.wire.seal import lane_group
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import DaemonProcess
from emlio_testing.proxy import FaultProxy, free_ports
from emlio_testing.traffic import Course

RECORDS, RECORD_BYTES = 300, 1500
DATASET = "pictures-of-our-patients"
SHARD = "train-0000"
WINDOW = 16
HERE, FACE = "127.0.0.1", "127.0.0.2"
LANES = 2
TOLD_APART = 6
"""A shorter name of a host may stand in random bytes by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tapped:
    """A job as the tap heard it.

    Attributes:
        heard: what came of each connection and way.
        secrets: of the sessions, as the rank drew them.
        daemon: the daemon's process number, which its name ends with.
        protection: what the loader says protected records.
    """

    heard: tuple[tuple[Course, bytes], ...]
    secrets: tuple[bytes, ...]
    daemon: int
    protection: str

    def holds(self, piece: bytes) -> bool:
        return any(piece in data for _, data in self.heard)


class House:
    """A dataset whose bytes are in nothing else, and two hosts with keys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        draw = random.Random(20)
        self.records = make_dataset(
            folder / "data", records=RECORDS, shards=3, payload=lambda _: draw.randbytes(RECORD_BYTES)
        )
        self.store, self.gpu = KeyFolder(folder / "store"), KeyFolder(folder / "gpu")
        for keys, name in ((self.store, "store"), (self.gpu, "gpu")):
            keys.make(name)
        self.store.allow("gpu", self.gpu.pair().public)

    def windows(self) -> Iterator[tuple[bytes, ...]]:
        """Some pieces of each record: its two ends and where they fall."""
        draw = random.Random(21)
        for record in self.records:
            places = [0, RECORD_BYTES - WINDOW, *(draw.randrange(RECORD_BYTES - WINDOW) for _ in range(2))]
            yield tuple(record[place : place + WINDOW] for place in places)

    def public_keys(self) -> list[bytes]:
        keys = [folder.pair().public for folder in (self.store, self.gpu)]
        return [
            form for key in keys for form in (*spellings(key.raw, key.z85), str(key).encode(), str(key)[6:].encode())
        ]

    def secret_keys(self) -> list[bytes]:
        keys = [folder.pair().secret for folder in (self.store, self.gpu)]
        return [form for key in keys for form in (*spellings(key.raw, key.z85), key.reveal()[12:].encode())]

    def tap(self, monkeypatch: pytest.MonkeyPatch, *, encryption: str = "auto", keyed: bool = True) -> Tapped:
        """Run a job through the tap, from hello to goodbye."""
        secrets: list[bytes] = []
        greet = RankSession.greet

        def note(machine: RankSession, hello: Hello, now_ns: int) -> Any:
            secrets.append(hello.lane_secret)
            return greet(machine, hello, now_ns)

        monkeypatch.setattr(RankSession, "greet", note)
        ports = free_ports(2, HERE, FACE)
        options = ["--lanes", str(LANES), "--message-size", "16KiB", "--memory", "1MiB", "--encryption", encryption]
        options += ["--keys", str(self.store.path)] if keyed else []
        shown = {"keys": str(self.gpu.path), "daemon_key": str(self.store.pair().public)}
        loading: dict[str, Any] = {"batch_size": 10, "raw": True, "ids": True, "to": "numpy", "prefetch": "1MiB"}
        (no_keys := self.folder / "none").mkdir(exist_ok=True)
        loading |= shown if keyed else {"keys": str(no_keys)}
        bind, address = f"tcp://{HERE}:{ports[0]}", f"emlio://{FACE}:{ports[0]}/{DATASET}"
        with (
            DaemonProcess({DATASET: self.folder / "data"}, *options, folder=self.folder, bind=bind) as daemon,
            FaultProxy(target=HERE, ports=ports, host=FACE, keeps=True) as proxy,
        ):
            with EmlioLoader(address, **loader_arguments(encryption=encryption, **loading)) as loader:
                self.check(loader, proxy)
                self.check(loader, None)
                stats = loader.stats()
            assert stats.reopened_streams, "the connection was lost in the midst of it"
            daemon.wait_for_log("goodbye")
            return Tapped(
                heard=tuple(proxy.heard), secrets=tuple(secrets), daemon=daemon.pid, protection=stats.protection
            )

    def check(self, loader: EmlioLoader, proxy: FaultProxy | None) -> None:
        """An epoch, which brings each record once; with a proxy, all connections are lost on the way."""
        seen = dict[int, bytes]()
        for batch in loader:
            seen.update(zip(batch["__id__"].tolist(), (bytes(one) for one in batch["record"]), strict=True))
            if proxy is not None and len(seen) == RECORDS // 2:
                proxy.reset()
        assert seen == dict(enumerate(self.records))


def spellings(raw: bytes, z85: bytes) -> tuple[bytes, ...]:
    return raw, raw.hex().encode(), raw.hex().upper().encode(), z85


def names(tapped: Tapped) -> list[bytes]:
    """What says whose data it is and where it goes, and words of the conversation."""
    host = socket.gethostname()
    found = [DATASET, SHARD, f"{host}-{tapped.daemon}", "world_size", "planoffer", "goodbye"]
    return [name.encode() for name in (*found, host) if len(name) >= TOLD_APART]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    return House(tmp_path_factory.mktemp("tap"))


@pytest.mark.parametrize(
    ("encryption", "has_aes", "protection"),
    [("aead", True, "aes-256-gcm"), ("aead", False, "chacha20-poly1305")],
)
def test_a_tap_hears_no_record_no_name_and_no_key(
    house: House, encryption: str, has_aes: bool, protection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emlio.receiver.addresses.trust.has_aes", lambda: has_aes)
    tapped = house.tap(monkeypatch, encryption=encryption)
    assert tapped.protection == protection
    carried = sum(len(data) for course, data in tapped.heard if course is Course.DATA)
    assert carried > 2 * RECORDS * RECORD_BYTES, "two epochs went through it"
    assert not [number for number, pieces in enumerate(house.windows()) if any(map(tapped.holds, pieces))]
    assert not [name for name in names(tapped) if tapped.holds(name)]
    assert not [key for key in house.secret_keys() if tapped.holds(key)]
    assert not [key for key in house.public_keys() if tapped.holds(key)]
    secrets = tapped.secrets
    assert len(set(secrets)) == len(secrets) >= 2, "each conversation has its own"
    assert not [secret for secret in secrets for form in spellings(secret, secret) if tapped.holds(form)]
    assert all(tapped.holds(lane_group(secret).encode()) for secret in secrets), "what its lanes say first"


def test_the_same_tap_hears_every_record_where_nothing_is_encrypted(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    tapped = house.tap(monkeypatch, encryption="off")
    assert tapped.protection == "clear"
    assert all(all(map(tapped.holds, pieces)) for pieces in house.windows())
    assert not [name for name in names(tapped) if tapped.holds(name)], "with keys the conversation stays under CURVE"
    assert not [secret for secret in tapped.secrets if tapped.holds(secret)]


def test_the_same_tap_hears_every_name_and_secret_where_there_are_no_keys(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    tapped = house.tap(monkeypatch, keyed=False)
    assert tapped.protection == "clear"
    assert all(all(map(tapped.holds, pieces)) for pieces in house.windows())
    assert all(map(tapped.holds, names(tapped)))
    assert len(tapped.secrets) >= 2
    assert all(map(tapped.holds, tapped.secrets))
    assert tapped.holds(b"\xa4type\xa5hello")
    assert tapped.holds(b"\xa4type\xa7goodbye"), "it was there to the end"
