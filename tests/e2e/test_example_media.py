"""The examples that decode recordings and videos, with their own data, and as a user starts them with a daemon's.

Covers: each record comes once with its label, decoded. Does not cover: decoding on a GPU.
"""

import importlib.util
import wave
from pathlib import Path
from typing import Any

import pytest

from emlio_testing.processes import DaemonProcess, run_python

EXAMPLES = Path(__file__).parents[2] / "examples"
END_S = 60.0

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("nvidia", "PIL")), reason="not installed: DALI or Pillow"
)


def _example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(name: str, *words: object) -> str:
    return run_python(EXAMPLES / f"{name}.py", *words, timeout_s=END_S)


def _run_here(name: str, *words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run it in this process, where DALI has been imported once."""
    monkeypatch.setattr("sys.argv", [name, *words])
    _example(name).main()
    return capsys.readouterr().out


def test_tones_are_heard_at_their_pitch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = _run_here("with_audio", "--records", "31", monkeypatch=monkeypatch, capsys=capsys)
    assert "1000Hz: 10 clips, loudest at 1000 Hz" in said
    assert "3000Hz: 10 clips, loudest at 3000 Hz" in said
    assert "440Hz: 11 clips, loudest at 438 Hz" in said  # 31.25 Hz lie between two frequencies


def test_recordings_that_a_daemon_serves(tmp_path: Path) -> None:
    _example("with_audio").write_tones(tmp_path / "tones", 9)
    with wave.open(str(next((tmp_path / "tones" / "440Hz").iterdir()))) as file:
        assert (file.getframerate(), file.getnchannels()) == (16_000, 1)
    with DaemonProcess({"tones": tmp_path / "tones"}, folder=tmp_path) as daemon:
        said = _run("with_audio", "--address", daemon.address("tones"), "--batch-size", 4)
    assert said.count("3 clips, loudest at") == 3


def test_videos_get_brighter_and_darker_as_their_labels_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _run_here("with_video", "--records", "11", monkeypatch=monkeypatch, capsys=capsys)
    assert "brighter: 6 clips of 8 frames, brightness +84" in said
    assert "darker: 5 clips of 8 frames, brightness -84" in said


def test_videos_that_a_daemon_serves(tmp_path: Path) -> None:
    _example("with_video").write_videos(tmp_path / "clips", 6)
    with DaemonProcess({"clips": tmp_path / "clips"}, folder=tmp_path) as daemon:
        said = _run("with_video", "--address", daemon.address("clips"))
    assert said.count("3 clips of 8 frames") == 2
