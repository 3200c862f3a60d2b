"""Data messages as they come over a lane, read without a loader.

Covers: messages in one frame and those whose payload comes apart. Does not cover: sealed ones, checking what came.
"""

from collections.abc import Callable

from emlio.wire.data import DataHeader, decode_data_header, split_data_frame

__all__ = ["read_data"]


def read_data(receive: Callable[[], bytes]) -> tuple[DataHeader, bytes]:
    """The next message's header and payload; `receive` returns a lane's next frame."""
    parts = split_data_frame(memoryview(receive()))
    if parts.payload is None:
        payload = receive()
        parts.check_apart(memoryview(payload))
    else:
        payload = bytes(parts.payload)
    return decode_data_header(parts.header, len(payload)), payload
