"""A model that learns from pictures on their way: from a daemon, and from DALI's own reader."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from emlio.example import parse_example
from emlio_bench.cli import main
from emlio_bench.harness.contest import DIGIT_PICTURES, Contest, Corpus
from emlio_bench.harness.data import shard_paths
from emlio_bench.harness.results import read_results
from emlio_bench.link.emulated import why_not
from emlio_bench.race.consumers.consume import records_of
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.records.digit_pictures import write_digit_pictures
from emlio_bench.race.servers.remote_folder import why_no_mount
from emlio_bench.race.systems.others import dali_files
from emlio_bench.race.systems.ours import Remote
from emlio_bench.race.systems.system import System
from tests.integration.bench.race_job import run_over_link

pytest.importorskip("sklearn", reason="needs scikit-learn")
pytest.importorskip("torch", reason="needs torch")

CORPUS = Corpus(records=32, record_bytes=164_000, kind=DIGIT_PICTURES)
CONTEST = Contest(
    name="loss", words="learned from", corpus=CORPUS, rtt_ns=2_000_000, batch=16, epochs=1, decode=True, train=True
)
NEEDS_DALI = pytest.mark.skipif(find_spec("nvidia.dali") is None, reason="needs nvidia-dali")


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("forms")


def test_pictures_of_digits_are_jpegs_with_labels_and_numbers(tmp_path: Path) -> None:
    write_digit_pictures(tmp_path, 1800, (32, 24))
    records = [parse_example(one) for path in shard_paths(tmp_path) for one in records_of([str(path)])]
    pictures = [bytes(memoryview(one["image/encoded"][0])) for one in records]
    labels = [int(one["image/class/label"][0]) for one in records]
    assert {picture[:2] + picture[-2:] for picture in pictures} == {b"\xff\xd8\xff\xd9"}
    assert len(set(pictures)) == 1800
    assert min(np.bincount(labels, minlength=10)) > 150
    assert bytes(memoryview(records[7]["image/filename"][0])) == b"digit_000000000007.JPEG"
    # There are 1,797 digits: the next record has the first digit again.
    assert labels[1797:] == labels[:3]


def test_a_shrunk_resnet_learns_a_batch_by_heart() -> None:
    import torch

    from emlio_bench.race.consumers.learner import Learner

    learner, same = Learner(1, 8), Learner(1, 8)
    pictures, labels = torch.rand(8, 3, 64, 64), torch.arange(8)
    other = Learner(2, 8).step(pictures, labels)
    losses = [learner.step(pictures, labels) for _ in range(20)]
    assert losses[0] != other
    assert losses[0] == same.step(pictures.numpy(), labels.numpy().reshape(8, 1))
    assert losses[0] > 1.5
    assert losses[-1] < losses[0] / 2


@pytest.mark.slow
@NEEDS_DALI
@pytest.mark.parametrize("name", ["emlio", "dali-tfrecord"])
def test_each_step_has_a_loss_and_its_time(name: str, forms: Path) -> None:
    system: System = Remote() if name == "emlio" else dali_files("tfrecord", forms, forms)
    run = run_over_link(system, CONTEST, forms)
    assert run.failure is None
    assert run.words["exact"] == "yes"
    losses, seconds = run.series["loss"], run.series["seconds"]
    assert len(losses) == len(seconds) == 2
    assert all(0.5 < loss < 10 for loss in losses)
    assert run.value(Quantity.FIRST_BATCH) < seconds[0] < seconds[1] <= run.value(Quantity.FIRST_EPOCH)


@NEEDS_DALI
@pytest.mark.slow
def test_figure_11_is_measured_and_reported(tmp_path: Path) -> None:
    missing = why_no_mount(tmp_path) or why_not()
    if missing is not None:
        pytest.skip(f"needs a mount over an emulated link: {missing}")
    out = tmp_path / "out"
    argv = ["paper", "--figure", "11", "--scale", "tiny", "--no-energy", "--no-install"]
    assert main([*argv, "--out", str(out), "--cache", str(tmp_path / "cache")]) in (0, 1)
    race = read_results(out)
    assert sorted(run.subject for run in race.runs) == ["dali-tfrecord", "emlio"]
    assert [len(run.series["loss"]) for run in race.runs] == [2, 2]
    assert (out / "figures.png").is_file()
    assert "Figure 11" in (out / "report.md").read_text(encoding="utf-8")
