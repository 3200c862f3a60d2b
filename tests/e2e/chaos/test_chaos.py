"""A few runs of scripts/chaos with fixed seeds.

Covers: that they are good, within a minute. Does not cover: the many runs that find what is rare (scripts/chaos --seeds 200).
"""

import os
from pathlib import Path

import pytest

from emlio.testing.processes import run_python

ROOT = Path(__file__).parents[3]
SEEDS = (13, 30, 49, 53)


@pytest.mark.timeout(600)  # they take less than a minute; on a machine whose cores are busy with other things, more
def test_jobs_get_every_record_once_in_order_through_faults(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    seeds = [word for seed in SEEDS for word in ("--seed", seed)]
    words = ("-m", "tests.e2e.chaos.cli", *seeds, "--logs", tmp_path)
    said = run_python(*words, timeout_s=570.0, environment={"PYTHONPATH": path})
    assert [seed for seed in SEEDS if f"seed {seed}: good" not in said] == []
    assert f"{len(SEEDS)} runs of 20,000 records" in said
