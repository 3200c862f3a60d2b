"""Folders of each format through a loader, compared record by record with the definition of the format."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from emlio import EmlioLoader
from emlio.errors import DatasetError
from emlio_testing.format_files import put_files, read_folder, read_megatron, tar_of, write_megatron

Array = npt.NDArray[Any]


pytestmark = pytest.mark.usefixtures("own_cache")


def _assert_same(found: Any, wanted: Array) -> None:
    array = np.asarray(found)
    assert array.dtype == wanted.dtype.newbyteorder("=")
    assert array.shape == wanted.shape
    assert array.tobytes() == wanted.astype(wanted.dtype.newbyteorder("=")).tobytes()


def test_an_archives_own_label_is_not_replaced_by_that_of_its_folder(tmp_path: Path) -> None:
    for number in range(6):
        folder = tmp_path / ("cat", "dog")[number % 2]
        folder.mkdir(exist_ok=True)
        np.savez(folder / f"{number}.npz", x=np.arange(2), label=np.int64(100 + number), path=np.int8(number))
    rows = read_folder(tmp_path, fields=["label", "path", "image/class/label"])
    wanted = [0, 2, 4, 1, 3, 5]
    assert [int(row["label"]) - 100 for row in rows] == wanted
    assert [int(row["path"]) for row in rows] == wanted
    assert [int(row["image/class/label"]) - 100 for row in rows] == wanted


@pytest.mark.parametrize("dtype", ["<i4", ">f8", "?", "M8[D]", "S4"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_rows_are_those_of_the_arrays(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    arrays = [(np.arange(np.prod((rows, *shape), dtype=int)) % 100).reshape(rows, *shape) for rows in (4, 0, 9, 1)]
    for number, array in enumerate(arrays):
        np.save(tmp_path / f"{number}.npy", array.astype(dtype))
    rows = read_folder(f"{tmp_path}?format=npy-rows")
    wanted = [row for array in arrays for row in array.astype(dtype)]
    assert len(rows) == len(wanted) == 14
    for row, one in zip(rows, wanted, strict=True):
        _assert_same(row["row"], np.asarray(one))


def test_empty_records_among_others_arrive(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for number, size in enumerate((0, 5, 0, 0, 7, 0)):
        (tmp_path / "files" / f"{number}.x").write_bytes(b"z" * size)
    (tmp_path / "tokens").mkdir()
    write_megatron(tmp_path / "tokens" / "a", [[np.arange(0)], [np.arange(0)]], np.int32)
    write_megatron(tmp_path / "tokens" / "b", [[np.arange(3)], [np.arange(0)], [np.arange(2)]], np.int32)
    for batch_size in (1, 2, 7):
        files = read_folder(tmp_path / "files", batch_size=batch_size)
        assert [len(row["data"]) for row in files] == [0, 5, 0, 0, 7, 0]
        tokens = read_folder(tmp_path / "tokens", batch_size=batch_size)
        assert [len(row["tokens"]) for row in tokens] == [0, 0, 3, 0, 2]


def test_a_folder_of_empty_records_only_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.x").write_bytes(b"")
    with pytest.raises(DatasetError, match="its records must hold bytes, all of them are empty"):
        read_folder(tmp_path)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.int32, np.int64, np.uint16])
def test_documents_are_those_of_megatrons_files(dtype: type[np.generic], tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    for part in range(3):
        documents = [
            [draw.integers(0, 120, draw.integers(0, 9)) for _ in range(draw.integers(0, 4))] for _ in range(20)
        ]
        documents.append([np.arange(5)])
        write_megatron(tmp_path / f"part{part}", documents, dtype, modes=part == 1)
    wanted = [tokens for part in range(3) for tokens in read_megatron(tmp_path / f"part{part}")]
    rows = read_folder(tmp_path, shuffle=True)
    assert len(rows) == len(wanted)
    for row, tokens in zip(rows, wanted, strict=True):
        _assert_same(row["tokens"], tokens)


def test_windows_are_those_of_the_files(tmp_path: Path) -> None:
    tokens = [np.arange(count, dtype=np.uint16) for count in (1, 50, 51, 100, 101, 149)]
    for number, one in enumerate(tokens[:3]):
        one.tofile(tmp_path / f"{number}.bin")
    for number, one in enumerate(tokens[3:]):
        np.save(tmp_path / f"{number + 3}.npy", one)
    rows = read_folder(f"{tmp_path}?format=tokens&window=50&dtype=uint16")
    wanted = [one[at : at + 51] for one in tokens for at in range(0, len(one) - 50, 50)]
    assert len(wanted) == 6
    for row, window in zip(rows, wanted, strict=True):
        _assert_same(row["tokens"], window)


def test_labels_are_those_of_torchvisions_image_folder(tmp_path: Path) -> None:
    datasets = pytest.importorskip("torchvision.datasets", reason="needs torchvision")
    names = ("n02", "n10", "a b", "Zebra", "apple", "ünder", "a", "a-b", "a/deep/er", "\U0001f600")
    for number, name in enumerate(names):
        put_files(tmp_path, {f"{name}/{one}.jpg": f"{name} {one}".encode() for one in range(number % 3 + 1)})
    put_files(tmp_path, {"README.md": b"about", "labels.txt": b"also about"})
    samples = set(datasets.ImageFolder(str(tmp_path)).samples)
    put_files(tmp_path, {".hidden/x.jpg": b"x"})
    rows = read_folder(tmp_path, fields=["data", "label", "path", "image/class/label", "image/encoded"], shuffle=True)
    assert {(str(tmp_path / row["path"]), int(row["label"])) for row in rows} == samples
    assert len(rows) == len(samples)
    assert all((tmp_path / row["path"]).read_bytes() == row["data"] == row["image/encoded"] for row in rows)
    assert all(row["label"] == row["image/class/label"] for row in rows)


def _classes_in(folder: Path, form: str) -> Path:
    if form == "tar":
        (folder / "a.tar").write_bytes(tar_of([("0.jpg", b"x"), ("0.cls", b"3"), ("1.jpg", b"y"), ("1.cls", b"4")]))
    else:
        rows = {"image": [{"bytes": b"x"}, {"bytes": b"y"}], "target": [3, 4]}
        import_module("pyarrow.parquet").write_table(import_module("pyarrow").table(rows), folder / "a.parquet")
    return folder


@pytest.mark.parametrize("form", ["tar", "parquet"])
def test_a_label_that_is_asked_for_is_the_class_wherever_it_stands(tmp_path: Path, form: str) -> None:
    folder = _classes_in(tmp_path, form)
    for fields in (["label"], ["label", "image/class/label"]):
        rows = read_folder(folder, fields=fields)
        assert [{name: int(value) for name, value in row.items()} for row in rows] == [
            dict.fromkeys(fields, label) for label in (3, 4)
        ]
    with EmlioLoader([(str(folder), 1)], batch_size=2, to="numpy", fields=["label"], epochs=1) as loader:
        assert sorted(label for batch in loader for label in batch["label"].tolist()) == [3, 4]


@pytest.mark.parametrize(
    "files",
    [
        {"a.tar": tar_of([("0.cls", b"3"), ("0.label", b"own"), ("1.cls", b"4")])},
        {"a.jsonl": b'{"cls": 3, "label": "own"}\n{"cls": 4}\n'},
    ],
)
def test_a_label_of_the_records_own_is_itself(tmp_path: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    own, absent = (row["label"] for row in read_folder(tmp_path, fields=["label"]))
    assert (own if isinstance(own, str) else bytes(own).decode(), absent) == ("own", None)
