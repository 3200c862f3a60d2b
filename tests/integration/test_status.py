"""Status requests to daemons in this process, with and without keys, and their metrics over HTTP.

Covers: what a client sees by its key, why a daemon does not answer, limits, health while it opens, serves and drains, a loader's
metrics. Does not cover: the command (tests/e2e/test_status.py), the content of a reply (tests/unit/test_daemon_status.py).
"""

import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import zmq

from emlio import EmlioLoader
from emlio.aio import AioHandle
from emlio.cli import main as command
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.control.status.report import DaemonFigures
from emlio.daemon.control.thread import Control
from emlio.daemon.limits import MOST_STATUS_AT_ONCE
from emlio.daemon.metrics.endpoint import MetricsEndpoint
from emlio.daemon.service import Daemon
from emlio.errors import ConfigError, EmlioError, PeerLostError, RefusedError, RemoteProtocolError, TransportError
from emlio.keys.folder import KeyFolder
from emlio.keys.key import PublicKey
from emlio.metrics import LoaderCollector, serve_metrics
from emlio.receiver.addresses.address import Address, Peer, Target
from emlio.receiver.addresses.host_names import daemons_at
from emlio.receiver.addresses.security import Security
from emlio.receiver.addresses.trust import find_trust
from emlio.receiver.connection.status_request import ask_status
from emlio.session.instructions import Send
from emlio.session.states import DaemonState
from emlio.wire.control import Ping, Pong, Refused, StatusReply, StatusRequest, decode_control, encode_control
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import settles
from emlio_testing.session_states import daemon_in

SOON_NS = 10_000_000_000
SOON_S = 10.0
RECORDS = 300


