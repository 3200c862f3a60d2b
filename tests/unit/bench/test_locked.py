"""Data that benchmarks keep in memory.

Covers: the share of pages that are there, locked or not. Does not cover: what the kernel reclaims when.
"""

import os
from pathlib import Path

import pytest

from emlio_bench.harness.data import locked

_BYTES = 1 << 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(_BYTES))
    with path.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


def test_locked_files_are_in_memory_and_stay_there(file: Path) -> None:
    with locked([file, file]) as held:
        if held.refused:
            pytest.skip(held.refused)
        assert held.size_bytes == 2 * _BYTES
        assert held.resident() == 1
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert held.resident() == 1


def test_a_file_that_was_cut_is_seen_to_be_missing(file: Path) -> None:
    with locked([file]) as held:
        os.truncate(file, _BYTES // 2)
        assert held.resident() <= 0.5


def test_a_system_that_refuses_is_told_and_stops_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emlio_bench.harness.data._libc.mlock", lambda address, length: -1)
    with locked([file]) as held:
        assert "data could not be locked" in held.refused
        assert 0 <= held.resident() <= 1


def test_no_files_are_wholly_there(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with locked([tmp_path / "empty"]) as held:
        assert (held.resident(), held.size_bytes, held.refused) == (1, 0, "")
