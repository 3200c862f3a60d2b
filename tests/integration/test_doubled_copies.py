"""Two copies of one dataset, cut into different numbers of shards: both ends say so, since every record comes twice then.

Covers: two daemons, a daemon and a folder of this host, one folder that holds both. Does not cover: which names are of one
dataset (tests/unit/formats/test_tfrecord_names).
"""

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.datasets.collection import findings
from emlio.daemon.service import Daemon
from emlio.index.opening import open_dataset
from emlio_testing.datasets import make_dataset

_RECORDS = 12


@pytest.fixture
def copies(tmp_path: Path) -> list[Path]:
    """The same records in two shards and in three."""
    made = [tmp_path / "two", tmp_path / "three"]
    for place, shards in zip(made, (2, 3), strict=True):
        make_dataset(place, records=_RECORDS, shards=shards, mapped=False)
    return made


def _daemon(stack: ExitStack, place: Path) -> str:
    bind = Endpoint(host="127.0.0.1", port=0)
    daemon = Daemon(DaemonConfig(bind=bind, data=(DatasetSource(name="d", directory=place),)))
    return stack.enter_context(daemon).endpoint.removeprefix("tcp://")


def _warnings(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    return [found.getMessage() for found in caplog.records if found.levelname == "WARNING" and found.name == logger]


@pytest.mark.parametrize("here", [False, True], ids=["two daemons", "a daemon and a folder"])
def test_a_loader_says_who_holds_which_copy(copies: list[Path], here: bool, caplog: pytest.LogCaptureFixture) -> None:
    two, three = copies
    with ExitStack() as stack:
        one = _daemon(stack, two)
        other = str(three) if here else _daemon(stack, three)
        address = f"emlio://{one}/d" if here else f"emlio://{one},{other}/d"
        loader = EmlioLoader(address, local=other if here else None, batch_size=4, raw=True, to="numpy", ids=True)
        with loader:
            assert sum(len(batch["__id__"]) for batch in loader) == 2 * _RECORDS
    assert _warnings(caplog, "emlio.receiver") == [
        "the dataset seems to hold its records more than once: "
        f"train-*-of-00002.tfrecord is at {one}, train-*-of-00003.tfrecord is at {other}. "
        "If these are copies of the same data, serve only one of them"
    ]


def test_a_daemon_says_that_its_folder_holds_both(copies: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    two, three = copies
    for shard in three.glob("*.tfrecord"):
        shard.rename(two / shard.name)
    with ExitStack() as stack:
        _daemon(stack, two)
    assert _warnings(caplog, "emlio.daemon") == [
        f"dataset d: {two} seems to hold its records more than once, in train-*-of-00002.tfrecord and in "
        "train-*-of-00003.tfrecord. If these are copies of the same data, serve a folder with only one of them"
    ]


def test_shards_that_are_missing_are_named_and_a_link_that_leads_nowhere_is(copies: list[Path], tmp_path: Path) -> None:
    _, three = copies
    (three / "train-00000-of-00003.tfrecord").unlink()
    moved = tmp_path / "moved"
    shutil.move(three / "train-00001-of-00003.tfrecord", moved)
    (three / "train-00001-of-00003.tfrecord").symlink_to("lost")
    with open_dataset("d", three) as dataset:
        assert findings(dataset) == [
            f"dataset d: shards missing in {three}: train-00000-of-00003.tfrecord, "
            "train-00001-of-00003.tfrecord (a broken link to lost)"
        ]
    make_dataset(tmp_path / "many", records=20, shards=20, mapped=False)
    for shard in sorted((tmp_path / "many").glob("*.tfrecord"))[1:]:
        shard.unlink()
    with open_dataset("d", tmp_path / "many") as dataset:
        (said,) = findings(dataset)
    assert said.endswith("train-00004-of-00020.tfrecord, train-00005-of-00020.tfrecord and 14 more")
