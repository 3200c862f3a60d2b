"""`replay=N`: the first N batches as planned, and then the same again, for as many steps as an epoch has."""

from pathlib import Path
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import ConfigError
from emlio_testing.datasets import make_dataset

RECORDS, BATCH, KEPT = 500, 10, 3


def _ids(loader: EmlioLoader) -> list[tuple[int, ...]]:
    return [tuple(int(one) for one in batch["__id__"]) for batch in loader]


@pytest.mark.parametrize("transform", [None, lambda sample: sample])
def test_the_first_batches_are_repeated_over_all_epochs(tmp_path: Path, transform: Any) -> None:
    make_dataset(tmp_path / "numbers", records=RECORDS, shards=2, payload=1000)
    source = DatasetSource(name="numbers", directory=tmp_path / "numbers")
    with Daemon(DaemonConfig(data=(source,), bind=Endpoint(host="127.0.0.1", port=0))) as daemon:
        address = f"{daemon.endpoint.replace('tcp', 'emlio')}/numbers"
        options: dict[str, Any] = {
            "batch_size": BATCH,
            "ids": True,
            "raw": True,
            "to": "numpy",
            "epochs": 3,
            "transform": transform,
        }
        with EmlioLoader(address, **options) as loader:
            planned = _ids(loader)
        with EmlioLoader(address, replay=KEPT, prefetch="1MiB", **options) as loader:
            first, second = _ids(loader), _ids(loader)
            assert loader.epoch == 2
            assert loader.stats().batches == 2 * len(planned)
            state = loader.state_dict()
        with (
            EmlioLoader(address, **options) as loader,
            pytest.raises(ConfigError, match="replay=3: it handed out the same"),
        ):
            loader.load_state_dict(state)
    assert first[:KEPT] == planned[:KEPT]
    assert first == [planned[step % KEPT] for step in range(len(planned))]
    assert second == first


def test_an_epoch_shorter_than_that_goes_on_in_the_next_one(tmp_path: Path) -> None:
    make_dataset(tmp_path, records=20, shards=1, payload=100)
    with EmlioLoader(tmp_path, batch_size=10, ids=True, raw=True, to="numpy", replay=3) as loader:
        first, second, third = (_ids(loader) for _ in range(3))
    assert sorted(one for batch in first for one in batch) == list(range(20))
    assert second[0] not in first, "the third batch is one of the second epoch"
    assert third[0] == first[0]
