"""`emlio energy probe` as people use it, honest on whatever machine this is.

Covers: what they print and how they end, on this machine and beside a tree that a host exports. Does not
cover: each source (unit tests).
"""

import json
from pathlib import Path
from typing import Any

import pytest

from emlio_testing.commands import Ended, run_emlio

DEADLINE_S = 120


def energy(*words: str, home: Path) -> Ended:
    return run_emlio("energy", *words, home=home, timeout_s=DEADLINE_S)


def document(*words: str, home: Path) -> tuple[int, dict[str, Any]]:
    ended = energy("probe", "--json", *words, home=home)
    return ended.status, json.loads(ended.out)


def test_the_machine_says_what_it_can_measure_and_calls_the_rest_an_estimate(tmp_path: Path) -> None:
    """On bare metal with counters, in a virtual machine without: what it says fits what it lists."""
    status, found = document(home=tmp_path)
    live = [one for one in found["candidates"] if one["state"] == "live"]
    assert status == (0 if live else 3)
    assert found["measured"] is bool(live)
    assert {one["source"] for one in found["candidates"]} == {"powercap", "perf", "hwmon", "nvml"}
    recorded = found["recorded"]
    assert {one["name"] for one in recorded if one["method"] != "estimated"} == {one["name"] for one in live}
    for one in recorded:
        assert (one["error"] is None) is (one["method"] != "estimated")
        assert (one["source"] == "model") is (one["method"] == "estimated")
    assert {"cpu", "dram"} <= {one["domain"] for one in recorded}
    for one in found["candidates"]:
        assert one["detail"] or one["state"] == "live", one


def test_the_table_refuses_a_measured_figure_where_there_is_none(tmp_path: Path) -> None:
    ended = energy("probe", "--cpu-watts", "5:25", home=tmp_path)
    assert ended.out.startswith("source ")
    if ended.status == 0:
        assert "energy cannot be measured" not in ended.out
    else:
        assert ended.status == 3
        assert "energy cannot be measured" in ended.out
        assert "from model, estimated ±50%: 5.0 to 25.0 W, watts that were given" in ended.out


def test_a_calibration_at_its_usual_place_is_used_and_a_broken_one_told(tmp_path: Path) -> None:
    kept = tmp_path / ".config/emlio/energy.toml"
    kept.parent.mkdir(parents=True)
    kept.write_text(
        'processor = "Another"\ncores = 2\nidle_watts = 10.0\nmax_watts = 30.0\nexponent = 0.8\nmemory_bytes = 1000000000\n'
    )
    ended = energy("probe", home=tmp_path)
    assert "calibrated on Another, which is not this one" in ended.out or ended.status == 0
    kept.write_text("processor = \n")
    ended = energy("probe", home=tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert str(kept) in ended.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cpu-watts", "lots"), "must be IDLE:MAX"),
        (("--powercap-root", "/nowhere/at/all"), "must be a directory"),
        (("--calibration", "/nowhere/at/all"), "/nowhere/at/all: cannot be read"),
    ],
)
def test_a_flag_that_cannot_be_is_told(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    ended = energy("probe", *words, home=tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert message in ended.err
