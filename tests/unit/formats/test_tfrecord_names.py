"""Which files are shards, and which must be elsewhere."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from emlio.errors import DatasetError
from emlio.formats.format import Layout
from emlio.formats.tfrecord.mapping import ShardMapping, mapping_name, read_mapping
from emlio.formats.tfrecord.shard_names import numbered_names, numbered_shard, rival_families
from emlio.formats.tfrecord.tfrecords import tfrecords
from emlio.index.opening import open_dataset
from emlio.prepare.mappings import write_mapping
from emlio.store.folder import Folder
from emlio.store.folder_store import walk
from emlio_testing.datasets import make_dataset


def looked_through(directory: Path, **options: str) -> Layout:
    with Folder(directory) as folder:
        return tfrecords.layout(walk(folder, top=tfrecords.owns), options, str(directory))


def present(layout: Layout) -> tuple[str, ...]:
    return tuple(shard.name for shard in layout.shards)


def touch(directory: Path, *names: str) -> Path:
    for name in names:
        (directory / name).touch()
    return directory


@pytest.mark.parametrize(
    "name",
    [
        "a.tfrecord",
        "a.tfrecords",
        "a.tfrec",
        "A.TFRecord",
        "a.tfr",
        "train-00000-of-00001",
        "t.tfrecord-00000-of-00001",
        "openimages.v6-train-00000-of-00001",
        "train-00000-of-00001.tfrecord",
    ],
)
def test_tensorflow_s_names_are_shards(tmp_path: Path, name: str) -> None:
    touch(tmp_path, name, "notes.txt")
    assert present(looked_through(tmp_path)) == (name,)


@pytest.mark.parametrize(
    "name",
    [
        ".a.tfrecord",
        "a.tfrecord.index.npy",
        "a.tfrecord.digest.json",
        "a.idx",
        "a.tfrecord.tmp",
        "model.ckpt.data-00000-of-00001",
        "t.parquet-00000-of-00001",
        "t-00000-of-00001.parquet",
        "t.array_record-00000-of-00001",
        "t-00003-of-00002",
        "t-0-of-1",
        "README.md",
    ],
)
def test_other_files_are_not(tmp_path: Path, name: str) -> None:
    touch(tmp_path, name)
    with pytest.raises(DatasetError, match=r"holds no shards, found no mapping_shard_\*\.json, \*\.tfrecord"):
        looked_through(tmp_path)


def test_folders_and_dangling_links_are_no_shards_but_links_to_files_are(tmp_path: Path) -> None:
    touch(tmp_path, "a.tfrecord")
    (tmp_path / "b.tfrecord").mkdir()
    (tmp_path / "c.tfrecord").symlink_to("a.tfrecord")
    (tmp_path / "d.tfrecord").symlink_to("gone")
    assert present(looked_through(tmp_path)) == ("a.tfrecord", "c.tfrecord")


def test_numbered_names_tell_which_shards_are_elsewhere(tmp_path: Path) -> None:
    touch(tmp_path, "t-00002-of-00004", "t-00000-of-00004", "v-00000-of-00001.tfrecord", "plain.tfrecord")
    found = looked_through(tmp_path)
    assert present(found) == ("plain.tfrecord", "t-00000-of-00004", "t-00002-of-00004", "v-00000-of-00001.tfrecord")
    assert found.missing == ("t-00001-of-00004", "t-00003-of-00004")
    assert all(len(shard.files) == 1 for shard in found.shards)


@pytest.mark.parametrize(
    ("here", "example"),
    [
        # TensorFlow fills numbers up to five digits, however many shards there are.
        (["t-00000-of-100000", "t-00002-of-100000"], "t-00001-of-100000"),
        (["t-99999-of-100001", "t-100000-of-100001", "t-00000-of-100001"], "t-00001-of-100001"),
        (["t-100000-of-100001"], "t-99999-of-100001"),
        (["t-000000-of-100000"], "t-099999-of-100000"),
    ],
)
def test_a_hundred_thousand_shards_and_more_are_numbered_as_those_here_are(
    tmp_path: Path, here: list[str], example: str
) -> None:
    touch(tmp_path, *here)
    missing = looked_through(tmp_path).missing
    assert example in missing
    assert len(missing) == int(here[0].rpartition("-")[2]) - len(here)


def test_a_name_tells_its_place() -> None:
    assert numbered_shard("t-00002-of-00004.tfrecord") == (2, 4)
    assert numbered_shard("t-00004-of-00004.tfrecord") is None
    assert numbered_shard("t.tfrecord") is None


@pytest.mark.parametrize(
    ("names", "rivals"),
    [
        (["t-00000-of-00002.tfrecord", "t-00001-of-00002.tfrecord", "plain.tfrecord"], []),
        (["t-00000-of-00002.tfrecord", "v-00000-of-00003.tfrecord", "t-00000-of-00003"], []),
        (["t-00000-of-00002.tfrecord", "t-00005-of-00003.tfrecord"], []),
        (
            ["t-00000-of-00017.tfrecord", "v-00000-of-00002", "t-00003-of-00016.tfrecord", "v-00000-of-00001"],
            [("t-*-of-00016.tfrecord", "t-*-of-00017.tfrecord"), ("v-*-of-00001", "v-*-of-00002")],
        ),
    ],
)
def test_families_that_differ_in_their_number_alone_are_rivals(names: list[str], rivals: list[tuple[str, ...]]) -> None:
    assert rival_families(names) == rivals


def test_no_directory_and_no_shard_are_different_errors(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="gone: no such directory"):
        open_dataset("d", tmp_path / "gone")
    touch(tmp_path, "a.tfrecord")
    with pytest.raises(DatasetError, match=r"a\.tfrecord: must be a directory"):
        open_dataset("d", tmp_path / "a.tfrecord")


def test_a_directory_of_compressed_shards_is_told_the_way_out(tmp_path: Path) -> None:
    touch(tmp_path, "a.tfrecord.gz", "b.tfrecord-00000-of-00001.gz")
    with pytest.raises(DatasetError, match=r"only compressed TFRecord files such as a\.tfrecord\.gz.*emlio convert"):
        looked_through(tmp_path)


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.tfrecord")).touch()
    with pytest.raises(DatasetError, match="must be printable text"):
        looked_through(tmp_path)


@pytest.fixture
def mapped(tmp_path: Path) -> Path:
    make_dataset(tmp_path, records=40, shards=4)
    return tmp_path


def mapping(directory: Path, index: int) -> ShardMapping:
    return read_mapping(directory / mapping_name(index))


def test_where_there_are_mappings_only_their_shards_count(mapped: Path) -> None:
    touch(mapped, "other.tfrecord")
    found = looked_through(mapped)
    assert len(found.shards) == 4
    assert found.missing == ()
    assert all(len(shard.files) == 2 for shard in found.shards)
    assert len(looked_through(mapped, mappings="ignore").shards) == 5


def test_shards_that_are_mapped_but_not_here_are_missing(mapped: Path) -> None:
    (mapped / "train-00001-of-00004.tfrecord").unlink()
    found = looked_through(mapped)
    assert found.missing == ("train-00001-of-00004.tfrecord",)
    assert "train-00001-of-00004.tfrecord" not in present(found)


def test_shards_without_mapping_and_file_are_missing_by_the_name_the_others_imply(mapped: Path) -> None:
    (mapped / "train-00003-of-00004.tfrecord").unlink()
    (mapped / mapping_name(3)).unlink()
    assert looked_through(mapped).missing == ("train-00003-of-00004.tfrecord",)


def test_shards_of_which_no_name_is_known_are_missing_by_their_mapping_s(tmp_path: Path) -> None:
    make_dataset(tmp_path, records=4, shards=1)
    old = tmp_path / "train-00000-of-00001.tfrecord"
    old.rename(tmp_path / "data.tfrecord")
    write_mapping(tmp_path, replace(mapping(tmp_path, 0), file="data.tfrecord", shard_count=2))
    assert looked_through(tmp_path).missing == (mapping_name(1),)


def test_a_shard_that_lost_its_mapping_is_not_left_out_in_silence(mapped: Path) -> None:
    (mapped / mapping_name(3)).unlink()
    with pytest.raises(
        DatasetError, match=r"train-00003.* has no mapping mapping_shard_00003\.json.*--force --mapping"
    ):
        looked_through(mapped)


def test_a_file_without_a_mapping_beside_shards_with_one_is_told(
    mapped: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # The mapping of the shard that is missing now is not told: it holds no records.
    (mapped / "train-00002-of-00004.tfrecord").rename(mapped / "more.tfrecord")
    open_dataset("x", mapped).close()
    assert "(format tfrecord): 1 file is left out, such as more.tfrecord" in caplog.text


def test_mappings_without_any_of_their_shards_are_no_dataset(mapped: Path) -> None:
    for path in mapped.glob("*.tfrecord"):
        path.unlink()
    with pytest.raises(DatasetError, match="has mappings, but all 4 shards that they describe are missing"):
        looked_through(mapped)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"shard_count": 5}, "shard_count must be the same in all mappings, got 5"),
        ({"file": "train-00000-of-00004.tfrecord"}, "its file must be unique"),
    ],
)
def test_mappings_that_contradict_each_other_are_refused(mapped: Path, change: dict[str, object], reason: str) -> None:
    write_mapping(mapped, replace(mapping(mapped, 2), **change))  # type: ignore[arg-type]
    with pytest.raises(DatasetError, match=reason):
        looked_through(mapped)


def test_two_mappings_of_one_place_are_refused(mapped: Path) -> None:
    (mapped / mapping_name(2)).write_bytes((mapped / mapping_name(1)).read_bytes())
    with pytest.raises(DatasetError, match="its shard_index must be unique"):
        looked_through(mapped)


def test_a_shard_has_a_name_for_each_number_of_digits() -> None:
    five, six = "t-00002-of-100004.tfrecord", "t-000002-of-100004.tfrecord"
    assert numbered_names(five) == numbered_names(six) == (five, six)
    assert numbered_names("t-100002-of-100004.tfrecord") == ("t-100002-of-100004.tfrecord",)
    assert numbered_names("t-00004-of-00004.tfrecord") == numbered_names("t.tfrecord") == ()
