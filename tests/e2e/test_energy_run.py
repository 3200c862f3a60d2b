"""`emlio energy run` and `report` as people use them: any command, a training, one that is ended by a signal.

Covers: the command's output and exit status, what lies in the folder, measured and estimated figures, several ranks. Does not
cover: two hosts (tests/integration/test_bench_energy.py); each figure (unit tests).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from emlio_testing.commands import Ended, run_emlio
from emlio_testing.datasets import make_dataset
from emlio_testing.energy_machines import write_zone
from emlio_testing.processes import RankProcess, settles

COMMAND = "import sys; from emlio.cli import main; sys.exit(main())"
SOON_S = 90.0

TRAIN = """
import sys, time
from emlio import EmlioLoader

with EmlioLoader(sys.argv[1], batch_size=50, rank=int(sys.argv[2]), world_size=int(sys.argv[3]), raw=True, to="numpy") as loader:
    for epoch in range(2):
        for batch in loader:
            time.sleep(0.05)
    print("trained", loader.rank)
"""
PRESSED = 5
COUNT = """
import signal, time
told = []
signal.signal(signal.SIGINT, lambda number, frame: told.append(number))
print("ready")
for said in range(5):
    while len(told) <= said:
        time.sleep(0.05)
    print("told")
time.sleep(1)
print(len(told))
"""
RANKS = """
import subprocess, sys
ranks = [subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2], str(rank), "2"]) for rank in range(2)]
sys.exit(max(rank.wait() for rank in ranks))
"""


def energy(*words: object, home: Path) -> Ended:
    return run_emlio("energy", *words, home=home, folder=home, timeout_s=SOON_S)


def document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def microjoules(total: dict[str, Any]) -> int:
    return round(total["joules"] * 1e6)


@pytest.fixture
def counters(tmp_path: Path) -> Iterator[Path]:
    """A tree of a host whose processor draws some watts."""
    tree = tmp_path / "exported"
    counter = os.open(write_zone(tree, "intel-rapl:0", None, energy_uj=1_000_000), os.O_RDWR)
    stop = Event()

    def move() -> None:
        joules = 1
        while not stop.wait(0.04):
            joules += 3
            os.pwrite(counter, f"{joules * 1_000_000:015d}\n".encode(), 0)

    thread = Thread(target=move)
    thread.start()
    yield tree
    stop.set()
    thread.join()
    os.close(counter)


# ---- any command ----------------------------------------------------------------------------------------------------


def test_a_commands_output_and_status_are_its_own_and_the_report_goes_beside(tmp_path: Path) -> None:
    script = 'echo out; echo err >&2; echo "$EMLIO_ENERGY" >&2; sleep 1; exit 7'
    done = energy("run", "--out", "job", "--cpu-watts", "20:100", "--", "sh", "-c", script, home=tmp_path)
    assert (done.status, done.out) == (7, "out\n")
    assert done.err.splitlines()[:2] == ["err", str(tmp_path / "job")]
    assert "the whole run on 1 compute node:" in done.err
    assert "it ended with status 7" in done.err
    names = {path.name for path in (tmp_path / "job").iterdir()}
    assert {"report.txt", "report.json", "report.html", "run.json", "recorder.log"} <= names
    assert "recorder.sock" not in names


@pytest.mark.slow
def test_the_same_report_comes_of_what_was_stored(tmp_path: Path) -> None:
    energy("run", "--out", "job", "--quiet", "--", "sleep", "1", home=tmp_path)
    told = energy("report", "job", "--all", home=tmp_path)
    assert told.out == (tmp_path / "job/report.txt").read_text()
    assert json.loads(energy("report", "job", "--json", home=tmp_path).out) == document(tmp_path / "job")
    assert energy("report", "job", "--html", "page.html", home=tmp_path).out == ""
    assert (tmp_path / "page.html").read_text() == (tmp_path / "job/report.html").read_text()


def test_energy_at_rest_is_measured_before_the_command(tmp_path: Path, counters: Path) -> None:
    words = ("--powercap-root", counters, "--baseline", "5s", "--out", "job")
    assert energy("run", *words, "--", "sleep", "2", home=tmp_path).status == 0
    (epoch,) = document(tmp_path / "job")["epochs"]
    (node,) = epoch["nodes"]
    (device,) = [one for one in node["devices"] if one["source"] == "host-export"]
    assert device["method"] == "measured"
    # The same steady power before and in the command, in steps of 3 J.
    assert device["idle_joules"] == pytest.approx(device["joules"], rel=0.3)


def test_a_folder_is_one_jobs_and_a_command_must_be_there(tmp_path: Path) -> None:
    assert energy("run", "--out", "job", "--quiet", "--", "true", home=tmp_path).status == 0
    again = energy("run", "--out", "job", "--", "true", home=tmp_path)
    assert again.status == 2
    assert "must have a new folder" in again.err
    missing = energy("run", "--out", "other", "--", "no-such-program", home=tmp_path)
    assert missing.status == 127
    assert not (tmp_path / "other").exists()
    assert energy("run", home=tmp_path).status == 2
    assert energy("run", "--interval", "1ms", "--", "true", home=tmp_path).status == 2


def test_a_recorder_that_cannot_start_is_a_warning_and_the_command_runs(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job/recorder.sock").write_text("something else")
    done = energy("run", "--out", "job", "--", "echo", "ran", home=tmp_path)
    assert (done.status, done.out) == (0, "ran\n")
    assert "warning: energy is not recorded" in done.err
    (epoch,) = document(tmp_path / "job")["epochs"]
    assert epoch["total"]["joules"] is None


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_passed_on_and_the_report_still_comes(number: signal.Signals, tmp_path: Path) -> None:
    script = "trap 'echo \\\"told\\\"; exit 9' TERM INT HUP; echo '\"ready\"'; while :; do sleep 0.1; done"
    words = ("energy", "run", "--out", str(tmp_path / "job"), "--", "sh", "-c", script)
    with RankProcess(COMMAND, *words, environment={"HOME": str(tmp_path)}) as process:
        assert process.line(0, SOON_S) == "ready"
        process.send_signal(number)
        assert process.finish(SOON_S) == 9
        assert process.lines() == ["ready", "told"]
    assert document(tmp_path / "job")["job"]["exit_status"] == 9


def test_what_a_terminal_sends_is_not_passed_on_a_second_time(tmp_path: Path) -> None:
    if shutil.which("setsid") is None:
        pytest.skip("a terminal of its own needs setsid, of util-linux")
    words = ("energy", "run", "--quiet", "--out", str(tmp_path / "job"), "--", sys.executable, "-uc", COUNT)
    terminal, end = os.openpty()
    try:
        with subprocess.Popen(
            ["setsid", "--ctty", "--wait", sys.executable, "-c", COMMAND, *words],
            stdin=end,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(tmp_path)},
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            for _ in range(PRESSED):
                os.write(terminal, b"\x03")
                assert process.stdout.readline() == "told\n"
            assert process.stdout.read() == f"{PRESSED}\n"
            assert process.wait(SOON_S) == 0
    finally:
        os.close(terminal)
        os.close(end)


def test_a_command_that_a_signal_ends_has_the_status_that_shells_give(tmp_path: Path) -> None:
    done = energy("run", "--out", "job", "--quiet", "--", "sh", "-c", "kill -KILL $$", home=tmp_path)
    assert done.status == 128 + signal.SIGKILL


def test_a_recorder_does_not_outlive_a_run_that_is_killed(tmp_path: Path) -> None:
    words = ("energy", "run", "--out", str(tmp_path / "job"), "--", "sh", "-c", "echo 1; exec sleep 1")
    with RankProcess(COMMAND, *words, environment={"HOME": str(tmp_path)}) as process:
        process.line(0, SOON_S)
        process.send_signal(signal.SIGKILL)
        process.finish(SOON_S)
    assert settles(lambda: not (tmp_path / "job/recorder.sock").exists(), SOON_S)


# ---- a training -----------------------------------------------------------------------------------------------------


@pytest.fixture
def records(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "data", records=1000, shards=2)
    return tmp_path / "data"


def test_a_training_is_reported_epoch_by_epoch_and_its_stages_add_up(tmp_path: Path, records: Path) -> None:
    words = ("--cpu-watts", "20:100", "--out", "job", "--", sys.executable, "-c", TRAIN, records, 0, 1)
    done = energy("run", *words, home=tmp_path)
    assert (done.status, done.out) == (0, "trained 0\n")
    epochs = document(tmp_path / "job")["epochs"]
    assert [(one["title"], one["samples"]) for one in epochs] == [("epoch 0", 1000), ("epoch 1", 1000)]
    for epoch in epochs:
        *stages, whole = epoch["stages"]["blocked"]
        for domain in ("cpu", "dram"):
            assert sum(microjoules(row["domains"][domain]) for row in stages) == microjoules(whole["domains"][domain])
        assert sum(microjoules(row["total"]) for row in stages) == microjoules(epoch["nodes"][0]["total"])
        assert {row["stage"]: row["seconds"] for row in stages}["train"] >= 20 * 0.05
        assert epoch["nodes"][0]["total"]["method"] == "estimated"
    assert "~: an estimate, not a measurement" in done.err
    assert energy("report", "job", "--against", "job/report.json", home=tmp_path).status == 0


@pytest.mark.slow
def test_ranks_of_one_node_share_its_recorder_and_are_one_node(tmp_path: Path, records: Path) -> None:
    words = ("--out", "job", "--", sys.executable, "-c", RANKS, TRAIN, records)
    done = energy("run", *words, home=tmp_path)
    assert done.status == 0, done.err
    found = document(tmp_path / "job")
    assert [one["samples"] for one in found["epochs"]] == [1000, 1000]
    assert [len(one["nodes"]) for one in found["epochs"]] == [1, 1]
    assert found["job"]["settings"]["ranks"] == "2"
    assert found["job"]["partial"] == []
    assert len(list((tmp_path / "job").glob("journal-*.jsonl"))) == 2
