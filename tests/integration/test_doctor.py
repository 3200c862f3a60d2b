"""`emlio doctor` on real daemons: each fault is named by its check, with what mends it, and nothing else fails."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.cli import main
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import RefusedError
from emlio.keys.folder import KeyFolder
from emlio.keys.known_daemons import DaemonPlace
from emlio.reading.feed import Feed
from emlio_testing.datasets import make_dataset
from emlio_testing.proxy import FaultProxy, free_ports

HERE, FACE = "127.0.0.1", "127.0.0.5"
SEEDS = range(int(os.environ.get("EMLIO_FAULT_SEEDS", "1")))
QUICK = ("--over", "100ms", "--timeout", "2s")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doctor")
    make_dataset(folder / "images", records=400, shards=2, payload=8000)
    return folder


@contextmanager
def _daemon(folder: Path, **options: Any) -> Iterator[Daemon]:
    source = DatasetSource(name="images", directory=folder / "images")
    usual: dict[str, Any] = {"bind": Endpoint(host=HERE, port=0)}
    with Daemon(DaemonConfig(data=(source,), **(usual | options))) as daemon:
        yield daemon


def _place(daemon: Daemon) -> str:
    return daemon.endpoint.removeprefix("tcp://")


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Return what runs the command and returns its findings, by check; those of this host are left out."""
    monkeypatch.setenv("EMLIO_JOB", "")  # set anew by the command, and taken back by the fixture
    monkeypatch.setenv("EMLIO_HOME", str(tmp_path / "no-keys"))
    monkeypatch.setenv("EMLIO_CACHE", "")

    def run(address: str, *words: str) -> dict[str, dict[str, str]]:
        status = main(["doctor", address, "--json", *QUICK, *words])
        found = json.loads(capsys.readouterr().out)
        assert status == (1 if found["failed"] else 0)
        assert found["failed"] == sum(one["verdict"] == "fail" for one in found["findings"])
        return {one["check"]: one for one in found["findings"] if one["about"] != "this host" or one["check"] == "keys"}

    return run


def _failed(found: dict[str, dict[str, str]]) -> list[str]:
    return [name for name, one in found.items() if one["verdict"] == "fail"]


def test_where_all_is_well_each_check_says_what_it_saw(folder: Path, doctor: Callable[..., Any]) -> None:
    with _daemon(folder) as daemon:
        found = doctor(f"emlio://{_place(daemon)}/images")
    assert _failed(found) == []
    assert found["dataset"]["evidence"].startswith("images@1: 400 records in 2 shards")
    assert "16 connections" in found["bandwidth"]["evidence"]
    assert set(found) >= {
        "name",
        "control port",
        "round trip",
        "packets",
        "daemon",
        "protection",
        "memory",
        "records",
        "bound by",
    }


def test_a_daemon_alone_is_checked_without_a_dataset(folder: Path, doctor: Callable[..., Any]) -> None:
    with _daemon(folder) as daemon:
        found = doctor(_place(daemon))
    assert _failed(found) == []
    assert "records" not in found


def test_a_folder_is_read_as_a_loader_reads_it(folder: Path, doctor: Callable[..., Any]) -> None:
    found = doctor(str(folder / "images"))
    assert found["records"]["verdict"] == "ok"
    assert found["reading"]["evidence"].endswith("/s, in random order")


def test_this_host_alone_is_checked_without_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("this host:\n")
    for check in ("emlio", "C library", "processor", "memory", "open files", "direct reading", "buffers"):
        assert f"  {check} " in told
    assert "0 failed" in told
    assert main(["doctor", "store1", "--local"]) == 2


# ---- faults, each with the check that must fail -------------------------------------------------------------------------


def _wrong_name(folder: Path, stack: ExitStack) -> tuple[str, ...]:
    return ("emlio://no-such-host.invalid:5555/images",)


def _nothing_listens(folder: Path, stack: ExitStack) -> tuple[str, ...]:
    return (f"emlio://{HERE}:{free_ports(1, HERE)[0]}/images",)


def _packets_are_dropped(folder: Path, stack: ExitStack) -> tuple[str, ...]:
    full = stack.enter_context(socket.socket())
    full.bind((HERE, 0))
    full.listen(0)
    for _ in range(4):  # where the queue is full, the kernel drops what comes
        more = stack.enter_context(socket.socket())
        more.setblocking(False)
        more.connect_ex(full.getsockname())
    return (f"emlio://{HERE}:{full.getsockname()[1]}/images", "--timeout", "300ms")


def _data_port(folder: Path, stack: ExitStack) -> tuple[str, ...]:
    daemon = stack.enter_context(_daemon(folder))
    return (f"emlio://{daemon.data_endpoint.removeprefix('tcp://')}/images",)


def _another_service(folder: Path, stack: ExitStack) -> tuple[str, ...]:
    other = stack.enter_context(socket.socket())
    other.bind((HERE, 0))
    other.listen()
    return (f"emlio://{HERE}:{other.getsockname()[1]}/images", "--timeout", "500ms")


def _draining(folder: Path, stack: ExitStack) -> tuple[str, ...]:
    ports = free_ports(2, HERE, FACE)
    bind = Endpoint(host=HERE, port=ports[0])
    daemon = stack.enter_context(_daemon(folder, bind=bind, lanes=1, drain_timeout=20_000_000_000))
    proxy = stack.enter_context(FaultProxy(target=HERE, host=FACE, ports=ports))
    options: dict[str, Any] = {"batch_size": 1, "raw": True, "to": "numpy"}
    loader = stack.enter_context(EmlioLoader(f"emlio://{FACE}:{ports[0]}/images", **options))
    next(iter(loader))
    proxy.stall()  # what was read does not leave, so it drains until its time is up
    daemon.drain()
    return (f"emlio://{_place(daemon)}/images",)


