"""A few runs of scripts/chaos mounts with fixed seeds. Many find what is rare: scripts/chaos mounts --seeds 500."""

import os
from itertools import chain
from pathlib import Path

import pytest

from emlio_testing.mounted_trees import mount_is_refused
from emlio_testing.processes import run_python
from tests.e2e.chaos.mounts.draw import Kind, draw

pytestmark = pytest.mark.skipif(bool(mount_is_refused()), reason=mount_is_refused())

ROOT = Path(__file__).parents[4]
SEEDS = (25, 26, 37, 47)


@pytest.mark.timeout(600)  # half a minute; on a machine whose cores are busy with other things, more
@pytest.mark.parametrize(
    "seeds", [pytest.param(SEEDS, id="some"), pytest.param(range(100, 160), id="many", marks=pytest.mark.slow)]
)
def test_no_byte_is_wrong_and_no_process_stays_through_faults(tmp_path: Path, seeds: tuple[int, ...]) -> None:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    chosen = chain.from_iterable(("--seed", seed) for seed in seeds)
    words = ("-m", "tests.e2e.chaos.mounts.cli", *chosen, "--jobs", 2, "--logs", tmp_path)
    said = run_python(*words, timeout_s=570.0, environment={"PYTHONPATH": path})
    assert [seed for seed in seeds if f"seed {seed}: good" not in said] == []


def test_a_seed_draws_the_same_and_all_kinds_are_drawn() -> None:
    drawn = [draw(seed) for seed in range(300)]
    assert drawn == [draw(seed) for seed in range(300)]
    assert {fault.kind for scenario in drawn for fault in scenario.faults} == set(Kind)
    assert {fault.kind for seed in range(50) for fault in draw(seed, (Kind.PRESSURE,)).faults} == {Kind.PRESSURE}
