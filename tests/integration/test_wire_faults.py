"""Whatever happens to the bytes between a daemon and a rank, the rank gets every record once, in order, as it was written.

Covers: one bit turned anywhere, connections that end, break in the middle, go silent, stand still or become slow; what is blamed
on a file and what is not. Does not cover: daemons and ranks that die (tests/e2e).
"""

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import CorruptRecordError, PeerLostError, RefusedError, RemoteProtocolError
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import settles
from emlio_testing.proxy import FaultProxy, free_ports

_HERE, _FACE = "127.0.0.1", "127.0.0.3"
_LIMIT_S = 20.0

_RECORDS, _PAYLOAD, _FRAME = 400, 500, 516
_HANDSHAKE_BYTES = 200
"""More than what a connection's two ends say to each other before the first message."""

Records = list[tuple[int, bytes]]


class _Wire:
    """A daemon, and loaders that reach it directly or through a proxy of their own."""

    def __init__(self, ports: range) -> None:
        self._ports = ports

    def loader(self, host: str = _FACE, **options: Any) -> EmlioLoader:
        usual: dict[str, Any] = {"batch_size": 16, "seed": 5, "raw": True, "ids": True, "to": "numpy"}
        times = {"heartbeat": "300ms", "timeout": "10s", "prefetch": "1MiB"}
        return EmlioLoader(f"emlio://{host}:{self._ports[0]}/records", **loader_arguments(**(usual | times | options)))

    def proxy(self) -> FaultProxy:
        return FaultProxy(target=_HERE, ports=self._ports, host=_FACE)


@contextmanager
def _wire(folder: Path, **changes: Any) -> Iterator[_Wire]:
    ports = free_ports(2, _HERE, _FACE)
    usual: dict[str, Any] = {
        "data": (DatasetSource(name="records", directory=folder),),
        "bind": Endpoint(host=_HERE, port=ports[0]),
        "lanes": 1,
        "message_size": 4096,
        "memory": 4 << 20,
        "heartbeat_timeout": 1_000_000_000,
    }
    with Daemon(DaemonConfig(**(usual | changes))):
        yield _Wire(ports)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small records, three shards; nobody changes them."""
    made = tmp_path_factory.mktemp("wire") / "records"
    make_dataset(made, records=_RECORDS, shards=3, payload=_PAYLOAD)
    return made


def _records(batches: Iterable[Any]) -> Records:
    return [
        (number, bytes(record))
        for batch in batches
        for number, record in zip(batch["__id__"].tolist(), batch["record"], strict=True)
    ]


def _undisturbed(wire: _Wire, epochs: int = 1) -> Records:
    with wire.loader(_HERE) as loader:
        return [record for _ in range(epochs) for record in _records(loader)]


# ---- one bit ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_bit_turned_anywhere_in_the_messages_changes_nothing(folder: Path, seed: int) -> None:
    draw = random.Random(seed)
    with _wire(folder) as wire:
        want = _undisturbed(wire)
        for _ in range(10):
            at, mask = draw.randrange(_HANDSHAKE_BYTES, _RECORDS * _FRAME), 1 << draw.randrange(8)
            with wire.proxy() as proxy:
                proxy.corrupt_after(
                    at, mask=mask
                )  # before the loader is there, which has records sent before it is asked
                with wire.loader() as loader:
                    assert _records(loader) == want, (at, mask)
                    assert proxy.faults["corrupt_after"] == 1
                    assert loader.stats().bad_records == 0


def _greetings(first: int) -> list[int]:
    """Places in what both ends say before the first message and in that one; with other seeds others."""
    return list(range(first, 260, 13))


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in (5, 9))])
def test_a_bit_turned_while_lanes_are_connected_changes_nothing_while_there_is_another_lane(
    folder: Path, first: int
) -> None:
    draw = random.Random(first)
    with _wire(folder, lanes=2) as wire:
        want = _undisturbed(wire)
        for at in _greetings(first):
            mask = 1 << draw.randrange(8)
            with wire.proxy() as proxy:
                proxy.corrupt_after(at, mask=mask)
                proxy.corrupt_after(at, mask=mask, to_daemon=True)
                with wire.loader() as loader:
                    assert _records(loader) == want, (at, mask)
                assert proxy.faults["corrupt_after"] == 2


@pytest.mark.parametrize("first", [0, 7])
def test_a_bit_turned_in_what_is_said_after_the_plan_changes_nothing(folder: Path, first: int) -> None:
    """What a rank says when it opens its stream, what a daemon answers, and heartbeats."""
    draw = random.Random(first)
    with _wire(folder, lanes=2) as wire:
        want = _undisturbed(wire)
        for at in range(first, 80, 14):
            for to_daemon in (False, True):
                mask = 1 << draw.randrange(8)
                with wire.proxy() as proxy, wire.loader() as loader:
                    proxy.corrupt_after(at, control=True, to_daemon=to_daemon, mask=mask)
                    assert _records(loader) == want, (at, to_daemon, mask)


@pytest.mark.parametrize("first", [0, 11])
def test_a_bit_turned_while_a_rank_calls_again_changes_nothing(folder: Path, first: int) -> None:
    draw = random.Random(first)
    with _wire(folder, lanes=2) as wire:
        want = _undisturbed(wire)
        for at in range(first, 660, 60):
            mask = 1 << draw.randrange(8)
            with wire.proxy() as proxy, wire.loader() as loader:
                batches = iter(loader)
                got = _records([next(batches)])
                proxy.corrupt_after(at, control=True, mask=mask)
                proxy.reset()
                assert got + _records(batches) == want, (at, mask)


def _connect(wire: _Wire) -> EmlioLoader:
    """A loader, by the first or the second attempt."""
    begun = time.monotonic()
    try:
        return wire.loader(timeout="3s")
    except (PeerLostError, RemoteProtocolError, RefusedError):
        if time.monotonic() - begun > _LIMIT_S / 2:
            raise
    return wire.loader()


@pytest.mark.parametrize("to_daemon", [False, True])
def test_a_bit_turned_before_there_is_a_plan_is_an_error_in_time_or_nothing_and_never_another_plan(
    folder: Path, to_daemon: bool
) -> None:
    draw = random.Random(int(to_daemon))
    with _wire(folder, lanes=2) as wire:
        want = _undisturbed(wire)
        for at in range(draw.randrange(60), 720, 60):
            with wire.proxy() as proxy:
                proxy.corrupt_after(at, control=True, to_daemon=to_daemon, mask=1 << draw.randrange(8))
                with _connect(wire) as loader:
                    assert _records(loader) == want, at


# ---- connections --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight megabytes: more than is under way at once."""
    made = tmp_path_factory.mktemp("wire") / "many"
    make_dataset(made, records=2000, shards=3, payload=4000)
    return made


