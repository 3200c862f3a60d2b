"""Records without a frame of their own, one after the other, with a checksum for each beside them."""

import numpy as np
import numpy.typing as npt

from emlio import native
from emlio.checksum import crc32c
from emlio.tfrecord import FrameFault, FrameRun

__all__ = ["check_plain", "checksums_of"]


def checksums_of(payload: memoryview, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Return the CRC32C of each record.

    Args:
        payload: the records, without gaps.
        sizes: the size of each.
    """
    bounds = np.cumsum(sizes)
    found = native.checksums(payload, bounds - sizes, bounds)
    if found is not None:
        return found
    ends: list[int] = bounds.tolist()
    begin, crcs = 0, list[int]()
    for end in ends:
        crcs.append(crc32c(payload[begin:end]))
        begin = end
    return np.array(crcs, np.uint32)


def check_plain(
    payload: memoryview, sizes: npt.NDArray[np.int64], crcs: npt.NDArray[np.uint32], *, verify: bool
) -> FrameRun:
    """Check a run of records without frames.

    Args:
        payload: the records, without gaps; what follows them is not looked at.
        sizes: the size of each, together not more than the payload.
        crcs: the CRC32C that each must have.
        verify: whether to compute the checksums.
    """
    ends = np.cumsum(sizes)
    faults: tuple[FrameFault, ...] = ()
    if verify:
        found = checksums_of(payload, sizes)
        faults = tuple(
            FrameFault(
                position=position,
                reason=f"the CRC32C of its {sizes[position]} bytes must be 0x{crcs[position]:08x}, as it was when the "
                f"record was first read, got 0x{found[position]:08x}",
            )
            for position in np.flatnonzero(found != crcs).tolist()
        )
    return FrameRun(starts=ends - sizes, ends=ends, faults=faults)
