"""image_fault gives an answer to any bytes and raises nothing."""

import io
import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from emlio.images.wholeness import image_fault

_MAGICS = (
    b"\xff\xd8\xff",
    b"\xff\xd8\xff\xc0\x00\x0b\x08\x00\x05\x00\x05\x01\x01\x11\x00\xff\xda\x00\x02",
    b"\x89PNG\r\n\x1a\n",
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
    b"RIFF\x40\x00\x00\x00WEBP",
    b"BM",
    b"II*\x00\x08\x00\x00\x00",
    b"MM\x00*\x00\x00\x00\x08",
    b"II+\x00\x08\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00",
    b"P6",
    b"P5 3 3",
    b"\xff\x4f\xff\x51",
)
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "PPM", "JPEG2000")


def _encoded(kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (9, 7, 3), dtype=np.uint8)).save(buffer, kind)
    return buffer.getvalue()


_WHOLE = {kind: _encoded(kind) for kind in _FORMATS}


@settings(deadline=None)
@given(st.sampled_from((b"", *_MAGICS)), st.binary(max_size=300))
def test_any_bytes_get_an_answer_the_same_in_a_view(magic: bytes, rest: bytes) -> None:
    encoded = magic + rest
    fault = image_fault(encoded)
    assert fault is None or fault
    assert image_fault(memoryview(b"x" + encoded + b"\xff\xd9")[1:-2]) == fault
    if not magic and not rest.startswith((b"P", b"BM")):
        assert fault is not None


@settings(deadline=None)
@given(
    st.sampled_from(_FORMATS),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
    st.integers(0, 10**6),
)
def test_a_damaged_image_gets_an_answer(kind: str, changes: list[tuple[int, int]], cut: int) -> None:
    damaged = bytearray(_WHOLE[kind])
    for place, octet in changes:
        damaged[place % min(len(damaged), 300)] = octet
    del damaged[cut % (2 * len(damaged)) :]
    fault = image_fault(bytes(damaged))
    if bytes(damaged) == _WHOLE[kind]:
        assert fault is None
    else:
        assert fault is None or fault


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 65535), st.integers(0, 20), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)))
)
def test_any_directory_of_a_tiff_gets_an_answer(entries: list[tuple[int, int, int, int]]) -> None:
    packed = b"".join(struct.pack("<HHII", *entry) for entry in [(256, 3, 1, 1), (257, 3, 1, 1), *entries])
    encoded = b"II*\x00\x08\x00\x00\x00" + struct.pack("<H", len(entries) + 2) + packed
    fault = image_fault(encoded)
    if not any(tag in (273, 324) for tag, *_ in entries):
        assert fault is not None
