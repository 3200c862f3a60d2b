"""A part of `python -m tests.e2e.closings`, and longer courses of it.

Covers: that loaders which close in mid-flow get every record unchanged and leave a daemon that lives and keeps nothing, in the
clear and sealed; the same where processes are killed or the daemon ends. Does not cover: links other than loopback.
"""

import os
from pathlib import Path

import pytest

from emlio_testing.processes import run_python

ROOT = Path(__file__).parents[3]


def _run(*words: object, timeout_s: float) -> str:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return run_python("-m", "tests.e2e.closings", *words, timeout_s=timeout_s, environment={"PYTHONPATH": path})


@pytest.mark.parametrize("protection", [pytest.param("clear", marks=pytest.mark.slow), "sealed"])
@pytest.mark.timeout(300)  # it takes a few seconds; on a machine whose cores are busy with other things, more
def test_loaders_close_in_mid_flow(protection: str) -> None:
    words = ("--closings", 20, "--protection", protection, "--count", 4000, "--loaders", 2)
    assert "good: close, " in _run(*words, timeout_s=250.0)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("protection", ["clear", "sealed"])
def test_two_thousand_closings(protection: str) -> None:
    assert "good: close, " in _run("--closings", 2000, "--protection", protection, timeout_s=1100.0)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("flag", "closings"), [("--kill", 500), ("--daemon-term", 50), ("--daemon-kill", 50)])
def test_processes_that_end_in_mid_flow(flag: str, closings: int) -> None:
    assert f"good: {flag[2:]}, " in _run("--closings", closings, flag, timeout_s=800.0)
