"""A contact sheet of a dataset's images.

Covers: reading images from a few records and drawing them side by side. Pillow is imported here and
nowhere else in this folder. Does not cover: decoding for training.
"""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unicodedata import combining, normalize

from emlio.errors import ConfigError, DatasetError
from emlio.example.decode import parse_example
from emlio.extras import how_to_install
from emlio.formats.registry import form_of
from emlio.shards.dataset import Dataset
from emlio.shards.features import spread
from emlio.shards.range_records import columns_of, read_ranges
from emlio.shards.tfrecord.verify import read_records

__all__ = ["draw_preview"]

_COLUMNS = 6
_IMAGES = 30
_TILE = 160
_CAPTION = 18
_GAP = 6
_FONT, _FONT_SIZE = "DejaVuSans.ttf", 10
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
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as error:
        raise ConfigError(f"--preview requires Pillow, which is not installed: {how_to_install('images')}") from error
    tiles: list[tuple[Any, str]] = []
    for number, candidates, label in _records(dataset):
        picture = _picture(Image, candidates)
        if picture is not None:
            tiles.append((picture, f"{number}{_caption(dataset, label)}"))
    if not tiles:
        raise DatasetError(f"dataset directory {dataset.place}: nothing to preview, no image in the sampled records")
    columns = min(_COLUMNS, len(tiles))
    rows = -(-len(tiles) // columns)
    size = (columns * (_TILE + _GAP) + _GAP, rows * (_TILE + _CAPTION + _GAP) + _GAP)
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    try:  # a font with the letters of many languages, if the system has it
        font = ImageFont.truetype(_FONT, _FONT_SIZE)
    except OSError:
        font = None
    for place, (picture, caption) in enumerate(tiles):
        left = _GAP + place % columns * (_TILE + _GAP)
        top = _GAP + place // columns * (_TILE + _CAPTION + _GAP)
        sheet.paste(picture, (left + (_TILE - picture.width) // 2, top + (_TILE - picture.height) // 2))
        text = (caption if font is not None else _in_ascii(caption))[:26]
        draw.text((left, top + _TILE + 2), text, fill="black", font=font)
    try:
        sheet.save(out)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--preview {out}: the picture cannot be written: {error}") from error
    return len(tiles)


def _in_ascii(text: str) -> str:
    """Return a text without the letters that Pillow's own font lacks: ß as ss, é as e."""
    letters = normalize("NFKD", text.replace("ß", "ss"))
    return "".join(one for one in letters if not combining(one)).encode("ascii", "replace").decode()


def _caption(dataset: Dataset, label: int | None) -> str:
    return "" if label is None else f" {dataset.contents.label_names.get(label, f'label {label}')}"


def _records(dataset: Dataset) -> Iterator[tuple[int, list[bytes | memoryview], int | None]]:
    """Yield a few records in order: their numbers, what may be images in them, their labels."""
    wanted = spread(dataset.records, _IMAGES)
    first = 0
    form = None if dataset.checksums is None else form_of(dataset.contents, None)
    for place, shard in enumerate(dataset.shards):
        local = [number - first for number in wanted if first <= number < first + shard.records]
        if local and form is not None:
            for number, piece in read_ranges(dataset, place, local):
                values = columns_of(form, piece)
                candidates: list[bytes | memoryview] = [one for one in values.values() if isinstance(one, memoryview)]
                label = values.get("label")
                yield first + number, candidates, None if label is None else int(label)
        elif local:
            held = dataset.tfrecord_shards[place]
            for number, record in zip(local, read_records(held.path, held.offsets, local), strict=True):
                yield first + number, *_of_example(record)
        first += shard.records


def _of_example(record: bytes) -> tuple[list[bytes | memoryview], int | None]:
    """Return what may be images in a record, an image itself or a tf.train.Example, and its label."""
    candidates: list[bytes | memoryview] = []
    label = None
    try:
        for name, values in sorted(parse_example(record).items()):
            value = values[0] if values else None
            if isinstance(value, memoryview):
                candidates.append(value)
            elif isinstance(value, int) and name.rpartition("/")[2] == "label":
                label = value
    except DatasetError:
        candidates.append(record)
    return candidates, label


def _picture(image: Any, candidates: Sequence[bytes | memoryview]) -> Any:
    """Return the first image as a thumbnail; None if there is none."""
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
        return small
    return None
