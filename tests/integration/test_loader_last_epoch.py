"""A loader that was told how many epochs there are: nothing is read or sent that lies behind the last one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.daemon.service import Daemon
from emlio.errors import ConfigError
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import settles
from emlio_testing.serving import daemon_of, peer_of, raw_loader

RECORDS = 120
HEARTBEAT_S = 0.1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    make_dataset(folder / "numbers", records=RECORDS, shards=4)
    return folder / "numbers"


def _daemon(folder: Path) -> Daemon:
    return daemon_of({"numbers": folder}, message_size=4096, memory=1 << 20)


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    with _daemon(folder) as daemon:
        yield f"{peer_of(daemon)}/numbers"


def _read(loader: EmlioLoader) -> set[int]:
    ids = [number for batch in loader for number in batch["__id__"].tolist()]
    assert len(ids) == len(set(ids))
    return set(ids)


def _taken_bytes(loader: EmlioLoader) -> int:
    stats = loader.stats()
    return stats.received_bytes + stats.local_bytes


@pytest.fixture(params=["from a daemon", "from this host"])
def address(request: pytest.FixtureRequest, url: str, folder: Path) -> str | Path:
    return url if request.param == "from a daemon" else folder


def test_nothing_is_read_behind_the_last_epoch(address: str | Path, folder: Path) -> None:
    epoch_bytes = sum(path.stat().st_size for path in folder.glob("*.tfrecord"))
    with raw_loader(address, epochs=2) as told, raw_loader(address) as untold:
        for loader in (told, untold):
            assert [_read(loader) for _ in range(2)] == [set(range(RECORDS))] * 2
        # Once the other one has read of the third epoch, this one would have had the time for it, too.
        assert settles(lambda: _taken_bytes(untold) > 2 * epoch_bytes, 10.0)
        assert _taken_bytes(told) == 2 * epoch_bytes


def test_an_epoch_behind_the_last_one_is_refused_and_an_earlier_one_comes_again(address: str | Path) -> None:
    with raw_loader(address, epochs=1) as loader:
        assert len(_read(loader)) == RECORDS
        with pytest.raises(
            ConfigError, match="an epoch must be below 1, as epochs=1 was given and they count from 0, got 1"
        ):
            iter(loader)
        with pytest.raises(ConfigError, match="got 5"):
            loader.set_epoch(5)
        loader.set_epoch(0)
        assert len(_read(loader)) == RECORDS


def test_a_job_that_goes_on_counts_the_epochs_from_the_first(address: str | Path) -> None:
    with raw_loader(address, epochs=3) as before:
        _read(before)
        next(iter(before))
        state = before.state_dict()
    with raw_loader(address, epochs=2) as after:
        after.load_state_dict(state)
        assert after.epoch == 1
        assert len(_read(after)) == RECORDS - 16
        with pytest.raises(ConfigError, match="got 2"):
            iter(after)


def test_a_loader_that_has_read_all_waits_for_nobody(folder: Path) -> None:
    with _daemon(folder) as one, _daemon(folder) as two:
        address = f"{peer_of(one, two)}/numbers"
        with raw_loader(address, epochs=1, heartbeat=HEARTBEAT_S) as loader:
            _read(loader)
            # Who owes something and sends nothing for a heartbeat is taken for slow, and others send some of its shards.
            assert not settles(lambda: loader.stats().moved_shards > 0, 5 * HEARTBEAT_S)
            assert loader.stats().lost_daemons == 0


@pytest.mark.parametrize("epochs", [0, -1, 1.5, True, "2"])
def test_a_number_of_epochs_must_be_one(url: str, epochs: Any) -> None:
    with pytest.raises(ConfigError, match="epochs must be a whole number of at least 1, or None"):
        raw_loader(url, epochs=epochs)
