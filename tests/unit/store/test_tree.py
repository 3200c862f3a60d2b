"""The files below a folder: order, links, strange names and kinds; tables of names and files."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emlio.errors import DatasetError
from emlio.index.opening import open_dataset
from emlio.store.file_table import NameTable
from emlio.store.folder import Folder
from emlio.store.folder_store import FolderStore, unchanged, walk, walk_files
from emlio_testing.format_files import read_folder

pytestmark = pytest.mark.usefixtures("own_cache")


def _put(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode("utf-8", "surrogateescape"))


def _walk(root: Path) -> FolderStore:
    with Folder(root) as folder:
        return walk(folder)


def test_files_come_first_then_folders_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    _put(tmp_path, "z", "B", "a/2", "a/10", "a/b/1", "a-b/1", "ä/1", "a/z", "Z/1", "a!/1")
    assert list(_walk(tmp_path).names) == [
        "B", "z", "Z/1", "a/10", "a/2", "a/z", "a/b/1", "a!/1", "a-b/1", "ä/1"
    ]  # fmt: skip


def test_hidden_files_and_folders_are_left_out(tmp_path: Path) -> None:
    _put(tmp_path, ".a", ".git/x", "b/.c", "b/d", "b/.e/f")
    assert list(_walk(tmp_path).names) == ["b/d"]


def test_names_that_are_no_utf8_are_read_and_come_back_as_they_are(tmp_path: Path) -> None:
    _put(tmp_path, "c\udcff/\udcfe.x", "c\udcff/b.x", "d/1.x")
    rows = read_folder(tmp_path)
    assert [row["path"] for row in rows] == ["c\udcff/b.x", "c\udcff/\udcfe.x", "d/1.x"]
    assert all(row["data"] == row["path"].encode("utf-8", "surrogateescape") for row in rows)
    with open_dataset("data", tmp_path) as dataset:
        assert dataset.contents.label_names == {0: "c\\xff", 1: "d"}  # so that different bytes are different names


def test_a_shards_name_must_be_utf8_and_short_enough_to_be_told(tmp_path: Path) -> None:
    _put(tmp_path, "\udcff.jsonl")
    with pytest.raises(DatasetError, match=r"names of shards must be UTF-8, rename '\\udcff.jsonl'"):
        read_folder(tmp_path)
    (tmp_path / os.fsdecode(b"\xff.jsonl")).unlink()
    _put(tmp_path, "/".join(["d" * 200] * 3) + ".jsonl")
    with pytest.raises(DatasetError, match="names of shards must have at most 255 characters"):
        read_folder(tmp_path)


def test_a_link_to_a_file_inside_is_a_file(tmp_path: Path) -> None:
    _put(tmp_path, "a/1.x", ".store/2.x")
    (tmp_path / "a" / "2.x").symlink_to("../.store/2.x")
    tree = _walk(tmp_path)
    assert list(tree.names) == ["a/1.x", "a/2.x"]
    assert tree.sizes.tolist() == [5, 10]
    assert [bytes(row["data"]) for row in read_folder(tmp_path)] == [b"a/1.x", b".store/2.x"]


def test_links_to_folders_or_to_nothing_are_passed_over_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _put(tmp_path, "a/1.x")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "c").symlink_to("nothing")
    tree = _walk(tmp_path)
    assert list(tree.names) == ["a/1.x"]
    assert tree.passed_over == ("b", "c")
    assert len(read_folder(tmp_path)) == 1
    assert "2 links to folders, or to nothing, are not followed, such as b" in caplog.text


@pytest.mark.parametrize("target", ["../outside", "/etc/passwd", "/etc", "../data/../outside"])
def test_a_link_that_leads_out_is_refused(target: str, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"secret")
    folder = tmp_path / "data"
    _put(folder, "a/1.x")
    (folder / "b").symlink_to(target)
    with pytest.raises(DatasetError, match="a link in a served folder must point inside it"):
        read_folder(folder)


def test_in_a_folder_that_is_not_served_links_lead_anywhere_but_not_to_nothing_nor_round(tmp_path: Path) -> None:
    _put(tmp_path / "far", "x/1", "2")
    folder = tmp_path / "data"
    _put(folder, "a/3")
    (folder / "b").symlink_to(tmp_path / "far")
    (folder / "a" / "4").symlink_to(tmp_path / "far" / "2")
    (folder / "a" / "round").symlink_to("..")
    with Folder(folder, served=False) as opened:
        tree = walk(opened)
        assert list(tree.names) == ["a/3", "a/4", "b/2", "b/x/1"]
        assert tree.passed_over == ("a/round",)
        assert tree.read(3, 0, 10) == b"x/1"
        (folder / "c").symlink_to("nothing")
        with pytest.raises(DatasetError, match="c: must be a link to a file or a folder, leads nowhere"):
            walk(opened)


def test_links_that_lead_nowhere_or_round_are_passed_over_in_a_served_folder(tmp_path: Path) -> None:
    _put(tmp_path, "a/1", "2")
    for name, target in [("a/nowhere", "nothing"), ("left", "right"), ("right", "left"), ("self", "self")]:
        (tmp_path / name).symlink_to(target)
    with Folder(tmp_path) as opened:
        tree = walk(opened)
        assert list(tree.names) == ["2", "a/1"]
        assert sorted(tree.passed_over) == ["a/nowhere", "left", "right", "self"]


def test_one_file_is_a_tree(tmp_path: Path) -> None:
    _put(tmp_path, "a.Tar", "b.tar")
    with Folder(tmp_path) as folder:
        tree = walk_files(folder, ["a.Tar"])
        assert (list(tree.names), tree.endings, tree.sizes.tolist()) == (["a.Tar"], {".tar": 1}, [5])
        assert unchanged(folder, tree.folders)
        with pytest.raises(DatasetError, match="none: cannot be listed: No such file"):
            walk_files(folder, ["none"])


def test_a_fifo_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    _put(tmp_path, "a")
    os.mkfifo(tmp_path / "b")
    with pytest.raises(DatasetError, match="b: must be a regular file, is a FIFO"):
        read_folder(tmp_path)
    (tmp_path / "c").symlink_to("b")
    (tmp_path / "d").mkdir()
    (tmp_path / "b").rename(tmp_path / "d" / "b")
    (tmp_path / "c").unlink()
    (tmp_path / "c").symlink_to("d/b")
    with pytest.raises(DatasetError, match="c: must be a regular file, is a FIFO"):
        _walk(tmp_path)


@pytest.mark.parametrize("inside", [(), ("empty/more",), (".hidden",)])
def test_an_empty_folder_is_refused(inside: tuple[str, ...], tmp_path: Path) -> None:
    for name in inside:
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(DatasetError, match="must hold a dataset, holds no files"):
        read_folder(tmp_path)
    with pytest.raises(DatasetError, match="must hold files, holds none"):
        read_folder(f"{tmp_path}?format=files")


def test_folders_tell_that_a_file_came_or_went(tmp_path: Path) -> None:
    _put(tmp_path, "a/b/1", "a/2", "c/3")
    with Folder(tmp_path) as folder:
        times = walk(folder).folders
        assert list(times.names) == [".", "a", "a/b", "c"]
        assert unchanged(folder, times)
        (tmp_path / "a/b/1").write_bytes(b"other content")
        assert unchanged(folder, times)
        (tmp_path / "a/b/1").rename(tmp_path / "a/b/2")
        assert not unchanged(folder, times)
        times = walk(folder).folders
        (tmp_path / "c/3").unlink()
        (tmp_path / "c").rmdir()
        assert not unchanged(folder, times)


def test_reading_past_the_end_gives_what_is_there(tmp_path: Path) -> None:
    _put(tmp_path, "abc")
    with Folder(tmp_path) as folder:
        tree = walk(folder)
        assert (tree.read(0, 1, 100), tree.read(0, 9, 5), tree.read(0, 0, 0)) == (b"bc", b"", b"")
        (tmp_path / "abc").unlink()
        with pytest.raises(DatasetError, match="abc: cannot be opened: No such file"):
            tree.read(0, 0, 1)


_NAMES = st.lists(st.binary(max_size=20).map(os.fsdecode))


@given(_NAMES)
def test_a_table_of_names_is_the_list_of_them(names: list[str]) -> None:
    table = NameTable.of(names)
    assert list(table) == names
    assert len(table) == len(names)
    assert table[1:3] == names[1:3]
    assert table[::-1] == names[::-1]
    assert all(table.raw(number) == os.fsencode(name) for number, name in enumerate(names))


@pytest.mark.parametrize("number", [-1, 2, 1 << 40])
def test_a_number_outside_of_a_table_is_an_error(number: int) -> None:
    with pytest.raises(IndexError):
        NameTable.of(["a", "b"])[number]


def test_an_empty_table_has_no_names() -> None:
    assert list(NameTable(np.empty(0, np.uint8), np.zeros(1, np.int64))) == []