class Site:
    """Two datasets, a storage host and a training host that may read one of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store, self.gpu, self.stranger = (self._keys(name) for name in ("store", "gpu", "stranger"))
        for name in ("open", "closed"):
            make_dataset(folder / name, records=RECORDS, shards=2, payload=8000)
        self.store.allow("gpu", self.gpu.pair().public, ("open",))
        self.store.allow("store", self.store.pair().public)

    def _keys(self, name: str) -> KeyFolder:
        keys = KeyFolder(self.folder / f"keys-{name}")
        keys.make(name)
        return keys

    @contextmanager
    def daemon(self, **options: Any) -> Iterator[Daemon]:
        usual: dict[str, Any] = {"bind": Endpoint(host="127.0.0.1", port=0), "memory": 8 << 20, "message_size": 65536}
        data = tuple(DatasetSource(name=name, directory=self.folder / name) for name in ("open", "closed"))
        with Daemon(DaemonConfig(data=data, **(usual | options))) as daemon:
            yield daemon

    def ask(
        self,
        daemon: Daemon | int,
        keys: KeyFolder | None = None,
        key: PublicKey | None = None,
        timeout_ns: int = SOON_NS,
    ) -> StatusReply | EmlioError:
        """Ask with these keys, and expect this key of the daemon."""
        port = daemon if isinstance(daemon, int) else int(daemon.endpoint.rpartition(":")[2])
        address = Address(peers=(Peer(host="127.0.0.1", port=port, key=key),), dataset="any")
        folder = keys if keys is not None else KeyFolder(self.folder / "no-keys")
        folder.path.mkdir(exist_ok=True, mode=0o700)
        trust, keyed = find_trust(address, Security(keys=str(folder.path)), {})
        (answer,) = ask_status(daemons_at(keyed.peers), trust, timeout_ns)
        return answer


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("status"))


def load(daemon: Daemon, dataset: str, **options: Any) -> EmlioLoader:
    usual: dict[str, Any] = {"batch_size": 10, "raw": True, "to": "numpy", "timeout": "10s", "prefetch": "1MiB"}
    peer = daemon.endpoint.removeprefix("tcp://")
    return EmlioLoader(f"emlio://{peer}/{dataset}", **loader_arguments(**(usual | options)))


# ---- who sees what ------------------------------------------------------------------------------------------------------


def test_without_keys_everything_is_told_and_a_session_is_described(site: Site) -> None:
    with site.daemon() as daemon, load(daemon, "open") as loader:
        next(iter(loader))
        reply = site.ask(daemon)
        assert isinstance(reply, StatusReply)
        assert [one.name for one in reply.datasets] == ["closed", "open"]
        (rank,), (job,) = reply.ranks, reply.jobs
        assert (rank.rank, rank.state, job.dataset, job.world_size) == (0, "streaming", "open", 1)

        def waits() -> bool:
            found = site.ask(daemon)
            return isinstance(found, StatusReply) and found.ranks[0].waits_for == "rank"

        assert settles(waits, SOON_S, evenly=True), "its user takes nothing, so it gives no credit"
        assert loader.stats().batches == 1


def test_a_key_shows_only_what_it_may_read(site: Site) -> None:
    public = site.store.pair().public
    with site.daemon(keys=site.store.path) as daemon:
        mine, all_of_it = site.ask(daemon, site.gpu, public), site.ask(daemon, site.store, public)
        options = {"keys": str(site.store.path), "daemon_key": str(public)}
        with load(daemon, "closed", **options) as loader:
            next(iter(loader))
            beside = site.ask(daemon, site.gpu, public)
            seen = site.ask(daemon, site.store, public)
    assert isinstance(mine, StatusReply)
    assert isinstance(all_of_it, StatusReply)
    assert isinstance(beside, StatusReply)
    assert isinstance(seen, StatusReply)
    assert [one.name for one in mine.datasets] == ["open"]
    assert [one.name for one in all_of_it.datasets] == ["closed", "open"]
    assert "closed" not in str(beside)
    assert (beside.rank_count, seen.rank_count) == (0, 1)


def test_a_refused_caller_is_told_to_those_who_may_read_all(site: Site) -> None:
    public = site.store.pair().public
    with site.daemon(keys=site.store.path) as daemon:
        refused = site.ask(daemon, site.stranger, public)
        assert isinstance(refused, RefusedError)
        assert "does not allow this host's key" in str(refused)
        told, hidden = site.ask(daemon, site.store, public), site.ask(daemon, site.gpu, public)
    assert isinstance(told, StatusReply)
    assert isinstance(hidden, StatusReply)
    assert "its key is not among the allowed clients" in told.failures[0].text
    assert told.failures[0].kind == "not-admitted"
    assert hidden.failures == []


def test_a_lane_without_a_session_is_no_refused_key(site: Site) -> None:
    """A loader that was refused, as of a misspelled dataset, leaves connections to the data port behind."""
    with site.daemon() as daemon, zmq.Context() as context, context.socket(zmq.DEALER) as lane:
        lane.linger = 0
        lane.plain_username, lane.plain_password = f"{'0' * 32}.0".encode(), b"0" * 64
        lane.connect(daemon.data_endpoint)
        told = site.ask(daemon)
        while isinstance(told, StatusReply) and not told.failures:
            time.sleep(0.5)
            told = site.ask(daemon)
    assert isinstance(told, StatusReply), told
    assert [one.kind for one in told.failures] == ["lane-refused"]


def test_a_refusal_of_a_dataset_that_there_is_not_tells_its_name_to_nobody_else(site: Site) -> None:
    with site.daemon() as daemon:
        with pytest.raises(RefusedError):
            load(daemon, "opne")
        reply = site.ask(daemon)
    assert isinstance(reply, StatusReply)
    (failure,) = reply.failures
    assert (failure.kind, failure.dataset) == ("unknown-dataset", "")
    assert "there is no dataset 'opne'" in failure.text


# ---- why there is no answer -----------------------------------------------------------------------------------------------


def test_what_is_not_there_or_not_the_right_port_is_named_at_once(site: Site) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        begun = time.monotonic()
        gone = site.ask(port)
    assert isinstance(gone, PeerLostError)
    assert f"127.0.0.1:{port} does not answer: Connection refused" in str(gone)
    assert time.monotonic() - begun < SOON_S / 2
    with site.daemon() as daemon:
        data = site.ask(int(daemon.data_endpoint.rpartition(":")[2]))
    assert isinstance(data, RemoteProtocolError)
    assert "is its data port" in str(data)


def test_keys_that_do_not_go_together_are_named(site: Site) -> None:
    public = site.store.pair().public
    with site.daemon(keys=site.store.path) as daemon:
        without = site.ask(daemon)
        other = site.ask(daemon, site.gpu, site.gpu.pair().public)
    with site.daemon() as daemon:
        expected = site.ask(daemon, site.gpu, public)
    for answer, said in (
        (without, "requires keys"),
        (other, "must prove that it has the key"),
        (expected, "runs without keys"),
    ):
        assert isinstance(answer, RemoteProtocolError)
        assert said in str(answer)


def test_a_port_that_says_nothing_takes_no_longer_than_the_timeout(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        answer = site.ask(other.getsockname()[1], timeout_ns=500_000_000)
        # The host has another address, which refuses connections; that is not why.
        assert command(["status", f"localhost:{other.getsockname()[1]}", "--timeout", "500ms"]) == 1
    assert isinstance(answer, PeerLostError)
    assert "does not answer within 500 ms, although its port accepts connections" in str(answer)
    told = capsys.readouterr().out
    assert "or the port is another service's" in told
    assert "refused" not in told


def test_a_host_name_that_is_not_known_is_named_beside_daemons_that_answer(site: Site) -> None:
    with site.daemon() as daemon:
        port = int(daemon.endpoint.rpartition(":")[2])
        peers = (Peer(host="127.0.0.1", port=port), Peer(host="store9", port=port))
        trust, _ = find_trust(Address(peers=peers, dataset="any"), Security(), {})
        targets = [Target(peer=peers[0], ways=peers[:1]), Target(peer=peers[1], ways=(), trouble="no such name")]
        found = ask_status(targets, trust, SOON_NS)
    assert isinstance(found[0], StatusReply)
    assert isinstance(found[1], TransportError)
    assert "store9 cannot be resolved: no such name" in str(found[1])


# ---- limits -----------------------------------------------------------------------------------------------------------------


def test_a_flood_of_requests_is_refused_and_the_daemon_goes_on(site: Site) -> None:
    context = zmq.Context()
    try:
        with site.daemon() as daemon, context.socket(zmq.DEALER) as link:
            link.setsockopt(zmq.LINGER, 0)
            link.connect(daemon.endpoint)
            for nonce in range(100):
                link.send(encode_control(StatusRequest(nonce=nonce)))
            link.send(encode_control(Ping(session=0, nonce=5)))
            answers = []
            while not answers or not isinstance(answers[-1], Pong):
                assert link.poll(int(SOON_S * 1000))
                answers.append(decode_control(link.recv()))
            replies = [one for one in answers if isinstance(one, StatusReply)]
            refusals = [one for one in answers if isinstance(one, Refused)]
            assert 1 <= len(replies) <= MOST_STATUS_AT_ONCE + 2
            assert len(replies) + len(refusals) == 100
            assert {one.code for one in refusals} == {"no-session"}
    finally:
        context.term()


def test_a_rank_with_a_session_must_not_ask_over_its_connection() -> None:
    daemon = daemon_in(DaemonState.STREAMING)
    sent = [one.message for one in daemon.receive(StatusRequest(nonce=1), 0) if isinstance(one, Send)]
    assert sent == [Refused(code="protocol", text="a rank must not send StatusRequest")]


# ---- metrics and health -------------------------------------------------------------------------------------------------------


def page(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=SOON_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def url_of(daemon: Daemon) -> str:
    assert daemon.metrics_url is not None
    return daemon.metrics_url.removesuffix("/metrics")


def test_health_follows_the_life_of_a_daemon(site: Site) -> None:
    pytest.importorskip("prometheus_client")
    with site.daemon(metrics=("127.0.0.1", 0)) as daemon:
        url = url_of(daemon)
        assert page(f"{url}/healthz") == (200, "ok\n")
        assert page(f"{url}/readyz") == (200, "ready\n")
        daemon.drain()
        assert daemon.wait(SOON_S)
        assert page(f"{url}/healthz") == (200, "ok\n")
        assert page(f"{url}/readyz") == (503, "not ready: the control thread does not answer within 1 s\n")
    with pytest.raises(urllib.error.URLError):
        page(f"{url}/healthz")


def test_without_the_library_the_error_says_what_to_install(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    needed = r"metrics require prometheus_client: pip install \"prometheus-client"
    with pytest.raises(ConfigError, match=needed), site.daemon(metrics=("127.0.0.1", 0)):
        pass
    with site.daemon() as daemon, load(daemon, "open") as loader, pytest.raises(ConfigError, match=needed):
        serve_metrics(loader)


def test_before_datasets_are_open_it_is_alive_and_not_ready() -> None:
    pytest.importorskip("prometheus_client")
    endpoint = MetricsEndpoint("127.0.0.1", 0)
    try:
        url = endpoint.url.removesuffix("/metrics")
        assert page(f"{url}/healthz") == (200, "ok\n")
        assert page(f"{url}/readyz") == (503, "not ready: datasets are being opened\n")
        assert "process_cpu_seconds_total" in page(f"{url}/metrics")[1]
    finally:
        endpoint.close()


class FakeControl:
    """Answers at once, in the caller's thread."""

    def __init__(self, **figures: Any) -> None:
        usual: dict[str, Any] = {name: {} for name in DaemonFigures.__struct_fields__}
        numbers = ("sessions_begun", "held_bytes", "bound_bytes", "lanes", "lanes_lost")
        usual |= {
            "daemon": "store1-1",
            "draining": False,
            "opening": (),
            "generations": {"x": 1},
            **dict.fromkeys(numbers, 0),
        }
        self._figures = DaemonFigures(**(usual | figures))

    def call(self, action: Callable[[], None]) -> None:
        action()

    def figures(self) -> DaemonFigures:
        return self._figures


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({}, "ready\n"),
        ({"opening": ("y",)}, "ready\n"),
        ({"draining": True}, "not ready: draining\n"),
        ({"generations": {}}, "not ready: no dataset is served\n"),
    ],
    ids=["serving", "opening another", "draining", "nothing to serve"],
)
def test_a_daemon_is_ready_while_it_takes_sessions(figures: dict[str, Any], said: str) -> None:
    pytest.importorskip("prometheus_client")
    endpoint = MetricsEndpoint("127.0.0.1", 0)
    endpoint.served_by(cast(Control, FakeControl(**figures)))
    found = endpoint.ready()
    endpoint.close()
    assert (found.text, found.status == "200 OK") == (said, said == "ready\n")


