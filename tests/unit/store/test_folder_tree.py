"""A folder's entries as arrays: walking a folder gives what os.walk gives, looking up, what is no tree."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio.errors import DatasetError, FileError
from emlio.store import beneath
from emlio.store.beneath import open_beneath
from emlio.store.file_table import NameTable
from emlio.store.folder import Folder, Kind
from emlio.store.tree import Tree
from emlio.store.tree_walk import WalkedFolder, walk_tree
from emlio_testing.mounted_trees import Link, MountedTree

_FOLDER, _FILE, _LINK = 0o40555, 0o100444, 0o120777


def _walked(path: Path) -> WalkedFolder:
    with Folder(path) as folder:
        return walk_tree(folder)


def _tree(*entries: tuple[int, int, str], targets: bytes = b"", **columns: Any) -> Tree:
    modes, sizes, names = zip(*entries, strict=True)
    given: dict[str, Any] = {
        "modes": np.array(modes, np.uint16),
        "sizes": np.array(sizes, np.int64),
        "mtimes_ns": np.zeros(len(modes), np.int64),
        "names": NameTable.of(names),
        "targets": np.frombuffer(targets, np.uint8),
    }
    return Tree(**{**given, **columns})


def _make(folder: Path) -> None:
    for name in ("", "b", "b/deep", "b/empty", ".hidden", "a b"):
        (folder / name).mkdir()
    for number, name in enumerate(
        (
            "labels.csv",
            "README",
            ".dot",
            "b/x",
            "b/deep/Ä ö",
            "b/deep/new\nline",
            ".hidden/y",
            "a b/" + "n" * 255,
            "-r",
            "b.c",
        )
    ):
        (folder / name).write_bytes(b"z" * number)
    os.close(os.open(os.fsencode(folder) + b"/b/\xff\xfe", os.O_CREAT | os.O_WRONLY))
    (folder / "b" / "script").touch(0o755)


def test_a_tree_has_what_os_walk_finds(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    _make(folder)
    (folder / "link").symlink_to("b/deep/new\nline")
    (folder / "b" / "up").symlink_to("../labels.csv")
    (folder / "folder").symlink_to("b")
    (folder / "broken").symlink_to("nothing/../../..")
    tree = _walked(folder).tree
    wanted = {}
    for path, folders, files in os.walk(folder):
        links = [one for one in folders if os.path.islink(f"{path}/{one}")]
        wanted[path.removeprefix(str(folder)).strip("/")] = sorted(set(folders) - set(links)), sorted([*files, *links])
    assert {path: (sorted(folders), sorted(files)) for path, folders, files in tree.walk()} == wanted
    assert tree.listdir() == sorted(os.listdir(folder), key=os.fsencode)
    for path, _, files in tree.walk():
        for name in files:
            inside = os.path.join(path, name)
            status, entry = os.lstat(folder / inside), tree.stat(inside, follow=False)
            assert (entry.size_bytes, entry.mtime_ns) == (status.st_size, status.st_mtime_ns)
            assert entry.mode == status.st_mode & (0o777 if entry.kind is Kind.LINK else 0o555)
            assert os.fsdecode(tree.path(tree.lookup(inside, follow=False))) == inside
    assert tree.stat("b/script").mode == 0o555
    assert tree.stat("link") == tree.stat("b/deep/new\nline")
    assert tree.stat("folder/up").size_bytes == 0
    assert tree.target(tree.lookup("folder", follow=False)) == b"b"
    assert tree.stat("b").size_bytes == len(os.listdir(folder / "b"))


def test_links_that_lead_out_and_what_is_no_file_are_left_out_and_counted(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    (tmp_path / "secret").touch()
    (folder / "in").mkdir()
    (folder / "in" / "kept").touch()
    (folder / "absolute").symlink_to(folder / "in")
    (folder / "in" / "out").symlink_to("../../secret")
    (folder / "here").symlink_to(".")
    (folder / "here-out").symlink_to("here/../secret")
    os.mkfifo(folder / "pipe")
    walked = _walked(folder)
    assert walked.tree.listdir() == ["here", "in"]
    assert walked.tree.listdir("in") == ["kept"]
    assert walked.left_out == (3, 1, 0)


def test_an_empty_folder_is_a_tree(tmp_path: Path) -> None:
    tree = _walked(tmp_path).tree
    assert (len(tree), tree.listdir(), list(tree.walk())) == (1, [], [("", [], [])])


def test_two_walks_have_one_digest_until_something_changes(tmp_path: Path) -> None:
    _make(tmp_path / "x")
    digest = _walked(tmp_path / "x").tree.digest
    assert _walked(tmp_path / "x").tree.digest == digest
    os.utime(tmp_path / "x" / "README", ns=(0, 5))
    assert _walked(tmp_path / "x").tree.digest != digest


_EXAMPLE = (
    (_FOLDER, 4, ""),
    (_FOLDER, 1, "d"),
    (_FILE, 7, "f"),
    (_LINK, 1, "l"),
    (_LINK, 4, "r"),
    (_FILE, 9, "g"),
)


@pytest.mark.parametrize(
    ("path", "number"),
    [("", 0), ("/", 0), (".", 0), ("..", 0), ("d/../f", 2), ("l/g", 5), ("l", 1), ("d//g", 5), (b"d/g", 5), ("l/", 1)],
)
def test_a_path_leads_to_an_entry(path: str | bytes, number: int) -> None:
    assert _tree(*_EXAMPLE, targets=b"dr//f").lookup(path) == number


@pytest.mark.parametrize(
    ("path", "number"),
    [("nope", errno.ENOENT), ("f/g", errno.ENOTDIR), ("f/", errno.ENOTDIR), ("r", errno.ELOOP), ("d/gg", errno.ENOENT)],
)
def test_a_path_that_leads_nowhere_is_the_systems_error(path: str, number: int) -> None:
    with pytest.raises(FileError) as caught:
        _tree(*_EXAMPLE, targets=b"dr//f").lookup(path)
    assert caught.value.errno == number


def test_a_walk_takes_what_is_left_of_its_folders() -> None:
    tree = _tree(*_EXAMPLE, targets=b"dr//f")
    walk = tree.walk("/")
    _, folders, others = next(walk)
    assert (folders, others) == (["d"], ["f", "l", "r"])
    folders.clear()
    assert list(walk) == []
    with pytest.raises(FileError, match="Not a directory"):
        tree.listdir("f")


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([(_FILE, 0, "")], "the first must be a folder"),
        ([(_FOLDER, 1, ""), (0o10444, 0, "pipe")], "all files, folders or links"),
        ([(_FOLDER, 1, ""), (_FILE, -1, "f")], "a size is negative"),
        ([(_FOLDER, 2**62, ""), (_FILE, 0, "f")], "more entries than there are"),
        ([(_FOLDER, 2, ""), (_FILE, 0, "f")], "do not have 1 entries"),
        ([(_FOLDER, 0, ""), (_FOLDER, 1, "own")], "one that comes before it"),
        ([(_FOLDER, 1, ""), (_LINK, 3, "l")], "links have 3 bytes of targets, got 0"),
        ([(_FOLDER, 1, ""), (_FILE, 0, "")], "must have a name"),
        ([(_FOLDER, 1, "top"), (_FILE, 0, "f")], "must have a name"),
        ([(_FOLDER, 1, ""), (_FILE, 0, "a/b")], "must not contain /"),
        ([(_FOLDER, 1, ""), (_FILE, 0, "a\0")], "zero byte"),
        ([(_FOLDER, 1, ""), (_FOLDER, 0, "..")], r"must not be \. or"),
    ],
)
def test_what_is_no_tree_is_refused(entries: list[tuple[int, int, str]], words: str) -> None:
    with pytest.raises(DatasetError, match=words):
        _tree(*entries)


def test_a_walk_leaves_out_only_what_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of permission are made here, since root meets none."""
    for name in ("closed", "failing", "listed", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_bytes(b"abc")
    (tmp_path / "l").symlink_to("closed/../../etc/passwd")
    (tmp_path / "m").symlink_to("nowhere")
    failing: dict[str, int] = {"closed": errno.EACCES, "l": errno.EACCES}
    opens, looks = beneath.open_beneath, os.stat

    def opened(folder: int, name: str, flags: int) -> int:
        if name in failing:
            raise OSError(failing[name], os.strerror(failing[name]))
        return opens(folder, name, flags)

    def looked(name: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        if dir_fd is not None and os.readlink(f"/proc/self/fd/{dir_fd}").endswith("/listed"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return looks(name, dir_fd=dir_fd, follow_symlinks=follow_symlinks)

    monkeypatch.setattr("emlio.store.folder.open_beneath", opened)
    monkeypatch.setattr("emlio.store.tree_walk.open_beneath", opened)
    monkeypatch.setattr(os, "stat", looked)
    walked = _walked(tmp_path)
    found = [walked.tree.path(number) for number in range(len(walked.tree))]
    assert found == [b"", b"closed", b"failing", b"listed", b"m", b"open", b"failing/f", b"open/f"]
    assert walked.left_out == (1, 0, 2)
    failing["failing"] = errno.EIO
    with pytest.raises(DatasetError, match="cannot be walked: Input/output error"):
        _walked(tmp_path)


def test_a_folder_with_too_many_entries_is_not_walked_to_its_end(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).touch()
    with Folder(tmp_path) as folder:
        assert len(walk_tree(folder, 4).tree) == 4
        with pytest.raises(DatasetError, match="at most 3 entries to be listed, has more"):
            walk_tree(folder, 3)


def test_a_link_to_a_file_that_is_walked_is_a_link_of_the_tree(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    (tmp_path / "l").symlink_to("f")
    tree = _walked(tmp_path).tree
    assert (tree.kind(tree.lookup("l", follow=False)), tree.kind(tree.lookup("l"))) == (Kind.LINK, Kind.FILE)


@pytest.mark.parametrize(
    ("link", "target", "out"),
    [
        (b"up", b"..", True),
        (b"a/up", b"..", False),
        (b"a/far", b"../a/../../x", True),
        (b"a/over", b"b/../../..", True),
        (b"a/inside", b"b/../../c", False),
        (b"absolute", b"/a", True),
        (b"nowhere", b"no/../..", False),
        (b"through", b"c/../..", False),
        (b"by", b"a/deep/../..", False),
        (b"by2", b"a/deep/../../..", True),
        (b"round", b"round/..", False),
    ],
)
def test_links_that_lead_out_are_found_as_the_system_finds_them(
    link: bytes, target: bytes, out: bool, tmp_path: Path
) -> None:
    tree = MountedTree({b"a/b/x": b"1", b"c": b"2", b"a/deep": Link(b"b"), link: Link(target)}).tree
    assert [tree.path(number) for number in tree.links_out()] == [link] * out
    (tmp_path / "a/b").mkdir(parents=True)
    for path in ("a/b/x", "c"):
        (tmp_path / path).touch()
    for path, leads in (("a/deep", "b"), (os.fsdecode(link), os.fsdecode(target))):
        (tmp_path / path).symlink_to(leads)
    top = os.open(tmp_path, os.O_PATH)
    try:
        os.close(open_beneath(top, os.fsdecode(link), os.O_PATH))
        found = 0
    except OSError as error:
        found = error.errno or 0
    finally:
        os.close(top)
    assert (found == errno.EXDEV) is out
