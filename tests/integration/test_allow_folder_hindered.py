"""The folder of client keys while the system cannot look into it: descriptors are used up, or a disk does not answer."""

import errno
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from emlio.daemon.access.permissions import Permissions
from emlio.errors import ConfigError
from emlio.keys.allow_folder import AllowFolder
from emlio.keys.allow_list import ClientRule
from emlio.keys.key import PublicKey
from emlio_testing.clock import ManualClock

ONE, TWO, THREE = (PublicKey(raw=digit * 32) for digit in (b"1", b"2", b"3"))
SETTLED_NS = 3_000_000_000


class Hindered:
    """A folder with the clients one and two, read once.

    Attributes:
        refused: the error with which the system does not list the folder, or open or look at a file, as long as it is here.
    """

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path.mkdir(mode=0o700)
        self.path = path
        self.clock = ManualClock()
        self.put("one", ONE)
        self.put("two", TWO)
        self.refused: dict[str, int] = {}
        for name in ("open", "stat"):
            monkeypatch.setattr(os, name, partial(self._do, name, getattr(os, name)))
        self.folder = AllowFolder(path, clock=self.clock, scan=lambda folder: self._do("list", os.scandir, folder))
        self.folder.load()

    def _do(self, what: str, real: Any, path: Any, *args: Any, **more: Any) -> Any:
        code = self.refused.get(what)
        if code is not None and str(path).startswith(str(self.path)):
            raise OSError(code, os.strerror(code))
        return real(path, *args, **more)

    def file(self, name: str) -> Path:
        return self.path / f"{name}.key"

    def put(self, name: str, key: PublicKey) -> None:
        self.file(name).write_bytes(ClientRule(name=name, key=key).text())
        self.file(name).chmod(0o644)

    def now(self) -> list[str]:
        """Who is in after the change that just came; fails if none was noticed."""
        fresh = self.folder.changed()
        assert fresh is not None
        return [rule.name for rule in fresh.rules]


@pytest.fixture
def hindered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hindered:
    return Hindered(tmp_path / "clients", monkeypatch)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO])
def test_a_folder_that_cannot_be_listed_just_now_leaves_the_clients_in(hindered: Hindered, code: int) -> None:
    hindered.refused = {"list": code, "open": code}
    for _ in range(3):
        assert hindered.folder.changed() is None
        assert hindered.folder.obstacle == f"{hindered.path}: cannot be listed: {os.strerror(code)}"
        assert hindered.folder.take_problems() == ()
        hindered.clock.advance(SETTLED_NS)
    hindered.put("three", THREE)
    assert hindered.folder.changed() is None
    hindered.refused = {}
    assert hindered.now() == ["one", "three", "two"]
    assert hindered.folder.obstacle is None


def test_a_folder_whose_disk_does_not_answer_at_all_leaves_the_clients_in(hindered: Hindered) -> None:
    hindered.refused = dict.fromkeys(("list", "open", "stat"), errno.EIO)
    for _ in range(3):
        assert hindered.folder.changed() is None
        assert hindered.folder.obstacle is not None
        hindered.clock.advance(SETTLED_NS)


def test_who_uses_up_the_descriptors_is_revoked_all_the_same(hindered: Hindered) -> None:
    hindered.refused = {"list": errno.EMFILE, "open": errno.EMFILE}
    hindered.file("one").unlink()
    assert hindered.now() == ["two"]
    hindered.put("two", THREE)
    assert hindered.now() == []
    assert f"{hindered.file('two')}: cannot be read: Too many open files" in hindered.folder.take_problems()[0]
    hindered.refused = {}
    hindered.clock.advance(SETTLED_NS)
    assert hindered.now() == ["two"]


def test_a_file_that_looks_the_same_and_cannot_be_read_again_just_now_counts_on(hindered: Hindered) -> None:
    hindered.refused = {"open": errno.EMFILE}
    for _ in range(3):
        hindered.clock.advance(SETTLED_NS)
        assert hindered.folder.changed() is None
        assert "one.key: cannot be read: Too many open files" in str(hindered.folder.obstacle)


def test_a_folder_that_disappears_or_is_opened_to_others_lets_nobody_in_though_it_cannot_be_listed(
    hindered: Hindered,
) -> None:
    hindered.refused = {"list": errno.EMFILE}
    hindered.path.chmod(0o777)
    assert hindered.now() == []
    hindered.path.chmod(0o700)
    assert hindered.folder.changed() is None, "nobody until it can be listed"
    hindered.refused = {}
    assert hindered.now() == ["one", "two"]
    hindered.refused = {"list": errno.EMFILE}
    hindered.path.rename(hindered.path.with_name("away"))
    assert hindered.now() == []


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENOTDIR, errno.ENOENT])
def test_a_folder_that_may_not_be_listed_lets_nobody_in(hindered: Hindered, code: int) -> None:
    hindered.refused = {"list": code}
    assert hindered.now() == []
    assert len(hindered.folder.take_problems()) == 1


def test_a_start_that_cannot_look_is_an_error(hindered: Hindered) -> None:
    def scan(_: Path) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with pytest.raises(ConfigError, match="cannot be listed: Too many open files"):
        AllowFolder(hindered.path, scan=scan).load()


def test_a_daemon_that_cannot_look_says_so_once_a_minute(hindered: Hindered, caplog: pytest.LogCaptureFixture) -> None:
    permissions = Permissions(hindered.folder)
    hindered.refused = {"list": errno.EMFILE}
    for second in range(90):
        assert not permissions.look(second * 1_000_000_000)
        assert permissions.knows(b"1" * 32)
    said = [(record.levelname, record.message) for record in caplog.records]
    told = f"{hindered.path}: cannot be listed: Too many open files. Clients allowed before stay allowed"
    assert said == [("WARNING", told)] * 2
