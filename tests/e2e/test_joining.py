"""A thousand ranks that join a daemon with twenty thousand shards, beside a job that runs.

Covers: the daemon's processor time, and that the job that runs is answered meanwhile. Does not cover: streams
(test_many_ranks).
"""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess

_CROWD = Path(__file__).with_name("join_crowd.py")
_SECONDS_FOR_ALL, _PONG_WITHIN_S = 15.0, 1.0


def _start(stack: ExitStack, *words: object) -> "subprocess.Popen[str]":
    words = (sys.executable, str(_CROWD), *map(str, words))
    process = stack.enter_context(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    stack.callback(process.kill)
    return process


def _join(folder: Path, tmp_path: Path, ranks: int, processes: int) -> tuple[float, float]:
    """The daemon's processor time for so many ranks that join, and the longest wait for a pong, in seconds."""
    share = ranks // processes
    options = ("--heartbeat-timeout", "120s")
    with DaemonProcess({"many": folder}, *options, folder=tmp_path) as daemon, ExitStack() as stack:
        pings = _start(stack, "ping", daemon.endpoint)
        assert pings.stdout is not None
        assert pings.stdout.readline() == "ready\n"
        before = sum(psutil.Process(daemon.pid).cpu_times()[:2])
        crowd = [_start(stack, "join", daemon.endpoint, first, share, ranks) for first in range(0, ranks, share)]
        assert [process.wait(240) for process in crowd] == [0] * processes
        used = sum(psutil.Process(daemon.pid).cpu_times()[:2]) - before
        said, _ = pings.communicate("", timeout=60)
        assert "Traceback" not in daemon.log
        return used, float(json.loads(said))


def test_ranks_that_join_at_once_are_all_let_in(tmp_path: Path) -> None:
    make_dataset(tmp_path / "many", records=600, shards=600)
    _join(tmp_path / "many", tmp_path, 64, 2)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_thousand_ranks_join_in_seconds_of_the_daemon_s_time_and_others_get_their_pongs(tmp_path: Path) -> None:
    make_dataset(tmp_path / "many", records=20_000, shards=20_000, mapped=False)
    used_s, longest_s = _join(tmp_path / "many", tmp_path, 1024, 4)
    assert used_s <= _SECONDS_FOR_ALL
    assert longest_s <= _PONG_WITHIN_S
