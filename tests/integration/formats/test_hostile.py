"""Folders that mislead: copies of equal names, lost parts, files that claim too much, indexes of others."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from emlio import EmlioLoader
from emlio.errors import CorruptRecordError, DatasetError
from emlio.index.opening import open_dataset
from emlio_testing.format_datasets import FORMS

pytestmark = pytest.mark.usefixtures("own_cache")


def test_arrays_of_one_shape_and_other_numbers_are_no_copies(tmp_path: Path) -> None:
    digests: set[str] = set()
    for copy, first in (("a", 0), ("b", 100), ("c", 100)):
        folder = tmp_path / copy / "data"
        folder.mkdir(parents=True)
        for number in range(5):
            np.save(folder / f"{number}.npy", np.full(7, first + number))
        with open_dataset("x", folder) as dataset:
            digests |= {shard.digest for shard in dataset.shards}
    assert len(digests) == 2


@pytest.mark.parametrize("ending", [".bin", ".idx"])
def test_a_part_of_token_files_that_is_missing_is_named(tmp_path: Path, ending: str) -> None:
    FORMS["megatron"].make(tmp_path / "data", 20)
    (tmp_path / "data" / f"part-2{ending}").unlink()
    with pytest.raises(DatasetError, match=rf"part-2\.\w+: must have its {ending} beside it"):
        open_dataset("x", tmp_path / "data")


def test_many_files_at_the_top_are_records_whatever_their_names(tmp_path: Path) -> None:
    (tmp_path / "data" / "extra").mkdir(parents=True)
    (tmp_path / "data" / "extra" / "3.png").write_bytes(b"3")
    for number in range(17):
        (tmp_path / "data" / f"{number}.json").write_bytes(b"{}")
    with open_dataset("x", tmp_path / "data") as dataset:
        assert dataset.records == 18
        assert not dataset.contents.label_names


def test_rows_without_bytes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (10**12, 0)})
    (tmp_path / "data" / "x.npy").write_bytes(head.getvalue())
    with pytest.raises(DatasetError, match=r"x\.npy: must have rows of at least one byte"):
        open_dataset("x", tmp_path / "data", options={"format": "npy-rows"})


def test_an_archive_that_claims_gigabytes_is_a_bad_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emlio.formats.archives._MOST_UNPACKED_BYTES", 1 << 20)
    (tmp_path / "data").mkdir()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        array = io.BytesIO()
        np.save(array, np.zeros(1 << 21, np.uint8))
        archive.writestr("a.npy", array.getvalue())
    (tmp_path / "data" / "x.npz").write_bytes(packed.getvalue())
    with (
        EmlioLoader(tmp_path / "data", batch_size=1, to="numpy") as loader,
        pytest.raises(CorruptRecordError, match="at most 1,048,576 bytes unpacked, has 2,097,280"),
    ):
        next(iter(loader))


def test_an_index_that_names_another_folder_removes_nothing(tmp_path: Path, own_cache: Path) -> None:
    FORMS["jsonl"].make(tmp_path / "data", 20)
    open_dataset("x", tmp_path / "data").close()
    (about,) = own_cache.rglob("ranges-*.json")
    keep = about.parent.parent / "precious"
    keep.mkdir()
    for name in ("..", "../precious", "/tmp"):
        about.write_text(json.dumps({**json.loads(about.read_text()), "folder": name}))
        with open_dataset("x", tmp_path / "data") as dataset:
            assert dataset.records == 20
        assert keep.is_dir()
