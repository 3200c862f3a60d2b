"""Loaders that ask for what cannot be, daemons that do not fit together, and strangers on the control port.

Covers: what a rank is told and that it never hangs; a daemon that goes on whatever it is sent. Does not cover: damaged data
(test_bad_data), daemons and ranks that die (test_daemon_life, test_loader_life).
"""

import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import msgspec
import pytest
import zmq

from emlio import EmlioLoader
from emlio.checksum import crc32c
from emlio.errors import ConfigError, DatasetError, PeerLostError, RefusedError, RemoteProtocolError
from emlio.wire.control import PROTOCOL_VERSION, Hello, encode_control
from emlio_testing.datasets import make_dataset, numbered_payload
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import DaemonProcess

SOON_S = 20.0
SECRET = bytes(32)


def load(address: str, **options: object) -> EmlioLoader:
    arguments: dict[str, object] = {"batch_size": 10, "raw": True, "to": "numpy", "timeout": "10s", **options}
    return EmlioLoader(address, **loader_arguments(**arguments))


def records_of(loader: EmlioLoader) -> list[int]:
    return [int.from_bytes(record[:8], "little") for batch in loader for record in batch["record"]]


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def soon(limit_s: float = SOON_S) -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < limit_s


# ---- a rank that asks for what cannot be --------------------------------------------------------------------------------


def test_a_daemon_that_is_not_there_is_named_within_the_timeout() -> None:
    port = unused_port()
    with (
        soon(),
        pytest.raises(PeerLostError, match=rf"the daemon at 127\.0\.0\.1:{port} must answer within 500 ms") as got,
    ):
        load(f"emlio://127.0.0.1:{port}/x", timeout="500ms")
    assert "Check that emlio-daemon is running there" in str(got.value)


def test_one_of_two_daemons_that_is_not_there_is_the_one_named(small: Path, tmp_path: Path) -> None:
    port, part = unused_port(), tmp_path / "part"
    part.mkdir()
    for path in small.iterdir():
        if "00003" not in path.name:
            (part / path.name).hardlink_to(path)
    named = rf"the daemon at 127\.0\.0\.1:{port} must answer within 500 ms, connections are refused.*3 of 4 shards.*train-00003"
    with DaemonProcess({"small": part}, folder=tmp_path) as daemon, soon(), pytest.raises(PeerLostError, match=named):
        load(f"emlio://{daemon.peer},127.0.0.1:{port}/small", timeout="500ms")


def test_something_else_on_the_port_is_no_hang() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with soon(), pytest.raises(PeerLostError, match="must answer within 500 ms"):
            load(f"emlio://127.0.0.1:{port}/x", timeout="500ms")


def test_a_wrong_name_of_a_dataset_is_answered_with_the_names_there_are(small: Path, tmp_path: Path) -> None:
    with (
        DaemonProcess({"small": small, "another": small}, folder=tmp_path) as daemon,
        soon(),
        pytest.raises(
            RefusedError, match="there is no dataset 'smal' at this daemon, available: another, small"
        ) as got,
    ):
        load(daemon.address("smal"))
    assert got.value.code == "unknown-dataset"
    assert daemon.peer in str(got.value)


@pytest.mark.parametrize("name", ["../small", "small/..", ".", "%2e%2e", "a" * 300, "small\0"])
def test_a_name_never_becomes_a_path(daemon: DaemonProcess, name: str) -> None:
    with soon(), pytest.raises((ConfigError, RefusedError)):
        load(f"emlio://{daemon.peer}/{name}")
    assert daemon.running


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"batch_size": -4}, "batch_size must be a whole number of at least 1, got -4"),
        ({"batch_size": 2.5}, "batch_size must be a whole number of at least 1, got 2.5"),
        ({"rank": 4, "world_size": 4}, r"rank must be in \[0, 4\), got 4"),
        ({"rank": -1, "world_size": 4}, r"rank must be in \[0, 4\), got -1"),
        ({"rank": 0}, "rank and world_size must be given together"),
        ({"batch_size": 501, "drop_last": True}, "at most the 500 records of the epoch, got"),
        ({"seed": -1}, r"seed must be in \[0, 2\*\*63\), got -1"),
        ({"drop_last": True, "pad": True}, "drop_last and pad must not both be True"),
        (
            {"prefetch": "1kB"},
            "prefetch must be \"auto\", or a size from 1 MiB to 1 TiB in B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, got '1kB'",
        ),
    ],
    ids=str,
)
def test_a_bad_argument_says_what_must_hold_and_what_came(
    daemon: DaemonProcess, options: dict[str, object], said: str
) -> None:
    with soon(), pytest.raises(ConfigError, match=said):
        load(daemon.address("small"), **options)


