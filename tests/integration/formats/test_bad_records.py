"""Records that cannot be decoded, in each format: the error names them, or they are left out or replaced."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio import DaliPipeline, EmlioLoader, Recovery
from emlio.errors import CorruptRecordError
from emlio_testing.format_files import tar_of

_RECORDS, _BAD = 30, 17


pytestmark = pytest.mark.usefixtures("own_cache")


def _saved(save: Callable[[Any], object]) -> bytes:
    file = io.BytesIO()
    save(file)
    return file.getvalue()


def _make(folder: Path, kind: str) -> None:
    """Records of one kind, of which one is bad."""
    folder.mkdir()
    numbers = range(_RECORDS)
    if kind == "jsonl":
        lines = ["{" if n == _BAD else f'{{"n": {n}}}' for n in numbers]
        (folder / "a.jsonl").write_text("\n".join(lines))
    elif kind == "tar":
        members = [(f"{n:02d}.cls", b"no number" if n == _BAD else str(n).encode()) for n in numbers]
        (folder / "a.tar").write_bytes(tar_of(members))
    else:
        for n in numbers:
            data = _saved(lambda f, n=n: np.save(f, np.int64(n)) if kind == "npy" else np.savez(f, n=np.int64(n)))
            (folder / f"{n:02d}.{kind}").write_bytes(data[:-3] if n == _BAD else data)


_COLUMNS = {"jsonl": "n", "tar": "image/class/label", "npy": "array", "npz": "n"}


def _numbers(folder: Path, kind: str, on_error: str, **options: Any) -> list[int]:
    fields = [_COLUMNS[kind]] if kind == "tar" else None
    arguments: dict[str, Any] = {"batch_size": 8, "shuffle": False, "to": "numpy", "fields": fields, **options}
    with EmlioLoader(str(folder), recovery=Recovery(on_error=on_error, timeout="20s"), **arguments) as loader:
        found = [one for batch in loader for one in batch[_COLUMNS[kind]]]
        stats = loader.stats()
        assert stats.skipped_records + stats.replaced_records == 1
    return [int(bytes(one)) if isinstance(one, memoryview) else int(one) for one in found]


@pytest.mark.parametrize("kind", _COLUMNS)
def test_a_record_that_cannot_be_decoded_is_named_left_out_or_replaced(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "data"
    _make(folder, kind)
    with pytest.raises(CorruptRecordError, match=f"record {_BAD} of shard|{_BAD}.{kind}") as caught:
        _numbers(folder, kind, "raise")
    assert caught.value.record == _BAD
    good = [n for n in range(_RECORDS) if n != _BAD]
    assert _numbers(folder, kind, "skip") == good
    replaced = _numbers(folder, kind, "replace")
    assert replaced[:_BAD] + replaced[_BAD + 1 :] == good
    assert replaced[_BAD] in range(16, 24)


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_the_error_names_the_file_that_is_the_record(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "data"
    _make(folder, kind)
    with pytest.raises(CorruptRecordError, match=f"{_BAD}.{kind}"):
        _numbers(folder, kind, "raise")


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_batch_of_bad_records_only_is_an_error(tmp_path: Path, on_error: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n' * 8 + "x\n" * 8)
    with pytest.raises(CorruptRecordError, match="all 8 records of the batch are bad"):
        _numbers(tmp_path, "jsonl", on_error)


def test_a_field_that_is_nowhere_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    with EmlioLoader(str(tmp_path), batch_size=2, to="numpy", fields=["typo"], epochs=1) as loader:
        assert [batch["typo"] for batch in loader] == [[None, None]]
    assert "no record of the first batch has the requested column 'typo'" in caplog.text


# ---- images ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder of classes with pictures, among which one file is none."""
    picture = pytest.importorskip("PIL.Image", reason="Pillow draws the pictures of this test")
    for number in range(_RECORDS):
        folder = tmp_path / "images" / f"c{number // 10}"
        folder.mkdir(parents=True, exist_ok=True)
        data = _saved(lambda f, n=number: picture.new("RGB", (20, 16), (n, 0, 0)).save(f, "PNG"))
        name = f"{number:02d}.bin" if number == _BAD else f"{number:02d}.png"
        (folder / name).write_bytes(b"no picture" if number == _BAD else data)
    return tmp_path / "images"


def _transform(sample: dict[str, Any]) -> dict[str, Any]:
    from PIL import Image

    pixels = np.asarray(Image.open(io.BytesIO(sample["data"])))
    return {"red": pixels[0, 0, 0], "label": sample["label"], "path": sample["path"]}


def test_a_file_that_is_no_picture_is_named_by_a_transforms_error(images: Path) -> None:
    arguments: dict[str, Any] = {"batch_size": 8, "shuffle": False, "transform": _transform, "to": "numpy"}
    with (
        EmlioLoader(str(images), **arguments) as loader,
        pytest.raises(Exception, match="cannot identify image file") as caught,
    ):
        list(loader)
    assert f"c1/{_BAD}.bin: record {_BAD} of shard files-000000" in "".join(caught.value.__notes__)
    with EmlioLoader(str(images), recovery=Recovery(on_error="skip"), **arguments) as loader:
        found = [(int(r), int(n)) for batch in loader for r, n in zip(batch["red"], batch["label"], strict=True)]
    assert found == [(n, n // 10) for n in range(_RECORDS) if n != _BAD]


def test_a_file_that_is_no_picture_is_named_by_dali(images: Path) -> None:
    pytest.importorskip("nvidia.dali", reason="requires NVIDIA DALI")
    dali = DaliPipeline("image-eval", args={"size": 8}, outputs=["image", "label"])
    arguments: dict[str, Any] = {"batch_size": 8, "shuffle": False, "dali": dali, "to": "numpy", "threads": 2}
    with EmlioLoader(str(images), **arguments) as loader, pytest.raises(CorruptRecordError) as caught:
        list(loader)
    assert caught.value.record == _BAD
    assert "not a known image format" in str(caught.value)
    assert f": c1/{_BAD}.bin: " in str(caught.value)
    with EmlioLoader(str(images), recovery=Recovery(on_error="skip"), **arguments) as loader:
        labels = [int(label) for batch in loader for label in batch["label"]]
    assert labels == [n // 10 for n in range(_RECORDS) if n != _BAD]


def test_the_error_of_a_batch_without_good_records_names_the_first_file(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}\n.x").write_bytes(b"no picture")
    arguments: dict[str, Any] = {"batch_size": 2, "shuffle": False, "transform": _transform, "fields": ["data"]}
    with (
        EmlioLoader(str(tmp_path), recovery=Recovery(on_error="skip"), to="numpy", **arguments) as loader,
        pytest.raises(
            CorruptRecordError, match=r": '0\\n\.x': its transform failed: .*all 2 records of the batch are bad"
        ),
    ):
        list(loader)
