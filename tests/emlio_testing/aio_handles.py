"""Handles of a kind that some systems do not allow."""

import errno

import pytest

from emlio.aio import AioHandle
from emlio.aio.tuner import Tune
from emlio.errors import ConfigError

__all__ = ["handle_of_kind"]


def handle_of_kind(
    kind: str, block_size: int, queue_depth: int, *, direct: bool = True, tune: Tune | str = "off"
) -> AioHandle:
    """Return a handle; skip the test where a sandbox denies the kind or the kernel lacks it, and for no other reason."""
    try:
        return AioHandle(block_size, queue_depth, kind=kind, direct=direct, tune=tune)
    except ConfigError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in (errno.EPERM, errno.ENOSYS):
            raise
        pytest.skip(f"this system does not allow {kind}: {cause.strerror}")