def _unknown_dataset(folder: Path, stack: ExitStack) -> tuple[str, ...]:
    return (f"emlio://{_place(stack.enter_context(_daemon(folder)))}/image",)


def _unknown_generation(folder: Path, stack: ExitStack) -> tuple[str, ...]:
    return (f"emlio://{_place(stack.enter_context(_daemon(folder)))}/images@7",)


def _data_port_is_blocked(folder: Path, stack: ExitStack) -> tuple[str, ...]:
    ports = free_ports(2, HERE, FACE)
    stack.enter_context(_daemon(folder, bind=Endpoint(host=HERE, port=ports[0])))
    stack.enter_context(FaultProxy(target=HERE, host=FACE, ports=ports[:1]))
    return (f"emlio://{FACE}:{ports[0]}/images", "--timeout", "1s")


def _keys(folder: Path, name: str) -> KeyFolder:
    keys = KeyFolder(folder / f"keys-{name}")
    if not keys.path.exists():
        keys.make(name)
    return keys


def _without_a_key(folder: Path, stack: ExitStack) -> tuple[str, ...]:
    daemon = stack.enter_context(_daemon(folder, keys=_keys(folder, "store").path))
    return (f"emlio://{_place(daemon)}/images",)


def _trusting(folder: Path, daemon: Daemon, name: str, of: str) -> KeyFolder:
    keys = _keys(folder, name)
    keys.trust(
        DaemonPlace(host=HERE, port=int(_place(daemon).rpartition(":")[2])),
        _keys(folder, of).pair().public,
        replace=True,
    )
    return keys


def _key_that_is_not_allowed(folder: Path, stack: ExitStack) -> tuple[str, ...]:
    daemon = stack.enter_context(_daemon(folder, keys=_keys(folder, "store").path))
    keys = _trusting(folder, daemon, "stranger", "store")
    return (f"emlio://{_place(daemon)}/images", "--folder", str(keys.path))


def _daemon_with_another_key(folder: Path, stack: ExitStack) -> tuple[str, ...]:
    daemon = stack.enter_context(_daemon(folder, keys=_keys(folder, "store").path))
    keys = _trusting(folder, daemon, "misled", "other")
    return (f"emlio://{_place(daemon)}/images", "--folder", str(keys.path))


@pytest.mark.parametrize("again", SEEDS)
@pytest.mark.parametrize(
    ("fault", "check", "evidence", "mend"),
    [
        (_wrong_name, "name", "cannot be resolved", "getent hosts no-such-host.invalid"),
        (_nothing_listens, "control port", "nothing listens there", "start emlio-daemon"),
        (_packets_are_dropped, "control port", "does not answer within 300 ms", "firewalls"),
        (_data_port, "answer", "is its data port", ""),
        (_another_service, "answer", "accepts connections. The process hangs", ""),
        (_draining, "daemon", "draining", "wait until it is started again"),
        (_unknown_dataset, "dataset", "did you mean 'images'?", "emlio publish"),
        (_unknown_generation, "dataset", "images@7 is not served, @1 is", "emlio publish DIR images@7"),
        (_data_port_is_blocked, "records", "data port", ""),
        (_without_a_key, "answer", "requires keys", ""),
        (_key_that_is_not_allowed, "answer", "does not allow this host's key", ""),
        (_daemon_with_another_key, "answer", "must prove that it has the key", ""),
    ],
)
def test_a_fault_fails_its_own_check_alone(
    fault: Callable[[Path, ExitStack], tuple[str, ...]],
    check: str,
    evidence: str,
    mend: str,
    again: int,
    folder: Path,
    doctor: Callable[..., Any],
) -> None:
    with ExitStack() as stack:
        found = doctor(*fault(folder, stack))
    assert _failed(found) == [check], found
    assert evidence in found[check]["evidence"]
    assert mend in found[check]["mend"]


def test_what_failed_lately_is_told_and_the_daemon_still_works(folder: Path, doctor: Callable[..., Any]) -> None:
    with _daemon(folder) as daemon:
        assert _failed(doctor(f"emlio://{_place(daemon)}/image", "--over", "0s")) == ["dataset"]
        with pytest.raises(RefusedError):
            EmlioLoader(f"emlio://{_place(daemon)}/image", batch_size=1)
        found = doctor(f"emlio://{_place(daemon)}/images", "--over", "0s")
    assert _failed(found) == []
    assert found["failed lately"]["verdict"] == "warn"
    assert "unknown-dataset" in found["failed lately"]["evidence"]


def test_slow_disks_are_told_apart_from_the_network(
    folder: Path, doctor: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Feed.read

    def slowly(feed: Feed, *arguments: Any) -> None:
        time.sleep(0.05)
        read(feed, *arguments)

    monkeypatch.setattr(Feed, "read", slowly)
    with _daemon(folder, message_size=64 << 10, readers=1) as daemon:
        found = doctor(f"emlio://{_place(daemon)}/images", "--over", "1s")
    assert found["bound by"]["evidence"].startswith("reading at the daemons")
    assert "--readers" in found["bound by"]["mend"]
