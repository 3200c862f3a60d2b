"""A loader that saves energy gives what a racing one gives, in the same order, from one daemon and from two."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import ConfigError
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments

RECORDS = 900


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    make_dataset(folder / "one", records=RECORDS, shards=4, payload=3000)
    for number, shard in enumerate(sorted((folder / "one").glob("*.tfrecord*"))):
        half = folder / f"half{number % 2}" / "one"
        half.mkdir(parents=True, exist_ok=True)
        (half / shard.name).write_bytes(shard.read_bytes())
    return folder


def load(directories: list[Path], **options: Any) -> list[list[int]]:
    """The ids of two epochs, by batches."""
    with ExitStack() as stack:
        daemons = [
            stack.enter_context(
                Daemon(
                    DaemonConfig(
                        data=(DatasetSource(name="one", directory=directory),),
                        bind=Endpoint(host="127.0.0.1", port=0),
                        message_size=8192,
                        memory=1 << 20,
                    )
                )
            )
            for directory in directories
        ]
        hosts = ",".join(daemon.endpoint.removeprefix("tcp://") for daemon in daemons)
        loader = stack.enter_context(
            EmlioLoader(
                f"emlio://{hosts}/one",
                **loader_arguments(
                    batch_size=16, raw=True, ids=True, to="numpy", timeout="20s", prefetch="1MiB", **options
                ),
            )
        )
        return [batch["__id__"].tolist() for _ in range(2) for batch in loader]


@pytest.mark.parametrize("halves", [False, True])
def test_the_batches_are_those_of_a_race(folder: Path, halves: bool) -> None:
    directories = [folder / "half0" / "one", folder / "half1" / "one"] if halves else [folder / "one"]
    raced = load(directories)
    assert load(directories, pace="energy") == raced
    assert sorted(number for batch in raced for number in batch) == sorted([*range(RECORDS)] * 2)


def test_a_transform_that_works_ahead_gets_all_it_asks_for(folder: Path) -> None:
    seen = load([folder / "one"], pace="energy", transform=lambda sample: sample, threads=2)
    assert sorted(number for batch in seen for number in batch) == sorted([*range(RECORDS)] * 2)


def test_a_pace_that_is_none_is_refused_before_anything_is_connected() -> None:
    with pytest.raises(ConfigError, match="pace must be one of race, energy, got 'slow'"):
        EmlioLoader("emlio://127.0.0.1:1/one", batch_size=1, pace="slow")  # type: ignore[arg-type]  # what is tested
