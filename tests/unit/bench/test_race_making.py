"""Requirements of other systems that are missing."""

from pathlib import Path

import pytest

from emlio.errors import ConfigError
from emlio_bench.race.needs.making import make_missing


def test_each_thing_that_cannot_be_made_has_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "cache" / "environments").mkdir(parents=True)
    (tmp_path / "cache" / "environments" / "torch").write_text("in the way", encoding="utf-8")
    told: list[str] = []
    failed = make_missing(["torch", "versitygw"], tmp_path / "cache", told.append)
    assert sorted(failed) == ["torch", "versitygw"]
    assert "Go (1.22 or newer)" in failed["versitygw"]
    assert "torch" in failed["torch"]
    assert make_missing((), tmp_path, told.append) == {}


def test_the_user_is_told_what_is_installed_and_how_large_it_is_before_anything_begins(tmp_path: Path) -> None:
    told: list[str] = []
    with pytest.raises(ConfigError, match="nothing was installed"):
        make_missing(["tf", "loaders", "versitygw"], tmp_path, told.append, lambda: False)
    (said,) = told
    assert "loaders, tf, versitygw" in said
    assert "GB of disk" in said
    assert list(tmp_path.iterdir()) == []
