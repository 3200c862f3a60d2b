"""A stage for lanes, and records to send over them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from emlio_testing.daemon_streams import RECORD
from emlio_testing.datasets import make_dataset
from tests.integration.lanes.stage import Stage, open_stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A daemon's lanes, without ranks so far."""
    with open_stage() as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """100 records in 2 shards."""
    make_dataset(tmp_path, records=100, shards=2, payload=RECORD)
    return tmp_path
