"""A storage node and a training node with 30 ms between them: the report of two epochs, and that its parts add up."""

import json
from pathlib import Path

import pytest

from emlio.energy.job.job_energy import read_job
from emlio.energy.report.text import job_text
from emlio_bench.costs.energy import COMPUTE, STORAGE, why_no_hosts
from emlio_bench.costs.run import run_costs
from emlio_bench.costs.settings import CostsSettings
from emlio_bench.harness.report import missed_bounds
from emlio_bench.link.own_time import MOST_OWN_NS


@pytest.fixture(scope="module", autouse=True)
def hosts_are_possible() -> None:
    reason = why_no_hosts()
    if reason is not None:
        pytest.skip(reason)


def test_two_epochs_over_a_long_link_have_a_report_whose_stages_add_up_and_a_column_for_storage(tmp_path: Path) -> None:
    out = tmp_path / "job"
    results = run_costs(CostsSettings(only=("energy",), quick=True, cpu_watts="60:180", out=out))
    assert missed_bounds(results.figures) == ()
    bounds = next(figure.values for figure in results.figures if figure.name == "its bound")
    least_ns = 15_000_000 - MOST_OWN_NS // 2  # half of a round trip
    assert all(bound * 1e6 >= least_ns for bound in bounds)

    epochs = json.loads((out / "report.json").read_text())["epochs"]
    assert [one["title"] for one in epochs] == ["epoch 0", "epoch 1"]
    for epoch in epochs:
        compute, storage = epoch["nodes"]
        assert (compute["node"], storage["node"]) == (COMPUTE, STORAGE)
        assert storage["clock_error_ns"] >= least_ns
        *rows, whole = epoch["stages"]["blocked"]
        assert sum(round(row["total"]["joules"] * 1e6) for row in rows) == round(whole["total"]["joules"] * 1e6)
        assert round(whole["total"]["joules"] * 1e6) == round(compute["total"]["joules"] * 1e6)
        assert [row["storage"] is not None for row in (*rows, whole)] == [False, False, True, True]
        assert {node["total"]["method"] for node in epoch["nodes"]} == {"estimated"}

    job = read_job([out])
    assert "~: an estimate, not a measurement" in job_text(job.report)
    assert job_text(job.report, in_full=True) in (out / "report.txt").read_text()
