"""Notes on records that a rank is told beside their bytes, such as a file's label and path.

4 bytes CRC32C of the rest | n lengths of 4 bytes, little-endian | the notes
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.checksum import crc32c
from emlio.errors import RemoteProtocolError

__all__ = ["MOST_NOTED", "find_notes", "pack_notes"]

MOST_NOTED: Final = 4096
"""Records with notes in one message, so that paths of the longest kind take 16 MiB."""

_LENGTH_BYTES: Final = 4


def pack_notes(notes: Sequence[bytes]) -> bytes:
    """Return the block for the notes of a message's records."""
    lengths = np.array([len(note) for note in notes], "<u4")
    body = b"".join((lengths.tobytes(), *notes))
    return crc32c(body).to_bytes(_LENGTH_BYTES, "little") + body


def find_notes(payload: memoryview, block_bytes: int, records: int) -> npt.NDArray[np.int64]:
    """Return where each note begins and ends in a payload that ends with a block of notes.

    Args:
        payload: the records and the block.
        block_bytes: the length of the block.
        records: the number of records.

    Returns:
        Begins and ends, shape (records, 2).

    Raises:
        RemoteProtocolError: the block is damaged, or is not for so many records.
    """
    first = len(payload) - block_bytes
    begin = first + _LENGTH_BYTES * (1 + records)
    if first < 0 or begin > len(payload):
        raise RemoteProtocolError(f"notes on {records} records must be inside the payload, got {block_bytes} bytes")
    stored = int.from_bytes(payload[first : first + _LENGTH_BYTES], "little")
    computed = crc32c(payload[first + _LENGTH_BYTES :])
    if stored != computed:
        raise RemoteProtocolError(
            f"notes must match their checksum {stored:08x}, these {block_bytes} bytes have {computed:08x}: they were "
            "corrupted in transit"
        )
    lengths = np.frombuffer(payload[first + _LENGTH_BYTES : begin], "<u4").astype(np.int64)
    ends = begin + np.cumsum(lengths)
    end = int(ends[-1]) if records else begin
    if end != len(payload):
        raise RemoteProtocolError(f"notes must fill their block, they end at {end} of {len(payload)} bytes")
    return np.stack((ends - lengths, ends), axis=1)
