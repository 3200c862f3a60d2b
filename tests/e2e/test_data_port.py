"""The port over which records travel: behind relays, blocked, and with lanes that are cut.

A relay stands for everything that forwards TCP: a proxy, a NAT, `ssh -L` with two ports. Like these it takes a connection before
it knows whether there is one behind it, and shows the daemon its own address. No SSH server is started here.

Covers: other port numbers at the relay; several ranks from one address; a data port that refuses or swallows, from the start
and later, with and without a replica; each lane cut, all of them, one that never comes back, one that goes silent. Does not
cover: the control connection (tests/integration/test_wire_faults.py), how fast an epoch is.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.errors import PeerLostError
from emlio.keys.folder import KeyFolder
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import DaemonProcess, settles
from emlio_testing.proxy import FaultProxy, free_ports

RECORDS, LANES, BATCH = 2000, 3, 20
HERE, FACES = "127.0.0.1", ("127.0.0.2", "127.0.0.3")
SOON_S = 15.0

Fault = Callable[[FaultProxy], None]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 MB in 6 shards: more than a loader takes ahead."""
    directory = tmp_path_factory.mktemp("data-port") / "data"
    make_dataset(directory, records=RECORDS, shards=6, payload=8000)
    return directory


def load(address: str, **options: Any) -> EmlioLoader:
    settings: dict[str, Any] = {
        "batch_size": BATCH, "raw": True, "ids": True, "to": "numpy", "seed": 5, "prefetch": "2MiB", "timeout": "20s",
        "tune": "off", "heartbeat": "1s", **options,
    }  # fmt: skip
    return EmlioLoader(address, **loader_arguments(**settings))


@pytest.fixture(scope="module")
def expected(data: Path) -> list[int]:
    """The order of an epoch."""
    with load(str(data)) as loader:
        return ids_of(loader)


def ids_of(batches: Any) -> list[int]:
    """The records that the batches hold must be the expected ones."""
    seen: list[int] = []
    for batch in batches:
        numbers: list[int] = batch["__id__"].tolist()
        assert [int.from_bytes(record[:8], "little") for record in batch["record"]] == numbers
        seen += numbers
    return seen


@contextmanager
def begun(address: str, **options: Any) -> Iterator[tuple[EmlioLoader, Iterator[Any], list[int]]]:
    """A loader whose user has taken one batch, the batches to come, and the records of that one."""
    with load(address, **options) as loader:
        batches = iter(loader)
        yield loader, batches, ids_of([next(batches)])


class Relayed:
    """A daemon, and a relay at another address through which ranks reach it."""

    def __init__(self, daemon: DaemonProcess, relay: FaultProxy) -> None:
        self.daemon, self.relay = daemon, relay

    @property
    def peer(self) -> str:
        return f"{self.relay.host}:{self.relay.ports[0]}"

    @property
    def address(self) -> str:
        return f"emlio://{self.peer}/data"

    def has_lanes(self, count: int) -> bool:
        return settles(lambda: self.relay.lanes == count, SOON_S)


@contextmanager
def relayed(
    data: Path,
    folder: Path,
    *options: str,
    host: str = FACES[0],
    apart: int = 1,
    other_numbers: bool = False,
    control_only: bool = False,
) -> Iterator[Relayed]:
    ports = free_ports(1 + apart, HERE, host)
    offered = free_ports(1 + apart, HERE, host) if other_numbers else ports
    both = [ports[0], ports[-1]]
    flags = ("--lanes", str(LANES), "--message-size", "64KiB", "--memory", "4MiB", "--heartbeat-timeout", "2s")
    flags += ("--data-port", str(both[1])) if apart != 1 else ()
    with (
        DaemonProcess({"data": data}, *flags, *options, folder=folder, bind=f"tcp://{HERE}:{both[0]}") as daemon,
        FaultProxy(
            target=HERE,
            ports=both,
            host=host,
            offered=[offered[0]] if control_only else [offered[0], offered[-1]],
        ) as relay,
    ):
        assert daemon.data_port == both[1]
        yield Relayed(daemon, relay)


