"""Loaders that have lanes before they have a plan: over loopback, which is made to look long to them, and over a link.

Covers: the order of events, records exactly once, each way to protect data, what opens a stream anew, daemons that have none to
give. Does not cover: the rules (tests/unit/test_session_reservation), what a daemon does (test_daemon_reserves).
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.benchmarks.link.emulated import EmulatedLink, why_not
from emlio.benchmarks.link.spec import LinkSpec
from emlio.benchmarks.processes import Child
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint, PortRange
from emlio.daemon.orders import Orders
from emlio.daemon.service import Daemon
from emlio.errors import PeerLostError
from emlio.keys.folder import KeyFolder
from emlio.receiver.agreement import agree
from emlio.receiver.source import Source
from emlio.session.states import RankState
from emlio.testing.datasets import make_dataset
from emlio.testing.processes import settles
from emlio.testing.proxy import free_ports

RECORDS = 600
LANES = 3
LATE_S = 10.0
_MS = 1_000_000


@dataclass
class Noted:
    """What the rank did with lanes.

    Attributes:
        asked: how often it asked for some before a plan.
        ahead: the conversation's state, and the lanes, where some were connected before a stream was opened.
        streams: each that was opened: whether over such lanes, its ports and its secret.
    """

    asked: int = 0
    ahead: list[tuple[RankState, tuple[int, ...], bytes]] = field(default_factory=list)
    streams: list[tuple[bool, tuple[int, ...], bytes]] = field(default_factory=list)


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> Noted:
    """Loopback looks like a path that takes several lanes, and its plan is offered when the daemon has said what is reserved."""
    noted, told = Noted(), Event()
    connect, reserve, on_reserved = Source.connect, Source.reserve, Orders._on_reserved

    def connecting(source: Source, opened: Any) -> None:
        noted.streams.append((opened.reserved, opened.ports, opened.secret))
        connect(source, opened)

    def reserving(source: Source, lanes: Any) -> None:
        noted.ahead.append((source.machine.state, lanes.ports, lanes.secret))
        reserve(source, lanes)

    def wanting(*_: int) -> int:
        noted.asked += 1
        return LANES

    def answering(orders: Orders, *told_of: Any) -> None:
        on_reserved(orders, *told_of)
        told.set()

    def agreeing(*told_of: Any) -> Any:
        assert told.wait(LATE_S), "the daemon must have been asked"
        return agree(*told_of)

    monkeypatch.setattr(Source, "connect", connecting)
    monkeypatch.setattr(Source, "reserve", reserving)
    monkeypatch.setattr(Orders, "_on_reserved", answering)
    monkeypatch.setattr("emlio.receiver.quorum.agree", agreeing)
    monkeypatch.setattr("emlio.receiver.source.lanes_to_reserve", wanting)
    monkeypatch.setattr("emlio.receiver.flow.lanes_for", lambda *_: LANES)
    return noted


class House:
    """A storage host and a training host with keys."""

    def __init__(self, folder: Path) -> None:
        self.store, self.gpu = KeyFolder(folder / "store"), KeyFolder(folder / "gpu")
        for keys, name in ((self.store, "store"), (self.gpu, "gpu")):
            keys.make(name)
        self.store.allow("gpu", self.gpu.pair().public)
        self.folder = folder / "x"
        self.records = make_dataset(self.folder, records=RECORDS, shards=3, payload=900)

    @contextmanager
    def loader(self, protection: str, **options: Any) -> Iterator[EmlioLoader]:
        """One that reads from a daemon, both in this process."""
        usual: dict[str, Any] = {"memory": 1 << 20, "message_size": 16384, "bind": Endpoint(host="127.0.0.1", port=0)}
        asked: dict[str, Any] = {
            "batch_size": 20,
            "raw": True,
            "ids": True,
            "to": "numpy",
            "timeout": "20s",
            "prefetch": "1MiB",
        }
        if protection == "clear":
            asked["keys"] = str(self.folder / "none")
        else:
            usual |= {"keys": self.store.path, "encryption": protection}
            asked |= {"keys": str(self.gpu.path), "daemon_key": str(self.store.pair().public), "encryption": protection}
        config = DaemonConfig(data=(DatasetSource(name="x", directory=self.folder),), **(usual | options))
        with Daemon(config) as daemon:
            address = daemon.endpoint.replace("tcp://", "emlio://")
            with EmlioLoader(f"{address}/x", **asked) as loader:
                yield loader

    def check(self, loader: EmlioLoader) -> None:
        """An epoch brings each record once."""
        seen: list[tuple[int, bytes]] = []
        for batch in loader:
            seen += zip(batch["__id__"].tolist(), (bytes(one) for one in batch["record"]), strict=True)
        assert sorted(seen) == list(enumerate(self.records))


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    return House(tmp_path_factory.mktemp("reserved"))


@pytest.mark.parametrize("protection", ["clear", "aead", "curve"])
def test_lanes_are_connected_before_there_is_a_plan_and_bring_each_record_once(
    house: House, far: Noted, protection: str
) -> None:
    with house.loader(protection) as loader:
        house.check(loader)
        house.check(loader)
        assert loader.stats().reopened_streams == 0
    ((state, ports, secret),) = far.ahead
    assert state in (RankState.LISTING, RankState.LISTED, RankState.OFFERING)
    assert len(ports) == LANES
    assert far.streams == [(True, ports, secret)]


@pytest.mark.parametrize("protection", ["clear", "aead", "curve"])
def test_each_later_stream_has_lanes_of_its_own_and_another_secret(house: House, far: Noted, protection: str) -> None:
    with house.loader(protection) as loader:
        first = iter(loader)
        next(first)
        state = loader.state_dict()
        loader.set_epoch(3)
        house.check(loader)
        loader.load_state_dict(state)
        rest = sum(len(batch["__id__"]) for batch in loader)
        assert rest == RECORDS - 20
    assert [reserved for reserved, _, _ in far.streams] == [True] + [False] * (len(far.streams) - 1)
    assert len(far.streams) >= 3
    assert len(far.ahead) == 1
    secrets = [secret for _, _, secret in far.streams if secret]
    assert len(set(secrets)) == len(secrets) == len(far.streams)


def test_several_daemons_have_together_as_many_lanes_as_one_would_have(
    house: House, far: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("source.lanes_to_reserve", "flow.lanes_for"):
        monkeypatch.setattr(f"emlio.receiver.{place}", lambda *_: 6)
    with ExitStack() as stack:
        peers = []
        for _ in range(LANES):
            data = (DatasetSource(name="x", directory=house.folder),)
            daemon = stack.enter_context(Daemon(DaemonConfig(data=data, bind=Endpoint(host="127.0.0.1", port=0))))
            peers.append(daemon.endpoint.removeprefix("tcp://"))
        options: dict[str, Any] = {"batch_size": 20, "raw": True, "ids": True, "to": "numpy", "timeout": "20s"}
        loader = stack.enter_context(
            EmlioLoader(f"emlio://{','.join(peers)}/x", keys=str(house.folder / "none"), **options)
        )
        house.check(loader)
        assert loader.stats().lanes == 6
        assert loader.stats().reopened_streams == 0
    assert {len(ports) for _, ports, _ in far.ahead} | {len(ports) for _, ports, _ in far.streams} == {2}


def test_a_daemon_that_gives_another_number_of_lanes_serves_over_those(house: House, far: Noted) -> None:
    with house.loader("clear", lanes=2) as loader:
        house.check(loader)
        assert loader.stats().lanes == 2
    assert [reserved for reserved, _, _ in far.streams] == [True]


def test_a_daemon_without_free_ports_serves_over_what_it_has_then(
    house: House, far: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emlio.receiver.flow.lanes_for", lambda *_: 2)
    ports = free_ports(2)
    with house.loader("clear", data_ports=PortRange(first=ports[0], last=ports[-1])) as loader:
        house.check(loader)
    assert far.ahead == []
    assert [(reserved, len(ports)) for reserved, ports, _ in far.streams] == [(False, 2)]


def test_lanes_of_which_there_are_far_too_few_are_not_used(
    house: House, far: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emlio.receiver.flow.lanes_for", lambda *_: 2 * LANES)
    with house.loader("aead") as loader:
        house.check(loader)
    assert [(reserved, len(ports)) for reserved, ports, _ in far.streams] == [(False, 2 * LANES)]


def test_a_rank_whose_daemon_was_lost_asks_for_lanes_in_its_next_session_too(house: House, far: Noted) -> None:
    with house.loader("clear") as loader:
        source = next(iter(loader._engine._crew.sources))
        batches = iter(loader)
        seen = next(batches)["__id__"].tolist()
        lost = PeerLostError("the daemon is taken for lost")
        loader._engine._call(partial(loader._engine._crew.lose, source, lost))
        assert settles(lambda: far.asked == 2, LATE_S)
        seen += [number for batch in batches for number in batch["__id__"].tolist()]
        assert sorted(seen) == list(range(RECORDS))
        assert loader.stats().lost_daemons == 1
    assert far.streams[0][0]
    assert len({secret for _, _, secret in far.streams}) == len(far.streams)


def test_on_loopback_nothing_is_reserved(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = list[object]()
    monkeypatch.setattr(Source, "reserve", lambda _, lanes: noted.append(lanes))
    with house.loader("clear") as loader:
        house.check(loader)
    assert noted == []


_RANK = """
import sys
from emlio import EmlioLoader
from emlio.benchmarks.processes import say
from emlio.receiver.crew import Crew
from emlio.receiver.source import Source

