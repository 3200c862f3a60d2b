"""The frame of a record in a TFRecord file.

    uint64 length | uint32 masked CRC of the length | data | uint32 masked CRC of the data

All numbers are little-endian.

Covers: the frame's sizes, making a frame, checking many. Does not cover: files (emlio.index), the
meaning of the data (emlio.example).
"""

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from emlio import native
from emlio.checksum import crc32c, mask, masked_crc32c
from emlio.errors import ConfigError

__all__ = ["FOOTER_BYTES", "FRAME_BYTES", "HEADER_BYTES", "FrameFault", "FrameRun", "check_frames", "frame"]

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
"""The bytes that a frame adds to a record's data."""

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")

_ONE_BY_ONE = 24
"""The number of frames in a run up to which a loop is faster than array code, as measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameFault:
    """An invalid frame of a run.

    Attributes:
        position: the number of the frame in the run, from 0.
        reason: the expected and the actual value. It names no shard, which the checker may not
            know.
    """

    position: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameRun:
    """The offsets of the data of contiguous frames.

    Attributes:
        starts: the begin of each record's data.
        ends: the end of each record's data. Both are 0 for frames whose position is not known.
        faults: the invalid frames, by rising position; these must not be used.
        notes: (n, 2) begin and end of what is told of each record beside its bytes; None if nothing
            is.
    """

    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    faults: tuple[FrameFault, ...]
    notes: npt.NDArray[np.int64] | None = None


def frame(data: Buffer) -> bytes:
    """Return the bytes that a TFRecord file holds for one record."""
    body = bytes(data)
    length = _LENGTH.pack(len(body))
    return b"".join((length, _CRC.pack(masked_crc32c(length)), body, _CRC.pack(masked_crc32c(body))))


def check_frames(payload: memoryview, sizes: npt.NDArray[np.int64], *, verify: bool) -> FrameRun:
    """Check a run of whole frames against the sizes that were announced for it.

    Each stored length must equal the announced one. Then the length's own checksum adds nothing,
    and it is not computed.

    Args:
        payload: the bytes of the frames, without gaps.
        sizes: the size of each frame, FRAME_BYTES more than its data.
        verify: whether to compute the checksum of each record's data.

    Returns:
        The offsets and the faults. If the sizes do not add up to the payload, no frame can be
        trusted and each has a fault.
    """
    if sizes.dtype != np.int64 or sizes.ndim != 1 or not sizes.size:
        raise ConfigError(f"sizes must be int64, one for each of at least one frame, got {sizes.dtype} {sizes.shape}")
    found = native.check_frames(payload, sizes, verify=verify)
    if found is not None:
        return FrameRun(starts=found[0], ends=found[1], faults=())
    if len(sizes) <= _ONE_BY_ONE:
        return _check_one_by_one(payload, sizes, verify)
    # None is larger than the payload, so that no sum of them can wrap.
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
        # The same as mask(), for all at once; uint32 wraps as the format requires.
        masked = ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + np.uint32(mask(0))
        written = _numbers_at(payload, ends, "<u4")
        faults.extend(
            _odd_crc(position, int(written[position]), int(masked[position]))
            for position in np.flatnonzero((masked != written) & ~odd_lengths).tolist()
        )
    faults.sort(key=lambda fault: fault.position)
    return FrameRun(starts=starts, ends=ends, faults=tuple(faults))


def _check_one_by_one(payload: memoryview, sizes: npt.NDArray[np.int64], verify: bool) -> FrameRun:
    """Do the same as `check_frames` for few frames, where array code costs more than it saves."""
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
    """Return the unaligned numbers that begin at `places`."""
    # Overlapping views of the payload, one at each byte, without a copy.
    kind = np.dtype(dtype)
    windows: npt.NDArray[np.unsignedinteger] = np.ndarray(
        (len(payload) - kind.itemsize + 1,), dtype=kind, buffer=payload, strides=(1,)
    )
    return windows[places]
