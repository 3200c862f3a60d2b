import os
import re
import shutil
import subprocess

import pytest

from emlio.energy.recording.prometheus import metrics_text
from emlio.energy.recording.tally import Tally
from emlio.energy.values.counter import Event
from emlio.energy.values.domain import Domain, Method
from emlio_testing.energy_series import make_device, make_reading

LABEL = r'[a-z_]+="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"(?P<name>[a-z_]+)\{{(?P<labels>{LABEL}(?:,{LABEL})*)\}} (?P<value>\d+(?:\.\d+)?)")

DEVICES = (
    make_device(),
    make_device("cpu-model", source="model", method=Method.ESTIMATED, error=0.5),
    make_device("GPU-1", Domain.GPU, source="nvml"),
)


def text(node: str = "s1") -> str:
    tally = Tally(DEVICES)
    tally.add(make_reading(0, 0, 0, 0, 0))
    tally.add(make_reading(1, 1, 1_234_000_005, 7, None, events=(Event.WRAPPED, Event.NONE, Event.GAP), missed=3))
    return metrics_text(node, tally)


def samples(of: str) -> dict[str, dict[str, str]]:
    """Name to labels to value, of lines that are samples; every other line must be a comment that Prometheus knows."""
    found: dict[str, dict[str, str]] = {}
    for line in of.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP [a-z_]+ .+|TYPE [a-z_]+ (counter|gauge))", line), line
            continue
        match = SAMPLE.fullmatch(line)
        assert match is not None, line
        assert match["labels"] not in found.setdefault(match["name"], {}), line
        found[match["name"]][match["labels"]] = match["value"]
    return found


def test_joules_are_exact_and_say_what_they_are() -> None:
    joules = samples(text())["emlio_energy_joules_total"]
    assert joules == {
        'node="s1",domain="cpu",device="package-0",source="powercap",method="measured"': "1234.000005",
        'node="s1",domain="cpu",device="cpu-model",source="model",method="estimated"': "0.000007",
    }


def test_a_device_that_cannot_be_read_has_no_joules_and_its_gap_is_counted() -> None:
    found = samples(text())
    assert not [labels for labels in found["emlio_energy_joules_total"] if "GPU-1" in labels]
    assert found["emlio_energy_events_total"]['node="s1",device="GPU-1",event="gap"'] == "1"
    assert found["emlio_energy_events_total"]['node="s1",device="GPU-1",event="reset"'] == "0"
    assert found["emlio_energy_missed_readings_total"] == {'node="s1"': "3"}
    labels = 'node="s1",domain="cpu",device="cpu-model",source="model",method="estimated"'
    assert found["emlio_energy_estimate_error_ratio"] == {labels: "0.5"}


def test_a_family_without_samples_is_left_out() -> None:
    nothing = metrics_text("s1", Tally(()))
    assert "joules" not in nothing
    assert "emlio_energy_readings_total" in samples(nothing)


def test_a_name_cannot_break_out_of_its_label() -> None:
    found = samples(text('a"b\\c\nd} 1'))
    (labels,) = found["emlio_energy_readings_total"]
    assert labels == 'node="a\\"b\\\\c\\nd} 1"'


def test_prometheus_finds_nothing_amiss() -> None:
    program = os.environ.get("EMLIO_PROMTOOL") or shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not on PATH, and EMLIO_PROMTOOL does not say where it is")
    for shown in (text(), text('a"b\\c\nd} 1'), metrics_text("s1", Tally(()))):
        judged = subprocess.run(
            [program, "check", "metrics", "--extended"], input=shown, capture_output=True, text=True, check=False
        )
        assert (judged.returncode, judged.stderr) == (0, "")
