"""The cluster that the tests share."""

import threading
from collections.abc import Iterator

import pytest

from emlio_testing.processes import settles
from tests.e2e.on_ray.hosts import Hosts


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """As for all tests, but of EMLIO's threads alone: Ray's client keeps sockets and processes until it is shut down."""
    yield
    assert settles(lambda: not [one.name for one in threading.enumerate() if one.name.startswith("emlio")], 10.0)


@pytest.fixture(scope="module")
def started() -> Iterator[Hosts]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        hosts = Hosts()
        patch.setenv("RAY_ADDRESS", hosts.address)
        try:
            yield hosts
        finally:
            hosts.close()


@pytest.fixture
def hosts(started: Hosts) -> Hosts:
    started.complete()
    return started
