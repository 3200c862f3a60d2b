import io
import struct
import tracemalloc

import numpy as np
import pytest
from PIL import Image

from emlio.images.wholeness import image_fault


def _picture(mode: str, size: tuple[int, int]) -> Image.Image:
    noise = np.random.default_rng(7).integers(0, 256, (size[1], size[0], 4), dtype=np.uint8)
    return Image.fromarray(noise, "RGBA").convert("RGB").convert(mode)


def _encoded(kind: str, mode: str = "RGB", size: tuple[int, int] = (61, 43), **options: object) -> bytes:
    buffer = io.BytesIO()
    _picture(mode, size).save(buffer, kind, **options)
    return buffer.getvalue()


def _exif_with_thumbnail() -> bytes:
    thumbnail = _encoded("JPEG", size=(16, 16))
    return b"Exif\x00\x00MM\x00\x2a\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00" + thumbnail


_IMAGES = {
    "jpeg": _encoded("JPEG"),
    "jpeg of one pixel": _encoded("JPEG", size=(1, 1)),
    "jpeg grey": _encoded("JPEG", "L"),
    "jpeg cmyk": _encoded("JPEG", "CMYK"),
    "jpeg progressive": _encoded("JPEG", progressive=True, quality=95),
    "jpeg with restarts": _encoded("JPEG", restart_marker_blocks=2),
    "jpeg with a thumbnail": _encoded("JPEG", exif=_exif_with_thumbnail()),
    "jpeg progressive with a thumbnail": _encoded("JPEG", exif=_exif_with_thumbnail(), progressive=True),
    "png": _encoded("PNG"),
    "png of one pixel": _encoded("PNG", size=(1, 1)),
    "png palette": _encoded("PNG", "P"),
    "png grey": _encoded("PNG", "L", compress_level=0),
    "bmp": _encoded("BMP"),
    "bmp grey": _encoded("BMP", "L"),
    "bmp bits": _encoded("BMP", "1"),
    "webp": _encoded("WEBP"),
    "webp lossless": _encoded("WEBP", lossless=True),
    "webp with exif": _encoded("WEBP", exif=_exif_with_thumbnail()),
    "tiff": _encoded("TIFF"),
    "tiff in strips": _encoded("TIFF", tiffinfo={278: 4}),
    "tiff deflate": _encoded("TIFF", compression="tiff_adobe_deflate"),
    "tiff lzw in strips": _encoded("TIFF", compression="tiff_lzw", strip_size=600),
    "tiff big": _encoded("TIFF", big_tiff=True),
    "ppm": _encoded("PPM"),
    "pgm": _encoded("PPM", "L"),
    "pgm of 16 bits": _encoded("PPM", "I;16"),
    "pbm": _encoded("PPM", "1"),
    "jpeg 2000": _encoded("JPEG2000"),
    "jpeg 2000 codestream": _encoded("JPEG2000", no_jp2=True),
}
_EACH = pytest.mark.parametrize("name", _IMAGES)
_EACH_JPEG = pytest.mark.parametrize(
    "name", [name for name in _IMAGES if name.startswith("jpeg") and "2000" not in name]
)


def _is_decoded_whole(encoded: bytes) -> bool:
    try:
        with Image.open(io.BytesIO(encoded)) as image:
            image.load()
    except (OSError, ValueError, SyntaxError, EOFError, struct.error):
        return False
    return True


@_EACH
def test_a_whole_image_has_no_fault_in_bytes_or_in_a_view(name: str) -> None:
    encoded = _IMAGES[name]
    assert image_fault(encoded) is None
    assert image_fault(memoryview(b"before" + encoded + b"after")[6:-5]) is None


@_EACH
def test_what_follows_a_whole_image_is_nobodys_business(name: str) -> None:
    for tail in (b"\x00", b"\xff", bytes(1000), b"<html>", b"\xff\xd8\xff\xe1"):
        assert image_fault(_IMAGES[name] + tail) is None


@_EACH
def test_a_cut_image_is_never_fine_unless_it_is_decoded_whole_all_the_same(name: str) -> None:
    whole = _IMAGES[name]
    ends = {*np.linspace(0, len(whole) - 1, 50).astype(int).tolist(), *range(max(0, len(whole) - 16), len(whole))}
    fine = [end for end in sorted(ends) if image_fault(memoryview(whole)[:end]) is None]
    assert all(_is_decoded_whole(whole[:end]) for end in fine)
    # What may be missing is what no pixel needs: not more than a few bytes at the end.
    assert all(end > len(whole) - 8 for end in fine)


@_EACH_JPEG
def test_a_jpeg_cut_at_any_byte_has_a_fault(name: str) -> None:
    whole = _IMAGES[name]
    assert [end for end in range(len(whole)) if image_fault(whole[:end]) is None] == []


@_EACH_JPEG
def test_a_jpeg_whose_rest_was_never_written_has_a_fault(name: str) -> None:
    whole = _IMAGES[name]
    for end in range(0, len(whole) - 1, 97):
        assert image_fault(whole[:end] + bytes(len(whole) - end)) is not None


def test_the_end_of_a_thumbnail_is_not_the_end_of_the_image() -> None:
    whole = _IMAGES["jpeg with a thumbnail"]
    thumbnail_end = whole.index(b"\xff\xd9") + 2
    assert thumbnail_end < len(whole) // 2
    fault = image_fault(whole[:thumbnail_end])
    assert fault is not None
    assert "cut off in the header" in fault
    cut = image_fault(whole[:-100])
    assert cut is not None
    assert "cut off" in cut


