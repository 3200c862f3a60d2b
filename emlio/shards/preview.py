"""A contact sheet of a dataset's images.

Covers: reading images from a few records and drawing them side by side. Pillow is imported here and
nowhere else in this folder. Does not cover: decoding for training.
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from emlio.errors import ConfigError, DatasetError
from emlio.example.decode import parse_example
from emlio.shards.dataset import Dataset
from emlio.shards.features import spread
from emlio.shards.verify import read_records

__all__ = ["draw_preview"]

_COLUMNS = 6
_IMAGES = 30
_TILE = 160
_CAPTION = 18
_GAP = 6
_PIXELS = 100_000_000
"""Larger images are not opened: a few bytes of a file may claim any number of pixels."""


def draw_preview(dataset: Dataset, out: Path) -> int:
    """Draw images of records spread over the dataset, and return their number.

    Each image has the record's number and label as its caption.

    Args:
        dataset: an open one.
        out: the picture's file; its extension selects the format.

    Raises:
        ConfigError: Pillow is not installed, or `out` cannot be written.
        DatasetError: the sampled records hold no image, or cannot be read.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise ConfigError("--preview requires Pillow, which is not installed: pip install 'emlio[images]'") from error
    tiles: list[tuple[Any, str]] = []
    for number, record in _records(dataset):
        picture, label = _picture(Image, record)
        if picture is not None:
            tiles.append((picture, f"{number}{label}"))
    if not tiles:
        raise DatasetError(
            f"dataset directory {dataset.directory}: nothing to preview, no image in the sampled records"
        )
    columns = min(_COLUMNS, len(tiles))
    rows = -(-len(tiles) // columns)
    size = (columns * (_TILE + _GAP) + _GAP, rows * (_TILE + _CAPTION + _GAP) + _GAP)
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    for place, (picture, caption) in enumerate(tiles):
        left = _GAP + place % columns * (_TILE + _GAP)
        top = _GAP + place // columns * (_TILE + _CAPTION + _GAP)
        sheet.paste(picture, (left + (_TILE - picture.width) // 2, top + (_TILE - picture.height) // 2))
        draw.text((left, top + _TILE + 2), caption.encode("ascii", "replace")[:26].decode(), fill="black")
    try:
        sheet.save(out)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--preview {out}: the picture cannot be written: {error}") from error
    return len(tiles)


def _records(dataset: Dataset) -> Iterator[tuple[int, bytes]]:
    """Yield a few records with their numbers, in order; each shard is opened once."""
    wanted = spread(dataset.records, _IMAGES)
    first = 0
    for shard in dataset.shards:
        local = [number - first for number in wanted if first <= number < first + shard.records]
        if local:
            records = read_records(shard.path, shard.offsets, local)
            yield from zip((first + number for number in local), records, strict=True)
        first += shard.records


def _picture(image: Any, record: bytes) -> tuple[Any, str]:
    """Return the record's first image as a thumbnail, and its label; (None, "") without an image.

    A record is an image itself, or a tf.train.Example with one in a bytes feature.
    """
    candidates: list[bytes | memoryview] = []
    label = ""
    try:
        for name, values in sorted(parse_example(record).items()):
            value = values[0] if values else None
            if isinstance(value, memoryview):
                candidates.append(value)
            elif isinstance(value, int) and name.rpartition("/")[2] == "label":
                label = f" label {value}"
    except DatasetError:
        candidates.append(record)
    for candidate in candidates:
        try:
            with image.open(io.BytesIO(candidate)) as picture:
                if picture.width * picture.height > _PIXELS:
                    continue
                picture.draft("RGB", (_TILE, _TILE))  # a JPEG is decoded at about the size of the thumbnail
                small = picture.convert("RGB")
        except (OSError, ValueError, SyntaxError, image.DecompressionBombError):
            continue  # not an image, or a broken one: the next feature may hold one
        small.thumbnail((_TILE, _TILE))
        return small, label
    return None, ""
