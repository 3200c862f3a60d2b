"""Ready-made pipelines for images.

Every random choice is drawn from the loader's seed, the epoch and the record, by
`inputs(random=...)`.

Covers: training with a random crop and flip, evaluation with a centre crop; JPEG, PNG and other
formats that DALI decodes. Does not cover: running them.
"""

import importlib
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

from emlio.arguments import as_whole
from emlio.errors import ConfigError
from emlio.receiver.dali.inputs import inputs

__all__ = ["OUTPUTS", "PRESETS", "image_eval", "image_train"]

OUTPUTS = ("image", "label")
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)
_INTERPOLATIONS = ("nearest", "linear", "cubic", "lanczos", "triangular")
_TRIES = 4
"""Candidates for a crop that may not fit into the image; usually the first one does."""

_LARGEST = 65_535
"""The largest size that JPEG can hold, and more than memory can hold for a few images of a
batch."""

_NUMBERS = 2 * _TRIES + 3
"""Area and shape of each candidate, the position of the crop, and whether it is flipped."""


def image_train(
    *,
    size: int = 224,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    mirror: float = 0.5,
    mean: Sequence[float] = _MEAN,
    std: Sequence[float] = _STD,
    interpolation: str = "linear",
    dtype: str = "float",
    decoder: str = "cpu",
    encoded: str = "image/encoded",
    label: str = "image/class/label",
) -> tuple[Any, Any]:
    """A random crop of the image, of random shape, resized, maybe flipped, normalised: CHW.

    Only the crop is decoded.

    Args:
        size: width and height of the result.
        scale: smallest and largest part of the image's area.
        ratio: smallest and largest ratio of the crop's width to its height.
        mirror: the probability of a horizontal flip.
        mean: subtracted from the channels, as a fraction of the value range.
        std: the channels are divided by it, as a fraction of the value range.
        interpolation: "nearest", "linear", "cubic", "lanczos" or "triangular".
        dtype: "float", "float16" or "uint8"; the last is not normalised.
        decoder: "cpu", or "mixed" for decoding on the GPU.
        encoded: the feature that holds the image.
        label: the feature that holds the label.
    """
    fn, types, math = _dali(decoder)
    size = _size("size", size)
    if not _are_numbers(scale, 2) or not 0 < scale[0] <= scale[1] <= 1:
        raise ConfigError(f"scale must be two increasing numbers in (0, 1], got {scale!r}")
    if not _are_numbers(ratio, 2) or not 0 < ratio[0] <= ratio[1]:
        raise ConfigError(f"ratio must be two increasing numbers above 0, got {ratio!r}")
    if not _are_numbers((mirror,), 1) or not 0 <= mirror <= 1:
        raise ConfigError(f"mirror must be a probability in [0, 1], got {mirror!r}")
    pictures, labels, drawn = inputs(encoded, label, random=_NUMBERS, images=(encoded,))
    shape = fn.cast(fn.peek_image_shape(pictures), dtype=types.FLOAT)
    height, width = shape[0], shape[1]
    high, wide = _crop(math, drawn, height, width, scale, ratio)
    # All n + 1 positions are equally probable, including the last one.
    top = drawn[2 * _TRIES] * (height - high + 1)
    left = drawn[2 * _TRIES + 1] * (width - wide + 1)
    start = fn.stack(fn.cast(math.floor(top), dtype=types.INT32), fn.cast(math.floor(left), dtype=types.INT32))
    extent = fn.stack(fn.cast(high, dtype=types.INT32), fn.cast(wide, dtype=types.INT32))
    images = fn.decoders.image_slice(
        pictures, device=decoder, start=start, shape=extent, axis_names="HW", output_type=types.RGB
    )
    images = fn.resize(images, size=(size, size), interp_type=_interpolation(types, interpolation), antialias=True)
    flipped = fn.cast(drawn[2 * _TRIES + 2] < mirror, dtype=types.INT32)
    return _finished(fn, types, images, mean, std, dtype, flipped), _beside(labels, decoder)


