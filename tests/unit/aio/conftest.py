"""A handle of each kind that this system allows."""

from collections.abc import Iterator

import pytest

from emlio.aio import AioHandle
from emlio.errors import ConfigError


@pytest.fixture(params=["io_uring", "aio"])
def handle(request: pytest.FixtureRequest) -> Iterator[AioHandle]:
    try:
        made = AioHandle("64KiB", 8, kind=request.param)
    except ConfigError as error:
        pytest.skip(str(error))
    with made:
        yield made