def test_a_daemon_that_cannot_open_its_dataset_frees_the_port_of_its_metrics(site: Site, tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = DaemonConfig(data=(DatasetSource(name="x", directory=tmp_path / "nothing"),), metrics=("127.0.0.1", port))
    with pytest.raises(EmlioError, match="dataset x cannot be opened"):
        Daemon(config)
    with site.daemon(metrics=("127.0.0.1", port)) as daemon:
        assert page(f"{url_of(daemon)}/healthz")[0] == 200
        with pytest.raises(ConfigError, match="metrics cannot be served at"):
            Daemon(replace(config, data=(DatasetSource(name="open", directory=site.folder / "open"),)))


def test_a_loader_s_metrics_are_served_or_collected(site: Site) -> None:
    library = pytest.importorskip("prometheus_client")
    with site.daemon() as daemon, load(daemon, "open") as loader:
        assert sum(len(batch["record"]) for batch in loader) == RECORDS
        with AioHandle() as handle, serve_metrics({"train": loader}, "127.0.0.1:0", files={"saves": handle}) as server:
            handle.pwrite(bytes(4096), site.folder / "saved")
            text = page(server.url)[1]
        assert 'emlio_files_bytes_total{direction="write",handle="saves"} 4096.0' in text
        labels = '{loader="train",rank="0"}'
        assert f"emlio_loader_records_total{labels} {RECORDS}.0" in text
        registry = library.CollectorRegistry()
        registry.register(LoaderCollector(loader))
        assert (
            registry.get_sample_value("emlio_loader_batches_total", {"loader": "default", "rank": "0"}) == RECORDS // 10
        )
        names = {name for family in registry.collect() for name in [family.name] if not family.samples}
        assert names == set(), "each metric has data after an epoch"
        again = LoaderCollector(loader)
    del loader
    assert settles(lambda: not any(family.samples for family in again.families()), SOON_S), "it is not kept alive"


@pytest.mark.parametrize("wrong", [{}, {"train": 5}, "emlio://x/y"])
def test_what_is_no_loader_is_refused(wrong: Any) -> None:
    pytest.importorskip("prometheus_client")
    with pytest.raises(ConfigError, match="loaders must be"):
        LoaderCollector(wrong)
