import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emlio.cli import main
from emlio.energy.job.document import Report
from emlio.energy.job.job_energy import read_job
from emlio.energy.job.journal import JournalEpoch
from emlio.energy.report.comparison import Comparison, Figure, Measure, compare_jobs, comparison_text
from emlio.energy.values.device import Domain, Method
from emlio.errors import ConfigError
from emlio_testing.energy_jobs import make_epoch, make_job, make_loader, make_storage
from emlio_testing.energy_series import make_device

EPOCHS = (make_epoch(0, 1, 11), make_epoch(1, 12, 20))
MODEL = make_device("cpu-model", source="model", method=Method.ESTIMATED, error=0.5, note="20 to 100 W")
FACTS = {"processor": "Imagined CPU", "cores": 2, "memory_bytes": 16_000_000_000}


def _report(folder: Path) -> Report:
    return read_job([folder]).report


def _compared(tmp_path: Path, **b: Any) -> Comparison:
    """Of a usual job and one that differs in this."""
    a = make_job(tmp_path / "a", epochs=EPOCHS)
    return compare_jobs(_report(a), _report(make_job(tmp_path / "b", **{"epochs": EPOCHS, **b})))


def _measure(found: Comparison, name: str) -> Measure:
    (one,) = [one for one in found.measures if one.name == name]
    return one


def _with(epochs: Sequence[JournalEpoch], **more: Any) -> list[JournalEpoch]:
    return [replace(one, **more) for one in epochs]


def test_a_job_that_draws_half_has_half_of_everything_but_time(tmp_path: Path) -> None:
    found = _compared(tmp_path, watts=[50, 10])
    assert found.differences == ()
    assert found.titles == ("epoch 0", "epoch 1")
    names = ("seconds", "CPU J", "DRAM J", "compute J", "total J", "mean W", "J/sample")
    ratios = {one.name: one.ratios[0] for one in found.measures}
    assert ratios == {name: 1 if name == "seconds" else pytest.approx(0.5) for name in names}


def test_ratios_are_of_the_means_and_of_each_epoch(tmp_path: Path) -> None:
    found = _compared(tmp_path, epochs=[make_epoch(0, 1, 6), make_epoch(1, 12, 20)])
    assert _measure(found, "seconds").ratios == [pytest.approx(13 / 18), 0.5, 1]


def test_other_settings_of_the_loader_are_told_and_no_hindrance(tmp_path: Path) -> None:
    found = _compared(tmp_path, epochs=(), loaders=[(make_loader(shuffle="block"), EPOCHS)])
    assert found.differences == ()
    assert found.remarks == ("differs in shuffle: global and block",)


@pytest.mark.parametrize(
    ("b", "said"),
    [
        (
            {"devices": [make_device(source="perf"), make_device("dram-0", Domain.DRAM)]},
            "cpu measured by perf",
        ),
        ({"devices": [MODEL], "watts": [20]}, "cpu estimated by model (20 to 100 W)"),
        ({"facts": {**FACTS, "processor": "Another"}}, "compute, Another, 2 cores"),
        ({"facts": {**FACTS, "cores": 4}}, "Imagined CPU, 4 cores"),
        ({"epochs": (), "loaders": [(make_loader(dataset="beef"), EPOCHS)]}, "datasets: f00d and beef"),
        ({"epochs": _with(EPOCHS, samples=999)}, "samples of epoch 1: 1,000 and 999"),
        ({"epochs": _with(EPOCHS, storage=(make_storage(25),))}, "storage, unknown processor"),
        ({"epochs": _with(EPOCHS, recording=None)}, "B, epoch 0: its energy is not known"),
        (
            {"devices": [make_device(rated_watts=60), make_device("dram-0", Domain.DRAM)]},
            "B, epoch 0: gpu-1, CPU: cannot be right: 100 W",
        ),
        (
            {"devices": [make_device()], "watts": [100]},
            "parts not counted in epoch 0: none and DRAM of a compute node",
        ),
    ],
)
def test_what_must_not_be_compared_is_told_difference_by_difference(b: Any, said: str, tmp_path: Path) -> None:
    assert any(said in one for one in _compared(tmp_path, **b).differences)


@pytest.mark.parametrize(
    ("b", "said"),
    [
        ({}, None),
        (
            {"node": "gpu-9", "epochs": _with(EPOCHS, file="gpu-9.sqlite")},
            "gpu-9, 16000000000 bytes",
        ),
        ({"facts": {**FACTS, "memory_bytes": 1}}, "gpu-1, 1 bytes"),
        ({"devices": [replace(MODEL, note="60 to 180 W")]}, "(60 to 180 W)"),
    ],
)
def test_estimates_are_compared_on_one_machine_and_by_one_model_only(b: Any, said: str | None, tmp_path: Path) -> None:
    usual = {"devices": [MODEL], "watts": [50], "epochs": EPOCHS}
    a = _report(make_job(tmp_path / "a", **usual))
    found = compare_jobs(a, _report(make_job(tmp_path / "b", **{**usual, **b})))
    assert found.estimated
    assert any(said in one for one in found.differences) if said is not None else found.differences == ()


def test_measured_figures_may_be_of_two_machines_of_a_kind(tmp_path: Path) -> None:
    assert _compared(tmp_path, node="gpu-9", epochs=_with(EPOCHS, file="gpu-9.sqlite")).differences == ()


