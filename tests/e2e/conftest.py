"""What the end-to-end tests share.

Covers: the mark all of them carry, their datasets' folders. Does not cover: leaks (tests/conftest.py).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess

SMALL_RECORDS = 500


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session", autouse=True)
def _starts(forked_starts: None) -> None:
    """The end-to-end tests start most of all processes."""


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """500 records in 4 shards; nobody changes it."""
    directory = tmp_path_factory.mktemp("datasets") / "small"
    make_dataset(directory, records=SMALL_RECORDS, shards=4)
    return directory


@pytest.fixture
def daemon(small: Path, tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon that serves `small` under that name and notices a silent rank after half a second."""
    with DaemonProcess({"small": small}, "--heartbeat-timeout", "500ms", folder=tmp_path) as process:
        yield process
