"""`emlio status` and metrics beside real daemons and ranks.

Covers: a rank that takes little and a killed daemon while it happens, a stopped rank, `--watch`, metrics in an epoch, a real
Prometheus, fields of the log. Does not cover: what a client sees by its key (tests/integration/test_status.py).
"""

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.metrics import serve_metrics
from emlio_testing.commands import Ended, run_emlio
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import DaemonProcess, RankProcess, settles

COMMAND = "import sys; from emlio.cli import main; sys.exit(main())"
SOON_S = 60.0
OPTIONS = ("--message-size", "64KiB", "--memory", "8MiB")
NEEDS_LIBRARY = pytest.mark.skipif(find_spec("prometheus_client") is None, reason="prometheus_client is not installed")

RANK = """
import sys, time
from emlio import EmlioLoader

address, rank, pause_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
with EmlioLoader(
    address, batch_size=10, raw=True, to="numpy", prefetch="1MiB", rank=rank, world_size=2, progress=False
) as loader:
    first = True
    while True:
        for batch in loader:
            if first:
                print("true", flush=True)
            first = False
            time.sleep(pause_s)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("datasets") / "large"
    make_dataset(directory, records=1500, shards=3, payload=16_000)
    return directory


def status(home: Path, *words: object) -> Ended:
    return run_emlio("status", "--over", "400ms", *words, home=home, timeout_s=SOON_S)


def asked(home: Path, *words: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(status(home, *words, "--json").out)["daemons"]
    return found


@contextmanager
def ranks(address: str, *pauses_s: float) -> Iterator[list[RankProcess]]:
    """Ranks of one job that sleep so long after each batch; each has its first batch."""
    started: list[RankProcess] = []
    try:
        for number, pause_s in enumerate(pauses_s):
            words = (address, str(number), str(pause_s))
            started.append(RankProcess(RANK, *words, environment={"EMLIO_JOB": "run-7"}))
        for process in started:
            assert process.line(0) is True
        yield started
    finally:
        for process in started:
            process.kill()


def test_a_rank_that_takes_little_and_a_killed_daemon_are_shown_while_it_happens(large: Path, tmp_path: Path) -> None:
    with (
        DaemonProcess({"large": large}, *OPTIONS, folder=tmp_path) as daemon,
        DaemonProcess({"large": large}, *OPTIONS, folder=tmp_path) as other,
        ranks(daemon.address("large"), 0.002, 0.5),
    ):
        assert [one["answered"] for one in asked(tmp_path, daemon.peer, other.peer)] == [True, True]
        other.kill()
        found: list[dict[str, Any]] = []

        def named() -> bool:
            found[:] = asked(tmp_path, daemon.peer, other.peer)
            return [[rank["waits_for"] for rank in job["ranks"]][1:] for job in found[0]["jobs"]] == [["rank"]]

        assert settles(named, SOON_S), found
        (job,) = found[0]["jobs"]
        slow = job["ranks"][1]
        assert (job["name"], slow["rank"], slow["waits_for"]) == ("run-7", 1, "rank")
        assert slow["bytes_per_s"] < 1_000_000 < job["ranks"][0]["bytes_per_s"]
        assert not found[1]["answered"]
        assert f"the daemon at {other.peer} does not answer: Connection refused" in found[1]["error"]
        page = status(tmp_path, daemon.peer, other.peer)
    assert page.status == 1
    assert "the rank: no credit" in page.out
    assert f"{other.peer}: no status" in page.out


def test_a_daemon_that_was_stopped_blames_itself_and_no_rank(large: Path, tmp_path: Path) -> None:
    with (
        DaemonProcess({"large": large}, *OPTIONS, "--heartbeat-timeout", "1s", folder=tmp_path) as daemon,
        ranks(daemon.address("large"), 0.01, 0.01) as both,
    ):
        daemon.pause()
        time.sleep(5)
        daemon.send_signal(signal.SIGCONT)
        daemon.wait_for_log("this process stood still for", SOON_S)
        assert settles(lambda: daemon.log.count("began") >= 2 * len(both), SOON_S), "they come again"
        (found,) = asked(tmp_path, daemon.peer)
    kinds = [one["kind"] for one in found["failures"]]
    assert "stood-still" in kinds
    assert "lost" not in kinds


def test_a_rank_that_is_stopped_is_silent_and_then_a_failure(large: Path, tmp_path: Path) -> None:
    with (
        DaemonProcess({"large": large}, *OPTIONS, "--heartbeat-timeout", "2s", folder=tmp_path) as daemon,
        ranks(daemon.address("large"), 0.01, 0.01) as both,
    ):
        words = ("status", daemon.peer, "--json", "--watch", "200ms")
        with RankProcess(COMMAND, *words, environment={"HOME": str(tmp_path)}) as watching:
            assert watching.line(0, SOON_S)["daemons"][0]["answered"]
            both[1].pause()

            def silent() -> bool:
                jobs = [job for line in watching.lines() for job in line["daemons"][0]["jobs"]]
                return any(rank["rank"] == 1 and rank["silent"] for job in jobs for rank in job["ranks"])

            def failed() -> bool:
                failures = [one for line in watching.lines() for one in line["daemons"][0]["failures"]]
                return ("lost", 1, "run-7") in {(one["kind"], one["rank"], one["job"]) for one in failures}

            assert settles(silent, SOON_S)
            assert settles(failed, SOON_S)


def test_it_is_repeated_until_interrupted(daemon: DaemonProcess, tmp_path: Path) -> None:
    words = ("status", f"emlio://{daemon.peer}/small", "--json", "--watch", "200ms")
    with RankProcess(COMMAND, *words, environment={"HOME": str(tmp_path)}) as watching:
        blocks = [watching.line(number, SOON_S)["daemons"][0] for number in range(3)]
        watching.send_signal(signal.SIGINT)
        assert watching.finish(SOON_S) == 130
    assert blocks[0]["up_s"] < blocks[1]["up_s"] < blocks[2]["up_s"]
    assert blocks[2]["over_s"] < blocks[2]["up_s"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("http://store1/x",), "a daemon must be HOST, HOST:PORT or emlio://HOST:PORT/DATASET, got 'http://store1/x'"),
        (("store1:99999",), "a daemon's port must be in [1, 65535]"),
        (("127.0.0.1", "--watch", "store1"), "--watch: must be a duration"),
        (("127.0.0.1", "--over", "1ms"), "--over must be at least 100 ms, got '1ms'"),
        (("127.0.0.1", "--folder", "nowhere"), "which does not exist"),
    ],
    ids=["scheme", "port", "watch", "over", "folder"],
)
def test_what_cannot_be_is_told_in_a_line(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    ended = status(tmp_path, *words)
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err


# ---- the log ----------------------------------------------------------------------------------------------------------


def test_lines_about_a_session_have_its_fields(small: Path, tmp_path: Path) -> None:
    options = {"batch_size": 10, "raw": True, "to": "numpy"}
    with DaemonProcess({"small": small}, "--log", "json", folder=tmp_path) as daemon:
        with EmlioLoader(daemon.address("small"), **loader_arguments(**options)) as loader:
            assert sum(len(batch["record"]) for batch in loader) == 500
        daemon.wait_for_log(" ended: ", SOON_S)
        lines = [json.loads(line) for line in daemon.log.splitlines()]
    (began,) = [line for line in lines if line["message"].endswith(" began")]
    (ended,) = [line for line in lines if " ended: " in line["message"]]
    for line in (began, ended):
        assert (line["dataset"], line["rank"], line["world_size"]) == ("small", 0, 1)
        assert line["client"].endswith(f":{os.getpid()}")
        assert f"session {line['session'] % 1_000_000:06} " in line["message"]
    assert ended["bytes"] >= sum(path.stat().st_size for path in small.glob("*.tfrecord")) - 16 * 500
    assert ended["code"] == ""
    opened = next(line for line in lines if line.get("records") == 500)
    assert (opened["dataset"], opened["shards"]) == ("small", 4)
    assert all(datetime.fromisoformat(line["time"]).tzinfo is not None for line in lines)


# ---- metrics ------------------------------------------------------------------------------------------------------------


def url_of(daemon: DaemonProcess) -> str:
    daemon.wait_for_log("metrics are served at ", SOON_S)
    return daemon.log.partition("metrics are served at ")[2].split()[0]


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=SOON_S) as answer:
        text: str = answer.read().decode()
        return text


def samples(text: str) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(figure) for name, _, figure in lines}


def without_data(text: str) -> list[str]:
    """The families that have a type and no sample."""
    named = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    there = {name.partition("{")[0] for name in samples(text)}
    return [name for name in named if not {name, f"{name}_total", f"{name}_bucket"} & there]


@NEEDS_LIBRARY
def test_every_metric_has_data_during_an_epoch(large: Path, tmp_path: Path) -> None:
    options = {"batch_size": 10, "raw": True, "to": "numpy", "prefetch": "1MiB"}
    with DaemonProcess({"large": large}, *OPTIONS, "--metrics", "127.0.0.1:0", folder=tmp_path) as daemon:
        url = url_of(daemon)
        assert page(url.replace("/metrics", "/readyz")) == "ready\n"
        with (
            EmlioLoader(daemon.address("large"), **loader_arguments(**options)) as loader,
            serve_metrics(loader, "127.0.0.1:0") as server,
        ):
            batches = iter(loader)
            for _ in range(50):
                next(batches)
            texts = page(url), page(server.url)
            for text in texts:
                assert without_data(text) == []
            mine, ours = samples(texts[0]), samples(texts[1])
            assert mine['emlio_daemon_sessions{dataset="large"}'] == 1
            assert mine['emlio_daemon_sent_bytes_total{dataset="large"}'] >= 50 * 10 * 16_000
            assert mine["emlio_daemon_lanes"] >= 1
            assert ours['emlio_loader_records_total{loader="default",rank="0"}'] == 500
            assert ours['emlio_loader_lanes{loader="default",rank="0"}'] >= 1
            counters = {name: figure for name, figure in mine.items() if name.partition("{")[0].endswith("_total")}
            for _ in batches:
                pass
        assert settles(lambda: samples(page(url))['emlio_daemon_sessions{dataset="large"}'] == 0, SOON_S, evenly=True)
        later = samples(page(url))
        assert all(later[name] >= figure for name, figure in counters.items()), "counters never fall"


@NEEDS_LIBRARY
def test_a_real_prometheus_scrapes_both(large: Path, tmp_path: Path) -> None:
    program = os.environ.get("EMLIO_PROMETHEUS") or shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not on PATH, and EMLIO_PROMETHEUS does not say where it is")
    options = {"batch_size": 10, "raw": True, "to": "numpy", "prefetch": "1MiB"}
    with (
        DaemonProcess({"large": large}, *OPTIONS, "--metrics", "127.0.0.1:0", folder=tmp_path) as daemon,
        EmlioLoader(daemon.address("large"), **loader_arguments(**options)) as loader,
        serve_metrics(loader, "127.0.0.1:0") as server,
    ):
        targets = [url.removeprefix("http://").removesuffix("/metrics") for url in (url_of(daemon), server.url)]
        (tmp_path / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
            f"scrape_configs: [{{job_name: emlio, static_configs: [{{targets: {json.dumps(targets)}}}]}}]\n"
        )
        log = tmp_path / "prometheus.log"
        words = [program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb"]
        with log.open("wb") as out:
            scraping = subprocess.Popen([*words, "--web.listen-address=127.0.0.1:0"], stdout=out, stderr=out)
        try:
            batches = iter(loader)
            for _ in range(20):
                next(batches)
            families = {
                line.split()[2]
                for url in (url_of(daemon), server.url)
                for line in page(url).splitlines()
                if line.startswith("# TYPE emlio_")
            }
            assert len(families) > 35

            def unknown() -> list[str]:
                return [
                    name
                    for name in sorted(families)
                    if not _asked(log, f'{{__name__=~"{name.removesuffix("_total")}(_total|_bucket)?"}}')
                ]

            assert settles(lambda: not unknown(), SOON_S), f"{unknown()}\n{log.read_text()[-2000:]}"
            assert len(_asked(log, "emlio_loader_records_total == 200")) == 1
            assert len(_asked(log, 'up{job="emlio"} == 1')) == 2
        finally:
            scraping.kill()
            scraping.wait()


def _asked(log: Path, question: str) -> list[Any]:
    """Return the answer of a Prometheus; nothing while it starts."""
    at = log.read_text().rpartition('Listening on" address=')[2].split()
    if not at or not at[0].startswith("127.0.0.1:"):
        return []
    try:
        url = f"http://{at[0]}/api/v1/query?{urllib.parse.urlencode({'query': question})}"
        with urllib.request.urlopen(url, timeout=SOON_S) as answer:
            return list(json.load(answer)["data"]["result"])
    except urllib.error.URLError:
        return []
