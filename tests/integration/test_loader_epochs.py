"""Loader and daemon over real sockets in one process: every order, every cut of an epoch, several users at once."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import ConfigError, RefusedError
from emlio.index.opening import open_dataset
from emlio.planner.catalog import Catalog
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.receiver.engine import engine
from emlio.receiver.machine.events import Event, FrameCame
from emlio.tfrecord import FRAME_BYTES
from emlio.units import format_size
from emlio_testing.datasets import make_dataset
from emlio_testing.ports import listening_ports
from emlio_testing.processes import settles
from emlio_testing.proxy import free_ports
from emlio_testing.serving import numbered_ids, peer_of, raw_loader

_RECORDS = 203
_S = 1_000_000_000
_HERE = Endpoint(host="127.0.0.1", port=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    make_dataset(folder / "numbers", records=_RECORDS, shards=5)
    make_dataset(folder / "others", records=40, shards=1, payload=3000)
    return folder


def _config(folder: Path, **changes: Any) -> DaemonConfig:
    data = (
        DatasetSource(name="numbers", directory=folder / "numbers"),
        DatasetSource(name="others", directory=folder / "others"),
    )
    usual: dict[str, Any] = {"data": data, "bind": _HERE, "message_size": 4096, "memory": 1 << 20}
    return DaemonConfig(**(usual | changes))


@pytest.fixture
def daemon(folder: Path) -> Iterator[Daemon]:
    with Daemon(_config(folder)) as daemon:
        yield daemon


def _loader(daemon: Daemon, dataset: str = "numbers", **options: Any) -> EmlioLoader:
    return raw_loader(f"{peer_of(daemon)}/{dataset}", **({"seed": 0} | options))


def _epoch(loader: EmlioLoader) -> list[list[int]]:
    """The ids of an epoch's batches, whose records must be those."""
    return [numbered_ids(batch) for batch in loader]


def _flat(batches: list[list[int]]) -> list[int]:
    return list(chain.from_iterable(batches))


def _planned(folder: Path, epoch: int, *, rank: int = 0, **spec: Any) -> list[list[int]]:
    with open_dataset("numbers", folder / "numbers") as dataset:
        plan = Plan(Catalog(shards=dataset.entries), PlanSpec(**spec)).epoch(epoch)
    return [plan.ids(rank, *plan.batch_slots(rank, step)).tolist() for step in range(plan.steps)]


@pytest.mark.parametrize("batch_size", [1, 16, 203, 1000])
@pytest.mark.parametrize("shuffle", ["global", "block:8:4", "shard", "none"])
def test_every_order_and_batch_size_is_delivered_as_planned(
    folder: Path, daemon: Daemon, shuffle: str, batch_size: int
) -> None:
    with _loader(daemon, shuffle=shuffle, batch_size=batch_size, seed=5) as loader:
        for epoch in range(3):
            planned = _planned(folder, epoch, shuffle=Shuffle.parse(shuffle), batch_size=batch_size, seed=5)
            assert len(loader) == len(planned)
            assert _epoch(loader) == planned
            assert sorted(_flat(planned)) == list(range(_RECORDS))


