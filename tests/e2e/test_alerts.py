"""A real Prometheus beside real runs: each alert fires by its fault and by nothing else, and each panel has data.

The rules are those of deploy/prometheus/rules.yml with seconds in place of minutes. Needs the program prometheus.

Covers: the alerts (that of full memory by figures alone, with promtool), the dashboard's questions. Does not cover:
Grafana itself, Alertmanager.
"""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil
import pytest

from emlio import EmlioLoader, Recovery, Security
from emlio.aio import AioHandle
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import EmlioError
from emlio.keys.folder import KeyFolder
from emlio.keys.known_daemons import DaemonPlace
from emlio.metrics import serve_metrics
from emlio.reading.feed import Feed
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess, RankProcess, settles
from emlio_testing.prometheus import PROGRAM, Prometheus
from emlio_testing.proxy import FaultProxy, free_ports

yaml: Any = pytest.importorskip("yaml", reason="not installed: PyYAML")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PROGRAM is None, reason="prometheus is not on PATH, and EMLIO_PROMETHEUS does not say where it is"
    ),
]

DEPLOY = Path(__file__).parents[2] / "deploy"
HERE, FACE = "127.0.0.1", "127.0.0.5"
SOON_S, WATCHED_S = 60.0, 25.0
FAST = ("--message-size", "64KiB")

