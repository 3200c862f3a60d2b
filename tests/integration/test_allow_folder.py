"""The folder of client keys while a daemon runs: every change is seen, nothing bad opens the door."""

import mmap
import os
import shutil
from pathlib import Path
from typing import Self

import pytest

from emlio.errors import ConfigError
from emlio.keys.allow_folder import MAX_CLIENTS, AllowFolder
from emlio.keys.allow_list import AllowList, ClientRule
from emlio.keys.key import PublicKey
from emlio_testing.clock import ManualClock

ONE, TWO, THREE = (PublicKey(raw=digit * 32) for digit in (b"1", b"2", b"3"))
SETTLED_NS = 3_000_000_000


class Watched:
    """A folder with the clients one and two, read once."""

    def __init__(self, path: Path) -> None:
        path.mkdir(mode=0o700)
        self.path = path
        self.clock = ManualClock()
        self.put("one", ONE)
        self.put("two", TWO)
        self.folder = AllowFolder(path, clock=self.clock)
        self.names = [rule.name for rule in self.folder.load().rules]

    def file(self, name: str) -> Path:
        return self.path / f"{name}.key"

    def put(self, name: str, key: PublicKey, *datasets: str) -> None:
        """Write in place, as an editor does."""
        self.file(name).write_bytes(ClientRule(name=name, key=key, datasets=datasets or ("*",)).text())
        self.file(name).chmod(0o644)

    def now(self) -> list[str]:
        """Who is in after the change that just came; fails if none was noticed."""
        fresh = self.folder.changed()
        assert fresh is not None
        return [rule.name for rule in fresh.rules]


class Unnoticed:
    """Edits a file while its times stand still, as two edits within one tick of the file system's clock do.

    The kernel stamps a file when a mapped page of it turns dirty, and not again while it is.
    """

    def __init__(self, path: Path, key: PublicKey) -> None:
        self._path = path
        with path.open("r+b") as file:
            self._bytes = mmap.mmap(file.fileno(), 0)
        self._place = self._bytes.find(str(key).encode())
        self.put(key)

    def put(self, key: PublicKey) -> None:
        self._bytes[self._place : self._place + len(str(key))] = str(key).encode()

    def __enter__(self) -> Self:
        self._before = self._path.stat()
        return self

    def __exit__(self, *error: object) -> None:
        self._bytes.close()
        after = self._path.stat()
        assert (after.st_mtime_ns, after.st_ctime_ns) == (self._before.st_mtime_ns, self._before.st_ctime_ns)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "clients")


def rule_of(folder: AllowFolder, key: PublicKey) -> ClientRule | None:
    fresh = folder.changed()
    assert fresh is not None
    return fresh.find(key)


def test_what_stays_as_it_is_is_no_change(watched: Watched) -> None:
    assert watched.names == ["one", "two"]
    for _ in range(4):
        assert watched.folder.changed() is None
        watched.clock.advance(SETTLED_NS)
    assert watched.folder.take_problems() == ()


def test_an_edit_in_place_is_seen(watched: Watched) -> None:
    watched.put("one", ONE, "imagenet")
    rule = rule_of(watched.folder, ONE)
    assert rule is not None
    assert not rule.may_read("coco")


def test_another_comment_is_no_change_of_the_list(watched: Watched) -> None:
    watched.file("one").write_text(f"# words\n{ONE}\n")
    assert watched.folder.changed() is None


def test_an_edit_that_leaves_size_and_times_as_they_are_is_seen_after_a_while(watched: Watched) -> None:
    with Unnoticed(watched.file("one"), ONE) as edit:
        assert watched.folder.changed() is None
        edit.put(THREE)
        assert watched.folder.changed() is None
        watched.clock.advance(SETTLED_NS)
        assert rule_of(watched.folder, THREE) is not None


def test_a_file_renamed_over_another_is_seen(watched: Watched) -> None:
    other = watched.path / "one.new"
    other.write_bytes(ClientRule(name="one", key=THREE).text())
    assert watched.folder.changed() is None
    other.chmod(0o644)
    other.replace(watched.file("one"))
    assert rule_of(watched.folder, THREE) is not None
    assert watched.folder.changed() is None


