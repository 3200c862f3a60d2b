"""Folders with keys, of processes that end and of those that were killed."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from emlio_bench.race.servers.scratch import remove_leftovers, scratch_folder

KILLED = """
import os, signal
from emlio_bench.race.servers.scratch import scratch_folder
with scratch_folder("client") as folder:
    (folder / "key-0").write_text("secret")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_a_folder_is_removed_at_its_end_and_not_while_it_is_used(own_tmp: Path) -> None:
    with scratch_folder("ssh") as folder:
        (folder / "client").write_text("secret")
        assert remove_leftovers(0.0) == ()
        assert folder.parent == own_tmp
        assert (folder / "client").exists()
    assert list(own_tmp.iterdir()) == []


def test_what_a_killed_process_left_is_removed_at_the_next_start(own_tmp: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert ended.returncode == -signal.SIGKILL
    (left,) = own_tmp.iterdir()
    assert (left / "key-0").exists()
    assert remove_leftovers() == ()  # it could be one that is not locked yet
    assert remove_leftovers(0.0) == (left,)
    assert list(own_tmp.iterdir()) == []


def test_other_folders_and_links_stay(own_tmp: Path) -> None:
    (own_tmp / "emlio-race-other").mkdir()
    (own_tmp / "emlio-race-client-link").symlink_to(own_tmp / "emlio-race-other")
    assert remove_leftovers(0.0) == ()
    assert len(list(own_tmp.iterdir())) == 2


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="must be for one of client, ssh"), scratch_folder("web"):
        pass
