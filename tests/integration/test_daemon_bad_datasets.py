"""Datasets that cannot be opened for a reason that no format foresees: each is named, and others are served.

Covers: at the start and while a daemon serves, in the configuration and in descriptions. Does not cover: mistakes in
descriptions (e2e/test_reload).
"""

import logging
import os
import re
from pathlib import Path

import numpy as np
import pytest

from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.datasets.descriptions import read_state
from emlio.daemon.service import Daemon
from emlio.errors import ConfigError, DatasetError
from emlio.index.dataset import Dataset
from emlio.index.opening import open_dataset
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import settles

_SOON_S = 30.0
_ERRORS = [
    (MemoryError(), "opening it takes more memory than there is"),
    (RecursionError("too deep"), r"RecursionError\('too deep'\)"),
    (ValueError("could not broadcast"), r"ValueError\('could not broadcast'\)"),
    (OSError(5, "Input/output error"), "cannot be read: Input/output error"),
    (DatasetError("holds nothing"), "holds nothing"),
    (ConfigError("no such format"), "no such format"),
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def good(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "good", records=20, shards=2)
    return tmp_path / "good"


@pytest.fixture(params=_ERRORS, ids=lambda param: type(param[0]).__name__)
def bad(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """A folder that cannot be opened, and why."""
    error, why = request.param
    folder = tmp_path / "bad"

    def opening(name: str, directory: Path, *arguments: object, **options: object) -> Dataset:
        if directory == folder:
            raise error
        return open_dataset(name, directory, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("emlio.daemon.datasets.opener.open_dataset", opening)
    return folder, why


def _config(tmp_path: Path, **folders: Path) -> DaemonConfig:
    (tmp_path / "datasets.d").mkdir(exist_ok=True)
    return DaemonConfig(
        data=tuple(DatasetSource(name=name, directory=folder) for name, folder in folders.items()),
        bind=Endpoint(host="127.0.0.1", port=0),
        datasets_dir=tmp_path / "datasets.d",
    )


def _describe(tmp_path: Path, name: str, folder: Path) -> Path:
    path = tmp_path / "datasets.d" / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'path = "{folder}"\n', encoding="utf-8")
    return path


def _records(daemon: Daemon, name: str) -> int:
    address = f"emlio://{daemon.endpoint.removeprefix('tcp://')}/{name}"
    with EmlioLoader(address, **loader_arguments(batch_size=5, raw=True, to="numpy")) as loader:
        return sum(len(batch["record"]) for batch in loader)


def _error_of(description: Path) -> str:
    def failed() -> bool:
        state = read_state(description)
        return state is not None and state.state == "failed"

    assert settles(failed, _SOON_S)
    state = read_state(description)
    return "" if state is None else state.error


def test_one_of_the_configuration_keeps_a_daemon_from_starting_and_is_named(
    tmp_path: Path, good: Path, bad: tuple[Path, str]
) -> None:
    folder, why = bad
    with pytest.raises((DatasetError, ConfigError), match=f"^dataset second cannot be opened: .*{why}"):
        Daemon(_config(tmp_path, first=good, second=folder))


def test_one_that_is_described_does_not(tmp_path: Path, good: Path, bad: tuple[Path, str]) -> None:
    folder, why = bad
    description = _describe(tmp_path, "second", folder)
    with Daemon(_config(tmp_path, first=good)) as daemon:
        assert re.search(f"^dataset second cannot be opened: .*{why}", _error_of(description))
        assert _records(daemon, "first") == 20


def test_one_that_comes_later_ends_nothing(
    tmp_path: Path, good: Path, bad: tuple[Path, str], caplog: pytest.LogCaptureFixture
) -> None:
    folder, _ = bad
    caplog.set_level(logging.INFO, "emlio.daemon")
    with Daemon(_config(tmp_path, first=good)) as daemon:
        description = _describe(tmp_path, "second", folder)
        assert _error_of(description).startswith("dataset second cannot be opened: ")
        _describe(tmp_path, "third", good)
        assert settles(lambda: "dataset third was added" in caplog.text, _SOON_S)
        assert _records(daemon, "first") == _records(daemon, "third") == 20
        daemon.reload()
        assert settles(lambda: caplog.text.count("dataset second cannot be opened") == 2, _SOON_S)


def test_an_array_that_claims_more_rows_than_memory_holds_is_named(tmp_path: Path, good: Path) -> None:
    if Path("/proc/sys/vm/overcommit_memory").read_text(encoding="ascii").strip() == "1":
        pytest.skip("this system gives any amount of memory, and ends processes later")
    folder = tmp_path / "rows"
    folder.mkdir()
    with (folder / "rows.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (1 << 43, 1)})
        try:
            os.truncate(file.fileno(), file.tell() + (1 << 43))
        except OSError as error:
            pytest.skip(f"no file of 8 TiB, which would take no space, can be made here: {error}")
    description = _describe(tmp_path, "rows", Path(f"{folder}?format=npy-rows"))
    with Daemon(_config(tmp_path, first=good)) as daemon:
        assert "takes more memory than there is" in _error_of(description)
        assert _records(daemon, "first") == 20