def image_eval(
    *,
    size: int = 224,
    shorter: int | None = None,
    mean: Sequence[float] = _MEAN,
    std: Sequence[float] = _STD,
    interpolation: str = "linear",
    dtype: str = "float",
    decoder: str = "cpu",
    encoded: str = "image/encoded",
    label: str = "image/class/label",
) -> tuple[Any, Any]:
    """The whole image resized, cropped at the centre and normalised: CHW.

    Args:
        size: width and height of the result.
        shorter: the shorter side before the crop; by default 256 for 224, and in proportion.
        mean: subtracted from the channels, as a fraction of the value range.
        std: the channels are divided by it, as a fraction of the value range.
        interpolation: "nearest", "linear", "cubic", "lanczos" or "triangular".
        dtype: "float", "float16" or "uint8"; the last is not normalised.
        decoder: "cpu", or "mixed" for decoding on the GPU.
        encoded: the feature that holds the image.
        label: the feature that holds the label.
    """
    fn, types, _ = _dali(decoder)
    size = _size("size", size)
    side = round(size * 256 / 224) if shorter is None else shorter
    side = _size("shorter", side)
    if side < size:
        raise ConfigError(f"shorter must be at least the size {size}, got {side}")
    pictures, labels = inputs(encoded, label, images=(encoded,))
    images = fn.decoders.image(pictures, device=decoder, output_type=types.RGB)
    kind = _interpolation(types, interpolation)
    images = fn.resize(images, resize_shorter=side, interp_type=kind, antialias=True)
    return _finished(fn, types, images, mean, std, dtype, 0, crop=(size, size)), _beside(labels, decoder)


PRESETS: dict[str, Callable[..., tuple[Any, Any]]] = {"image-train": image_train, "image-eval": image_eval}


def _dali(decoder: str) -> tuple[Any, Any, Any]:
    if decoder not in ("cpu", "mixed"):
        raise ConfigError(f'decoder must be "cpu" or "mixed", got {decoder!r}')
    return tuple(importlib.import_module(f"nvidia.dali.{name}") for name in ("fn", "types", "math"))  # type: ignore[return-value]  # three of them


def _crop(
    math: Any, drawn: Any, height: Any, width: Any, scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[Any, Any]:
    """Return height and width of the crop.

    The first candidate that fits is used, else the last one, cut to fit.
    """
    rows, columns = None, None
    for number in reversed(range(_TRIES)):
        area = (scale[0] + drawn[2 * number] * (scale[1] - scale[0])) * height * width
        # The logarithm of the ratio is uniform: twice as wide is as probable as twice as high.
        shape = ratio[0] * math.pow(ratio[1] / ratio[0], drawn[2 * number + 1])
        wide, high = math.sqrt(area * shape), math.sqrt(area / shape)
        if rows is None:
            rows, columns = math.min(high, height), math.min(wide, width)
        else:
            fits = (high <= height) * (wide <= width)
            rows, columns = fits * high + (1 - fits) * rows, fits * wide + (1 - fits) * columns
    return math.max(math.floor(rows), 1.0), math.max(math.floor(columns), 1.0)


def _size(what: str, size: int) -> int:
    found = as_whole(size)
    if found is None or not 1 <= found <= _LARGEST:
        raise ConfigError(f"{what} must be a whole number of pixels in [1, {_LARGEST}], got {size!r}")
    return found


def _are_numbers(values: Any, count: int) -> bool:
    """Return whether these are `count` finite numbers."""
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):
        return False
    return len(numbers) == count and all(isfinite(number) for number in numbers)


def _interpolation(types: Any, name: str) -> Any:
    if name not in _INTERPOLATIONS:
        raise ConfigError(f"interpolation must be one of {', '.join(_INTERPOLATIONS)}, got {name!r}")
    return {
        "nearest": types.INTERP_NN,
        "linear": types.INTERP_LINEAR,
        "cubic": types.INTERP_CUBIC,
        "lanczos": types.INTERP_LANCZOS3,
        "triangular": types.INTERP_TRIANGULAR,
    }[name]


def _finished(
    fn: Any,
    types: Any,
    images: Any,
    mean: Sequence[float],
    std: Sequence[float],
    dtype: str,
    mirror: Any,
    crop: tuple[int, int] | None = None,
) -> Any:
    if not _are_numbers(mean, 3) or not _are_numbers(std, 3) or not all(value > 0 for value in std):
        raise ConfigError(f"mean and std must be three numbers each, std above 0, got {mean!r} and {std!r}")
    where = {} if crop is None else {"crop": crop}
    if dtype == "uint8":
        return fn.crop_mirror_normalize(images, dtype=types.UINT8, output_layout="CHW", mirror=mirror, **where)
    if dtype not in ("float", "float16"):
        raise ConfigError(f'dtype must be "float", "float16" or "uint8", got {dtype!r}')
    return fn.crop_mirror_normalize(
        images,
        dtype=types.FLOAT if dtype == "float" else types.FLOAT16,
        output_layout="CHW",
        mean=[255 * value for value in mean],
        std=[255 * value for value in std],
        mirror=mirror,
        **where,
    )


def _beside(labels: Any, decoder: str) -> Any:
    """Return the labels on the device of the images."""
    return labels.gpu() if decoder == "mixed" else labels
