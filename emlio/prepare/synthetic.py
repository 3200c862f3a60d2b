"""Pixels with the statistics of photographs."""

import hashlib
import io
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.extras import how_to_install
from emlio.progress import Progress

__all__ = ["PicturePool", "draw_picture", "numbered_picture", "pool_size"]

_MOST = 256
_FEWEST = 32
_RECORDS_EACH = 64
"""A picture takes some 60 ms to draw, a record 0.3 ms to write. With these limits, drawing soon
takes less time than writing.
"""

_COMMENT = b"\xff\xfe"
_TEXT = b"emlio synthetic record %012d"


def pool_size(records: int) -> int:
    """Return how many pictures are drawn for this many records."""
    return min(max(_FEWEST, min(records // _RECORDS_EACH, _MOST)), records)


class PicturePool:
    """Encoded pictures by number, each ready for the insertion of a record's number.

    Attributes:
        pictures: each as the part before its comment and the part after it.
    """

    def __init__(
        self, *, pictures: int, width: int, height: int, seed: int, workers: int, progress: bool = False
    ) -> None:
        encode = _encoder()
        line = Progress("drawing pictures", pictures) if progress else None
        stop = threading.Event()

        def make(number: int) -> tuple[bytes, bytes]:
            if stop.is_set():
                return b"", b""
            encoded = encode(width, height, seed, number)
            # JFIF requires its own segment first; a comment may follow it.
            after = 4 + int.from_bytes(encoded[4:6], "big")
            if line is not None:
                line.add(1)
            return encoded[:after], encoded[after:]

        threads = ThreadPoolExecutor(workers, thread_name_prefix="emlio-pictures")
        try:
            futures = [threads.submit(make, number) for number in range(pictures)]
            self.pictures: tuple[tuple[bytes, bytes], ...] = tuple(future.result() for future in futures)
        finally:
            stop.set()
            threads.shutdown(wait=True, cancel_futures=True)
            if line is not None:
                line.close()

    def encoded_size_bytes(self, number: int) -> int:
        """Return the size of a picture that contains a record's number."""
        return len(numbered_picture(self.pictures[number], 0))


def numbered_picture(picture: tuple[bytes, bytes], record: int) -> bytes:
    """Return a copy of a picture with the record's number in a JPEG comment.

    Its pixels are unchanged.
    """
    text = _TEXT % record
    return b"".join((picture[0], _COMMENT, (len(text) + 2).to_bytes(2, "big"), text, picture[1]))


def _encoder() -> Callable[[int, int, int, int], bytes]:
    try:
        from PIL import Image
    except ImportError as error:
        raise ConfigError(
            f"encoding images requires Pillow, which is not installed: {how_to_install('images')}. --kind opaque and "
            "--kind example do not require it"
        ) from error

    def encode(width: int, height: int, seed: int, number: int) -> bytes:
        picture = draw_picture(width, height, seed, number)
        buffer = io.BytesIO()
        Image.fromarray(picture.pixels).save(buffer, "JPEG", quality=picture.quality)
        return buffer.getvalue()

    return encode


_Plane = npt.NDArray[np.float32]

_MARGIN = 128
"""Textures are this much larger than the picture, so that objects can use different parts."""

_THINGS = 240
_LARGE_THINGS = 26
"""For a picture of average activity. The power law alone would leave most of the background
visible.
"""


_GROUPS = 7
_TEXTURES = 3


class _Thing(NamedTuple):
    """An ellipse or box with a soft edge, a texture and a shade.

    Attributes:
        down: the distance of its centre from the top, in pixels.
        across: the distance of its centre from the left, in pixels.
        radius: half its length in pixels.
        flat: its width as a fraction of its length.
        angle: its rotation.
        boxy: whether it is a box.
        softness: pixels over which its edge fades; an object out of focus has a soft edge.
        colour: red, green, blue.
        texture: index of its texture.
        contrast: of the texture.
        shade: how much lighter one end is than the middle.
        wobble: roughness of the outline.
        shift: its offset in the texture.
    """

    down: float
    across: float
    radius: float
    flat: float
    angle: float
    boxy: bool
    softness: float
    colour: npt.NDArray[np.float32]
    texture: int
    contrast: float
    shade: float
    wobble: float
    shift: list[int]


class Picture:
    """A picture's pixels, and a suitable JPEG quality."""

    __slots__ = ("pixels", "quality")

    def __init__(self, pixels: npt.NDArray[np.uint8], quality: int) -> None:
        self.pixels = pixels
        self.quality = quality


def draw_picture(width: int, height: int, seed: int, number: int) -> Picture:
    """Draw one picture: the same for the same arguments (and the same release of NumPy).

    Args:
        width: in pixels.
        height: in pixels.
        seed: of the dataset.
        number: of the picture.
    """
    material = hashlib.blake2b(f"emlio.picture/1/{seed}/{number}/{width}x{height}".encode(), digest_size=16).digest()
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(material, "little")))
    # The activity of the picture: photographs differ in this more than in anything else, from fog
    # to foliage.
    busy = float(np.clip(math.exp(rng.normal(0.0, 0.6)), 0.25, 2.6))
    textures = [_spectrum_field(rng, height + _MARGIN, width + _MARGIN, slope) for slope in (1.4, 1.05, 0.8)]
    palette = _palette(rng)
    canvas = _background(rng, width, height, palette, textures[0])
    for thing in _things(rng, width, height, palette, busy):
        _paint(canvas, thing, textures)
    canvas += _light(rng, width, height)
    canvas += rng.standard_normal((height, width, 1), dtype=np.float32) * np.float32(rng.uniform(1.5, 5.0) * busy)
    return Picture(np.clip(canvas, 0, 255).astype(np.uint8), int(rng.integers(91, 99)))


def _spectrum_field(rng: np.random.Generator, height: int, width: int, slope: float) -> _Plane:
    """Return noise with mean 0 and deviation 1.

    Its amplitude is inversely proportional to the frequency to the power of `slope`.
    """
    # Transforms of multiples of 64 are several times faster than those of numbers with large
    # factors.
    tall, wide = -(-height // 64) * 64, -(-width // 64) * 64
    rows = np.fft.fftfreq(tall).astype(np.float32)[:, np.newaxis]
    columns = np.fft.rfftfreq(wide).astype(np.float32)[np.newaxis, :]
    frequency = np.sqrt(rows**2 + columns**2)
    frequency[0, 0] = 1.0
    white = rng.standard_normal((2, *frequency.shape), dtype=np.float32)
    waves = (white[0] + 1j * white[1]) * frequency**-slope
    waves[0, 0] = 0
    field: _Plane = np.fft.irfft2(waves, s=(tall, wide)).astype(np.float32)[:height, :width]
    return field / np.float32(max(float(field.std()), 1e-6))


def _palette(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Return matching colours: near one hue or opposite to it, mostly dull, of all brightnesses."""
    colours: list[list[float]] = []
    hue = rng.uniform(0, 2 * math.pi)
    for _ in range(9):
        angle = hue + rng.normal(0, 0.5) + (math.pi if rng.random() < 0.2 else 0.0)
        chroma = rng.gamma(1.3, 8.0)
        luma = rng.uniform(20, 205)
        cb, cr = chroma * math.cos(angle), chroma * math.sin(angle)
        colours.append([luma + 1.402 * cr, luma - 0.344 * cb - 0.714 * cr, luma + 1.772 * cb])
    return np.array(colours, dtype=np.float32)


def _background(
    rng: np.random.Generator, width: int, height: int, palette: npt.NDArray[np.float32], texture: _Plane
) -> npt.NDArray[np.float32]:
    rise = np.linspace(0, 1, height, dtype=np.float32)[:, np.newaxis]
    mix = np.clip(rise + 0.25 * texture[:height, :width], 0, 1)[:, :, np.newaxis]
    rough = np.float32(rng.uniform(5, 16)) * texture[_MARGIN:, _MARGIN:, np.newaxis]
    canvas = np.zeros((height, width, 3), dtype=np.float32)
    canvas += palette[0] * (1 - mix)
    canvas += palette[1] * mix
    canvas += rough
    return canvas


def _light(rng: np.random.Generator, width: int, height: int) -> npt.NDArray[np.float32]:
    """Return light that comes from one side."""
    down, across = rng.normal(0, 14, 2)
    rows = np.linspace(-1, 1, height, dtype=np.float32)[:, np.newaxis]
    columns = np.linspace(-1, 1, width, dtype=np.float32)[np.newaxis, :]
    light = np.zeros((height, width, 1), dtype=np.float32)
    light[:, :, 0] += rows * np.float32(down) + columns * np.float32(across)
    return light


def _things(
    rng: np.random.Generator, width: int, height: int, palette: npt.NDArray[np.float32], busy: float
) -> list[_Thing]:
    """Return the objects in painting order.

    First come a few large ones everywhere, then groups of many small ones.
    """
    side = min(width, height)
    many = busy * min(max(side / 375, 0.15), 2.0)
    large, small = max(int(_LARGE_THINGS * many), 3), max(int(_THINGS * many), 10)
    count = large + small
    # Radii follow a power law of exponent 3, so that every scale is equally frequent; each object
    # hides earlier ones.
    smallest, largest = max(side / 110, 2.0), 0.3 * side
    share = rng.random(small)
    radii = np.concatenate(
        (side * (0.05 + 0.35 * rng.random(large) ** 2), 1 / np.sqrt(share / smallest**2 + (1 - share) / largest**2))
    )
    # Small objects come in groups of similar colour, as leaves and stones do.
    groups = rng.random((_GROUPS, 2)) * (height, width)
    group = rng.integers(_GROUPS, size=small)
    places = np.concatenate(
        (rng.random((large, 2)) * (height, width), groups[group] + rng.normal(0, 0.13 * side, (small, 2)))
    )
    tone = np.concatenate((rng.integers(len(palette), size=large), group + rng.integers(2, size=small)))
    colours = palette[tone] + rng.normal(0, 9, (count, 3))
    return [
        _Thing(*values)
        for values in zip(
            places[:, 0].tolist(),
            places[:, 1].tolist(),
            radii.tolist(),
            rng.uniform(0.25, 1.0, count).tolist(),
            rng.uniform(0, math.pi, count).tolist(),
            (rng.random(count) < 0.15).tolist(),
            rng.choice([0.8, 1.2, 2.0, 5.0], count).tolist(),
            colours.astype(np.float32),
            rng.integers(_TEXTURES, size=count).tolist(),
            (rng.gamma(2.0, 8.5, count) * busy).tolist(),
            rng.normal(0, 18, count).tolist(),
            rng.uniform(0.05, 0.3, count).tolist(),
            rng.integers(0, _MARGIN, (count, 2)).tolist(),
            strict=True,
        )
    ]


def _paint(canvas: npt.NDArray[np.float32], thing: _Thing, textures: list[_Plane]) -> None:
    """Paint one object over the picture.

    Drawing time is mostly that of NumPy calls, so there are few.
    """
    height, width = canvas.shape[:2]
    reach = thing.radius * (1.45 if thing.boxy else 1.0) * (1 + 2 * thing.wobble) + 2 * thing.softness
    top, bottom = max(int(thing.down - reach), 0), min(int(thing.down + reach) + 1, height)
    left, right = max(int(thing.across - reach), 0), min(int(thing.across + reach) + 1, width)
    if top >= bottom or left >= right:
        return
    rows = (np.arange(top, bottom, dtype=np.float32) - np.float32(thing.down))[:, np.newaxis]
    columns = np.arange(left, right, dtype=np.float32) - np.float32(thing.across)
    cosine, sine = math.cos(thing.angle) / thing.radius, math.sin(thing.angle) / thing.radius
    along = columns * np.float32(cosine) + rows * np.float32(sine)
    beside = rows * np.float32(cosine / thing.flat) - columns * np.float32(sine / thing.flat)
    if thing.boxy:
        outline = np.maximum(np.abs(along), np.abs(beside))
    else:  # an outline that follows slow noise looks natural
        outline = np.sqrt(along * along + beside * beside)
        outline += textures[0][top:bottom, left:right] * np.float32(thing.wobble)
    cover = np.subtract(np.float32(1), outline, out=outline)
    cover *= np.float32(thing.radius * thing.flat / thing.softness)
    cover += np.float32(0.5)
    np.minimum(np.maximum(cover, 0, out=cover), 1, out=cover)
    down, across = thing.shift
    surface = textures[thing.texture][top + down : bottom + down, left + across : right + across] * np.float32(
        thing.contrast
    )
    along *= np.float32(thing.shade)
    surface += along
    under = canvas[top:bottom, left:right]
    over = surface[:, :, np.newaxis] + thing.colour
    over -= under
    over *= cover[:, :, np.newaxis]
    under += over
