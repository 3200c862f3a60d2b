"""Times of processors, from files like /proc/stat."""

import os
import time
from pathlib import Path

import pytest

from emlio.processor import ProcessorTimes, processor_times


def _line(name: str, idle: int, wait: int, busy: int) -> str:
    return f"{name} {busy} 0 0 {idle} {wait} 0 0 0 77 88"  # the last two are contained in the first


def test_times_are_those_of_the_processors_that_may_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 10})
    lines = [_line("cpu", 99, 99, 99), _line("cpu0", 50, 9, 8), _line("cpu1", 3, 1, 20), _line("cpu10", 5, 3, 30)]
    stat = tmp_path / "stat"
    stat.write_text("\n".join([*lines, "intr 1 2", "ctxt 5", ""]))
    assert processor_times(stat) == ProcessorTimes(idle=12, all=62)


@pytest.mark.parametrize(
    "text", ["", "\n", "cpu 1 2 3 4 5", "cpu0 1 2 3", "cpu0 a b c d e f", "intr 5", "cpu0 0 0 0 0 0 0 0 0 0 0"]
)
def test_what_is_no_such_file_tells_nothing(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    (tmp_path / "stat").write_text(text)
    assert processor_times(tmp_path / "stat") is None
    assert processor_times(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("later", "share"),
    [
        ((150, 300), 0.25),
        ((100, 200), 0.0),
        ((200, 200), 1.0),
        ((100, 100), None),  # no time has passed
        ((90, 200), None),  # another set of processors, or counters that began again
        ((300, 200), None),
        ((50, 50), None),
    ],
)
def test_the_idle_share_is_known_only_where_both_times_are_of_the_same_processors(
    later: tuple[int, int], share: float | None
) -> None:
    assert ProcessorTimes(*later).idle_since(ProcessorTimes(100, 100)) == share


def test_this_machine_tells() -> None:
    before = processor_times()
    time.sleep(0.2)
    after = processor_times()
    assert before is not None
    assert after is not None
    share = after.idle_since(before)
    assert share is not None
    assert 0 <= share <= 1
