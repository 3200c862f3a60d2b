"""`emlio energy record` as people use it, beside a counter that a host moves: its end by a signal and by -9, metrics."""

import json
import os
import signal
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from emlio.energy.recording.edge import EdgeClient
from emlio.energy.recording.store import Store
from emlio.errors import ConfigError
from emlio_testing.commands import run_emlio
from emlio_testing.energy_machines import write_zone
from emlio_testing.energy_series import SECOND_NS
from emlio_testing.processes import RankProcess, settles

COMMAND = "import sys; from emlio.cli import main; sys.exit(main())"
SOON_S = 60.0
JOULES_A_MOVE = 3

pytestmark = pytest.mark.e2e


class Host:
    """Moves the counter of a powercap tree by 3 J, 25 times a second or so."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.joules = 1
        self._counter = os.open(write_zone(tree, "intel-rapl:0", None, energy_uj=1_000_000), os.O_RDWR)
        self._stop = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.04):
            self.joules += JOULES_A_MOVE
            # Over what stood there: nobody ever reads half of it.
            os.pwrite(self._counter, f"{self.joules * 1_000_000:015d}\n".encode(), 0)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        os.close(self._counter)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "exported")
    yield made
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "energy.sqlite"


def recorder(host: Host, file: Path, *words: str) -> RankProcess:
    """One that records, born recording."""
    flags = ("--powercap-root", str(host.tree), "--out", str(file), "--node", "n1", *words)
    process = RankProcess(COMMAND, "energy", "record", *flags, environment={"HOME": str(file.parent)})
    try:
        process.wait_for_log(f"to {file}, recording", SOON_S)
    except BaseException:
        process.kill()
        raise
    return process


def energy(*words: object) -> str:
    done = run_emlio("energy", *words, home=Path.home(), timeout_s=SOON_S)
    assert done.status == 0, done.err
    return done.out


def shown(file: Path, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(energy("report", file, "--json", *words))
    return found


def exported_device(document: dict[str, Any]) -> dict[str, Any]:
    (found,) = [one for one in document["devices"] if one["source"] == "host-export"]
    return dict(found)


def written(file: Path) -> int:
    """How many readings others see."""
    try:
        with Store(file) as store:
            return len(store.load().readings)
    except ConfigError:
        return 0


def test_what_the_counter_counted_is_what_was_recorded(host: Host, file: Path) -> None:
    before = host.joules
    with recorder(host, file, "--for", "2s") as process:
        assert process.finish(SOON_S) == 0
    most = host.joules - before
    document = shown(file)
    device = exported_device(document)
    assert device["method"] == "measured"
    assert 0 < device["joules"] <= most
    assert device["joules"] % JOULES_A_MOVE == 0
    assert device["mean_watts"] == pytest.approx(device["joules"] / document["seconds"])
    assert device["events"] == {}
    assert document["ended"]
    assert document["node"] == "n1"
    assert document["readings"] + document["missed"] == pytest.approx(21, abs=1)
    table = energy("report", file)
    assert table.startswith("n1, from 20")
    row = next(line.split() for line in table.splitlines() if "host-export" in line)
    assert row[:4] == ["package-0", "cpu", "host-export", "measured"]
    assert row[4] == f"{device['joules']:,.1f}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_all_that_was_read(host: Host, file: Path, tmp_path: Path, number: int) -> None:
    with recorder(host, file, "--socket", str(tmp_path / "edge")) as process:
        with EdgeClient(tmp_path / "edge", timeout_s=SOON_S) as client:
            last = client.read().reading
        process.send_signal(number)
        assert process.finish(SOON_S) == 0
        assert "of a core" in process.log
    assert not (tmp_path / "edge").exists()
    with Store(file) as store:
        assert store.recording().ended_mono_ns is not None
        readings = store.load().readings
    assert last in readings
    assert readings[-1].edge
    assert [one.seq for one in readings] == list(range(len(readings)))
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(file.name)] == [file.name]


def test_killed_it_loses_a_second_at_most_and_the_file_goes_on(host: Host, file: Path) -> None:
    with recorder(host, file) as process:
        assert settles(lambda: written(file) >= 15, SOON_S), "it can be read while it is written"
        process.send_signal(signal.SIGKILL)
        killed_ns = time.monotonic_ns()
        assert process.finish(SOON_S) == -signal.SIGKILL
    with Store(file) as store:
        assert store.recording().ended_mono_ns is None
        readings = store.load().readings
    assert [one.seq for one in readings] == list(range(len(readings)))
    # A second, and another for a machine that gives the recorder no processor for a while.
    assert killed_ns - readings[-1].mono_ns < 2 * SECOND_NS
    assert "the recorder is still running, or was killed" in energy("report", file)
    with recorder(host, file, "--for", "300ms") as process:
        assert process.finish(SOON_S) == 0
    assert energy("report", file).startswith("recording 2 of 2: n1")
    assert shown(file, "--run", "1")["readings"] == len(readings)


def metrics_url(process: RankProcess) -> str:
    process.wait_for_log("metrics are served at ", SOON_S)
    return process.log.partition("metrics are served at ")[2].split()[0]


def joules_of(text: str) -> float:
    (line,) = [one for one in text.splitlines() if one.startswith("emlio_energy_joules_total") and "host-export" in one]
    for label in ('node="n1"', 'domain="cpu"', 'device="package-0"', 'source="host-export"', 'method="measured"'):
        assert label in line
    return float(line.rpartition(" ")[2])


def test_metrics_rise_as_the_counter_does(host: Host, file: Path) -> None:
    with recorder(host, file, "--metrics", "0") as process:
        url = metrics_url(process)

        def page() -> str:
            with urllib.request.urlopen(url, timeout=SOON_S) as answer:
                text: str = answer.read().decode()
            return text

        def joules() -> float:
            return joules_of(page())

        # The page is served before the counter was read for the first time.
        assert settles(lambda: "emlio_energy_joules_total{" in page(), SOON_S)
        first = joules()
        assert settles(lambda: joules() > first, SOON_S)
        assert joules() <= host.joules


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("report", "nowhere.sqlite"), "nowhere.sqlite: no such recording"),
        (("report", "nowhere.sqlite", "--export", "x.csv"), "nowhere.sqlite: no such recording"),
        (("record", "--interval", "1ms"), "the interval must be from 10 ms to 1 s, got 1 ms"),
        (("record", "--for", "0s"), "the time to record for must be above 0"),
        (("record", "--metrics", "here"), "must be [HOST:]PORT"),
        (("record", "--socket-group", "root"), "--socket-group requires --socket"),
        (("record", "--socket", "x", "--socket-group", "no such group"), "must be a group of this machine"),
        (("record", "--node", "a/b"), "--out is required"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    ended = run_emlio("energy", *words, home=tmp_path, folder=tmp_path, timeout_s=SOON_S)
    assert (ended.status, ended.out) == (2, "")
    assert message in ended.err
    assert list(tmp_path.iterdir()) == []
