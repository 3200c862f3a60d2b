"""Idle time of processors, from files like /proc/stat."""

import os
import time
from pathlib import Path

import pytest

from emlio.processor import idle_time_ns

S = 1_000_000_000


def test_idle_time_is_the_mean_of_the_processors_that_may_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 10})
    hertz = os.sysconf("SC_CLK_TCK")
    stat = tmp_path / "stat"
    lines = ["cpu  9 9 9 9 9 9 9 9 9 9"]
    lines += [
        f"cpu{number} 1 2 3 {idle * hertz} {wait * hertz} 4 5 6 7 8"
        for number, idle, wait in [(0, 50, 9), (1, 3, 1), (10, 5, 3)]
    ]
    stat.write_text("\n".join([*lines, "intr 1 2", "ctxt 5"]))
    assert idle_time_ns(stat) == 6 * S


@pytest.mark.parametrize("text", ["", "cpu 1 2 3 4 5", "cpu0 1 2 3", "cpu0 a b c d e f", "intr 5"])
def test_what_is_no_such_file_tells_nothing(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    (tmp_path / "stat").write_text(text)
    assert idle_time_ns(tmp_path / "stat") is None
    assert idle_time_ns(tmp_path / "none") is None


def test_this_machine_is_idle_for_no_longer_than_time_passes() -> None:
    before, begun = idle_time_ns(), time.monotonic()
    time.sleep(0.2)
    after, ended = idle_time_ns(), time.monotonic()
    assert before is not None
    assert after is not None
    assert 0 <= after - before <= (ended - begun + 0.1) * S
