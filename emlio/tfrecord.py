"""The frame around a record in a TFRecord file.

    uint64 length | uint32 masked CRC of the length | data | uint32 masked CRC of the data        (all little-endian)

Covers: the frame's numbers, making one, checking many. Does not cover: files (emlio.shards), what the data means
(emlio.example).
"""

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from emlio.checksum import crc32c, mask, masked_crc32c
from emlio.errors import ConfigError

__all__ = ["FOOTER_BYTES", "FRAME_BYTES", "HEADER_BYTES", "FrameFault", "FrameRun", "check_frames", "frame"]

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
"""What a frame adds to a record's data."""

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")

_ONE_BY_ONE = 24
"""Frames in a run up to which a loop beats array code, as measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameFault:
    """One frame of a run that is not what it must be.

    Attributes:
        position: which frame of the run, from 0.
        reason: what must hold and what came, without a name of a shard: who checks the run may not know it.
    """

    position: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameRun:
    """Where the data of back-to-back frames lies.

    Attributes:
        starts: begin of each record's data.
        ends: one past its end. Both are 0 for frames whose place cannot be told.
        faults: what is wrong, by rising position; a frame named here must not be used.
    """

    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    faults: tuple[FrameFault, ...]


def frame(data: Buffer) -> bytes:
    """The bytes a TFRecord file holds for one record."""
    body = bytes(data)
    length = _LENGTH.pack(len(body))
    return b"".join((length, _CRC.pack(masked_crc32c(length)), body, _CRC.pack(masked_crc32c(body))))


def check_frames(payload: memoryview, sizes: npt.NDArray[np.int64], *, verify: bool) -> FrameRun:
    """Check a run of whole frames against the sizes it was announced with.

    Each stored length must be the announced one; then the length's own checksum adds nothing and is not computed.

    Args:
        payload: bytes, the frames back to back.
        sizes: size of each frame, FRAME_BYTES more than its data.
        verify: whether to compute the checksum of each record's data.

    Returns:
        The places, and what is wrong as values. If the sizes do not add up to the payload, no frame can be trusted and
        each has a fault.
    """
    if sizes.dtype != np.int64 or sizes.ndim != 1 or not sizes.size:
        raise ConfigError(f"sizes must be int64, one for each of at least one frame, got {sizes.dtype} {sizes.shape}")
    if len(sizes) <= _ONE_BY_ONE:
        return _check_one_by_one(payload, sizes, verify)
    # One by one at most the payload, so that no sum of them can wrap.
    wrong = (sizes < FRAME_BYTES) | (sizes > len(payload))
    total = int(np.where(wrong, 0, sizes).sum())
    if wrong.any() or total != len(payload):
        return _untold(sizes, len(payload))
    bounds = np.cumsum(sizes)
    starts = bounds - sizes + HEADER_BYTES
    ends = bounds - FOOTER_BYTES
    stored = _numbers_at(payload, starts - HEADER_BYTES, "<u8")
    odd_lengths = stored != (sizes - FRAME_BYTES).view(np.uint64)
    faults = [
        _odd_length(position, int(sizes[position]), int(stored[position]))
        for position in np.flatnonzero(odd_lengths).tolist()
    ]
    if verify:
        crcs = np.array(
            [crc32c(payload[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)], np.uint32
        )
        # What mask() does, for all at once; uint32 wraps as the format wants.
        masked = ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + np.uint32(mask(0))
        written = _numbers_at(payload, ends, "<u4")
        faults.extend(
            _odd_crc(position, int(written[position]), int(masked[position]))
            for position in np.flatnonzero((masked != written) & ~odd_lengths).tolist()
        )
    faults.sort(key=lambda fault: fault.position)
    return FrameRun(starts=starts, ends=ends, faults=tuple(faults))


def _check_one_by_one(payload: memoryview, sizes: npt.NDArray[np.int64], verify: bool) -> FrameRun:
    """What `check_frames` does, for few frames: then array code costs more than it saves."""
    frames: list[int] = sizes.tolist()
    if min(frames) < FRAME_BYTES or sum(frames) != len(payload):
        return _untold(sizes, len(payload))
    starts: list[int] = []
    ends: list[int] = []
    faults: list[FrameFault] = []
    at = 0
    for position, size in enumerate(frames):
        start, end = at + HEADER_BYTES, at + size - FOOTER_BYTES
        length: int = _LENGTH.unpack_from(payload, at)[0]
        if length != size - FRAME_BYTES:
            faults.append(_odd_length(position, size, length))
        elif verify:
            crc, written = masked_crc32c(payload[start:end]), _CRC.unpack_from(payload, end)[0]
            if crc != written:
                faults.append(_odd_crc(position, written, crc))
        starts.append(start)
        ends.append(end)
        at += size
    return FrameRun(starts=np.array(starts, np.int64), ends=np.array(ends, np.int64), faults=tuple(faults))


def _odd_length(position: int, size: int, length: int) -> FrameFault:
    return FrameFault(position=position, reason=f"the frame's length field must be {size - FRAME_BYTES}, got {length}")


def _odd_crc(position: int, written: int, crc: int) -> FrameFault:
    return FrameFault(
        position=position,
        reason=f"the masked CRC32C of the data must be 0x{written:08x} as stored, got 0x{crc:08x}",
    )


def _untold(sizes: npt.NDArray[np.int64], payload_bytes: int) -> FrameRun:
    nowhere = np.zeros(sizes.size, np.int64)
    total = sum(sizes.tolist())
    reason = (
        f"frames of at least {FRAME_BYTES} bytes must fill the payload of {payload_bytes} bytes, "
        f"got {sizes.size} with sizes from {int(sizes.min())} to {int(sizes.max())}, {total} bytes in all"
    )
    faults = tuple(FrameFault(position=position, reason=reason) for position in range(sizes.size))
    return FrameRun(starts=nowhere, ends=nowhere, faults=faults)


def _numbers_at(payload: memoryview, places: npt.NDArray[np.int64], dtype: str) -> npt.NDArray[np.unsignedinteger]:
    """The unaligned numbers that begin at `places`."""
    # Overlapping windows over the payload, one at each byte, without a copy.
    kind = np.dtype(dtype)
    windows: npt.NDArray[np.unsignedinteger] = np.ndarray(
        (len(payload) - kind.itemsize + 1,), dtype=kind, buffer=payload, strides=(1,)
    )
    return windows[places]