_RANK = """
import sys, time
from emlio import EmlioLoader
address, rank, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with EmlioLoader(address, batch_size=10, raw=True, to="numpy", rank=rank, world_size=ranks) as loader:
    while True:
        for batch in loader:
            print("true", flush=True)
            time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alerts") / "records"
    make_dataset(folder, records=1500, shards=3, payload=16_000)
    return folder


class Scene:
    """The daemons and loaders of one fault, which Prometheus scrapes. All of them end with the stack."""

    def __init__(self, folder: Path, records: Path, stack: ExitStack) -> None:
        self.folder, self.records, self.stack = folder, records, stack
        self.daemons: list[str] = []
        self.loaders: list[str] = []
        self.later: list[Callable[[], None]] = []
        self.files: AioHandle | None = None

    def daemon(self, *options: str, port: int = 0) -> DaemonProcess:
        """Start a daemon that is scraped."""
        words = ("--metrics", f"{HERE}:{port}", *FAST, *options)
        daemon = self.stack.enter_context(DaemonProcess({"records": self.records}, *words, folder=self.folder))
        daemon.wait_for_log("metrics are served at ", SOON_S)
        self.daemons.append(_target(daemon.log.partition("metrics are served at ")[2].split()[0]))
        return daemon

    def rank(self, daemon: DaemonProcess) -> RankProcess:
        """Start a training process that is not scraped, and wait for its first batch."""
        rank = self.stack.enter_context(RankProcess(_RANK, daemon.address("records"), "0", "1"))
        assert rank.line(0)
        return rank

    def loader(self, address: str, step_s: float = 0.02, **options: Any) -> EmlioLoader:
        """Start a loader of this process that is scraped; a thread takes its batches."""
        usual: dict[str, Any] = {"batch_size": 10, "raw": True, "to": "numpy"}
        loader = self.stack.enter_context(EmlioLoader(address, **usual | options))
        server = self.stack.enter_context(serve_metrics(loader, f"{HERE}:0", files=self.files))
        self.loaders.append(_target(server.url))
        stop = Event()

        def take() -> None:
            with suppress(EmlioError):
                while not stop.is_set():
                    for _ in loader:
                        if stop.wait(step_s):
                            return

        thread = Thread(target=take)
        thread.start()
        self.stack.callback(thread.join)
        self.stack.callback(stop.set)
        return loader

    def own_daemon(self, **options: Any) -> Daemon:
        """Run a daemon in this process, scraped as well."""
        source = DatasetSource(name="records", directory=self.records)
        usual: dict[str, Any] = {"bind": Endpoint(host=HERE, port=0), "message_size": 64 << 10, "metrics": (HERE, 0)}
        daemon = self.stack.enter_context(Daemon(DaemonConfig(data=(source,), **usual | options)))
        assert daemon.metrics_url is not None
        self.daemons.append(_target(daemon.metrics_url))
        return daemon


def _target(url: str) -> str:
    return url.removeprefix("http://").removesuffix("/metrics")


def _address(daemon: Daemon) -> str:
    return f"{daemon.endpoint.replace('tcp', 'emlio')}/records"


# ---- faults: each prepares a scene, and says what happens once Prometheus looks ------------------------------------------


def _down(scene: Scene, _: pytest.MonkeyPatch) -> None:
    scene.later.append(scene.daemon().kill)


def _restarts(scene: Scene, _: pytest.MonkeyPatch) -> None:
    port, *_rest = free_ports(1, HERE)
    daemons = [scene.daemon(port=port)]

    def again() -> None:
        daemons.pop().kill()
        daemons.append(scene.daemon(port=port))
        time.sleep(2)

    scene.later += [again] * 4


def _reading_fails(scene: Scene, _: pytest.MonkeyPatch) -> None:
    copy = scene.folder / "copy"
    shutil.copytree(scene.records, copy)
    scene.records = copy
    scene.loader(scene.daemon().address("records"), prefetch="1MiB")

    def cut() -> None:
        for shard in copy.glob("*.tfrecord"):
            os.truncate(shard, 1000)

    scene.later.append(cut)


def _rank_lost(scene: Scene, _: pytest.MonkeyPatch) -> None:
    scene.later.append(scene.rank(scene.daemon()).kill)


def _keys(scene: Scene, name: str) -> KeyFolder:
    keys = KeyFolder(scene.folder / name)
    keys.make(name)
    return keys


def _refused(scene: Scene, times: int) -> None:
    store, stranger = _keys(scene, "store"), _keys(scene, "stranger")
    daemon = scene.daemon("--keys", str(store.path))
    port = int(daemon.peer.rpartition(":")[2])
    stranger.trust(DaemonPlace(host=HERE, port=port), store.pair().public, replace=True)

    def knock() -> None:
        for _ in range(times):
            with pytest.raises(EmlioError):
                EmlioLoader(
                    daemon.address("records"),
                    batch_size=1,
                    security=Security(keys=stranger.path),
                    recovery=Recovery(timeout="1s"),
                )

    scene.later.append(knock)


def _clients_refused(scene: Scene, _: pytest.MonkeyPatch) -> None:
    _refused(scene, 14)


def _storage_slow(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Feed.read

    def slowly(feed: Feed, *arguments: Any) -> None:
        time.sleep(0.1)
        read(feed, *arguments)

    monkeypatch.setattr(Feed, "read", slowly)
    address = _address(scene.own_daemon(readers=1))
    scene.stack.enter_context(RankProcess(_RANK, address, "0", "1"))


def _files_used_up(scene: Scene, _: pytest.MonkeyPatch) -> None:
    daemon = scene.daemon()
    used = psutil.Process(daemon.pid).num_fds()
    scene.later.append(lambda: resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (used + 2, used + 2)) and None)


def _training_waits(scene: Scene, _: pytest.MonkeyPatch) -> None:
    ports = free_ports(2, HERE, FACE)
    scene.own_daemon(bind=Endpoint(host=HERE, port=ports[0]), lanes=1)
    proxy = scene.stack.enter_context(FaultProxy(target=HERE, host=FACE, ports=ports))
    scene.loader(f"emlio://{FACE}:{ports[0]}/records")
    scene.later.append(lambda: proxy.slow(2_000_000))


def _bad_records(scene: Scene, _: pytest.MonkeyPatch) -> None:
    copy = scene.folder / "copy"
    shutil.copytree(scene.records, copy)
    shard = sorted(copy.glob("*.tfrecord"))[0]
    content = bytearray(shard.read_bytes())
    content[5000] ^= 1
    shard.write_bytes(content)
    scene.records = copy
    scene.loader(scene.daemon().address("records"), recovery=Recovery(on_error="skip"))


# ---- what is no fault -----------------------------------------------------------------------------------------------------


def _a_loader_that_ends(scene: Scene, _: pytest.MonkeyPatch) -> None:
    rank = scene.rank(scene.daemon())
    scene.later.append(lambda: rank.send_signal(signal.SIGINT))


def _a_daemon_that_drains(scene: Scene, _: pytest.MonkeyPatch) -> None:
    daemon = scene.daemon("--drain-timeout", "60s")
    rank = scene.rank(daemon)

    def drain() -> None:
        rank.pause()  # what was read does not leave
        daemon.send_signal(signal.SIGTERM)
        time.sleep(5)
        os.kill(rank.pid, signal.SIGCONT)
        time.sleep(5)

    scene.later.append(drain)


def _a_few_wrong_keys(scene: Scene, _: pytest.MonkeyPatch) -> None:
    _refused(scene, 3)


def _a_job_that_trains(scene: Scene, _: pytest.MonkeyPatch) -> None:
    scene.loader(scene.daemon().address("records"), step_s=0.1)


Fault = Callable[[Scene, pytest.MonkeyPatch], None]


def _watched(
    fault: Fault, folder: Path, records: Path, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> Iterator[set[str]]:
    with ExitStack() as stack:
        scene = Scene(folder, records, stack)
        fault(scene, monkeypatch)
        prometheus = stack.enter_context(Prometheus(folder, list(dict.fromkeys(scene.daemons)), scene.loaders))
        assert settles(lambda: prometheus.ask("up == 1"), SOON_S)
        time.sleep(2)  # so that counters are known from before
        for act in scene.later:
            act()
        begun = time.monotonic()
        while time.monotonic() - begun < (SOON_S if wanted else WATCHED_S):
            yield prometheus.firing()
            time.sleep(0.5)


@pytest.mark.parametrize(
    ("fault", "alert"),
    [
        (_down, "EmlioDaemonDown"),
        (_restarts, "EmlioDaemonRestarts"),
        (_reading_fails, "EmlioReadingFails"),
        (_rank_lost, "EmlioRankLost"),
        (_clients_refused, "EmlioClientsRefused"),
        (_storage_slow, "EmlioStorageSlow"),
        (_files_used_up, "EmlioFilesUsedUp"),
        (_training_waits, "EmlioTrainingWaits"),
        (_bad_records, "EmlioBadRecords"),
    ],
)
def test_an_alert_fires_by_its_fault_and_no_other_does(
    fault: Fault, alert: str, tmp_path: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[str] = set()
    for firing in _watched(fault, tmp_path, records, monkeypatch, alert):
        seen |= firing
        if alert in seen:
            break
    assert seen == {alert}


@pytest.mark.parametrize("event", [_a_loader_that_ends, _a_daemon_that_drains, _a_few_wrong_keys, _a_job_that_trains])
def test_what_happens_every_day_fires_nothing(
    event: Fault, tmp_path: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for firing in _watched(event, tmp_path, records, monkeypatch, ""):
        # A daemon that has drained is gone, which its alert would say after two minutes.
        assert firing <= ({"EmlioDaemonDown"} if event is _a_daemon_that_drains else set())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH")
@pytest.mark.parametrize("waits_for", ["network", "rank"])
def test_memory_that_is_full_is_told_unless_ranks_are_slow(tmp_path: Path, waits_for: str) -> None:
    shutil.copy(DEPLOY / "prometheus/rules.yml", tmp_path / "rules.yml")
    labels = {"instance": "store1:9555", "job": "emlio-daemon"}

    def series(name: str, values: str, **more: str) -> dict[str, str]:
        told = ",".join(f'{label}="{value}"' for label, value in {**labels, **more}.items())
        return {"series": f"{name}{{{told}}}", "values": values}

    alerts = (
        [] if waits_for == "rank" else [{"exp_labels": {"severity": "ticket", **labels}, "exp_annotations": _SUMMARY}]
    )
    test = {
        "interval": "1m",
        "input_series": [
            series("emlio_daemon_held_bytes", "96x60"),
            series("emlio_daemon_held_bytes_limit", "100x60"),
            series("emlio_daemon_sessions", "8x60", dataset="records"),
            series("emlio_daemon_wait_seconds_total", "0+400x60", dataset="records", waits_for=waits_for),
        ],
        "alert_rule_test": [{"eval_time": "45m", "alertname": "EmlioMemoryFull", "exp_alerts": alerts}],
    }
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.yml").write_text(json.dumps(document), encoding="utf-8")
    done = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "test.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


_SUMMARY = {"summary": "The memory for records of store1:9555 is full."}


@contextmanager
def _mounted(address: str, directory: Path) -> Iterator[str]:
    """A mount that is scraped, if this machine allows one; yield its target or nothing."""
    directory.mkdir()
    port, *_ = free_ports(1, HERE)
    words = ["mount", address, str(directory), "--metrics", f"{HERE}:{port}"]
    with RankProcess("import sys; from emlio.cli import main; sys.exit(main())", *words) as mount:
        if settles(lambda: os.path.ismount(directory) or not mount.running, SOON_S) and mount.running:
            yield f"{HERE}:{port}"
            mount.send_signal(signal.SIGTERM)  # it unmounts
            assert mount.finish() in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
            assert not os.path.ismount(directory)
        else:
            yield ""


def test_every_panel_of_the_dashboard_has_data_in_a_real_run(tmp_path: Path, records: Path) -> None:
    board = json.loads((DEPLOY / "grafana/emlio.json").read_text(encoding="utf-8"))
    panels = [panel for panel in board["panels"] if panel.get("targets")]
    with ExitStack() as stack:
        scene = Scene(tmp_path, records, stack)
        daemon = scene.daemon()
        scene.files = stack.enter_context(AioHandle())
        scene.files.pwrite(bytes(4096), tmp_path / "checkpoint")
        scene.loader(daemon.address("records"))
        mount = stack.enter_context(_mounted(daemon.address("records"), tmp_path / "mounted"))
        prometheus = stack.enter_context(
            Prometheus(tmp_path, [*scene.daemons, *([mount] if mount else [])], scene.loaders)
        )

        def empty() -> list[str]:
            with pytest.raises(EmlioError):  # a failure to show
                EmlioLoader(daemon.address("nothing"), batch_size=1)
            return [
                panel["title"]
                for panel in panels
                for target in panel["targets"]
                if (mount or "emlio_mount" not in target["expr"]) and not prometheus.ask(_plain(target["expr"]))
            ]

        assert settles(lambda: not empty(), SOON_S), empty()


def _plain(expression: str) -> str:
    """Return a panel's question with its variables as Grafana fills them in."""
    return re.sub(r"\$(daemon|loader)\b", ".*", expression).replace("$__rate_interval", "4s").replace("$__range", "30s")
