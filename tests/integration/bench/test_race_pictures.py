"""Pictures that are decoded on their way to a consumer: from a daemon, from this host's disks, by DALI's own reader, by the
paper's method, by PyTorch's workers."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from emlio_bench.harness.contest import PICTURES, Contest, Corpus
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.records.file_forms import as_files
from emlio_bench.race.systems.others import dali_local, pytorch_files
from emlio_bench.race.systems.ours import Local, PaperWay, Remote
from emlio_bench.race.systems.system import System
from tests.integration.bench.race_job import run_over_link

CORPUS = Corpus(records=40, record_bytes=94_000, kind=PICTURES)
CONTEST = Contest(name="pictures", words="decoded", corpus=CORPUS, rtt_ns=2_000_000, batch=16, decode=True)


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("forms")


@pytest.mark.skipif(find_spec("nvidia.dali") is None, reason="needs nvidia-dali")
@pytest.mark.parametrize(
    "system",
    [
        pytest.param(Remote(), id="emlio"),
        pytest.param(Local(), id="emlio-local", marks=pytest.mark.slow),
        pytest.param(dali_local(), id="dali-local", marks=pytest.mark.slow),
        pytest.param(PaperWay(), id="paper", marks=pytest.mark.slow),
        pytest.param(pytorch_files(Path()), id="pytorch-files", marks=pytest.mark.slow),
    ],
)
def test_each_picture_is_decoded_once(system: System, forms: Path) -> None:
    if system.name == "pytorch-files":
        pytest.importorskip("torchvision", reason="needs torchvision")
        system = replace(pytorch_files(forms, forms), environment=None)
    run = run_over_link(system, CONTEST, forms)
    assert run.failure is None
    assert run.words["exact"] == "yes"
    assert run.value(Quantity.RECORDS) == CORPUS.records


@pytest.mark.skipif(
    find_spec("nvidia.dali") is None or find_spec("torchvision") is None, reason="needs nvidia-dali and torchvision"
)
@pytest.mark.slow  # each imports PyTorch and builds a model
@pytest.mark.parametrize(
    "system",
    [
        pytest.param(Local(), id="emlio-local"),
        pytest.param(dali_local(), id="dali-local"),
        pytest.param(PaperWay(), id="paper"),
        pytest.param(pytorch_files(Path()), id="pytorch-files"),
    ],
)
def test_a_real_model_is_trained_on_the_pictures_of_each_batch(system: System, forms: Path) -> None:
    """Without the pictures, or with others than its input, the model's step fails, and so does the run."""
    if system.name == "pytorch-files":
        system = replace(pytorch_files(forms, forms), environment=None)
    contest = replace(CONTEST, epochs=1)
    run = run_over_link(system, contest, forms, ("model", "squeezenet1_1"), ("device", "cpu"))
    assert run.failure is None
    assert run.words["exact"] == "yes"


def test_pictures_as_files_are_the_same_pictures_under_their_numbers(forms: Path) -> None:
    files = sorted(as_files(CORPUS, forms).rglob("*.jpg"))
    assert [int(path.stem) for path in files] == list(range(CORPUS.records))
    for path in files:
        assert path.read_bytes()[:2] == b"\xff\xd8"
        assert path.read_bytes()[-2:] == b"\xff\xd9"
