"""Folders that are served: links, what is no file, and paths that lead elsewhere than they did."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from emlio.errors import ClosedError, DatasetError
from emlio.formats.tfrecord.mapping import mapping_name
from emlio.index.dataset import Dataset
from emlio.index.opening import open_dataset
from emlio.reading.page_cache import PageCacheEngine
from emlio.store.folder import Folder, absence
from emlio_testing.datasets import make_dataset
from emlio_testing.reading import page_cache

NAME = "train-00001-of-00003.tfrecord"


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(params=[True, False], ids=["mapped", "bare"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    make_dataset(tmp_path / "data", records=30, shards=3, mapped=request.param)
    return tmp_path / "data"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "data", records=30, shards=3, mapped=False)
    return tmp_path / "data"


@pytest.fixture
def mapped(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "data", records=30, shards=3)
    return tmp_path / "data"


@contextmanager
def serving(directory: Path) -> Iterator[tuple[Dataset, PageCacheEngine]]:
    with open_dataset("d", directory) as dataset:
        shards = page_cache(dataset)
        try:
            yield dataset, shards
        finally:
            shards.close()


def check(shards: PageCacheEngine) -> None:
    """Compare all files, by their paths and by what is open."""
    shards.check_paths()
    shards.check(np.arange(3), 10**18)


def content_of(shards: PageCacheEngine, number: int) -> bytes:
    with shards.files.open(shards.dataset.shards[number].first_file) as descriptor:
        return os.pread(descriptor, 1 << 20, 0)


def moved(path: Path, to: Path) -> Path:
    """Move a file, and say where it is; the caller puts a link in its place."""
    to.parent.mkdir(exist_ok=True)
    shutil.move(path, to)
    return to


# ---- links --------------------------------------------------------------------------------------------------------------


def test_shards_that_are_links_within_the_folder_are_served(data: Path) -> None:
    """As in a layout of versions: names lead to a folder of blobs, by way of a link to the current one."""
    for path in sorted(data.glob("*.tfrecord")):
        moved(path, data / "v1" / path.name)
        path.symlink_to(f"current/{path.name}")
    (data / "current").symlink_to("v1")
    with serving(data) as (dataset, shards):
        assert dataset.records == 30
        check(shards)
        assert content_of(shards, 1) == (data / "v1" / NAME).read_bytes()


def test_the_folder_itself_may_be_a_link(data: Path, tmp_path: Path) -> None:
    (tmp_path / "named").symlink_to("data")
    with serving(tmp_path / "named") as (dataset, shards):
        shards.check_paths()
        assert dataset.folder_store.folder.path == tmp_path / "named"


@pytest.mark.parametrize("name", [NAME, mapping_name(1)])
def test_a_link_that_leaves_the_folder_is_refused_with_link_target_folder_and_way_out(
    mapped: Path, tmp_path: Path, name: str
) -> None:
    target = moved(mapped / name, tmp_path / "blobs" / "blob")
    (mapped / name).symlink_to("../blobs/blob")
    said = rf"{mapped / name}: a link .* inside {mapped}, this one points to {target}, outside.*Serve .*{target.parent}"
    with pytest.raises(DatasetError, match=f"{said}.*hard link.*bind mount"):
        open_dataset("d", mapped)


def test_a_link_by_way_of_a_folder_that_leaves_is_refused_too(data: Path, tmp_path: Path) -> None:
    target = moved(data / NAME, tmp_path / "blobs" / NAME)
    (data / "there").symlink_to(tmp_path / "blobs")
    (data / NAME).symlink_to(f"there/{NAME}")
    with pytest.raises(DatasetError, match=f"{data / NAME}: a link .*points to {target}, outside"):
        open_dataset("d", data)


@pytest.mark.parametrize("where", ["../outside/train.tfrecord", "{outside}/train.tfrecord", "..", "sub/x", ".", ""])
def test_a_mapping_names_files_of_its_own_folder_only(mapped: Path, where: str) -> None:
    outside = mapped.parent / "outside"
    outside.mkdir()
    shutil.copy(mapped / NAME, outside / "train.tfrecord")
    path = mapped / mapping_name(1)
    path.write_text(path.read_text().replace(NAME, where.format(outside=outside)))
    with pytest.raises(DatasetError, match=f"{mapping_name(1)}: file must be a plain file name, got "):
        open_dataset("d", mapped)


# ---- what is no file ----------------------------------------------------------------------------------------------------


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(path.parent, os.O_PATH)
        try:
            listener.bind(f"/proc/self/fd/{here}/{path.name}")  # its own path is longer than a socket's may be
        finally:
            os.close(here)


@pytest.mark.parametrize(("make", "kind"), [(fifo, "a FIFO"), (unix_socket, "a socket")])
def test_what_is_no_file_is_refused_without_waiting(data: Path, make: Callable[[Path], None], kind: str) -> None:
    with open_dataset("d", data):
        pass  # so that indexes are there
    (data / NAME).unlink()
    make(data / NAME)
    with pytest.raises(DatasetError, match=f"{data / NAME}: must be a regular file, is {kind}"):
        open_dataset("d", data)


def test_a_fifo_behind_a_link_or_in_the_place_of_a_mapping_is_refused_too(mapped: Path) -> None:
    (mapped / NAME).unlink()
    (mapped / NAME).symlink_to("pipe")
    os.mkfifo(mapped / "pipe")
    with pytest.raises(DatasetError, match=f"{NAME}: must be a regular file, is a FIFO"):
        open_dataset("d", mapped)
    (mapped / mapping_name(2)).unlink()
    os.mkfifo(mapped / mapping_name(2))
    with pytest.raises(DatasetError, match=f"{mapping_name(2)}: must be a regular file, is a FIFO"):
        open_dataset("d", mapped)


def test_a_fifo_put_in_the_place_of_a_shard_that_is_served_does_not_hold_the_reader(data: Path) -> None:
    with serving(data) as (_, shards):
        (data / NAME).unlink()
        os.mkfifo(data / NAME)
        with pytest.raises(DatasetError, match=f"{NAME}: must be a regular file, is a FIFO"):
            shards.files.open(shards.dataset.shards[1].first_file)
        with pytest.raises(DatasetError, match=r"while it (is|was) served"):  # by its inode, if that is another
            shards.check_paths()


# ---- paths that change --------------------------------------------------------------------------------------------------


def test_a_renamed_folder_is_read_as_it_was_and_no_longer_offered(data: Path) -> None:
    content = (data / NAME).read_bytes()
    with serving(data) as (_, shards):
        data.rename(data.with_name("renamed"))
        assert content_of(shards, 1) == content
        for look in (shards.check_paths, lambda: shards.check(np.arange(3), 10**18)):
            with pytest.raises(DatasetError, match=f"{data} was removed"):
                look()
        data.with_name("renamed").rename(data)
        check(shards)


def test_what_cannot_be_read_any_more_is_not_called_gone(data: Path) -> None:
    assert absence(PermissionError(13, "Permission denied")) == "cannot be read (Permission denied)"
    assert absence(FileNotFoundError(2, "No such file or directory")) == "was removed (No such file or directory)"
    with serving(data) as (_, shards):
        (data / NAME).unlink()
        (data / NAME).symlink_to(NAME)
        with pytest.raises(DatasetError, match=rf"{NAME} cannot be read \(Too many levels"):
            shards.check_paths()
        data.rename(data.with_name("renamed"))
        data.symlink_to(data)
        with pytest.raises(DatasetError, match=rf"{data} cannot be read \(Too many levels"):
            shards.check_paths()


@pytest.mark.parametrize("by", ["folder", "link"])
def test_a_folder_that_was_replaced_by_its_twin_is_not_taken_for_it(data: Path, tmp_path: Path, by: str) -> None:
    """Same names, sizes, times: only the folder itself tells that these are not the files that were indexed."""
    shutil.copytree(data, tmp_path / "twin")
    served = data
    if by == "link":
        served = tmp_path / "current"
        served.symlink_to("data")
    with serving(served) as (_, shards):
        shards.check_paths()
        data.rename(tmp_path / "old")
        (tmp_path / "twin").rename(data)
        with pytest.raises(DatasetError, match=f"{data} is now another folder"):
            shards.check_paths()
        with pytest.raises(DatasetError, match=f"{data} is now another folder"):
            shards.check(np.arange(3), 10**18)


@pytest.mark.parametrize("way", ["current", "current/..", "above/data"])
def test_a_link_that_is_moved_leaves_what_is_served_as_it_is(data: Path, tmp_path: Path, way: str) -> None:
    contents = [path.read_bytes() for path in sorted(data.glob("*.tfrecord"))]
    (data / "inside").mkdir()
    (tmp_path / "new").mkdir()
    make_dataset(tmp_path / "new" / "data", records=30, shards=3, payload=lambda record: b"other %d" % record)
    (tmp_path / "new" / "data" / "inside").mkdir()
    (tmp_path / "current").symlink_to("data/inside" if ".." in way else "data")
    (tmp_path / "above").symlink_to(".")
    served = tmp_path / way
    with serving(served) as (_, shards):
        for name, target in (("current", "new/data/inside" if ".." in way else "new/data"), ("above", "new")):
            (tmp_path / "link").symlink_to(target)
            (tmp_path / "link").rename(tmp_path / name)
        check(shards)
        assert [content_of(shards, number) for number in range(3)] == contents
    with serving(served) as (_, shards):
        assert content_of(shards, 0) != contents[0]


def test_a_link_that_is_gone_leaves_what_is_served_as_it_is(data: Path, tmp_path: Path) -> None:
    served = tmp_path / "current"
    served.symlink_to("data")
    with serving(served) as (_, shards):
        served.unlink()
        shards.check_paths()
        shutil.rmtree(data)
        with pytest.raises(DatasetError, match=f"{data} was removed"):
            shards.check_paths()


def test_files_of_a_replaced_folder_are_never_mixed_with_those_served(data: Path, tmp_path: Path) -> None:
    make_dataset(tmp_path / "other", records=30, shards=3, payload=lambda record: b"other %d" % record)
    contents = [path.read_bytes() for path in sorted(data.glob("*.tfrecord"))]
    with serving(data) as (_, shards):
        assert content_of(shards, 0) == contents[0]
        data.rename(tmp_path / "old")
        (tmp_path / "other").rename(data)
        assert [content_of(shards, number) for number in range(3)] == contents


def test_a_shard_replaced_by_a_link_that_leaves_is_noticed(data: Path, tmp_path: Path) -> None:
    with serving(data) as (_, shards):
        shards.check(np.arange(3), 10**17)
        moved(data / NAME, tmp_path / "blobs" / NAME)
        (data / NAME).symlink_to(tmp_path / "blobs" / NAME)
        for look in (shards.check_paths, lambda: shards.check(np.arange(3), 10**18)):
            with pytest.raises(DatasetError, match=f"{data / NAME}: .* must point inside it"):
                look()


def test_a_closed_folder_says_so_and_is_closed_once(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.close()
    folder.close()
    with pytest.raises(ClosedError, match=f"the folder {tmp_path} is closed"):
        folder.kinds()