def test_files_that_come_and_go_are_seen(watched: Watched) -> None:
    watched.put("three", THREE)
    assert watched.now() == ["one", "three", "two"]
    watched.file("one").unlink()
    assert watched.now() == ["three", "two"]
    watched.file("two").rename(watched.file("zwei"))
    assert watched.now() == ["three", "zwei"]


def test_a_file_that_turns_bad_lets_nobody_in_and_is_told_once(watched: Watched) -> None:
    watched.file("one").write_text("hello\n")
    assert watched.now() == ["two"]
    (problem,) = watched.folder.take_problems()
    assert problem.startswith(f"{watched.file('one')}, line 1: a public key must be emlio1")
    watched.clock.advance(SETTLED_NS)
    assert watched.folder.changed() is None
    assert watched.folder.take_problems() == ()
    watched.put("one", ONE)
    assert watched.now() == ["one", "two"]
    watched.file("one").write_text("hello\n")
    assert watched.now() == ["two"]
    assert watched.folder.take_problems() == (problem,)


def test_a_bad_file_beside_good_ones_is_told_though_the_list_stays(watched: Watched) -> None:
    watched.file("new client").write_bytes(ClientRule(name="x", key=THREE).text())
    assert watched.folder.changed() is None
    (problem,) = watched.folder.take_problems()
    assert str(watched.file("new client")) in problem
    assert "a client's name must be" in problem


def test_two_files_with_one_key_let_neither_in(watched: Watched) -> None:
    watched.put("copy", ONE)
    assert watched.now() == ["two"]
    (problem,) = watched.folder.take_problems()
    assert f"{watched.file('copy')} and {watched.file('one')}: each client must have a key of its own" in problem
    watched.file("one").unlink()
    assert watched.now() == ["copy", "two"]


def test_a_folder_that_disappears_lets_nobody_in_until_it_is_back(watched: Watched) -> None:
    away = watched.path.with_name("away")
    watched.path.rename(away)
    assert watched.now() == []
    assert "no folder of client keys" in watched.folder.take_problems()[0]
    assert watched.folder.changed() is None
    away.rename(watched.path)
    assert watched.now() == ["one", "two"]
    shutil.rmtree(watched.path)
    watched.path.write_text("")
    assert watched.now() == []


def test_another_folder_in_its_place_is_seen(watched: Watched) -> None:
    watched.path.rename(watched.path.with_name("away"))
    watched.path.mkdir(mode=0o700)
    watched.put("one", THREE)
    assert rule_of(watched.folder, THREE) is not None


def test_a_folder_that_others_can_write_to_lets_nobody_in(watched: Watched) -> None:
    watched.path.chmod(0o777)
    assert watched.now() == []
    assert f"Run: chmod go-w {watched.path}" in watched.folder.take_problems()[0]
    watched.path.chmod(0o755)
    assert watched.now() == ["one", "two"]


