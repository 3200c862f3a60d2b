"""Batches copied to a CUDA device: that they are those of the CPU, and that the user's work waits for them."""

from pathlib import Path
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.example import encode_example
from emlio_testing.datasets import make_dataset

torch = pytest.importorskip("torch", reason="needs PyTorch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda finds no device here"),
]

_RECORDS = 64
_NUMBERS = 50_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_dataset(
        tmp_path / "numbers",
        records=_RECORDS,
        shards=2,
        payload=lambda record: encode_example({"label": [record], "numbers": [float(record)] * _NUMBERS}),
    )
    return tmp_path / "numbers"


def _loader(folder: Path, device: str, **options: Any) -> EmlioLoader:
    return EmlioLoader(folder, batch_size=8, seed=2, rank=0, world_size=1, device=device, **options)


def _doubled(sample: dict[str, Any]) -> dict[str, Any]:
    return {"label": sample["label"], "numbers": 2 * sample["numbers"]}


@pytest.mark.parametrize("options", [{}, {"transform": _doubled, "threads": 2}], ids=["columns", "transform"])
def test_batches_on_the_device_are_those_of_the_cpu(folder: Path, options: dict[str, Any]) -> None:
    with _loader(folder, "cuda", **options) as there, _loader(folder, "cpu", **options) as here:
        for one, other in zip(there, here, strict=True):
            assert one["numbers"].device == one["label"].device == torch.device("cuda", 0)
            assert one["label"].tolist() == other["label"].tolist()
            assert torch.equal(one["numbers"].cpu(), other["numbers"])


def test_what_the_user_computes_on_his_stream_waits_for_the_copy(folder: Path) -> None:
    """A stream of the user's own is kept busy, and reads each batch late; all batches stay as they came."""
    busy = torch.randn(3000, 3000, device="cuda")
    kept: list[tuple[dict[str, Any], Any]] = []
    with _loader(folder, "cuda") as loader, torch.cuda.stream(torch.cuda.Stream()):
        for batch in loader:
            busy = (busy @ busy).clamp(-1, 1)
            kept.append((batch, batch["numbers"].mean(1)))
    torch.cuda.synchronize()
    for batch, means in kept:
        assert means.tolist() == batch["label"].flatten().tolist()
