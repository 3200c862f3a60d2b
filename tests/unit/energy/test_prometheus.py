import os
import shutil
import subprocess

import pytest

from emlio.energy.recording.prometheus import energy_families
from emlio.energy.recording.tally import Tally
from emlio.energy.values.counter import Event
from emlio.energy.values.device import Domain, Method
from emlio.metrics.library import metrics_text
from emlio_testing.energy_series import make_device, make_reading

pytest.importorskip("prometheus_client")
DEVICES = (
    make_device(),
    make_device("cpu-model", source="model", method=Method.ESTIMATED, error=0.5),
    make_device("GPU-1", Domain.GPU, source="nvml"),
)
ODD = 'a"b\\c\nd} 1'


def text(node: str = "s1") -> str:
    tally = Tally(DEVICES)
    tally.add(make_reading(0, 0, 0, 0, 0))
    tally.add(make_reading(1, 1, 1_234_000_005, 7, None, events=(Event.WRAPPED, Event.NONE, Event.GAP), missed=3))
    return metrics_text(lambda: energy_families(node, tally))


def samples(node: str = "s1") -> dict[str, dict[tuple[str, ...], float]]:
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text(node)):
        for name, labels, value, *_ in family.samples:
            assert labels.pop("node") == node
            found.setdefault(name, {})[tuple(sorted(labels.values()))] = value
    return found


def test_joules_are_exact_and_what_cannot_be_read_has_none() -> None:
    found = samples()
    assert found["emlio_energy_joules_total"] == {
        ("cpu", "measured", "package-0", "powercap"): 1234.000005,
        ("cpu", "cpu-model", "estimated", "model"): 0.000007,
    }
    assert found["emlio_energy_estimate_error_ratio"] == {("cpu", "cpu-model", "estimated", "model"): 0.5}
    assert found["emlio_energy_events_total"]["GPU-1", "gap"] == 1
    assert found["emlio_energy_events_total"]["GPU-1", "reset"] == 0
    assert found["emlio_energy_missed_readings_total"] == {(): 3}
    assert samples(ODD) == found, "a name cannot break out of its label"


def test_a_family_without_samples_is_left_out() -> None:
    assert [family.name for family in energy_families("s1", Tally(()))] == [
        "emlio_energy_readings",
        "emlio_energy_missed_readings",
    ]


def test_prometheus_finds_nothing_amiss() -> None:
    program = os.environ.get("EMLIO_PROMTOOL") or shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not on PATH, and EMLIO_PROMTOOL does not say where it is")
    for told in (text(), text(ODD)):
        judged = subprocess.run(
            [program, "check", "metrics", "--extended"], input=told, capture_output=True, text=True, check=False
        )
        assert (judged.returncode, judged.stderr) == (0, "")
