"""What other systems need and is not there yet."""

import re
import time
from pathlib import Path

import pytest

from emlio.errors import ConfigError
from emlio_bench.race.needs.making import make_missing


def test_where_nothing_is_missing_nothing_is_made_and_nothing_said(tmp_path: Path) -> None:
    told: list[str] = []
    assert make_missing((), (), tmp_path, told.append) == {}
    assert told == []
    assert list(tmp_path.iterdir()) == []


def test_each_thing_that_cannot_be_made_has_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "cache" / "environments").mkdir(parents=True)
    (tmp_path / "cache" / "environments" / "torch").write_text("in the way", encoding="utf-8")
    told: list[str] = []
    failed = make_missing(["torch"], ["versitygw"], tmp_path / "cache", told.append)
    assert sorted(failed) == ["torch", "versitygw"]
    assert "Go (1.22 or newer)" in failed["versitygw"]
    assert "torch" in failed["torch"]
    assert sum("could not be made" in line for line in told) == 2


def test_who_interrupts_waits_for_nothing_that_is_being_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    slow = tmp_path / "bin" / "go"
    slow.write_text("#!/bin/sh\nexec /bin/sleep 60\n", encoding="utf-8")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "cache" / "environments").mkdir(parents=True)
    (tmp_path / "cache" / "environments" / "torch").write_text("in the way", encoding="utf-8")

    def interrupt(line: str) -> None:
        if "could not be made" in line:  # of the environment; the program is still being made
            raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        make_missing(["torch"], ["versitygw"], tmp_path / "cache", interrupt)
    assert time.monotonic() - begun < 30


def test_the_user_is_told_what_is_installed_and_how_large_it_is_before_anything_begins(tmp_path: Path) -> None:
    told: list[str] = []

    def agree() -> bool:
        (said,) = told
        assert "loaders, tf, versitygw" in said.replace("hf, ", "").replace("mosaic, ", "")
        assert re.search(r"[\d.]+ GB of disk and \d+ to \d+ minutes", said)
        assert "--no-install" in said
        return False

    with pytest.raises(ConfigError, match="nothing was installed"):
        make_missing(["tf", "loaders"], ["versitygw"], tmp_path, told.append, agree)
    assert list(tmp_path.iterdir()) == []
