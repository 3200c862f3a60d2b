"""Descriptions of datasets in a folder, what is wanted of them, and the thread that looks.

Covers: their text, noticing changes, mistakes, states. Does not cover: opening what they describe (e2e/test_generations).
"""

import os
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Queue

import pytest

from emlio.daemon.config import DaemonConfig, DatasetSource
from emlio.daemon.datasets.descriptions import (
    DescriptionFolder,
    State,
    description_path,
    read_state,
    state_path,
)
from emlio.daemon.datasets.wanted import Wanted, Wants
from emlio.errors import ConfigError

LONG_S = 10.0


def put(folder: Path, name: str, text: str) -> Path:
    """Put a description into a folder, atomically."""
    made = folder / ".new"
    made.write_text(text, encoding="utf-8")
    return made.rename(folder / f"{name}.toml")


def test_a_description_names_a_folder_and_options(tmp_path: Path) -> None:
    put(tmp_path, "x@2", 'path = "/data/x"\nid = "7"\n[options]\nformat = "jsonl"\nfolded = true\nrows = 5\n')
    put(tmp_path, "y", 'path = "/data/y?format=parquet"\n')
    (tmp_path / "x@2.state.json").write_text("{}", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("?", encoding="utf-8")
    (tmp_path / ".hidden.toml").write_text("?", encoding="utf-8")
    one, other = DescriptionFolder(tmp_path).look()
    assert one.source == DatasetSource(
        name="x", directory=Path("/data/x"), generation=2, options={"format": "jsonl", "folded": "true", "rows": "5"}
    )
    assert one.source.full_name == "x@2"
    assert (one.request, one.error, one.path) == ("7", "", description_path(tmp_path, "x@2"))
    assert other.source == DatasetSource(name="y", directory=Path("/data/y"), options={"format": "parquet"})


def test_a_description_is_read_again_when_it_was_replaced_or_written_to(tmp_path: Path) -> None:
    folder = DescriptionFolder(tmp_path)
    put(tmp_path, "x", 'path = "/one"\n')
    (first,) = folder.look()
    (same,) = folder.look()
    assert same is first
    put(tmp_path, "x", 'path = "/two"\n')
    (second,) = folder.look()
    assert second.source is not None
    assert second.source.directory == Path("/two")
    os.utime(second.path)
    (third,) = folder.look()
    assert third.stamp != second.stamp
    second.path.unlink()
    assert folder.look() == []


def test_a_folder_that_cannot_be_read_keeps_what_it_had(tmp_path: Path) -> None:
    place = tmp_path / "descriptions"
    place.mkdir()
    put(place, "x", 'path = "/one"\n')
    folder = DescriptionFolder(place)
    before = folder.look()
    place.rename(tmp_path / "away")
    assert folder.look() == before
    assert str(place) in folder.problem
    (tmp_path / "away").rename(place)
    assert folder.look() == before
    assert folder.problem == ""


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    place = put(tmp_path, "x@2", 'path = "/one"\n')
    folder = DescriptionFolder(tmp_path)
    assert read_state(place) is None
    told = State(dataset="x@2", state="serving", request="7", records=5, shards=2, directory="/one", pid=1, time="now")
    assert folder.tell(place, told) == ""
    assert read_state(place) == told
    assert state_path(place).name == "x@2.state.json"
    state_path(place).write_text("{", encoding="utf-8")
    assert read_state(place) is None
    folder.forget(place)
    folder.forget(place)
    assert not state_path(place).exists()
    assert "cannot be written" in folder.tell(tmp_path / "nowhere" / "x.toml", told)


# ---- what is wanted -----------------------------------------------------------------------------------------------------


class Stage:
    """The datasets that a daemon should serve, with the thread that opens them."""

    def __init__(self, config: DaemonConfig, reread: Callable[[], DaemonConfig] | None = None) -> None:
        self.wants = Wants(config, reread)
        self.first = self.wants.first()
        self.seen: Queue[Wanted] = Queue()

    def __enter__(self) -> "Stage":
        self.wants.start(self.seen.put)
        return self

    def __exit__(self, *_: object) -> None:
        self.wants.close()

    def next(self) -> Wanted:
        return self.seen.get(timeout=LONG_S)


def source(name: str, directory: str) -> DatasetSource:
    return DatasetSource.named(name, directory)


def config(folder: Path | None, *data: DatasetSource, readers: int = 2) -> DaemonConfig:
    return DaemonConfig(data=data, datasets_dir=folder, readers=readers)


def test_what_is_wanted_is_the_configuration_and_the_descriptions(tmp_path: Path) -> None:
    put(tmp_path, "x@2", 'path = "/two"\n')
    with Stage(config(tmp_path, source("x", "/one"))) as stage:
        assert {name: str(one.source.directory) for name, one in stage.first.datasets.items()} == {
            "x": "/one",
            "x@2": "/two",
        }
        put(tmp_path, "y", 'path = "/three"\n')
        assert set(stage.next().datasets) == {"x", "x@2", "y"}
        put(tmp_path, "y", 'path = "/four"\n')
        assert str(stage.next().datasets["y"].source.directory) == "/four"
        (tmp_path / "x@2.toml").unlink()
        assert set(stage.next().datasets) == {"x", "y"}


def test_a_mistake_in_a_description_keeps_what_it_described_before(tmp_path: Path) -> None:
    place = put(tmp_path, "y", 'path = "/one"\n')
    with Stage(config(tmp_path, source("x", "/x"))) as stage:
        put(tmp_path, "y", "path = \n")
        put(tmp_path, "z", 'path = "/z"\n')
        wanted = stage.next()
        assert set(wanted.datasets) == {"x", "y", "z"}
        assert wanted.datasets["y"].is_like(stage.first.datasets["y"])
        put(tmp_path, "a", 'path = "/a"\n')
        assert "a" in stage.next().datasets  # the state of the round before is written by now
        told = read_state(place)
        assert told is not None
        assert (told.state, told.pid) == ("failed", os.getpid())
        assert "not valid TOML" in told.error
    assert read_state(place) is None


def test_a_reload_reads_the_configuration_again_and_looks_at_every_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = [config(None, source("x", "/x"), readers=3)]

    def reread() -> DaemonConfig:
        if not now:
            raise ConfigError("no good")
        return now[0]

    with caplog.at_level("INFO", "emlio.daemon"), Stage(config(None, source("x", "/x")), reread) as stage:
        stage.wants.reload()
        wanted = stage.next()
        assert wanted.again
        assert set(wanted.datasets) == {"x"}
        assert "the setting readers has changed, which needs a restart" in caplog.text
        now[0] = config(None, source("y", "/y"))
        stage.wants.reload()
        assert set(stage.next().datasets) == {"y"}
        now.clear()
        stage.wants.reload()
        with pytest.raises(Empty):
            stage.seen.get(timeout=0.5)
    assert "the configuration is not reloaded, everything stays as it is: no good" in caplog.text


def test_a_folder_of_descriptions_must_be_there_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"folder of descriptions .* cannot be read"):
        Stage(config(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="at least one dataset must be given"):
        config(None)
