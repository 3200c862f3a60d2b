"""Finding a GPU, with imagined drivers, and the refusals without one."""

import ctypes
from dataclasses import dataclass
from typing import Any

import pytest

from emlio.errors import ConfigError
from emlio_bench.cli import main
from emlio_bench.decode import run as decode_run
from emlio_bench.decode.run import run_decode
from emlio_bench.harness.cuda import gpu_words, why_no_gpu
from emlio_bench.harness.settings import DecodeSettings
from emlio_bench.paper import run as paper_run
from emlio_bench.paper.figures import figures_of


@dataclass
class FakeDriver:
    """A CUDA driver with so many GPUs; `status` is the answer to its initialization."""

    gpus: int = 1
    status: int = 0

    def cuInit(self, flags: int) -> int:  # CUDA's names, here and below
        return self.status

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self.gpus
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: int) -> int:
        name.value = b"Imagined GPU"
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = 12040
        return 0


def absent(name: str) -> ctypes.CDLL:
    raise OSError(f"{name}: cannot open shared object file")


def test_without_a_driver_it_says_so() -> None:
    reason = why_no_gpu(absent)
    assert reason is not None
    assert "no NVIDIA driver" in reason


@pytest.mark.parametrize(
    ("driver", "said"), [(FakeDriver(status=100), "CUDA error 100"), (FakeDriver(gpus=0), "no GPU")]
)
def test_a_driver_without_a_gpu_is_told_from_none(driver: FakeDriver, said: str) -> None:
    reason = why_no_gpu(lambda name: driver)
    assert reason is not None
    assert said in reason


def test_a_gpu_is_named_with_its_driver() -> None:
    assert why_no_gpu(lambda name: FakeDriver()) is None
    assert gpu_words(lambda name: FakeDriver(gpus=2)) == "2 x Imagined GPU, driver for CUDA 12.4"


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (decode_run, paper_run):
        monkeypatch.setattr(module, "why_no_gpu", lambda: "no GPU in this test")


@pytest.mark.usefixtures("no_gpu")
def test_real_models_are_refused_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "--model", "real", "--figure", "5"]) == 2
    assert "--model real trains on a GPU: no GPU in this test" in capsys.readouterr().err


@pytest.mark.usefixtures("no_gpu")
def test_decoding_on_a_gpu_is_refused_without_one() -> None:
    with pytest.raises(ConfigError, match="--device gpu needs a GPU: no GPU in this test"):
        run_decode(DecodeSettings(device="gpu"))


def test_only_dali_decodes_on_a_gpu() -> None:
    with pytest.raises(ConfigError, match="needs a subject with DALI, got pillow-floor"):
        run_decode(DecodeSettings(device="gpu", subjects=("pillow-floor",)))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["paper", "--model", "real", "--figure", "7"], "with real models must be one of 5, 9, got 7"),
        (["paper", "--model", "huge"], "must be paper or real"),
        (["decode", "--device", "tpu"], "must be cpu or gpu"),
    ],
)
def test_bad_values_are_named(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert said in capsys.readouterr().err


def test_figures_with_real_models_have_tasks_of_their_own() -> None:
    figures = figures_of((), real=True)
    assert [figure.number for figure in figures] == [5, 9]
    tasks = [task for figure in figures for task in figure.tasks]
    assert [(task.name, task.model, task.step_ns) for task in tasks] == [
        ("resnet-real", "resnet50", 0),
        ("vgg-real", "vgg19", 0),
    ]
    usual = {task.name for figure in figures_of(()) for task in figure.tasks}
    assert usual.isdisjoint(task.name for task in tasks)