def test_a_file_that_others_can_write_to_lets_nobody_in(watched: Watched) -> None:
    watched.file("one").chmod(0o664)
    assert watched.now() == ["two"]
    assert f"Run: chmod go-w {watched.file('one')}" in watched.folder.take_problems()[0]
    watched.file("one").chmod(0o600)
    assert watched.now() == ["one", "two"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")
def test_a_file_of_somebody_else_lets_nobody_in(watched: Watched) -> None:
    os.chown(watched.file("one"), 65534, -1)
    assert watched.now() == ["two"]
    assert "must belong to root, belongs to" in watched.folder.take_problems()[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders to somebody else")
def test_a_folder_of_somebody_else_lets_nobody_in(watched: Watched) -> None:
    for folder in (watched.path, watched.path.parent):
        os.chown(folder, 65534, -1)
        assert watched.now() == []
        assert f"{folder}: must belong to root" in watched.folder.take_problems()[0]
        os.chown(folder, 0, -1)
        assert watched.now() == ["one", "two"]


def test_a_link_to_where_others_can_put_something_else_lets_nobody_in(watched: Watched, tmp_path: Path) -> None:
    target = tmp_path / "open" / "target"
    target.parent.mkdir()
    target.write_bytes(ClientRule(name="x", key=THREE).text())
    target.chmod(0o644)
    target.parent.chmod(0o777)
    watched.file("three").symlink_to(target)
    assert watched.folder.changed() is None, "one and two are in as before"
    assert f"{target.parent}: must be writable by its owner only" in watched.folder.take_problems()[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_cannot_be_read_lets_nobody_in(watched: Watched) -> None:
    watched.file("one").chmod(0)
    assert watched.now() == ["two"]
    assert f"{watched.file('one')}: cannot be read: " in watched.folder.take_problems()[0]


def test_a_link_is_followed_and_its_target_watched(watched: Watched, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(ClientRule(name="x", key=THREE).text())
    target.chmod(0o644)
    watched.file("three").symlink_to(target)
    assert watched.now() == ["one", "three", "two"]
    target.write_text("hello\n")
    assert watched.now() == ["one", "two"]
    target.unlink()
    assert watched.folder.changed() is None
    assert any("is a broken link" in problem for problem in watched.folder.take_problems())


def test_neither_pipes_nor_folders_hold_it_up(watched: Watched) -> None:
    os.mkfifo(watched.file("pipe"))
    watched.file("folder").mkdir()
    watched.put("three", THREE)
    assert watched.now() == ["one", "three", "two"]
    problems = watched.folder.take_problems()
    assert [problem.partition(": ")[0] for problem in problems] == [
        str(watched.file("folder")),
        str(watched.file("pipe")),
    ]


def test_what_is_being_written_is_not_looked_at(watched: Watched) -> None:
    (watched.path / ".one.key.swp").write_text("hello")
    (watched.path / ".three.key").write_text("hello")
    (watched.path / "README").write_text("hello")
    assert watched.folder.changed() is None
    assert watched.folder.take_problems() == ()


def test_more_clients_than_there_may_be_let_nobody_in(watched: Watched) -> None:
    for number in range(MAX_CLIENTS):
        os.link(watched.file("one"), watched.path / f"c{number}.key")
    assert watched.now() == []
    (problem,) = watched.folder.take_problems()
    assert f"{watched.path}: must hold at most {MAX_CLIENTS} clients" in problem


def test_many_files_that_changed_are_all_read_once_more(watched: Watched) -> None:
    """More than are read again in one look."""
    for number in range(600):
        watched.put(f"c{number:03}", PublicKey(raw=number.to_bytes(32, "big")))
    with Unnoticed(watched.file("two"), TWO) as edit:
        assert len(watched.now()) == 602
        edit.put(THREE)
        watched.clock.advance(SETTLED_NS)
        found = [fresh for fresh in (watched.folder.changed() for _ in range(4)) if fresh is not None]
    assert [fresh.find(THREE) is not None for fresh in found] == [True]


def test_a_start_wants_all_of_it_well(watched: Watched) -> None:
    for name in ("three", "four", "five", "six"):
        watched.file(name).write_text("hello\n")
    with pytest.raises(ConfigError) as caught:
        AllowFolder(watched.path).load()
    assert str(watched.file("five")) in str(caught.value)
    assert str(caught.value).endswith("; 1 more are listed by: emlio keys")
    with pytest.raises(ConfigError, match="no folder of client keys"):
        AllowFolder(watched.path / "none").load()


def test_looking_in_between_hides_no_change(watched: Watched) -> None:
    watched.file("one").unlink()
    assert [rule.name for rule in watched.folder.look().rules] == ["two"]
    assert watched.now() == ["two"]


def test_a_list_once_given_never_changes(watched: Watched) -> None:
    before: AllowList = watched.folder.load()
    watched.file("one").unlink()
    assert watched.now() == ["two"]
    assert before.find(ONE) is not None
