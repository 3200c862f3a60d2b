"""Pipelines on a CUDA device: where pictures lie, that they are those of the CPU, and that the user's work waits for them."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import emlio.dali
from emlio import DaliPipeline, EmlioLoader, Recovery
from emlio.errors import ConfigError
from emlio.example import encode_example
from emlio_testing.datasets import make_dataset

pytest.importorskip("nvidia.dali", reason="requires NVIDIA DALI")
torch = pytest.importorskip("torch", reason="needs PyTorch")

from nvidia.dali import fn  # noqa: E402  # skipped above where it is not installed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda finds no device here"),
]

_RECORDS = 60


def _picture(record: int) -> bytes:
    """A smooth one: decoders differ where colours jump."""
    rows, columns = np.mgrid[0 : 60 + record, 0:90]
    waves = np.stack([rows + record, 128 + 90 * np.sin(columns / 20 + record), 2 * columns], -1)
    file = io.BytesIO()
    Image.fromarray(waves.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=95)
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_dataset(
        tmp_path / "pictures",
        records=_RECORDS,
        shards=2,
        payload=lambda record: encode_example({"image/encoded": [_picture(record)], "image/class/label": [record]}),
    )
    return tmp_path / "pictures"


def _loader(
    folder: Path, pipeline: Any, device: str, args: Any = None, outputs: Any = None, **options: Any
) -> EmlioLoader:
    dali = DaliPipeline(pipeline, args=args or {}, outputs=outputs)
    return EmlioLoader(folder, batch_size=8, seed=2, ids=True, dali=dali, device=device, threads=2, **options)


@pytest.mark.parametrize("preset", ["image-train", "image-eval"])
def test_a_preset_gives_on_the_device_what_it_gives_on_the_cpu(folder: Path, preset: str) -> None:
    arguments = {"size": 48, "dtype": "uint8"}
    with (
        _loader(folder, preset, "cuda", args=arguments) as there,
        _loader(folder, preset, "cpu", args=arguments) as here,
    ):
        for _ in range(2):
            for one, other in zip(there, here, strict=True):
                assert one["image"].device == one["label"].device == torch.device("cuda", 0)
                assert one["label"].tolist() == other["label"].tolist() == other["__id__"].tolist()
                difference = (one["image"].cpu().int() - other["image"].int()).abs().float()
                assert difference.mean() < 3


def _bright(size: int = 16) -> Any:
    encoded, label = emlio.dali.inputs("image/encoded", "image/class/label")
    images = fn.resize(fn.decoders.image(encoded, device="mixed"), size=(size, size))
    return images * 0 + fn.cast_like(label.gpu(), images), label.gpu()


@pytest.mark.parametrize(
    "executor",
    [{}, {"prefetch_queue_depth": 5}, {"exec_dynamic": False}, {"exec_async": False, "exec_pipelined": False}],
)
def test_what_the_user_computes_on_his_stream_waits_for_the_pictures_and_they_stay(
    folder: Path, executor: dict[str, Any]
) -> None:
    busy = torch.randn(3000, 3000, device="cuda")
    kept: list[dict[str, Any]] = []
    sums: list[Any] = []
    with _loader(folder, _bright, "cuda", outputs=["image", "label"], args=executor) as loader:
        for epoch in range(3):
            # His stream is the one that is current when he takes a batch.
            with torch.cuda.stream(torch.cuda.Stream() if epoch % 2 else None):
                for batch in loader:
                    sums.append(batch["image"].float().mean((1, 2, 3)))
                    busy = (busy @ busy).clamp(-1, 1)  # what he reads next he reads late
                    kept.append(batch)
    torch.cuda.synchronize()
    for batch, means in zip(kept, sums, strict=True):
        assert means.tolist() == batch["label"].tolist() == batch["__id__"].tolist()
        assert (batch["image"].float().mean((1, 2, 3)) == batch["label"]).all()


def test_a_device_of_too_high_a_number_is_refused(folder: Path) -> None:
    count = torch.cuda.device_count()
    with pytest.raises(ConfigError, match=f"device must be one of {count} CUDA devices"):
        _loader(folder, "image-eval", f"cuda:{count}")


def test_without_a_number_the_device_is_that_of_the_local_rank(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = torch.cuda.device_count() - 1
    monkeypatch.setenv("LOCAL_RANK", str(last))
    with _loader(folder, "image-eval", "cuda", rank=0, world_size=1) as loader:
        assert next(iter(loader))["image"].device == torch.device("cuda", last)


def test_a_record_that_is_no_picture_is_left_out_on_the_device_too(tmp_path: Path) -> None:
    bad = {3, 17, 18}

    def example(record: int) -> bytes:
        encoded = b"no picture" if record in bad else _picture(record)
        return encode_example({"image/encoded": [encoded], "image/class/label": [record]})

    make_dataset(tmp_path / "odd", records=40, shards=2, payload=example)
    with _loader(
        tmp_path / "odd", _bright, "cuda", outputs=["image", "label"], recovery=Recovery(on_error="skip")
    ) as loader:
        for _ in range(2):
            labels = [label for batch in loader for label in batch["label"].tolist()]
            assert sorted(labels) == [record for record in range(40) if record not in bad]
