"""Pixels with the statistics of photographs.

Covers: a picture drawn from a few random numbers: a background, things in front of each other with edges, textures
and shading, and the grain of a sensor. Photographs have a power spectrum that falls with about the square of the
frequency, and edges where one thing hides another; a JPEG of noise alone would have neither the size nor the decoding
cost of one. Does not cover: encoding, anything to recognise.
"""

import hashlib
import math

import numpy as np
import numpy.typing as npt

__all__ = ["Picture", "draw_picture"]

_Plane = npt.NDArray[np.float32]

_MARGIN = 128
"""Textures are this much larger than the picture, so that things can take theirs from different places."""

_THINGS = 240
_LARGE_THINGS = 26
"""Of a picture that is neither busy nor calm. The power law alone would leave most of the background bare."""


class Picture:
    """A picture's pixels, and the JPEG quality that suits it."""

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
    # How busy the picture is: photographs differ by this more than by anything else, from fog to foliage.
    busy = float(np.clip(math.exp(rng.normal(0.0, 0.6)), 0.25, 2.6))
    textures = [_spectrum_field(rng, height + _MARGIN, width + _MARGIN, slope) for slope in (1.4, 1.05, 0.8)]
    palette = _palette(rng)
    canvas = _background(rng, width, height, palette, textures[0])
    side = min(width, height)
    for part in rng.random(int(_LARGE_THINGS * busy)).tolist():
        place = rng.random(2) * (height, width)
        _paint(rng, canvas, side * (0.05 + 0.35 * part * part), place, palette, textures, busy)
    # Radii by a power law of exponent 3: as many things at one scale as at another, each hiding what was drawn before.
    # They come in groups of about one colour, as leaves and stones do.
    smallest, largest = max(side / 110, 2.0), 0.3 * side
    groups = rng.random((7, 2)) * (height, width)
    share = rng.random(int(_THINGS * busy))
    for radius in (1.0 / np.sqrt(share / smallest**2 + (1 - share) / largest**2)).tolist():
        group = int(rng.integers(len(groups)))
        place = groups[group] + rng.normal(0, 0.13 * side, 2)
        _paint(rng, canvas, radius, place, palette[group : group + 2], textures, busy)
    canvas += _light(rng, width, height)
    canvas += rng.standard_normal((height, width, 1), dtype=np.float32) * np.float32(rng.uniform(1.5, 5.0) * busy)
    return Picture(np.clip(canvas, 0, 255).astype(np.uint8), int(rng.integers(91, 99)))


def _spectrum_field(rng: np.random.Generator, height: int, width: int, slope: float) -> _Plane:
    """Noise whose amplitude falls with the frequency to the power of `slope`; mean 0, deviation 1."""
    # Multiples of 64 transform several times faster than numbers with large factors.
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
    """A few colours that go together: near one hue or opposite to it, mostly dull, of all brightnesses."""
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
    """Light that comes from one side."""
    down, across = rng.normal(0, 14, 2)
    rows = np.linspace(-1, 1, height, dtype=np.float32)[:, np.newaxis]
    columns = np.linspace(-1, 1, width, dtype=np.float32)[np.newaxis, :]
    light = np.zeros((height, width, 1), dtype=np.float32)
    light[:, :, 0] += rows * np.float32(down) + columns * np.float32(across)
    return light


def _paint(
    rng: np.random.Generator,
    canvas: npt.NDArray[np.float32],
    radius: float,
    place: npt.NDArray[np.float64],
    palette: npt.NDArray[np.float32],
    textures: list[_Plane],
    busy: float,
) -> None:
    """One thing in front of what is there: a rotated ellipse or box with a soft edge, a texture and a shade."""
    height, width = canvas.shape[:2]
    down, across = place.tolist()
    flat, angle = rng.uniform(0.25, 1.0), rng.uniform(0, math.pi)
    boxy, softness = rng.random() < 0.15, rng.choice([0.8, 1.2, 2.0, 5.0])
    colour = palette[rng.integers(len(palette))] + rng.normal(0, 9, 3).astype(np.float32)
    texture, contrast = textures[rng.integers(len(textures))], rng.gamma(2.0, 8.5) * busy
    shift_down, shift_across = rng.integers(0, _MARGIN, 2)
    shade, wobble = rng.normal(0, 18), rng.uniform(0.05, 0.3)

    reach = radius * (1.45 if boxy else 1.0) * (1 + 2 * wobble) + 2 * softness
    top, bottom = max(int(down - reach), 0), min(int(down + reach) + 1, height)
    left, right = max(int(across - reach), 0), min(int(across + reach) + 1, width)
    if top >= bottom or left >= right:
        return
    rows = np.arange(top, bottom, dtype=np.float32)[:, np.newaxis] - np.float32(down)
    columns = np.arange(left, right, dtype=np.float32)[np.newaxis, :] - np.float32(across)
    cosine, sine = np.float32(math.cos(angle)), np.float32(math.sin(angle))
    along = (columns * cosine + rows * sine) / np.float32(radius)
    beside = (rows * cosine - columns * sine) / np.float32(radius * flat)
    outline = np.maximum(np.abs(along), np.abs(beside)) if boxy else np.sqrt(along**2 + beside**2)
    if not boxy:  # an outline that follows a slow noise looks grown rather than drawn
        outline = outline + np.float32(wobble) * textures[0][top:bottom, left:right]
    cover = np.clip((1 - outline) * np.float32(radius * flat / softness) + np.float32(0.5), 0, 1)[:, :, np.newaxis]
    grain = texture[top + shift_down : bottom + shift_down, left + shift_across : right + shift_across]
    surface = (grain * np.float32(contrast) + along * np.float32(shade))[:, :, np.newaxis] + colour
    under = canvas[top:bottom, left:right]
    under += (surface - under) * cover
