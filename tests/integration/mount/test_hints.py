"""Hints and the sockets of mounts: what others leave at their places, or do not finish, does no harm."""

import os
import socket
import subprocess
import time
from collections.abc import Collection, Sequence
from itertools import count
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import pytest

from emlio.errors import ConfigError
from emlio.files.hints import HintListener, hint
from emlio.files.mount import Agent, Orders
from emlio_testing.mounted_trees import MountedTree


@pytest.fixture
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "sockets"
    made.mkdir(mode=0o700)
    monkeypatch.setenv("EMLIO_FILES_SOCKETS", str(made))
    return made


def test_a_folder_that_others_may_enter_hears_no_names_of_files(sockets: Path, tmp_path: Path) -> None:
    heard: list[Sequence[bytes]] = []
    with HintListener(str(tmp_path), sockets, lambda _, paths: heard.append(paths) or 0, bytes):
        assert hint([tmp_path / "a"]) == 0
        sockets.chmod(0o755)
        assert hint([tmp_path / "b"]) == 1
        with pytest.raises(ConfigError, match="must belong to this user"):
            HintListener(str(tmp_path), sockets, lambda *_: 0, bytes)
    assert heard == [[b"a"]]


def test_a_program_that_is_stopped_holds_up_neither_others_nor_the_end(sockets: Path, tmp_path: Path) -> None:
    with HintListener(str(tmp_path), sockets, lambda *_: 0, bytes), socket.socket(socket.AF_UNIX) as stopped:
        stopped.connect(str(next(sockets.iterdir())))
        stopped.send(b"name")
        began = time.monotonic()
        assert hint([tmp_path / "a"]) == 0
    assert time.monotonic() - began < 20  # it would be given up after 30


class _Agent:
    """An agent that only counts orders."""

    def __init__(self, directory: Path) -> None:
        self.mount = self
        self.directory = str(directory)
        self.names = set[int]()
        self._next = count(1)

    def hint(self, _: npt.NDArray[np.int64], *, instead_of: Collection[int]) -> int:
        self.names.difference_update(instead_of)
        self.names.add(name := next(self._next))
        return name

    def forget(self, name: int) -> None:
        self.names.discard(name)


def test_an_order_replaces_those_of_its_name_whose_processes_have_ended(tmp_path: Path) -> None:
    agent, tree = _Agent(tmp_path), MountedTree({b"a": b"1", b"b": b"2"})
    orders = Orders(cast(Agent, agent), tree.tree)
    ended = subprocess.Popen(["true"])
    ended.wait()
    for owner in (f"{ended.pid} train", f"{ended.pid} val", f"{os.getpid()} train", f"{os.getpid()} "):
        assert orders.take(owner, [b"a", b"b", b"no"]) == [b"no"]
    assert agent.names == {2, 3, 4}
    orders.take(f"{os.getpid()} train", [b"b"])
    assert agent.names == {2, 4, 5}


def test_paths_may_be_as_a_program_opens_them_that_was_started_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path.parent)
    agent, tree = _Agent(tmp_path), MountedTree({b"a": b"1", b"b/c": b"2"})
    orders, here = Orders(cast(Agent, agent), tree.tree), os.fsencode(tmp_path.name)
    given = [b"a", here + b"/a", b"./" + here + b"/b/../b/c", os.fsencode(tmp_path) + b"/b/c"]
    assert orders.take("", [*given, b"../" + here + b"/a", here + b"/no"]) == [b"../" + here + b"/a", here + b"/no"]


def test_one_path_is_no_order() -> None:
    with pytest.raises(ConfigError, match="must be several"):
        hint("photos/a.jpg")
