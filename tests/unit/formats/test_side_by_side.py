"""A folder of images.npy and labels.npy: it is told how rows of both become records."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from emlio.cli import main
from emlio.index.opening import open_dataset

_ADVICE = (
    "each file is one record, but images.npy and labels.npy have 10 rows each. If a row of each makes a record, convert "
    "them: emlio convert DIR OUT --from npy-columns"
)


def _save(folder: Path, arrays: Mapping[str, npt.ArrayLike]) -> Path:
    for name, array in arrays.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / name, np.asarray(array))
    return folder


def _told(folder: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    with caplog.at_level(logging.WARNING), open_dataset("d", folder, cache):
        pass
    return caplog.messages


def test_arrays_of_equal_length_are_told_how_to_become_columns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _save(tmp_path / "in", {"images": np.zeros((10, 4, 4)), "labels": np.arange(10)})
    (folder / "readme.md").write_text("#")
    assert f"dataset d: {_ADVICE}" in _told(folder, tmp_path / "cache", caplog)
    for _ in range(2):  # also if the index is there
        assert main(["inspect", str(folder), "--cache-dir", str(tmp_path / "cache")]) == 0
        assert f"  advice       {_ADVICE}\n" in capsys.readouterr().out
    assert main(["inspect", str(folder), "--cache-dir", str(tmp_path / "cache"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["advice"] == _ADVICE
    command = _ADVICE.partition("emlio ")[2].replace("DIR", str(folder)).replace("OUT", str(tmp_path / "out"))
    assert main(command.split()) == 0
    assert "10 records" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arrays",
    [
        {"one": np.arange(9)},
        {"a": np.zeros((5, 3)), "b": np.zeros((5, 3))},
        {"a": np.zeros((5, 3)), "b": np.zeros((6, 3))},
        {"a": np.float32(1), "b": np.float64(1)},
        {"a": np.zeros((1, 3)), "b": np.zeros(1)},
        {"cats/a": np.zeros((5, 3)), "dogs/b": np.zeros(5)},
        {str(number): np.zeros((5, number)) for number in range(1, 12)},
    ],
)
def test_other_arrays_are_records_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, arrays: Mapping[str, npt.ArrayLike]
) -> None:
    assert _told(_save(tmp_path / "in", arrays), tmp_path / "cache", caplog) == []
