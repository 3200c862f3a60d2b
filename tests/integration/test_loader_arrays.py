"""Arrays at a loader: as tensors, in samples of a transform, of all that writes them.

Covers: arrays by `emlio.Writer` and by `emlio convert`, a bad record, the schema. Does not cover: what an array's features
are (tests/unit/example/test_arrays.py).
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from emlio import EmlioLoader, Recovery, Writer
from emlio.cli import main
from emlio.example import encode_example
from emlio.prepare.targets.example_form import array_features

_ARRAYS = [np.full((2, 3), number, np.float16) for number in range(8)]


def _loader(path: Path, **options: Any) -> EmlioLoader:
    return EmlioLoader(path, batch_size=4, epochs=1, shuffle=False, **options)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Arrays of one shape, of any, and of no numbers."""
    with Writer(tmp_path / "data") as writer:
        for number, array in enumerate(_ARRAYS):
            ragged, words = np.ones((number, 2), np.uint8), np.array([f"w{number}"] * 2)
            writer.write({"depth": array, "boxes": ragged, "words": words, "label": number})
    return tmp_path / "data"


def test_they_are_tensors_by_default_and_the_schema_names_them(written: Path) -> None:
    with _loader(written) as loader:
        assert loader.schema["depth"].kind == "array"
        assert "depth/data" not in loader.schema
        batches = list(loader)
    depth = torch.cat([batch["depth"] for batch in batches])
    assert (depth.dtype, tuple(depth.shape)) == (torch.float16, (8, 2, 3))
    assert depth[:, 1, 1].tolist() == list(range(8))
    assert [tuple(boxes.shape) for batch in batches for boxes in batch["boxes"]] == [(n, 2) for n in range(8)]
    assert isinstance(batches[0]["boxes"][0], torch.Tensor)
    assert batches[1]["words"][0].tolist() == ["w4", "w4"], "text has no tensors"


def test_a_transform_gets_arrays(written: Path) -> None:
    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        assert sample.keys() == {"boxes", "depth"}
        return {"depth": sample["depth"] + 1, "boxes": len(sample["boxes"])}

    with _loader(written, transform=transform, fields=["depth", "boxes"], to="numpy") as loader:
        batches = list(loader)
    assert np.concatenate([batch["depth"] for batch in batches]).tolist() == [(array + 1).tolist() for array in _ARRAYS]
    assert [number for batch in batches for number in batch["boxes"].tolist()] == list(range(8))


def test_a_record_with_a_broken_array_is_left_out(tmp_path: Path) -> None:
    with Writer(tmp_path / "data") as writer:
        for number, array in enumerate(_ARRAYS):
            features = array_features("depth", array, whole=True)
            writer.write(encode_example(features | ({"depth/data": b"short"} if number == 5 else {})))
    for fields in (None, ["depth"]):
        with _loader(tmp_path / "data", fields=fields, recovery=Recovery(on_error="skip"), to="numpy") as loader:
            found = np.concatenate([batch["depth"] for batch in loader])
            assert loader.stats().skipped_records == 1
        assert found[:, 0, 0].tolist() == [0, 1, 2, 3, 4, 6, 7]


def test_converted_arrays_come_back(tmp_path: Path) -> None:
    (tmp_path / "npy").mkdir()
    for number, array in enumerate(_ARRAYS):
        np.save(tmp_path / "npy" / f"{number}.npy", array)
    assert main(["convert", "--no-shuffle", str(tmp_path / "npy"), str(tmp_path / "out")]) == 0
    with _loader(tmp_path / "out", fields=["array"], to="numpy") as loader:
        found = np.concatenate([batch["array"] for batch in loader])
    assert found.dtype == np.float16
    assert found.tolist() == [array.tolist() for array in _ARRAYS]
    with _loader(tmp_path / "out", fields=["array/data"]) as loader:
        assert [bytes(data) for batch in loader for data in batch["array/data"]] == [a.tobytes() for a in _ARRAYS]
