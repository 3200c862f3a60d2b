"""What the end-to-end tests share.

Covers: the mark all of them carry, their datasets' folders. Does not cover: leaks (tests/conftest.py).
"""

from collections.abc import Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

import pytest

from emlio_testing.daemon_sites import DaemonSite, make_numbered
from emlio_testing.datasets import make_dataset
from emlio_testing.fork_server.client import ForkServer
from emlio_testing.processes import DaemonProcess, forked_from
from emlio_testing.rank_groups import TORCH_ENVIRONMENT

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
def torch_server(pytestconfig: pytest.Config) -> Iterator[ForkServer | None]:
    """A fork server that has imported PyTorch, made for the first test that wants it; None with --fresh-starts."""
    if pytestconfig.getoption("--fresh-starts") or find_spec("torch") is None:
        yield None
        return
    pictures = ["PIL.Image"] if find_spec("PIL") else []
    # Each rank's first optimizer imports torch._dynamo, which takes as long as torch itself.
    with ForkServer(["torch", "torch.distributed", "torch._dynamo", *pictures], TORCH_ENVIRONMENT) as server:
        yield server


@pytest.fixture(scope="module")
def torch_starts(torch_server: ForkServer | None) -> Iterator[None]:
    """Processes of the module with TORCH_ENVIRONMENT are forked from one that has imported PyTorch."""
    with nullcontext() if torch_server is None else forked_from(torch_server):
        yield


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


@pytest.fixture(scope="session")
def old_records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records 0 to 2,999, which nobody changes."""
    return make_numbered(tmp_path_factory.mktemp("generations") / "old", 0)


@pytest.fixture(scope="session")
def new_records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records 10,000 to 12,999, which nobody changes."""
    return make_numbered(tmp_path_factory.mktemp("generations") / "new", 10_000)


@pytest.fixture
def site(tmp_path: Path, old_records: Path) -> DaemonSite:
    site = DaemonSite(tmp_path / "site")
    site.configure(x=old_records)
    return site
