"""A contact sheet of a dataset's images."""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast
from unicodedata import combining, normalize

import numpy as np

from emlio.errors import ConfigError, DatasetError
from emlio.extras import how_to_install
from emlio.formats.record_form import RowForm
from emlio.formats.registry import form_of
from emlio.index.dataset import Dataset
from emlio.reading.random_reader import RandomReader, Record, spread

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


def _records(dataset: Dataset) -> Iterator[tuple[int, list[memoryview], int | None]]:
    """Yield a few records in order: their numbers, what may be images in them, their labels."""
    wanted, first = spread(dataset.records, _IMAGES), 0
    form = form_of(dataset.contents, None)
    with RandomReader(dataset) as reader:
        for place, shard in enumerate(dataset.shards):
            local = [number - first for number in wanted if first <= number < first + shard.records]
            for record in reader.records(place, local) if local else ():
                if record.fault:
                    raise reader.error(place, record.number, record.fault)
                yield first + record.number, *_looked_at(form, record, framed=dataset.framed)
            first += shard.records


def _looked_at(form: RowForm, record: Record, *, framed: bool) -> tuple[list[memoryview], int | None]:
    """Return what may be images in a record, and its label. A framed record may be an image itself."""
    try:
        row = form.row(record.data, record.note)
    except DatasetError:
        if not framed:
            raise
        return [record.data], None
    candidates, label = list[memoryview](), None
    for name, value in sorted(row.items()):
        held = cast("Sequence[object]", value) if isinstance(value, list) else [value]
        one = held[0] if held else None
        if isinstance(one, memoryview):
            candidates.append(cast("memoryview", one))
        elif isinstance(one, int | np.integer) and name.rpartition("/")[2] == "label":
            label = int(cast("int", one))
    return candidates, label


def _picture(image: Any, candidates: Sequence[memoryview]) -> Any:
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
