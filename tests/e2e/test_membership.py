"""Daemons that are added and taken away while a job runs: later records come from others, the order stays what it is.

Covers: both by a new list, names that are looked up again, what cannot be released. Does not cover: daemons that fail
(test_recovery).
"""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from emlio import EmlioLoader
from emlio.errors import ConfigError
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import DaemonProcess, settles

RECORDS = 4000
BATCHES = RECORDS // 10
SHARDS = 8


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 MB in 8 shards: more than is on its way with a window of 1 MiB."""
    directory = tmp_path_factory.mktemp("membership") / "data"
    make_dataset(directory, records=RECORDS, shards=SHARDS, payload=4000)
    return directory


def start(directory: Path, folder: Path, **options: str) -> DaemonProcess:
    flags = ("--message-size", "64KiB", "--memory", "1MiB", "--heartbeat-timeout", "2s")
    return DaemonProcess({"data": directory}, *flags, folder=folder, **options)  # type: ignore[arg-type]  # bind is text


def load(address: str, **options: Any) -> EmlioLoader:
    settings: dict[str, Any] = {
        "batch_size": 10, "raw": True, "ids": True, "to": "numpy", "seed": 5, "prefetch": "1MiB", "heartbeat": "1s",
        "timeout": "20s", **options,
    }  # fmt: skip
    return EmlioLoader(address, **loader_arguments(**settings))


def ids_of(batches: Iterator[Any], count: int) -> list[int]:
    found: list[int] = []
    for _ in range(count):
        found += next(batches)["__id__"].tolist()
    return found


@pytest.fixture(scope="module")
def undisturbed(whole: Path) -> list[int]:
    """The order of two epochs."""
    with load(str(whole)) as loader:
        return [record for _ in range(2) for batch in loader for record in batch["__id__"].tolist()]


def sent_by(daemon: DaemonProcess) -> bool:
    """Whether it has a stream under way."""
    control = int(daemon.peer.rpartition(":")[2])
    connections = psutil.Process(daemon.pid).net_connections("tcp")
    return any(other.status == psutil.CONN_ESTABLISHED and other.laddr.port != control for other in connections)


def test_a_daemon_that_is_added_sends_its_share_and_one_that_is_not_named_any_more_is_let_go(
    whole: Path, tmp_path: Path, undisturbed: list[int]
) -> None:
    with start(whole, tmp_path) as first, start(whole, tmp_path) as second, load(first.address("data")) as loader:
        batches = iter(loader)
        seen = ids_of(batches, 20)
        loader.use_daemons(first.address("data", second))
        second.wait_for_log("began")
        assert settles(lambda: sent_by(second), 30.0)
        seen += ids_of(batches, 100)
        loader.use_daemons(second.address("data"))
        first.wait_for_log("ended: the rank sent goodbye")
        first.kill()
        seen += ids_of(batches, BATCHES - 120)
        seen += ids_of(iter(loader), BATCHES)
        stats = loader.stats()
    assert seen == undisturbed
    assert stats.lost_daemons == 0
    assert stats.reopened_streams >= 2


def test_one_that_alone_holds_a_shard_stays_until_another_does(
    whole: Path, tmp_path: Path, undisturbed: list[int]
) -> None:
    part = tmp_path / "part"
    part.mkdir()
    for path in sorted(whole.iterdir()):
        if "-00000-of-" not in path.name:
            (part / path.name).hardlink_to(path)
    with start(whole, tmp_path) as first, start(part, tmp_path) as second, load(first.address("data")) as loader:
        batches = iter(loader)
        seen = ids_of(batches, 20)
        loader.use_daemons(second.address("data"))
        second.wait_for_log("began")
        assert settles(lambda: sent_by(second), 30.0)
        seen += ids_of(batches, 100)
        assert "ended" not in first.log
        with start(whole, tmp_path) as third:
            loader.use_daemons(second.address("data", third))
            first.wait_for_log("ended: the rank sent goodbye")
            seen += ids_of(batches, BATCHES - 120)
    assert seen == undisturbed[:RECORDS]


def test_one_that_cannot_be_reached_or_holds_other_shards_is_added_in_vain(
    whole: Path, tmp_path: Path, undisturbed: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other"
    make_dataset(other, records=100, shards=SHARDS, payload=10)
    with (
        caplog.at_level(logging.WARNING, "emlio.receiver"),
        socket.socket() as taken,
        start(whole, tmp_path) as first,
        start(other, tmp_path) as wrong,
        load(first.address("data")) as loader,
    ):
        taken.bind(("127.0.0.1", 0))  # nobody listens
        batches = iter(loader)
        seen = ids_of(batches, 20)
        loader.use_daemons(f"emlio://{first.peer},{wrong.peer},127.0.0.1:{taken.getsockname()[1]}/data")
        wrong.wait_for_log("began")
        seen += ids_of(batches, BATCHES - 20)
        assert settles(lambda: "all copies of" in caplog.text, 30.0)
        assert loader.stats().lost_daemons == 0
    assert seen == undisturbed[:RECORDS]


def test_a_name_that_gets_another_address_brings_the_daemon_there(
    whole: Path, tmp_path: Path, undisturbed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, zone = socket.getaddrinfo, {"store.example": ["127.0.0.1", "127.0.0.3"]}

    def look_up(host: str, port: Any, *rest: Any, **more: Any) -> Any:
        known = zone.get(host, [])
        answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in known]
        return answer or real(host, port, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr("emlio.receiver.addresses.host_names._EVERY_S", 0.05)
    with start(whole, tmp_path) as first:
        port = first.peer.rpartition(":")[2]
        with (
            start(whole, tmp_path, bind=f"tcp://127.0.0.3:{port}") as third,
            load(f"emlio://store.example:{port}/data") as loader,
        ):
            batches = iter(loader)
            seen = ids_of(batches, 20)
            assert sent_by(first)
            assert sent_by(third)
            with start(whole, tmp_path, bind=f"tcp://127.0.0.4:{port}") as fourth:
                zone["store.example"] = ["127.0.0.3", "127.0.0.4"]
                fourth.wait_for_log("began")
                first.wait_for_log("ended: the rank sent goodbye")
                seen += ids_of(batches, BATCHES - 20)
    assert seen == undisturbed[:RECORDS]


def test_other_daemons_must_be_of_the_same_dataset(whole: Path, tmp_path: Path) -> None:
    with start(whole, tmp_path) as daemon, load(daemon.address("data")) as loader:
        with pytest.raises(ConfigError, match=r"must serve the loader's dataset, 'data'.*got 'others'"):
            loader.use_daemons(daemon.address("others"))
        with pytest.raises(ConfigError, match="must serve the loader's dataset"):
            loader.use_daemons(str(whole))
