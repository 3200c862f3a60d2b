"""How many files a loader's connections may take."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from emlio.open_limits import open_descriptors
from emlio.receiver.connection.open_files import OpenFiles

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
    system.now_ns = 100 * MS
    assert files.take(4)


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
