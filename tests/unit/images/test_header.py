import struct
import subprocess
import sys

import pytest

from emlio.errors import DatasetError
from emlio.images.header import ImageHeader, is_image_name, read_image_header
from emlio_testing.pictures import encoded_picture


@pytest.mark.parametrize(
    ("mode", "channels", "colorspace"), [("RGB", 3, "RGB"), ("L", 1, "Grayscale"), ("CMYK", 4, "CMYK")]
)
@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpegs_header_is_read(mode: str, channels: int, colorspace: str, progressive: bool) -> None:
    header = read_image_header(encoded_picture("JPEG", mode, progressive=progressive))
    assert header == ImageHeader(format="JPEG", width=12, height=8, channels=channels, colorspace=colorspace)


@pytest.mark.parametrize(
    ("mode", "channels", "colorspace"),
    [("RGB", 3, "RGB"), ("RGBA", 4, "RGB"), ("L", 1, "Grayscale"), ("LA", 2, "Grayscale"), ("P", 3, "RGB")],
)
def test_a_pngs_header_is_read(mode: str, channels: int, colorspace: str) -> None:
    header = read_image_header(encoded_picture("PNG", mode))
    assert header == ImageHeader(format="PNG", width=12, height=8, channels=channels, colorspace=colorspace)


def test_fill_bytes_and_comments_before_a_jpegs_size_are_passed() -> None:
    plain = encoded_picture("JPEG")
    comment = b"\xff\xfe" + struct.pack(">H", 6) + b"\xff\xd9\xff\xc0"
    assert read_image_header(plain[:2] + b"\xff" + comment + plain[2:]) == read_image_header(plain)


def test_other_formats_are_read_by_pillow() -> None:
    header = read_image_header(encoded_picture("WEBP"))
    assert (header.format, header.width, header.height, header.channels) == ("WEBP", 12, 8, 3)


def test_without_pillow_jpeg_is_read_and_webp_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['PIL'] = None\n"
        "from emlio.images.header import read_image_header\n"
        "jpeg, webp = bytes.fromhex(sys.argv[1]), bytes.fromhex(sys.argv[2])\n"
        "print(read_image_header(jpeg).width)\n"
        "try: read_image_header(webp)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, encoded_picture("JPEG").hex(), encoded_picture("WEBP").hex()],
        capture_output=True,
        text=True,
        check=True,
    )
    first, second = done.stdout.splitlines()
    assert first == "12"
    assert second.startswith("DatasetError")
    assert 'pip install "pillow' in second


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"no image at all",
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xe0\x00\x10JFIF",
        b"\xff\xd8\xff\xda\x00\x08",
        b"\xff\xd8\xff\xe0\x00\x02oh no",
        b"\x89PNG\r\n\x1a\n",
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">IIBB", 3, 3, 8, 9),
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">IIBB", 0, 3, 8, 2),
    ],
)
def test_broken_headers_are_refused(broken: bytes) -> None:
    with pytest.raises(DatasetError):
        read_image_header(broken)


def test_images_are_known_by_their_extension_in_either_case() -> None:
    assert is_image_name("a/b.JPEG")
    assert is_image_name("x.tar.png")
    assert not is_image_name("png")
    assert not is_image_name("x.npy")