def test_a_batch_larger_than_the_dataset_is_one_batch_of_all(daemon: DaemonProcess) -> None:
    with load(daemon.address("small"), batch_size=100_000) as loader:
        assert len(loader) == 1
        assert sorted(records_of(loader)) == list(range(500))


def test_a_rank_the_daemon_hears_of_must_be_in_the_world(daemon: DaemonProcess) -> None:
    hello = Hello(
        job="j", client="c", rank=4, world_size=4, dataset="small", host="h", pid=1, software="0", lane_secret=SECRET
    )
    with dealer(daemon) as peer:
        peer.send(encode_control(hello))
        assert refusal(peer) == ("rank-out-of-range", "rank must be in [0, 4), got 4")


# ---- daemons that do not fit together -----------------------------------------------------------------------------------


def test_two_daemons_with_different_copies_of_a_shard_are_both_named(tmp_path: Path) -> None:
    make_dataset(tmp_path / "one", records=40, shards=2, payload=50)
    make_dataset(tmp_path / "two", records=40, shards=2, payload=lambda record: numbered_payload(record + 1, 50))
    with (
        DaemonProcess({"x": tmp_path / "one"}, folder=tmp_path) as one,
        DaemonProcess({"x": tmp_path / "two"}, folder=tmp_path) as two,
        soon(),
        pytest.raises(DatasetError, match="all copies of") as got,
    ):
        load(one.address("x", two))
    assert one.peer in str(got.value)
    assert two.peer in str(got.value)
    assert "train-00000-of-00002.tfrecord" in str(got.value)


def split(whole: Path, made: Path, shards: set[int]) -> Path:
    """A folder with some of a dataset's shards."""
    made.mkdir()
    for shard in shards:
        for path in whole.glob(f"train-{shard:05d}-*"):
            os.link(path, made / path.name)
        os.link(whole / f"mapping_shard_{shard:05d}.json", made / f"mapping_shard_{shard:05d}.json")
    return made


def test_an_incomplete_set_of_shards_is_refused_with_their_names(tmp_path: Path) -> None:
    make_dataset(tmp_path / "whole", records=80, shards=8)
    one, two = (
        split(tmp_path / "whole", tmp_path / "one", {0, 1, 2}),
        split(tmp_path / "whole", tmp_path / "two", {4, 5, 6}),
    )
    with DaemonProcess({"x": one}, folder=tmp_path) as first, DaemonProcess({"x": two}, folder=tmp_path) as second:
        with soon(), pytest.raises(DatasetError, match="every shard of 'x' must be held by one of the daemons") as got:
            load(first.address("x", second))
        assert str(got.value).endswith("2 missing: train-00003-of-00008.tfrecord, train-00007-of-00008.tfrecord")
        assert "dataset x: shards missing in " in first.log
        assert "train-00003-of-00008.tfrecord, train-00004-of-00008.tfrecord" in first.log


def test_a_missing_shard_is_noticed_though_it_is_beyond_those_each_daemon_names(tmp_path: Path) -> None:
    make_dataset(tmp_path / "whole", records=80, shards=40)
    one = split(tmp_path / "whole", tmp_path / "one", set(range(20)))
    two = split(tmp_path / "whole", tmp_path / "two", set(range(20, 39)))
    with (
        DaemonProcess({"x": one}, folder=tmp_path) as first,
        DaemonProcess({"x": two}, folder=tmp_path) as second,
        soon(),
        pytest.raises(DatasetError, match="1 missing"),
    ):
        load(first.address("x", second))


# ---- strangers on the control port --------------------------------------------------------------------------------------


@contextmanager
def dealer(daemon: DaemonProcess) -> Iterator["zmq.Socket[bytes]"]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.setsockopt(zmq.LINGER, 0)
        peer.setsockopt(zmq.RCVTIMEO, 5000)
        peer.setsockopt(zmq.SNDTIMEO, 5000)
        peer.connect(daemon.endpoint)
        yield peer


def summed(body: bytes) -> bytes:
    """The body behind its checksum."""
    return crc32c(body).to_bytes(4, "little") + body


def refusal(peer: "zmq.Socket[bytes]") -> tuple[str, str]:
    """What every version can read: two bytes of magic, one of version, four of checksum, a map with code and text."""
    data = peer.recv()
    assert data[:2] == b"\xe3M"
    assert data[3:7] == crc32c(data[7:]).to_bytes(4, "little")
    body = msgspec.msgpack.decode(data[7:])
    assert body["type"] == "refused"
    return body["code"], body["text"]