told = []
reserve, connect, agreed = Source.reserve, Source.connect, Crew._agreed
def reserving(source, lanes):
    told.append(["connected", len(lanes.ports)])
    reserve(source, lanes)
def agreeing(crew, source):
    told.append(["agreed", 0])
    agreed(crew, source)
def connecting(source, opened):
    told.append(["opened", len(opened.ports) * opened.reserved])
    connect(source, opened)
Source.reserve, Source.connect, Crew._agreed = reserving, connecting, agreeing
with EmlioLoader(sys.argv[1], batch_size=20, ids=True, raw=True, to="numpy") as loader:
    seen = [number for batch in loader for number in batch["__id__"].tolist()]
say({"told": told, "once": sorted(seen) == list(range(int(sys.argv[2])))})
"""


def test_over_a_long_link_the_lanes_are_connected_before_the_plan_is_agreed(house: House) -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"an emulated link {reason}")
    with EmulatedLink(LinkSpec(rtt_ns=20 * _MS)) as link:
        bind = f"tcp://{link.storage.address}:5555"
        daemon = [sys.executable, "-m", "emlio.daemon.cli", "--data", f"x={house.folder}", "--bind", bind, "--insecure"]
        rank = [sys.executable, "-c", _RANK, f"emlio://{link.storage.address}:5555/x", str(RECORDS)]
        with Child("daemon", link.storage.command(daemon)), Child("rank", link.training.command(rank)) as child:
            found: dict[str, Any] = child.hear(dict, 60.0)
    assert found["once"]
    (connected, agreed, opened) = found["told"]
    assert [connected[0], agreed[0], opened[0]] == ["connected", "agreed", "opened"]
    assert connected[1] == opened[1] >= 1