def _epoch(loader: EmlioLoader, place: int, harm: Callable[[], object]) -> Records:
    """An epoch during which something happens beside the loop, from this batch on."""
    got: Records = []
    thread = Thread(target=harm)
    try:
        for step, batch in enumerate(loader):
            if step == place:
                thread.start()
            got += _records([batch])
    finally:
        if thread.ident is not None:
            thread.join()
    return got


def _through(folder: Path, harm: Callable[[FaultProxy, EmlioLoader], object], **changes: Any) -> tuple[int, int]:
    """Three epochs with a harm in each, at different places; returns how often was lost and opened again."""
    with _wire(folder, **({"message_size": 65536, "lanes": 2} | changes)) as wire:
        want = _undisturbed(wire, epochs=3)
        with wire.proxy() as proxy, wire.loader() as loader:
            for epoch, place in enumerate((0, 30, 70)):
                due = want[epoch * len(want) // 3 : (epoch + 1) * len(want) // 3]
                assert _epoch(loader, place, partial(harm, proxy, loader)) == due
            assert proxy.faults
            return loader.stats().lost_daemons, loader.stats().reopened_streams


def test_connections_that_are_reset_lose_nothing(many: Path) -> None:
    lost, _ = _through(many, lambda proxy, _: proxy.reset())
    assert lost >= 1


def test_connections_that_are_half_open_lose_nothing(many: Path) -> None:
    lost, _ = _through(many, lambda proxy, _: proxy.half_open())
    assert lost >= 1


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_connection_cut_in_the_middle_of_a_message_loses_nothing(many: Path, lanes: int) -> None:
    _, reopened = _through(many, lambda proxy, _: proxy.cut_after(1_000_003), lanes=lanes)
    assert reopened >= 1


@pytest.mark.parametrize("fault", [FaultProxy.drop, FaultProxy.stall], ids=["loses everything", "stands still"])
def test_a_network_that_fails_until_the_daemon_is_missed_loses_nothing(
    many: Path, fault: Callable[[FaultProxy], object]
) -> None:
    def harm(proxy: FaultProxy, loader: EmlioLoader) -> None:
        before = loader.stats().lost_daemons
        fault(proxy)
        settles(lambda: loader.stats().lost_daemons > before, _LIMIT_S)
        proxy.heal()

    lost, _ = _through(many, harm)
    assert lost >= 3


def test_a_network_that_loses_a_little_loses_nothing(many: Path) -> None:
    def harm(proxy: FaultProxy, _: EmlioLoader) -> None:
        before = proxy.faults["drop"]
        proxy.drop()
        settles(lambda: proxy.faults["drop"] > before, _LIMIT_S)
        proxy.heal()

    _, reopened = _through(many, harm)
    assert reopened >= 1


def test_a_network_that_becomes_slow_loses_nothing(many: Path) -> None:
    _through(many, lambda proxy, _: proxy.slow(6_000_000))


# ---- the file or the way ------------------------------------------------------------------------------------------------

_LONG = 100_000
"""Of records so long that a place in the bytes of a stream says which record it is in, whatever else is between them."""


def _turn_on_disk(folder: Path, shard: int, record: int, at: int) -> str:
    """Change a byte of a record's data in a file that keeps its size and time of change; returns its name."""
    path = sorted(folder.glob("*.tfrecord"))[shard]
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(record * (_LONG + 16) + 12 + at)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes((byte[0] ^ 1,)))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return path.name


def test_a_byte_turned_on_the_disk_is_the_files_fault_and_the_same_byte_turned_on_the_wire_is_nobodys(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "records"
    made = make_dataset(folder, records=20, shards=2, payload=_LONG)
    number, middle = 13, _LONG // 2
    with _wire(folder, message_size=_LONG) as wire:
        with wire.proxy() as proxy, wire.loader(batch_size=2, shuffle=False) as loader:
            proxy.corrupt_after(number * (_LONG + 16) + middle)
            assert _records(loader) == list(enumerate(made))
            assert proxy.faults["corrupt_after"] == 1
            stats = loader.stats()
            assert (stats.bad_records, stats.lost_daemons) == (0, 0)
            assert stats.reopened_streams == 1
        name = _turn_on_disk(folder, 1, number - 10, middle)
        with wire.proxy(), wire.loader(batch_size=2, shuffle=False) as loader:
            with pytest.raises(CorruptRecordError, match=f"record {number - 10} of shard {name}") as corrupt:
                _records(loader)
            assert (corrupt.value.shard, corrupt.value.record) == (name, number - 10)
            assert corrupt.value.offset == (number - 10) * (_LONG + 16)
