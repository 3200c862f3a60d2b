"""`loader.explain()` and `emlio top` name the stage, the host and the rank that hold up a job, within ten seconds.

Each fault differs with a seed: how bad it is, which daemon has it, when it comes. EMLIO_FAULT_SEEDS=10 tries ten of them.
"""

import io
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.cli import main
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.reading.feed import Feed
from emlio.status.verdict import Bound
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import settles
from emlio_testing.proxy import FaultProxy, free_ports

HERE, FACE = "127.0.0.1", "127.0.0.5"
WITHIN_S = 10.0
RECORDS, PAYLOAD = 600, 16_000
SEEDS = range(int(os.environ.get("EMLIO_FAULT_SEEDS", "1")))


@pytest.fixture(params=SEEDS, ids="seed-{}".format)
def chance(request: pytest.FixtureRequest) -> Random:
    return Random(f"{request.node.name} {request.param}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders with half of the shards each."""
    folder = tmp_path_factory.mktemp("explained")
    made = make_dataset(folder / "all", records=RECORDS, shards=4, payload=PAYLOAD)
    assert made is not None
    for number, name in enumerate(("first", "second")):
        (folder / name).mkdir()
        for file in sorted((folder / "all").iterdir()):
            digits = [int(part) for part in file.name.replace(".", "-").split("-") if part.isdecimal()]
            if digits and digits[0] % 2 == number:
                (folder / name / file.name).hardlink_to(file)
    return folder


@contextmanager
def _daemon(folder: Path, port: int = 0, **options: Any) -> Iterator[Daemon]:
    source = DatasetSource(name="images", directory=folder)
    usual: dict[str, Any] = {"bind": Endpoint(host=HERE, port=port), "message_size": 64 << 10, "readers": 1}
    with Daemon(DaemonConfig(data=(source,), **(usual | options))) as daemon:
        yield daemon


@contextmanager
def _running(address: str, step_s: float = 0.0, **options: Any) -> Iterator[EmlioLoader]:
    """A loader whose batches a thread takes, epoch after epoch."""
    usual: dict[str, Any] = {"batch_size": 20, "raw": True, "to": "numpy", "prefetch": "1MiB", "tune": "off"}
    with EmlioLoader(address, **(usual | options)) as loader:
        stop = Event()

        def take() -> None:
            while not stop.is_set():
                for _ in loader:
                    time.sleep(step_s)
                    if stop.is_set():
                        return

        thread = Thread(target=take)
        thread.start()
        try:
            yield loader
        finally:
            stop.set()
            thread.join()


def _place(daemon: Daemon) -> str:
    return daemon.endpoint.removeprefix("tcp://")


def _becomes(loader: EmlioLoader, bound: Bound) -> None:
    assert settles(lambda: loader.explain().bound is bound, WITHIN_S), str(loader.explain())


def _reads_slowly(monkeypatch: pytest.MonkeyPatch, folder: Path, read_s: float) -> None:
    read = Feed.read

    def slowly(feed: Feed, *arguments: Any) -> None:
        if feed._engine.dataset.place == str(folder):
            time.sleep(read_s)
        read(feed, *arguments)

    monkeypatch.setattr(Feed, "read", slowly)


def _slow(chance: Random) -> Callable[[Any], Any]:
    record_s = chance.uniform(0.003, 0.02)

    def slow(given: Any) -> Any:
        time.sleep(record_s)
        return given

    return slow


def test_the_loop_is_named_where_nothing_waits(folder: Path, chance: Random) -> None:
    step_s = chance.uniform(0.03, 0.2)
    with _daemon(folder / "all") as daemon, _running(f"emlio://{_place(daemon)}/images", step_s=step_s) as loader:
        _becomes(loader, Bound.LOOP)
        told = loader.explain()
    assert told.next_step.startswith("nothing")
    assert str(told).startswith("rank 0 is bound by the training loop")


@pytest.mark.parametrize("argument", ["transform", "collate_fn"])
def test_a_slow_function_of_the_user_is_named_with_this_host(folder: Path, chance: Random, argument: str) -> None:
    options: dict[str, Any] = {
        argument: _slow(chance) if argument == "transform" else _slow_batch(chance),
        "threads": 1,
    }
    with _daemon(folder / "all") as daemon, _running(f"emlio://{_place(daemon)}/images", **options) as loader:
        _becomes(loader, Bound.MAKING)
        assert loader.explain().host == os.uname().nodename


def _slow_batch(chance: Random) -> Callable[[Any], Any]:
    batch_s = chance.uniform(0.03, 0.2)

    def slow(samples: Any) -> Any:
        time.sleep(batch_s)
        return len(samples)

    return slow


def test_slow_disks_of_the_only_daemon_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch, chance: Random) -> None:
    _reads_slowly(monkeypatch, folder / "all", chance.uniform(0.03, 0.1))
    with _daemon(folder / "all") as daemon, _running(f"emlio://{_place(daemon)}/images") as loader:
        _becomes(loader, Bound.STORAGE)
        assert loader.explain().host == _place(daemon)


def test_slow_disks_of_this_host_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch, chance: Random) -> None:
    _reads_slowly(monkeypatch, folder / "all", chance.uniform(0.03, 0.1))
    with _running(str(folder / "all")) as loader:
        _becomes(loader, Bound.DISKS)
        assert loader.explain().host == os.uname().nodename


