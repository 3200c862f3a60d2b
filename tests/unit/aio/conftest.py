"""A handle of each kind that this system allows."""

from collections.abc import Iterator

import pytest

from emlio.aio import AioHandle
from emlio_testing.aio_handles import handle_of_kind


@pytest.fixture(params=["io_uring", "aio"])
def handle(request: pytest.FixtureRequest) -> Iterator[AioHandle]:
    with handle_of_kind(request.param, 64 << 10, 8) as made:
        yield made
