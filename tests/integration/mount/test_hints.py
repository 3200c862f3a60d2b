"""Hints and the sockets of mounts: what others leave at their places does no harm."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from emlio.errors import ConfigError
from emlio.files.hints import HintListener, hint


@pytest.fixture
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "sockets"
    made.mkdir(mode=0o700)
    monkeypatch.setenv("EMLIO_FILES_SOCKETS", str(made))
    return made


def test_a_folder_that_others_may_enter_hears_no_names_of_files(sockets: Path, tmp_path: Path) -> None:
    heard: list[Sequence[bytes]] = []
    with HintListener(str(tmp_path), sockets, lambda _, paths: heard.append(paths) or 0):
        assert hint([tmp_path / "a"]) == 0
        sockets.chmod(0o755)
        assert hint([tmp_path / "b"]) == 1
        with pytest.raises(ConfigError, match="must belong to this user"):
            HintListener(str(tmp_path), sockets, lambda *_: 0)
    assert heard == [[b"a"]]
