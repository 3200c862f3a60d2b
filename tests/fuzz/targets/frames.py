"""A run of TFRecord frames with the sizes it was announced with.

byte 0        bit 0: check the data too; bit 1: frame each size's share of the rest rightly before it is changed
byte 1        how many sizes
then          a byte of kind and a size each: small as one byte, else eight bytes
rest          the payload
"""

import numpy as np

from emlio.errors import EmlioError
from emlio.tfrecord import FRAME_BYTES, FrameRun, check_frames, frame
from tests.fuzz.draws import Draws
from tests.fuzz.target import Target

__all__ = ["TARGET", "fuzz"]

_ENOUGH = 25
"""Frames from which on they are checked with arrays."""


def fuzz(data: bytes) -> None:
    """Few frames and many are judged alike, and what is not faulty lies in the payload."""
    draws = Draws(data)
    flags, count = draws.byte(), draws.byte() % 12 + 1
    sizes = [draws.number() for _ in range(count)]
    payload = draws.rest()
    if flags & 2:
        parts = [frame(payload[place::count]) for place in range(count)]
        place = max(sizes[0], 0) % (sum(map(len, parts)) * 2)
        sizes = [len(part) for part in parts]
        whole = bytearray(b"".join(parts))
        if place < len(whole):
            whole[place] ^= 1
        payload = bytes(whole)
    copies = -(-_ENOUGH // count)
    few = _checked(payload, sizes, verify=bool(flags & 1))
    many = _checked(payload * copies, sizes * copies, verify=bool(flags & 1))
    if sum(sizes) != len(payload):
        return  # where only some copies agree with their sizes, the sums may still agree
    bad = [fault.position for fault in few.faults]
    assert [fault.position for fault in many.faults] == [count * copy + one for copy in range(copies) for one in bad]
    if len(bad) < count:
        assert many.starts.tolist()[:count] == few.starts.tolist()
        assert many.ends.tolist()[:count] == few.ends.tolist()


def _checked(payload: bytes, sizes: list[int], *, verify: bool) -> FrameRun:
    run = check_frames(memoryview(payload), np.array(sizes, np.int64), verify=verify)
    positions = [fault.position for fault in run.faults]
    assert positions == sorted(set(positions))
    for position in set(range(len(sizes))) - set(positions):
        start, end = int(run.starts[position]), int(run.ends[position])
        assert 0 <= start <= end <= len(payload)
        assert end - start == sizes[position] - FRAME_BYTES
    return run


TARGET = Target(fuzz=fuzz, raises=(EmlioError,), most_bytes=2048)
