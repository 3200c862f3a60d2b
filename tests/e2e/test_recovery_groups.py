"""A daemon that stays away and that nobody can replace: one error in time, alone and in a process group of PyTorch.

Covers: what the error and the log before it say, when the processes end. Does not cover: a daemon that comes back
(test_recovery).
"""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emlio.receiver.torch_adapter import torch_is_installed
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess, RankProcess, settles
from emlio_testing.rank_groups import TORCH_ENVIRONMENT, finish_all, started_group

TIMEOUT_S = 4.0
BUSY_S = 3.0
"""Added to what is wanted: a machine that runs other tests is no place to measure; emlio-bench recovery does."""

START_S = 120.0  # importing torch takes seconds, with other tests beside it many
WORLD = 2


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    make_dataset(tmp_path / "numbers", records=12_000, shards=6, payload=2000)
    options = ("--message-size", "64KiB", "--memory", "8MiB")
    with DaemonProcess({"numbers": tmp_path / "numbers"}, *options, folder=tmp_path) as process:
        yield process


LOADER = """
import json, logging, sys, time
from emlio import EmlioLoader, Recovery

logging.basicConfig(format="%(levelname)s %(message)s")

def loader():
    return EmlioLoader(sys.argv[1], batch_size=50, raw=True, to="numpy", prefetch="1MiB", recovery=Recovery(timeout=sys.argv[2]))
"""

ALONE = (
    LOADER
    + """
with loader() as batches:
    count = 0
    while True:
        for batch in batches:
            count += 1
            if count == 300:
                print("true", flush=True)
"""
)


def check_names_all(text: str, peer: str) -> None:
    """Daemon, shards, position, and what was heard of it last."""
    named = re.escape(peer)
    assert re.search(rf"(daemon {named} of|no other daemon sends) train-0000\d-of-00006", text)
    assert re.search(r"batch (is )?\d+ of epoch \d+", text)
    silent = r"must .* within \S+ \S+, (nothing|no answer) came for"
    heard = rf"was lost \(state: streaming\)|{silent}"
    assert re.search(rf"the daemon at {named} ({heard})", text)


def test_a_daemon_that_nobody_can_replace_and_that_stays_away_becomes_one_error_within_the_timeout(
    daemon: DaemonProcess,
) -> None:
    with RankProcess(ALONE, daemon.address("numbers"), f"{TIMEOUT_S}s") as rank:
        assert rank.line(0) is True
        daemon.kill()
        killed = time.monotonic()
        assert rank.finish() == 1
        assert TIMEOUT_S - 0.5 < time.monotonic() - killed < TIMEOUT_S + 1.0 + BUSY_S
        lines = rank.log.splitlines()
    errors = [line for line in lines if line.startswith("emlio.errors.")]
    assert len(errors) == 1
    assert lines[-1] == errors[0]
    assert rank.log.count("Traceback") == 1
    assert errors[0].startswith("emlio.errors.PeerLostError: ")
    check_names_all(errors[0], daemon.peer)
    # Said before, while there was still time to do something about it.
    before = [line for line in lines[: lines.index("Traceback (most recent call last):")] if line.startswith("WARNING")]
    assert any(re.search(r"waiting for 2 s: batch \d+ .* train-0000\d-of-00006", line) for line in before), before
    assert any(f"{daemon.peer} is lost" in line and "no other daemon holds train-0000" in line for line in before), (
        before
    )


GROUP = (
    LOADER
    + """
import os, torch
import torch.distributed as group

group.init_process_group("gloo")

def say(what):
    with open(f"{sys.argv[3]}/said-{group.get_rank()}", "a") as file:
        print(json.dumps(what), file=file)

batches, count = loader(), 0
try:
    while True:
        for batch in batches:
            count += 1
            group.all_reduce(torch.ones(100))
            if count == 100:
                say(count)
except Exception as error:
    say([type(error).__name__, str(error), time.monotonic()])
    raise
"""
)


def said(folder: Path, rank: int) -> list[Any]:
    path = folder / f"said-{rank}"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


@pytest.mark.skipif(not torch_is_installed(), reason="torch is not installed")
@pytest.mark.usefixtures("torch_starts")
def test_a_process_group_ends_with_the_error_and_does_not_hang(daemon: DaemonProcess, tmp_path: Path) -> None:
    script = tmp_path / "group.py"
    script.write_text(GROUP, encoding="utf-8")
    environment = {**TORCH_ENVIRONMENT, "GLOO_SOCKET_IFNAME": "lo"}
    words = (daemon.address("numbers"), f"{TIMEOUT_S}s", tmp_path)
    with started_group(script, *words, ranks=WORLD, environment=environment) as processes:
        reading = settles(lambda: all(said(tmp_path, rank) for rank in range(WORLD)), START_S)
        assert reading, "\n".join(process.log for process in processes)
        daemon.kill()
        killed = time.monotonic()
        # torchrun looks after its ranks every now and then, and gives those that are left time to end.
        assert finish_all(processes, TIMEOUT_S + 30.0) == [1] * len(processes)
    ends = [line for rank in range(WORLD) for line in said(tmp_path, rank)[1:]]
    named = [text for kind, text, _ in ends if kind == "PeerLostError"]
    assert named, ends
    for text in named:
        check_names_all(text, daemon.peer)
    # A rank that had a batch more was in the group's sum, and that ended when the other rank did.
    assert {kind for kind, _, _ in ends} <= {"PeerLostError", "RuntimeError", "DistBackendError"}
    assert all(ended - killed < TIMEOUT_S + 1.0 + 2 * BUSY_S for _, _, ended in ends)
