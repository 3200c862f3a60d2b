"""A job of one release goes on while its daemons are replaced, one after the other, by those of another release.

The other release is the oldest commit that speaks the same protocol. It needs the history of the repository, and is skipped in
a copy without.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from emlio_testing.datasets import make_dataset
from emlio_testing.processes import settles
from emlio_testing.proxy import free_ports

ROOT = Path(__file__).parents[2]
OLD = "fac01e2d"
RECORDS, BATCH, EPOCHS = 3000, 10, 4
SOON_S = 30.0

_JOB = """
import json, sys, time
from emlio import EmlioLoader

gaps, ids, last = [], [], None
with EmlioLoader(sys.argv[1], batch_size=int(sys.argv[2]), raw=True, ids=True, to="numpy", epochs=int(sys.argv[3])) as loader:
    for epoch in range(int(sys.argv[3])):
        seen = []
        for batch in loader:
            now = time.monotonic()
            gaps.append(now - last if last is not None else 0.0)
            seen += [int(one) for one in batch["__id__"]]
            time.sleep(0.02)
            last = time.monotonic()
            if len(gaps) % 10 == 0:
                print(json.dumps({"batches": len(gaps)}), flush=True)
        ids.append(seen)
print(json.dumps({"gap": max(gaps[1:]), "ids": ids}), flush=True)
"""


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """This release and the older one, each as a folder for PYTHONPATH."""
    if subprocess.run(["git", "cat-file", "-e", OLD], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip(f"no history: commit {OLD} is not in this copy")
    old = tmp_path_factory.mktemp("old")
    archive = subprocess.run(["git", "archive", OLD], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(old)], input=archive, check=True)
    if shutil.which("gcc") is not None:
        words = ["gcc", "-std=c11", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden"]
        sources = sorted(str(path) for path in (old / "native").glob("*.c"))
        subprocess.run([*words, "-o", str(old / "emlio/libemlio_native.so"), *sources], check=True)
    return {"old": old, "new": ROOT}


def _start(tree: Path, *words: str, **options: object) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EMLIO_")}
    environment |= {"PYTHONPATH": str(tree), "EMLIO_CACHE": ""}
    return subprocess.Popen([sys.executable, *words], env=environment, text=True, **options)  # type: ignore[call-overload, no-any-return]


@contextmanager
def _daemon(tree: Path, folder: Path, port: int, ready: Path) -> Iterator[subprocess.Popen[str]]:
    ready.unlink(missing_ok=True)
    words = ["-m", "emlio.daemon.cli", "--data", f"numbers={folder}", "--bind", f"tcp://127.0.0.1:{port}"]
    daemon = _start(tree, *words, "--ready-file", str(ready), stderr=subprocess.DEVNULL)
    try:
        assert settles(ready.exists, SOON_S)
        yield daemon
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(SOON_S)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("job", "before", "after"), [("new", "old", "new"), ("old", "old", "new"), ("new", "new", "old")]
)
def test_a_job_goes_on_while_its_daemons_are_upgraded_one_by_one(
    job: str, before: str, after: str, trees: dict[str, Path], tmp_path: Path
) -> None:
    make_dataset(tmp_path / "numbers", records=RECORDS, shards=4, payload=2000)
    first, second = free_ports(2, "127.0.0.1")[0], free_ports(2, "127.0.0.1")[0] + 10
    with ExitStack() as stack:
        running = {port: stack.enter_context(ExitStack()) for port in (first, second)}
        for port, of in running.items():
            of.enter_context(_daemon(trees[before], tmp_path / "numbers", port, tmp_path / f"{port}.json"))
        address = f"emlio://127.0.0.1:{first},127.0.0.1:{second}/numbers"
        words = ["-c", _JOB, address, str(BATCH), str(EPOCHS)]
        training = stack.enter_context(_start(trees[job], *words, stdout=subprocess.PIPE))
        stack.callback(training.kill)
        assert training.stdout is not None
        told = iter(training.stdout)
        for port, of in running.items():
            for _ in range(8):  # 80 batches
                assert "batches" in json.loads(next(told))
            of.close()  # drains
            time.sleep(0.5)
            of.enter_context(_daemon(trees[after], tmp_path / "numbers", port, tmp_path / f"{port}.json"))
        *_, end = told
        found = json.loads(end)
        assert training.wait(SOON_S) == 0
    assert [sorted(seen) for seen in found["ids"]] == [list(range(RECORDS))] * EPOCHS
    assert found["gap"] <= 1.0, "the longest pause between two batches, in seconds"
