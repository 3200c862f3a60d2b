"""Data messages as they come over a lane, read without a loader."""

from collections.abc import Callable
from typing import NamedTuple

from emlio.wire.data import DataHeader, decode_data_header, split_data_frame

__all__ = ["DataMessage", "read_data"]


class DataMessage(NamedTuple):
    """A message and its lane.

    Attributes:
        header: its header.
        payload: the frames of its records.
        lane: the lane it was sent over.
        lane_sequence: its number on that lane.
    """

    header: DataHeader
    payload: bytes
    lane: int
    lane_sequence: int


def read_data(receive: Callable[[], bytes]) -> DataMessage:
    """Return the next message; `receive` returns a lane's next frame."""
    parts = split_data_frame(memoryview(receive()))
    if parts.payload is None:
        payload = receive()
        parts.check_apart(memoryview(payload))
    else:
        payload = bytes(parts.payload)
    header = decode_data_header(parts.header, len(payload))
    return DataMessage(header=header, payload=payload, lane=parts.lane, lane_sequence=parts.lane_sequence)
