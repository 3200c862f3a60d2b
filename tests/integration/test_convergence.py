"""The convergence experiment with real processes, on two epochs."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest

from emlio.example import encode_example
from emlio_bench.convergence.digits import LABEL, PIXELS, DigitFiles, make_digits, read_arrays
from emlio_bench.convergence.figures import ACCURACIES, LOSSES, WAY_NAMES, count_other_losses
from emlio_bench.convergence.training import TrainingOrder
from emlio_bench.convergence.ways import Run, train_from_memory, train_over_link, train_over_loopback
from emlio_bench.harness.results import read_results
from emlio_bench.link.emulated import why_not
from emlio_bench.link.own_time import MOST_OWN_NS
from emlio_testing.datasets import make_dataset

pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
pytest.importorskip("torch", reason="the network is written in PyTorch")

RTT_NS = 30_000_000
TWO_EPOCHS = 2 * 45


@dataclass(frozen=True, slots=True, kw_only=True)
class FromMemory:
    """A training without a loader, and what it was told."""

    files: DigitFiles
    order: TrainingOrder
    run: Run


def no_progress() -> None:
    pass


@pytest.fixture(scope="module")
def from_memory(tmp_path_factory: pytest.TempPathFactory) -> FromMemory:
    files = make_digits(tmp_path_factory.mktemp("digits"))
    order = TrainingOrder(
        arrays=str(files.arrays),
        shards=str(files.shards),
        address=None,
        epochs=2,
        batch_size=32,
        seed=1,
        order_seed=1,
    )
    return FromMemory(files=files, order=order, run=train_from_memory(order, no_progress))


@pytest.mark.slow  # over a link it is tested each time
def test_fed_over_loopback_a_training_has_the_bits_it_has_from_memory(tmp_path: Path) -> None:
    json, picture = tmp_path / "r.json", tmp_path / "r.png"
    argv = ["convergence", "--quick", "--ways", "memory,loopback", "--json", str(json), "--plot", str(picture)]
    # In a process of its own: matplotlib keeps font files open for as long as one lives.
    bench = [sys.executable, "-m", "emlio_bench.cli", *argv]
    done = subprocess.run(bench, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "MISSED" not in done.stdout
    figures = {figure.name: figure for figure in read_results(json).figures}
    losses = [np.array(figures[f"{LOSSES}, {WAY_NAMES[way]}"].values) for way in ("memory", "loopback")]
    assert len(losses[0]) == TWO_EPOCHS
    assert losses[0].tobytes() == losses[1].tobytes()
    assert (losses[0] == losses[0].astype(np.float32)).all()
    assert figures["steps with another loss, over loopback"].values == (0,)
    assert figures["other weight tensors at the end, over loopback"].values == (0,)
    # It learns: among ten digits a guess is right once in ten times.
    assert figures[f"{ACCURACIES}, {WAY_NAMES['loopback']}"].values[-1] > 0.8
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_fed_over_a_link_of_30_ms_a_training_has_the_bits_it_has_from_memory(from_memory: FromMemory) -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"an emulated link {reason}")
    run = train_over_link(from_memory.order, no_progress, RTT_NS)
    assert run.losses == from_memory.run.losses
    assert run.accuracies == from_memory.run.accuracies
    assert run.trained.parameters == from_memory.run.trained.parameters
    assert run.link is not None
    assert min(run.link.rtt_ns) >= RTT_NS - MOST_OWN_NS
    assert run.link.to_training_bytes > 2 * from_memory.files.record_bytes


@pytest.mark.slow
def test_one_pixel_of_one_digit_on_the_disk_shows_in_the_losses(from_memory: FromMemory, tmp_path: Path) -> None:
    training, _ = read_arrays(from_memory.files.arrays)
    pixels = training.pixels.copy()
    pixels[700, 20] += 1

    def record(number: int) -> bytes:
        return encode_example({PIXELS: pixels[number], LABEL: int(training.labels[number])})

    make_dataset(tmp_path / "changed", records=from_memory.files.records, shards=4, payload=record)
    order = msgspec.structs.replace(from_memory.order, shards=str(tmp_path / "changed"))
    run = train_over_loopback(order, no_progress)
    # Up to the step that has the digit all is equal; its loss is another, and so are those after it, but for chance.
    same = [one == other for one, other in zip(run.losses, from_memory.run.losses, strict=True)]
    first = same.index(False)
    assert first < TWO_EPOCHS // 2
    assert 0.9 * (TWO_EPOCHS - first) < count_other_losses(from_memory.run, run) <= TWO_EPOCHS - first
    assert run.trained.parameters.keys() == from_memory.run.trained.parameters.keys()
    assert run.trained.parameters != from_memory.run.trained.parameters
