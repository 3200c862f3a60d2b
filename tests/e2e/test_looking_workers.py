"""`EmlioDataset` as the dataset of PyTorch's DataLoader, in worker processes that are forked and spawned.

Does not cover: what is in the samples (tests/integration/reading/test_single_records.py).
"""

import importlib.util
from pathlib import Path

import pytest

from emlio_testing.commands import run_emlio
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess
from emlio_testing.rank_groups import TORCH_ENVIRONMENT, run_script

_SCRIPT = """
import sys
from torch.utils.data import DataLoader
from emlio import EmlioDataset

def number(sample):
    return int.from_bytes(sample["record"][:8], "little")

if __name__ == "__main__":
    dataset = EmlioDataset(sys.argv[1], raw=True, transform=number)
    before = dataset[5]  # connected before the workers start
    loader = DataLoader(
        dataset, batch_size=8, shuffle=True, num_workers=2, multiprocessing_context=sys.argv[2], timeout=30
    )
    seen = [n for batch in loader for n in batch.tolist()]
    print("whole", before == 5 and sorted(seen) == list(range(len(dataset))), dataset[6] == 6)
"""

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="not installed: torch"),
    pytest.mark.usefixtures("torch_starts"),
]


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_each_record_comes_once_through_worker_processes(tmp_path: Path, start: str) -> None:
    make_dataset(tmp_path / "x", records=50, shards=3)
    script = tmp_path / "look.py"
    script.write_text(_SCRIPT, encoding="utf-8")
    with DaemonProcess({"x": tmp_path / "x"}, folder=tmp_path) as daemon:
        said = run_script(script, daemon.address("x"), start, timeout_s=60.0, environment=TORCH_ENVIRONMENT)
    assert "whole True True" in said


def test_workers_that_end_are_no_failures(tmp_path: Path) -> None:
    make_dataset(tmp_path / "x", records=50, shards=3)
    script = tmp_path / "look.py"
    script.write_text(_SCRIPT, encoding="utf-8")
    with DaemonProcess({"x": tmp_path / "x"}, "--heartbeat-timeout", "1s", folder=tmp_path) as daemon:
        run_script(script, daemon.address("x"), "fork", timeout_s=60.0, environment=TORCH_ENVIRONMENT)
        daemon.wait_for_log("the rank was silent for", 30.0)
        page = run_emlio("status", daemon.peer, "--over", "100ms", home=tmp_path, timeout_s=60.0)
    assert page.status == 0
    assert "0 sessions" in page.out
    assert "failed lately" not in page.out