@pytest.mark.parametrize(("drop_last", "pad"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("world_size", [2, 3, 7])
def test_all_ranks_together_get_the_epoch_and_each_equally_many_batches(
    folder: Path, daemon: Daemon, world_size: int, drop_last: bool, pad: bool
) -> None:
    seen: list[int] = []
    options: dict[str, Any] = {"batch_size": 9, "drop_last": drop_last, "pad": pad}
    with ExitStack() as stack:
        loaders = [
            stack.enter_context(_loader(daemon, rank=rank, world_size=world_size, **options))
            for rank in range(world_size)
        ]
        assert len({len(loader) for loader in loaders}) == 1
        for rank, loader in enumerate(loaders):
            batches = _epoch(loader)
            assert batches == _planned(folder, 0, rank=rank, world_size=world_size, **options)
            assert len(batches) == len(loader)
            seen += _flat(batches)
    if drop_last:
        assert len(seen) == len(set(seen)) == _RECORDS // (9 * world_size) * 9 * world_size
    else:
        assert set(seen) == set(range(_RECORDS))
        assert len(seen) == _RECORDS if not pad else len(seen) % (9 * world_size) == 0


def test_two_loaders_at_once_do_not_disturb_each_other(folder: Path, daemon: Daemon) -> None:
    found: dict[int, list[list[int]]] = {}

    def run(seed: int) -> None:
        with _loader(daemon, seed=seed, batch_size=4) as loader:
            found[seed] = _epoch(loader)

    threads = [Thread(target=run, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for seed in range(3):
        assert found[seed] == _planned(folder, 0, seed=seed, batch_size=4)
    assert found[0] != found[1]


def test_one_daemon_serves_several_datasets_by_name(daemon: Daemon) -> None:
    with _loader(daemon, "others") as others, _loader(daemon) as numbers:
        assert sorted(_flat(_epoch(others))) == list(range(40))
        assert sorted(_flat(_epoch(numbers))) == list(range(_RECORDS))
        assert others.fingerprint != numbers.fingerprint


def test_an_unknown_dataset_is_refused_with_those_there_are(daemon: Daemon) -> None:
    with pytest.raises(RefusedError, match="no dataset 'mnist' at this daemon, available: numbers, others") as refused:
        _loader(daemon, "mnist")
    assert refused.value.code == "unknown-dataset"


def test_out_of_order_the_same_batches_come(folder: Path, daemon: Daemon) -> None:
    with _loader(daemon, in_order=False) as loader:
        for epoch in range(2):
            assert sorted(_epoch(loader)) == sorted(_planned(folder, epoch, batch_size=16))


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_any_number_of_lanes_gives_the_same_batches(folder: Path, lanes: int) -> None:
    with Daemon(_config(folder, lanes=lanes, message_size=4096)) as daemon, _loader(daemon) as loader:
        for epoch in range(2):
            assert _epoch(loader) == _planned(folder, epoch, batch_size=16)
        # The rank looks now and then whether the daemon has let a lane in.
        assert settles(lambda: loader.stats().lanes == lanes, 30.0)


def test_ipv6_works_from_hello_to_the_last_record(folder: Path) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no ::1")
    with Daemon(_config(folder, bind=Endpoint(host="::1", port=0))) as daemon:
        assert daemon.endpoint.startswith("tcp://[::1]:")
        with _loader(daemon) as loader:
            assert _epoch(loader) == _planned(folder, 0, batch_size=16)


def test_two_ports_serve_several_loaders_with_several_lanes_each(folder: Path) -> None:
    first = free_ports(2, "127.0.0.1")[0]
    bind = Endpoint(host="127.0.0.1", port=first)
    with (
        Daemon(_config(folder, bind=bind, lanes=3)) as daemon,
        _loader(daemon) as one,
        _loader(daemon, "others") as other,
    ):
        for loader, records in ((one, _RECORDS), (other, 40)):
            for epoch in (0, 1, 7):
                loader.set_epoch(epoch)  # orders again, over the lanes that are there
                assert sorted(_flat(_epoch(loader))) == list(range(records))
            assert loader.stats().lanes == 3
        assert listening_ports() == {first, first + 1}


def test_the_data_port_may_be_any_other_one(folder: Path) -> None:
    first, *_, data = free_ports(9, "127.0.0.1")
    bind = Endpoint(host="127.0.0.1", port=first)
    with Daemon(_config(folder, bind=bind, data_port=data)) as daemon, _loader(daemon) as loader:
        assert sorted(_flat(_epoch(loader))) == list(range(_RECORDS))
        assert listening_ports() == {first, data}


@pytest.mark.timeout(60)  # less than a heartbeat below: a window that reopens only by one is noticed
def test_a_small_window_delivers_all_and_stays_small(tmp_path: Path) -> None:
    make_dataset(tmp_path / "numbers", records=300, shards=3, payload=60_000)
    data = (DatasetSource(name="numbers", directory=tmp_path / "numbers"),)
    with (
        Daemon(DaemonConfig(data=data, bind=_HERE, message_size=1 << 18, heartbeat_timeout=600 * _S)) as daemon,
        _loader(daemon, prefetch="1MiB", batch_size=4, timeout="600s") as loader,
    ):
        assert sorted(_flat(_epoch(loader))) == list(range(300))
        stats = loader.stats()
    assert stats.window_bytes == 1 << 20
    # A batch may need one message more than fits.
    assert stats.peak_window_bytes <= (1 << 20) + (1 << 18) + 60_016


@pytest.mark.timeout(60)  # as above
@pytest.mark.parametrize("batch_size", [1, 3])
def test_records_larger_than_a_message_and_than_the_window_are_delivered(tmp_path: Path, batch_size: int) -> None:
    made = make_dataset(tmp_path / "numbers", records=7, shards=2, payload=3 << 20)
    data = (DatasetSource(name="numbers", directory=tmp_path / "numbers"),)
    with (
        Daemon(_config(tmp_path, data=data, heartbeat_timeout=600 * _S)) as daemon,
        _loader(daemon, prefetch="1MiB", batch_size=batch_size, timeout="600s") as loader,
    ):
        for batch in loader:
            for record, identity in zip(batch["record"], batch["__id__"].tolist(), strict=True):
                assert bytes(record) == made[identity]


def test_nobody_is_needed_to_say_the_rank(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with _loader(daemon) as loader:
        assert (loader.rank, loader.world_size) == (1, 3)


def test_a_plan_that_cannot_be_is_refused_before_data_flows(daemon: Daemon) -> None:
    with pytest.raises(ConfigError, match="an epoch would have no steps"):
        _loader(daemon, batch_size=1000, drop_last=True)
    with pytest.raises(ConfigError, match="must not both be True"):
        _loader(daemon, drop_last=True, pad=True)
    with pytest.raises(ConfigError, match="fields must be a list of names"):
        _loader(daemon, raw=False, fields="image")
    with pytest.raises(ConfigError, match="with raw=True there are none"):
        _loader(daemon, fields=["image"])


def test_the_numbers_of_a_run_add_up(daemon: Daemon) -> None:
    with _loader(daemon) as loader:
        assert loader.stats().verdict == "no batch was handed out yet"
        records = sum(len(batch["record"]) for batch in loader)
        stats = loader.stats()
    assert stats.records == records == _RECORDS
    assert stats.batches == len(loader)
    assert stats.first_batch_ns is not None
    assert stats.received_bytes >= sum(8 + 16 for _ in range(_RECORDS))
    assert np.array([stats.bad_records, stats.skipped_records, stats.replaced_records]).sum() == 0
    assert f"{_RECORDS} records" in str(stats)


def test_the_bytes_of_a_run_are_those_that_were_handed_out_and_read_ahead_is_apart(daemon: Daemon) -> None:
    with _loader(daemon) as loader:
        sizes = [sum(len(record) + FRAME_BYTES for batch in loader for record in batch["record"]) for _ in range(2)]
        assert settles(lambda: loader.stats().received_bytes > sum(sizes), 30.0)  # epochs after these
        stats, epoch = loader.stats(), loader.epoch_stats()
        assert stats.handed_bytes == sum(sizes)
        assert (epoch.handed_bytes, epoch.records, epoch.batches) == (sizes[1], _RECORDS, len(loader))
        assert stats.ahead_bytes == stats.received_bytes - sum(sizes) > 0
        assert f" records, {format_size(sum(sizes))} (" in str(stats)
        assert f"; {format_size(stats.ahead_bytes)} read ahead: " in str(stats)
        next(iter(loader))
        assert loader.epoch_stats().batches == 1


def test_a_turn_of_the_receive_thread_ends_when_its_time_is_over_and_nothing_is_lost(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_TURN_NS", 0, raising=False)
    frames: list[int] = []
    turn: Any = engine.Engine._turn
    handle: Any = engine.Engine._handle

    def counted_turn(self: engine.Engine) -> None:
        frames.append(0)
        turn(self)

    def counted_handle(self: engine.Engine, event: Event) -> None:
        if frames:  # the first event comes before the first turn
            frames[-1] += isinstance(event, FrameCame)
        handle(self, event)

    monkeypatch.setattr(engine.Engine, "_turn", counted_turn)
    monkeypatch.setattr(engine.Engine, "_handle", counted_handle)
    with _loader(daemon, "others", shuffle=False, batch_size=1) as loader:
        for _ in range(3):
            assert _flat(_epoch(loader)) == list(range(40))
    assert sum(frames) > 3
    assert max(frames) == 1, "between two messages it hears what daemons say"
