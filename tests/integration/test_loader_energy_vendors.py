"""What vendors' threads and devices do, as a loader notes it: DALI's decoding, CUDA's steps."""

import io
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from emlio import DaliPipeline, EmlioLoader
from emlio.energy.job.journal import JournalEpoch, read_journals
from emlio.energy.values.spans import Stage
from emlio.example import encode_example
from emlio_testing.datasets import make_dataset
from emlio_testing.energy_recorder import SteadyRecorder

RECORDS, BATCH = 48, 8
MS = 1_000_000


def picture(record: int) -> bytes:
    noise = np.random.default_rng(record).integers(0, 255, (400, 500, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "JPEG", quality=95)
    return file.getvalue()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    make_dataset(
        tmp_path / "pictures",
        records=RECORDS,
        shards=2,
        payload=lambda record: encode_example({"image/encoded": [picture(record)], "image/class/label": [record]}),
    )
    return tmp_path / "pictures"


def noted(job: Path) -> JournalEpoch:
    (journal,) = read_journals(job)
    return journal.epochs[-1]


def length_ns(epoch: JournalEpoch, stage: Stage) -> int:
    return sum(span.end_ns - span.start_ns for span in epoch.spans if span.stage is stage)


def test_what_dali_decodes_is_preprocessing_though_its_threads_are_its_own(pictures: Path, tmp_path: Path) -> None:
    pytest.importorskip("nvidia.dali", reason="requires NVIDIA DALI")
    job = tmp_path / "job"
    arguments = {"size": 64, "dtype": "uint8"}
    with (
        SteadyRecorder(job),
        EmlioLoader(
            pictures, batch_size=BATCH, dali=DaliPipeline("image-eval", args=arguments), threads=1, energy=job
        ) as loader,
    ):
        assert sum(1 for _ in loader) == RECORDS // BATCH
    epoch = noted(job)
    assert epoch.cpu is not None
    assert epoch.cpu.preprocess_ns > epoch.cpu.train_ns, "decoding is all that is done"
    took_ns = epoch.to_ns - epoch.from_ns
    assert length_ns(epoch, Stage.PREPROCESS) > took_ns / 2, "and what is waited for"
    assert length_ns(epoch, Stage.TRAIN) < took_ns / 10


@pytest.mark.gpu
def test_steps_are_as_long_as_the_device_works_and_not_as_the_host_gives_it_work(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch", reason="needs PyTorch")
    if not torch.cuda.is_available():
        pytest.skip("torch.cuda finds no device here")
    make_dataset(tmp_path / "x", records=RECORDS, shards=2)
    job = tmp_path / "job"
    matrix = torch.rand(4096, 4096, device="cuda")
    (matrix @ matrix).sum().item()
    measured_ms, host_ns = 0.0, 0
    with (
        SteadyRecorder(job),
        EmlioLoader(tmp_path / "x", batch_size=BATCH, raw=True, to="numpy", energy=job) as loader,
    ):
        for _ in range(2):
            marks = []
            host_ns = 0
            for _ in loader:
                begun_ns = time.monotonic_ns()
                begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begun.record()
                for _ in range(20):
                    matrix = (matrix @ matrix).clamp(0, 1)
                ended.record()
                marks.append((begun, ended))
                host_ns += time.monotonic_ns() - begun_ns
            torch.cuda.synchronize()
            measured_ms = sum(begun.elapsed_time(ended) for begun, ended in marks)
    epoch = noted(job)
    steps = [span for span in epoch.spans if span.stage is Stage.TRAIN]
    assert len(steps) == RECORDS // BATCH
    assert {step.thread for step in steps} == {f"cuda:{torch.cuda.current_device()}"}
    assert length_ns(epoch, Stage.TRAIN) == pytest.approx(measured_ms * MS, rel=0.05)
    assert length_ns(epoch, Stage.TRAIN) > 2 * host_ns, "the host is ahead, so that its time says nothing"
    assert all(before.end_ns <= after.start_ns + MS for before, after in pairwise(steps))
    assert steps[-1].end_ns <= epoch.to_ns, "the last step is waited for at the edge"
