"""The report of one job, whose figures must stay as they are: two training nodes and a storage node."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from emlio.energy.job.job_energy import read_job
from emlio.energy.job.note import JobNote
from emlio.energy.report.text import job_text
from emlio.energy.values.device import Domain, Method
from emlio_testing.energy_jobs import make_epoch, make_job, make_loader, make_storage
from emlio_testing.energy_series import SECOND_NS, make_device

_GOLDEN = Path(__file__).parents[2] / "golden"
_NOTE = JobNote(
    command=("python", "train.py"),
    node="gpu-1",
    boot="boot-1",
    begun_real_ns=1_700_000_000 * SECOND_NS,
    begun_ns=6 * SECOND_NS,
    file="gpu-1.sqlite",
    recording=1,
    ended_ns=28 * SECOND_NS,
    status=0,
    rest_ns=(0, 6 * SECOND_NS),
    version="1",
)
_DEVICES = (
    make_device("package-0", rated_watts=150),
    make_device("dram-0", Domain.DRAM),
    make_device("GPU-1", Domain.GPU, source="nvml", method=Method.DERIVED),
    make_device("psys", Domain.BOARD, adds=False),
)
_MODEL = {
    "processor": "Imagined CPU",
    "cores": 2,
    "memory_bytes": 16_000_000_000,
    "model": {"idle_watts": 20.0, "memory_watts": 3.0},
}


def _make_jobs(folder: Path) -> list[Path]:
    measured = make_job(
        folder / "1",
        devices=_DEVICES,
        watts=[97.31, 20.07, 211.9, 333.0],
        loaders=[
            (
                make_loader(world_size=2),
                [
                    make_epoch(0, 7.013, 16.57, storage=(make_storage(28, 31.7),)),
                    make_epoch(1, 16.6, 27.99, storage=(make_storage(28, 31.7, absent="it has no recorder"),)),
                ],
            )
        ],
        note=_NOTE,
    )
    estimated = make_job(
        folder / "2",
        devices=[
            make_device("cpu-model", source="model", method=Method.ESTIMATED, error=0.5, note="20 to 100 W"),
            make_device("dram-model", Domain.DRAM, source="model", method=Method.ESTIMATED, error=0.2, note="3 W"),
        ],
        watts=[55.55, 3.0],
        facts=_MODEL,
        node="gpu-2",
        boot="boot-2",
        loaders=[
            (
                make_loader(rank=1, world_size=2, node="gpu-2", boot="boot-2"),
                [replace(make_epoch(n, 3 + 10 * n, 12 + 10 * n, file="gpu-2.sqlite"), cpu=None) for n in range(2)],
            )
        ],
    )
    return [measured, estimated]


def test_the_document_and_the_text_of_a_recorded_job_are_as_ever(tmp_path: Path) -> None:
    report = read_job(_make_jobs(tmp_path)).report
    document: Any = json.loads(report.json())
    assert document == json.loads((_GOLDEN / "energy-report.json").read_text(encoding="utf-8"))
    assert job_text(report) + "\n" == (_GOLDEN / "energy-report.txt").read_text(encoding="utf-8")