# ---- relays -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("apart", [1, 7])
@pytest.mark.parametrize("keyed", [False, True], ids=["without keys", "with keys"])
def test_a_daemon_can_be_reached_at_any_two_ports_that_lie_as_far_apart(
    data: Path, tmp_path: Path, expected: list[int], keyed: bool, apart: int
) -> None:
    flags: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    if keyed:
        store, gpu = KeyFolder(tmp_path / "store"), KeyFolder(tmp_path / "gpu")
        store.make("store")
        gpu.make("gpu")
        store.allow("gpu", gpu.pair().public)
        flags = ("--keys", str(store.path))
        options = {"keys": str(gpu.path), "daemon_key": str(store.pair().public)}
    with (
        relayed(data, tmp_path, *flags, apart=apart, other_numbers=True) as far,
        load(far.address, **options) as loader,
    ):
        assert far.relay.ports[0] != int(far.daemon.peer.rpartition(":")[2])
        assert ids_of(loader) == expected
        assert far.relay.lanes == LANES
        stats = loader.stats()
        assert (stats.lost_daemons, stats.reopened_streams) == (0, 0)
        assert stats.protection.startswith(("aes", "chacha")) == keyed


def test_ranks_that_all_come_from_one_address_have_lanes_of_their_own(data: Path, tmp_path: Path) -> None:
    with relayed(data, tmp_path, other_numbers=True) as far, ExitStack() as stack:
        loaders = [stack.enter_context(load(far.address, rank=rank, world_size=4)) for rank in range(4)]
        iterations = [iter(loader) for loader in loaders]
        seen = [number for iteration in iterations for number in ids_of([next(iteration)])]
        assert far.has_lanes(4 * LANES)
        seen += [number for iteration in iterations for number in ids_of(iteration)]
        assert sorted(seen) == list(range(RECORDS))


# ---- a data port that is blocked ----------------------------------------------------------------------------------------


def refuses(relay: FaultProxy) -> None:
    """As a host where nothing listens, or a firewall that says so."""
    relay.refuse()
    while relay.lanes:
        relay.cut_lane(0)


def swallows(relay: FaultProxy) -> None:
    """As a firewall that drops packets."""
    relay.drop(control=False)


BLOCKED = pytest.mark.parametrize("block", [refuses, swallows])


@pytest.mark.parametrize("block", ["closed", "refuses", "swallows"])
def test_a_data_port_that_was_never_open_is_named_within_the_timeout(data: Path, tmp_path: Path, block: str) -> None:
    with relayed(data, tmp_path, other_numbers=True, control_only=block == "closed") as far:
        if block != "closed":
            {"refuses": refuses, "swallows": swallows}[block](far.relay)
        port = far.relay.ports[0] + 1
        since = time.monotonic()
        with (
            pytest.raises(PeerLostError, match=f"Port {port} of {FACES[0]} must be open") as lost,
            load(far.address, timeout="3s") as loader,
        ):
            next(iter(loader))
        assert time.monotonic() - since < 3 + 20
        assert far.peer in str(lost.value)


@BLOCKED
def test_a_data_port_that_is_blocked_later_is_named_within_the_timeout(
    data: Path, tmp_path: Path, expected: list[int], block: Fault
) -> None:
    with relayed(data, tmp_path, other_numbers=True) as far, begun(far.address, timeout="4s") as (_, batches, seen):
        block(far.relay)
        since = time.monotonic()
        with pytest.raises(PeerLostError, match=f"Port {far.relay.ports[1]} of {FACES[0]} must be open"):
            seen += ids_of(batches)
        assert time.monotonic() - since < 4 + 25, "a lane is silent for some heartbeats before it is given up"
        assert seen == expected[: len(seen)]


@BLOCKED
def test_a_data_port_that_is_blocked_for_a_while_costs_no_record(
    data: Path, tmp_path: Path, expected: list[int], block: Fault
) -> None:
    with (
        relayed(data, tmp_path, other_numbers=True) as far,
        begun(far.address, timeout="60s") as (loader, batches, seen),
    ):
        block(far.relay)

        def heal() -> None:
            settles(lambda: loader.stats().reopened_streams > 0, SOON_S)
            far.relay.heal()

        healing = Thread(target=heal)
        healing.start()
        seen += ids_of(batches)
        healing.join()
        assert seen == expected
        assert len(ids_of(loader)) == RECORDS
        assert far.has_lanes(LANES)


