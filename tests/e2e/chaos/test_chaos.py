"""A few runs of scripts/chaos with fixed seeds.

Covers: that they are good, within a minute. Does not cover: the many runs that find what is rare (scripts/chaos --seeds 200).
"""

import os
from pathlib import Path

import pytest

from emlio.testing.processes import run_python

ROOT = Path(__file__).parents[3]
SEEDS = (3, 5, 7, 9, 10, 13)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_gets_every_record_once_in_order_through_faults(seed: int, tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    words = ("-m", "tests.e2e.chaos.cli", "--seed", seed, "--logs", tmp_path)
    said = run_python(*words, timeout_s=120.0, environment={"PYTHONPATH": path})
    assert f"seed {seed}: good" in said
    assert "1 runs of 20,000 records" in said