def test_slow_disks_of_this_host_are_named_beside_a_daemon(
    folder: Path, monkeypatch: pytest.MonkeyPatch, chance: Random
) -> None:
    _reads_slowly(monkeypatch, folder / "first", chance.uniform(0.03, 0.1))
    with (
        _daemon(folder / "second") as daemon,
        _running(f"emlio://{_place(daemon)}/images", local=str(folder / "first")) as loader,
    ):
        _becomes(loader, Bound.DISKS)
        assert loader.explain().host == os.uname().nodename


def test_of_two_daemons_the_one_with_slow_disks_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, chance: Random
) -> None:
    names = ["first", "second"]
    chance.shuffle(names)
    _reads_slowly(monkeypatch, folder / names[1], chance.uniform(0.03, 0.1))
    with ExitStack() as stack:
        first, second = (stack.enter_context(_daemon(folder / name)) for name in names)
        loader = stack.enter_context(_running(f"emlio://{_place(first)},{_place(second)}/images"))
        _becomes(loader, Bound.STORAGE)
        assert settles(lambda: loader.explain().host == _place(second), WITHIN_S), str(loader.explain())
        told = loader.explain()
        wanted = (Bound.STORAGE.value, _place(second), 0)

        def blamed() -> bool:
            top = _top(_place(first), _place(second))
            return (top["stage"], top["host"], top["rank"]) == wanted

        assert settles(blamed, WITHIN_S)
    assert "of these times" in told.evidence
    assert "--readers" in told.next_step


def _beside_a_proxy(
    folder: Path, stack: ExitStack, chance: Random, **options: Any
) -> tuple[EmlioLoader, FaultProxy, str]:
    """Return a loader of two daemons, the proxy before one of them, and the address there. It works for a moment."""
    ports = free_ports(2, HERE, FACE)
    names = ["first", "second"]
    chance.shuffle(names)
    first = stack.enter_context(_daemon(folder / names[0]))
    stack.enter_context(_daemon(folder / names[1], ports[0], lanes=1))
    proxy = stack.enter_context(FaultProxy(target=HERE, host=FACE, ports=ports))
    loader = stack.enter_context(_running(f"emlio://{_place(first)},{FACE}:{ports[0]}/images", **options))
    assert settles(lambda: loader.stats().batches > 5, WITHIN_S)
    time.sleep(chance.uniform(0, 2))
    return loader, proxy, f"{FACE}:{ports[0]}"


def test_a_thin_line_to_the_only_daemon_is_named(folder: Path, chance: Random) -> None:
    ports = free_ports(2, HERE, FACE)
    with (
        _daemon(folder / "all", ports[0], lanes=1),
        FaultProxy(target=HERE, host=FACE, ports=ports) as proxy,
        _running(f"emlio://{FACE}:{ports[0]}/images", prefetch="32MiB") as loader,
    ):
        proxy.slow(chance.uniform(1e6, 4e6))
        _becomes(loader, Bound.NETWORK)
        place = f"{FACE}:{ports[0]}"
        assert settles(lambda: loader.explain().host == place, WITHIN_S), str(loader.explain())


def test_of_two_daemons_the_one_that_is_killed_is_named(folder: Path, chance: Random) -> None:
    with ExitStack() as stack:
        loader, proxy, place = _beside_a_proxy(folder, stack, chance)
        proxy.refuse()
        proxy.drop()
        proxy.reset()
        _becomes(loader, Bound.AWAY)
        assert loader.explain().host == place
        proxy.heal()


def test_of_two_daemons_the_one_behind_a_thin_line_is_named(folder: Path, chance: Random) -> None:
    with ExitStack() as stack:
        loader, proxy, place = _beside_a_proxy(folder, stack, chance, prefetch="32MiB")
        proxy.slow(chance.uniform(0.5e6, 2e6))
        _becomes(loader, Bound.NETWORK)
        assert settles(lambda: loader.explain().host == place, WITHIN_S), str(loader.explain())

        def is_line() -> bool:
            told = loader.explain()
            return told.host == place and "emlio doctor" in told.next_step

        assert settles(is_line, WITHIN_S), str(loader.explain())


def test_a_daemon_that_falls_silent_is_named_while_the_loop_still_waits(folder: Path, chance: Random) -> None:
    with ExitStack() as stack:
        loader, proxy, place = _beside_a_proxy(folder, stack, chance)
        proxy.drop()
        _becomes(loader, Bound.AWAY)
        assert loader.explain().host == place
        proxy.heal()


def test_of_two_ranks_the_one_that_waits_is_blamed_and_not_the_one_with_the_longer_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch, chance: Random
) -> None:
    monkeypatch.setenv("EMLIO_JOB", "run-7")
    slow, step_s = _slow(chance), chance.uniform(0.2, 0.5)
    with _daemon(folder / "all") as daemon, ExitStack() as stack:
        address = f"emlio://{_place(daemon)}/images"
        make: Callable[..., Any] = lambda rank, **options: _running(address, rank=rank, world_size=2, **options)  # noqa: E731
        pending: list[Any] = []
        thread = Thread(target=lambda: pending.append(stack.enter_context(make(0, step_s=step_s))))
        thread.start()  # each waits for the other one to come
        stack.enter_context(make(1, transform=slow, threads=1))
        thread.join()

        def blamed() -> bool:
            found = _top(_place(daemon))
            return (found["stage"], found["rank"]) == ("decoding", 1)

        assert settles(blamed, WITHIN_S), _top(_place(daemon))


def _top(*places: str) -> dict[str, Any]:
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(["top", "--once", "--json", "--every", "500ms", *places]) == 0
    jobs = json.loads(out.getvalue())["jobs"]
    return dict(jobs[0]["blame"]) if jobs else {"stage": "", "rank": None}