@BLOCKED
def test_what_a_daemon_with_a_blocked_data_port_owes_is_sent_by_its_replica_until_it_is_open_again(
    data: Path, tmp_path: Path, expected: list[int], block: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        relayed(data, tmp_path, other_numbers=True) as far,
        relayed(data, tmp_path, other_numbers=True, host=FACES[1]) as near,
        begun(f"emlio://{far.peer},{near.peer}/data") as (loader, batches, seen),
    ):
        block(far.relay)
        seen += ids_of(batches)
        assert seen == expected
        assert "data port" not in far.daemon.log, "the daemon sees nothing of it"
        said = [record.getMessage() for record in caplog.records]
        told = [text for text in said if "must be open to this host" in text]
        assert told or any("is slower than others" in text for text in said)
        assert all(text.endswith("other daemons send its shards") for text in told)
        far.relay.heal()
        before = far.relay.forwarded_bytes
        # Epoch after epoch, until it has its part again.
        assert settles(lambda: len(ids_of(loader)) == RECORDS and far.relay.forwarded_bytes - before > 1 << 20, 90.0)
        stats = loader.stats()
        # It is known to be out of reach, or that is not clear yet and its shards are lent as those of one that is slow.
        assert stats.lost_daemons >= 1 or stats.moved_shards >= 1


# ---- lanes that are cut -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idle", [True, False], ids=["idle", "busy"])
def test_each_lane_may_be_cut_and_another_takes_its_place(
    data: Path, tmp_path: Path, expected: list[int], idle: bool
) -> None:
    with relayed(data, tmp_path) as far, begun(far.address) as (loader, batches, seen):
        for _ in range(LANES):
            assert far.has_lanes(LANES)
            if idle:
                assert far.daemon.calms_down(), "all is sent that may be"
            far.relay.cut_lane(0)  # the next time it is the one that was second
            seen += ids_of(next(batches) for _ in range(10))
        seen += ids_of(batches)
        assert seen == expected
        assert far.has_lanes(LANES)
        stats = loader.stats()
        assert stats.lost_daemons == 0
        assert 1 <= stats.reopened_streams <= 2 * LANES
        assert far.relay.faults["cut_lane"] == LANES


def test_all_lanes_may_be_cut_at_once_again_and_again(data: Path, tmp_path: Path, expected: list[int]) -> None:
    with relayed(data, tmp_path) as far, load(far.address) as loader:
        batches, seen = iter(loader), list[int]()
        for _ in range(4):
            seen += ids_of(next(batches) for _ in range(10))
            assert far.has_lanes(LANES)
            for _ in range(LANES):
                far.relay.cut_lane(0)
        seen += ids_of(batches)
        assert seen == expected
        assert loader.stats().lost_daemons == 0


def test_a_lane_that_never_comes_back_is_done_without(data: Path, tmp_path: Path, expected: list[int]) -> None:
    with relayed(data, tmp_path) as far, begun(far.address) as (loader, batches, seen):
        assert far.has_lanes(LANES)
        far.relay.refuse()
        far.relay.cut_lane(1)
        seen += ids_of(batches)
        assert seen == expected
        assert len(ids_of(loader)) == RECORDS
        assert far.relay.lanes == LANES - 1
        far.relay.heal()
        assert far.has_lanes(LANES), "it is tried again as long as it is wanted"
        assert loader.stats().lost_daemons == 0


@pytest.mark.parametrize("idle", [True, False], ids=["idle", "busy"])
def test_a_lane_that_goes_silent_is_missed_and_its_records_come_over_others(
    data: Path, tmp_path: Path, expected: list[int], idle: bool
) -> None:
    """A NAT forgets a connection and tells neither end."""
    with relayed(data, tmp_path) as far, begun(far.address, timeout="30s") as (loader, batches, seen):
        assert far.has_lanes(LANES)
        if idle:
            assert far.daemon.calms_down()
        far.relay.drop_lane(1)
        seen += ids_of(batches)
        assert seen == expected
        stats = loader.stats()
        assert stats.lost_daemons == 0
        assert stats.reopened_streams >= 1