def test_epochs_that_are_not_whole_or_that_one_job_lacks_are_left_out_by_name(tmp_path: Path) -> None:
    epochs = [make_epoch(0, 1, 11), make_epoch(1, 12, 20, whole=False), make_epoch(2, 21, 22)]
    found = _compared(tmp_path, epochs=epochs)
    assert found.titles == ("epoch 0",)
    assert found.remarks == (
        "left out of A, not in the other job: epoch 1",
        "left out of B, incomplete: epoch 1",
        "left out of B, not in the other job: epoch 2",
    )


def test_jobs_without_an_epoch_in_common_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="complete epochs in common to be compared, got epoch 0, epoch 1 and epoch 7"):
        _compared(tmp_path, epochs=[make_epoch(7, 1, 2)])


def test_a_figure_that_only_one_has_is_left_out(tmp_path: Path) -> None:
    found = _compared(tmp_path, devices=[make_device()], watts=[100])
    assert "DRAM J" not in [one.name for one in found.measures]


def test_the_table_has_means_and_ratios_and_marks_estimates(tmp_path: Path) -> None:
    usual: dict[str, Any] = {"devices": [MODEL], "epochs": EPOCHS}
    a = _report(make_job(tmp_path / "a", **usual, watts=[50]))
    b = _report(make_job(tmp_path / "b", **usual, watts=[25]))
    text = comparison_text(compare_jobs(a, b), "one", "other")
    assert text.startswith("A: one\nB: other\n\nin the mean of 2 epochs\n")
    rows = {line[:13].strip(): line[13:].split() for line in text.splitlines()}
    assert rows["total J"] == ["~450.0", "±50%", "~225.0", "±50%", "0.5000", "0.5000", "0.5000", "no"]
    assert rows["seconds"][:2] == ["9.000", "9.000"]


@pytest.mark.parametrize(
    ("a", "b", "differs"),
    [
        ([(10, 0)], [(9, 0)], None),
        # That two epochs of equal jobs differ in one direction is as likely as not.
        ([(10, 0), (10, 0)], [(9, 0), (8, 0)], False),
        ([(10, 0), (10, 0)], [(11, 0), (12, 0)], False),
        ([(10, 0), (10, 0)], [(8.9, 0), (9, 0)], True),
        ([(10, 0)] * 4, [(9, 0), (8, 0), (9, 0), (8, 0)], True),
        ([(10, 0)] * 4, [(9.99, 0), (9.9, 0), (9.98, 0), (8, 0)], False),
        ([(0, 0), (0, 0)], [(1, 0), (2, 0)], False),
        ([(10, 0), (10, 0)], [(9, 0), (11, 0)], False),
        ([(10, 0), (20, 0)], [(9, 0), (18.1, 0)], True),
        ([(10, 0), (10, 0)], [(10, 0), (10, 0)], False),
        ([(10, 1)], [(8.5, 1)], False),
        ([(10, 1)], [(7.9, 1)], True),
        ([(10, 1), (10, 1)], [(7, 1), (8.5, 1)], False),
        ([], [], None),
    ],
)
def test_two_jobs_differ_only_where_their_errors_do_not_overlap(
    a: Sequence[tuple[float, float]], b: Sequence[tuple[float, float]], differs: bool | None
) -> None:
    left, right = (tuple(Figure(value=value, error=error) for value, error in side) for side in (a, b))
    assert Measure(name="J", a=left, b=right).differs is differs


@pytest.mark.parametrize("epochs", [2, 3, 5, 10])
def test_equal_jobs_seldom_differ(epochs: int) -> None:
    draw = random.Random(epochs)
    found = [
        Measure(
            name="J",
            a=tuple(Figure(value=draw.gauss(100, 1)) for _ in range(epochs)),
            b=tuple(Figure(value=draw.gauss(100, 1)) for _ in range(epochs)),
        ).differs
        for _ in range(400)
    ]
    assert sum(map(bool, found)) <= 0.08 * len(found)


def test_large_energies_are_compared_in_kilojoules(tmp_path: Path) -> None:
    found = _compared(tmp_path, watts=[1500, 10])
    assert [one.name for one in found.measures][1:3] == ["CPU kJ", "DRAM kJ"]


# ---- the command ----------------------------------------------------------------------------------------------------


def test_the_command_refuses_with_all_differences_and_prints_with_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = make_job(tmp_path / "a", epochs=EPOCHS)
    b = make_job(tmp_path / "b", epochs=_with(EPOCHS, samples=999), facts={**FACTS, "cores": 4})
    words = ["energy", "report", str(b), "--against", str(a)]
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "not comparable" in said.err
    assert "samples of epoch 0: 1,000 and 999" in said.err
    assert "4 cores" in said.err
    assert main([*words, "--force"]) == 0
    said = capsys.readouterr()
    assert "J/sample" in said.out
    assert said.out.index("These jobs are not comparable") < said.out.index("in the mean of 2 epochs")


def test_the_command_takes_documents_as_well_as_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = make_job(tmp_path / "a", epochs=EPOCHS)
    assert main(["energy", "report", str(a), "--json"]) == 0
    document = tmp_path / "report.json"
    document.write_text(capsys.readouterr().out)
    assert main(["energy", "report", str(a), "--against", str(document)]) == 0
    assert "in the mean of 2 epochs" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 99, "epochs": [], "job": {}}'])
def test_what_is_no_report_is_refused_with_its_name(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    assert main(["energy", "report", str(path), "--against", str(path)]) == 2
    assert str(path) in capsys.readouterr().err
