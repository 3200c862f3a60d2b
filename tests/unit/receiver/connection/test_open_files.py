"""How many files a loader's connections may take."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from emlio.open_limits import open_descriptors
from emlio.receiver.connection import open_files
from emlio.receiver.connection.open_files import OpenFiles, files_of_process

MS = 1_000_000


@dataclass
class System:
    limit: int = 256
    used: int | None = 40
    now_ns: int = 0

    def files(self) -> OpenFiles:
        return OpenFiles(lambda: self.limit, lambda: self.used, lambda: self.now_ns)


def test_some_files_are_left_to_the_users_program() -> None:
    files = System().files()
    taken = sum(files.take(4) for _ in range(100))
    assert taken == (256 - 40 - 16) // 4


def test_a_conversation_may_have_half_of_what_is_left_to_the_program() -> None:
    files = System(used=240).files()
    assert not files.take(1)
    assert files.take(8, from_kept=True)
    assert not System(used=240).files().take(9, from_kept=True)
    assert not System(used=None).files().take(1, from_kept=True)


def test_of_many_files_a_sixteenth_is_left() -> None:
    files = System(limit=16_000, used=0).files()
    assert not files.take(15_001)
    assert files.take(15_000)


def test_what_was_closed_meanwhile_may_be_taken_a_moment_later() -> None:
    system = System(used=240)
    files = system.files()
    assert not files.take(4)
    system.used = 100
    assert not files.take(4), "they are not counted each time"
    system.now_ns = 10 * MS
    assert files.take(4)


def test_for_a_conversation_they_are_counted_before_it_is_refused() -> None:
    system = System(used=250)
    files = system.files()
    assert not files.take(4, from_kept=True)
    system.used = 100
    assert files.take(4, from_kept=True)


def test_a_count_that_says_yes_holds_for_longer() -> None:
    system = System()
    files = system.files()
    assert files.take(4)
    system.used = 255
    system.now_ns = 99 * MS
    assert files.take(4)
    system.now_ns = 100 * MS
    assert not files.take(4)


def test_so_many_may_have_to_be_left_to_others() -> None:
    files = System().files()
    taken = sum(files.take(4, leave=100) for _ in range(100))
    assert taken == (256 - 40 - 16 - 100) // 4
    assert files.take(100)
    assert not files.take(4)


def test_a_count_may_lack_the_last_files_of_connections_begun_a_moment_before() -> None:
    system = System()
    files = system.files()
    system.now_ns = 95 * MS
    assert all(files.take(5) for _ in range(10))
    system.used = 40 + 30
    system.now_ns = 100 * MS
    assert not files.take(256 - 70 - 16 - 19)
    system.now_ns = 110 * MS
    assert files.take(256 - 70 - 16)


def test_all_loaders_of_a_process_share_a_count_and_a_forked_one_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = files_of_process()
    assert files_of_process() is shared
    monkeypatch.setattr(open_files.os, "getpid", lambda: 0)
    assert files_of_process() is not shared


def test_where_none_is_left_for_counting_none_may_be_taken() -> None:
    assert not System(used=None).files().take(1)


def test_a_system_that_does_not_tell_is_believed_to_have_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("emlio.open_limits._DESCRIPTORS", str(tmp_path / "none"))
    assert open_descriptors() == 0

    def refuse(_: str) -> list[str]:
        raise OSError(errno.EMFILE, "no")

    monkeypatch.setattr("emlio.open_limits._DESCRIPTORS", "/proc/self/task")  # of size 0, as an older kernel's
    monkeypatch.setattr("emlio.open_limits.os.listdir", refuse)
    assert open_descriptors() is None


def test_open_files_are_counted_whether_the_system_keeps_their_number_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_descriptors()
    assert before
    with open("/dev/null", encoding="ascii"):
        assert open_descriptors() == before + 1
    monkeypatch.setattr("emlio.open_limits._DESCRIPTORS", "/proc/self/task")
    assert open_descriptors() == len(os.listdir("/proc/self/task"))