def test_a_rank_of_another_protocol_version_gets_a_refusal_it_can_read(daemon: DaemonProcess) -> None:
    hello = Hello(
        job="j", client="c", rank=0, world_size=1, dataset="small", host="h", pid=1, software="9", lane_secret=SECRET
    )
    theirs = bytearray(encode_control(hello))
    theirs[2] = 1
    with dealer(daemon) as peer:
        peer.send(bytes(theirs))
        code, text = refusal(peer)
    assert code == "protocol"
    assert f"the peer uses protocol version 1, this side version {PROTOCOL_VERSION}" in text
    assert "Install the same release of emlio on both sides" in text


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        ({"type": "refused", "code": "protocol", "text": "speak version 1"}, RefusedError, "refused: speak version 1"),
        ({"type": "welcome1", "session": 1}, RemoteProtocolError, "the peer uses protocol version 1, this side"),
    ],
    ids=["refusal", "another answer"],
)
def test_a_daemon_of_another_protocol_version_is_named_by_the_rank(
    body: dict[str, object], kind: type[Exception], said: str
) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.setsockopt(zmq.LINGER, 0)
        router.setsockopt(zmq.RCVTIMEO, 100)
        port = router.bind_to_random_port("tcp://127.0.0.1")
        done = Event()

        def answer() -> None:
            while not done.is_set():
                with suppress(zmq.Again):
                    identity, _ = router.recv_multipart()
                    router.send_multipart([identity, b"\xe3M\x01" + summed(msgspec.msgpack.encode(body))])

        other = Thread(target=answer)
        other.start()
        try:
            with soon(), pytest.raises(kind, match=said) as got:
                load(f"emlio://127.0.0.1:{port}/x")
        finally:
            done.set()
            other.join(SOON_S)
        assert f"127.0.0.1:{port}" in str(got.value)


def nonsense(draw: random.Random) -> list[bytes]:
    """Frames no rank sends: noise, nothing, several, a right beginning with a wrong end, depths, sizes."""
    envelope = b"\xe3M" + bytes((PROTOCOL_VERSION,))
    return draw.choice(
        [
            [draw.randbytes(draw.randrange(1, 200))],
            [b""],
            [b"", b"a"],
            [b"a", b"b", b"c"],
            [envelope],
            [envelope + draw.randbytes(50)],
            [envelope + summed(draw.randbytes(50))],
            [envelope + summed(b"\x91" * 5000)],
            [envelope + summed(b"\xdf\xff\xff\xff\xff")],
            [envelope + summed(msgspec.msgpack.encode({"type": "open", "session": 1, "lanes": 1 << 60}))],
            [envelope + summed(msgspec.msgpack.encode({"type": "goodbye", "session": 1}))],
            [envelope + summed(msgspec.msgpack.encode({"type": "hello", "dataset": "x" * 100_000}))],
        ]
    )


def raw_noise(daemon: DaemonProcess, draw: random.Random) -> None:
    host, _, port = daemon.peer.rpartition(":")
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
    for beginning in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", greeting, greeting[:11]):
        with socket.create_connection((host, int(port)), timeout=SOON_S) as stranger:
            stranger.sendall(beginning + draw.randbytes(300))


def test_nonsense_on_the_control_port_disturbs_no_rank_and_does_not_fill_the_log(daemon: DaemonProcess) -> None:
    draw = random.Random(20240607)
    enough = Event()
    sent = 0

    def flood() -> None:
        nonlocal sent
        with dealer(daemon) as stranger:
            while not enough.is_set():
                stranger.send_multipart(nonsense(draw))
                sent += 1
            stranger.send(bytes(5 << 20))  # larger than anything legitimate: the connection is cut

    flooding = Thread(target=flood)
    flooding.start()
    try:
        with load(daemon.address("small"), timeout="5s") as loader:
            begun = time.monotonic()
            # Longer than the heartbeat timeout, so that pings must have come through.
            while time.monotonic() - begun < 2.0 or sent < 5000:
                raw_noise(daemon, draw)
                assert sorted(records_of(loader)) == list(range(500))
                with load(daemon.address("small"), timeout="5s") as late:
                    assert len(late) == 50
    finally:
        enough.set()
        flooding.join(SOON_S)
    assert daemon.running
    complaints = [line for line in daemon.log.splitlines() if "invalid control message" in line]
    assert 1 <= len(complaints) < 30, f"{sent} messages"
    assert any("more since the last line like this" in line for line in complaints)
    assert "Traceback" not in daemon.log