def test_what_looks_like_an_end_inside_a_segment_between_scans_is_passed() -> None:
    whole = _IMAGES["jpeg progressive"]
    comment = b"\xff\xfe" + struct.pack(">H", 2 + 6) + b"..\xff\xd9.."
    second_scan = whole.index(b"\xff\xda", whole.index(b"\xff\xda") + 2)
    with_comment = whole[:second_scan] + comment + whole[second_scan:]
    assert _is_decoded_whole(with_comment)
    assert image_fault(with_comment + b"tail") is None
    assert image_fault(with_comment[:-2]) is not None


def test_fill_bytes_before_markers_are_passed() -> None:
    whole = _IMAGES["jpeg"]
    assert image_fault(whole[:2] + b"\xff\xff" + whole[2:-2] + b"\xff\xff" + whole[-2:] + b"tail") is None


_JPEG_HEAD = b"\xff\xd8\xff\xc0\x00\x0b\x08\x00\x05\x00\x05\x01\x01\x11\x00"


@pytest.mark.parametrize(
    ("encoded", "says"),
    [
        (b"", "this one is empty"),
        (b"\xff\xd8", "not a known image format: 2 bytes that begin with b'\\xff\\xd8'"),
        (b"just some text, and not short", "begin with b'just some te'"),
        (b"<!DOCTYPE html><html>", "begin with b'<!DOCTYPE ht'"),
        (bytes(4096), "not a known image format: 4096 bytes"),
        (_encoded("GIF"), "not a known image format"),
        (b"\xff\xd8\xff", "cut off in the header after 3 bytes"),
        (b"\xff\xd8\xff\xd9\x00\x00", "ends at byte 2 without any"),
        (b"\xff\xd8\xff\xe0\x00\x02oh no", "must have a marker at byte 6, has 0x6f"),
        (b"\xff\xd8\xff\xe0\x00\x01", "at least 2 bytes long, the one at byte 2 says 1"),
        (b"\xff\xd8\xff\xda\x00\x02\xff\xd9", "must have a frame header before its pixels"),
        (b"\xff\xd8\xff\xc0\x00\x08\x08\x00\x05\x00\x05\x01\xff\xd9", "is too short"),
        (_JPEG_HEAD.replace(b"\x00\x05\x00\x05", b"\x00\x00\x00\x05") + b"\xff\xda\x00\x02\xff\xd9", "says 5x0"),
        (_JPEG_HEAD + b"\xff\xda\x00\x08\xff\xd9", "cut off after 21 bytes"),
        (_JPEG_HEAD + b"\xff\xda\x00\x02\x12\xff\x00\xd9\xff\xd0", "cut off"),
        (_JPEG_HEAD + b"\xff\xda\x00\x02\x12\xff\xc4\x00", "cut off"),
        (b"\x89PNG\r\n\x1a\n", "must begin with an IHDR"),
        (_IMAGES["png"].replace(struct.pack(">II", 61, 43), bytes(8), 1), "says 0x0"),
        (_IMAGES["png"][:33] + _IMAGES["png"][-12:], "has no IDAT chunk"),
        (_IMAGES["png"][:-13] + _IMAGES["png"][-12:], "cut off"),
        (b"RIFF\x04\x00\x00\x00WEBP", "begin with a VP8 chunk"),
        (b"BM and so on", "ends after 12"),
        (b"BM and so on" + bytes(60), "must have 12 bytes or 40 to 124"),
        (b"II*\x00\x08\x00\x00\x00\x00\x00", "has no width or no height"),
        (b"II*\x00\xff\x00\x00\x00\x00\x00", "this one's is at byte 255"),
        (b"MM\x00+\x00\x08\x00\x00", "cut off after 8 bytes"),
        (b"P6 is a road", "width and height"),
        (b"P6 0 5 255 ", "says 0x5"),
        (b"P6 5 5 none", "largest value"),
    ],
)
def test_what_is_no_image_says_why(encoded: bytes, says: str) -> None:
    for given in (encoded, memoryview(encoded)):
        fault = image_fault(given)
        assert fault is not None
        assert says in fault


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_tiff_is_read_in_both_byte_orders_also_where_its_directory_comes_last(order: str) -> None:
    def made(pixels_bytes: int) -> bytes:
        entries = [(256, 3, 1, 4), (257, 3, 1, 2), (273, 4, 1, 8), (279, 4, 1, pixels_bytes)]
        directory = struct.pack(order + "H", len(entries))
        for tag, kind, count, value in entries:
            directory += struct.pack(order + ("HHIHxx" if kind == 3 else "HHII"), tag, kind, count, value)
        magic = b"II*\x00" if order == "<" else b"MM\x00*"
        return magic + struct.pack(order + "I", 16) + bytes(8) + directory + bytes(4)

    assert image_fault(made(8)) is None
    fault = image_fault(made(80))
    assert fault is not None
    assert "this one's end at 88" in fault
    assert image_fault(made(8)[:-10]) is not None


def test_a_bmp_may_hold_its_rows_from_above_and_the_old_header() -> None:
    upside_down = bytearray(_IMAGES["bmp"])
    upside_down[22:26] = struct.pack("<i", -43)
    assert image_fault(bytes(upside_down)) is None
    assert image_fault(bytes(upside_down[:-1])) is not None
    old = b"BM" + struct.pack("<IHHIIHHHH", 30, 0, 0, 26, 12, 1, 1, 1, 24)
    assert image_fault(old + bytes(4)) is None
    assert image_fault(old + bytes(3)) is not None


def test_a_view_of_a_whole_jpeg_is_not_copied() -> None:
    view = memoryview(_encoded("JPEG", size=(800, 600), quality=95))
    tracemalloc.start()
    try:
        assert image_fault(view) is None
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(view) > 400_000
    assert peak_bytes < 20_000
