"""Pictures from which a model can learn: handwritten digits, drawn large over pictures like photographs.

A picture has the size and the decoding cost of a photograph, and its label is the digit. The digits
are those of scikit-learn. With more records than digits, a digit comes again with
the same picture; the number of the record is in a JPEG comment, so that no two records are equal.
"""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.example import encode_example
from emlio.extras import how_to_install
from emlio.formats.tfrecord.mapping import Feature
from emlio.planner.permutation import Permutation
from emlio.prepare.synthetic import draw_picture, numbered_picture
from emlio.prepare.targets.shard_set import Recipe, cut, write_shards
from emlio.prepare.targets.tally import Record
from emlio.prepare.targets.target import sole_writer
from emlio.tfrecord import FRAME_BYTES

__all__ = ["write_digit_pictures"]

_BACKGROUNDS: Final = 24
_SIDE: Final = 8
_INK: Final = 16.0
_CONTRAST: Final = 180.0
"""The brightness that a digit adds to the picture behind it."""
_BEHIND: Final = 0.4
"""The brightness of the picture behind a digit, beside that of a photograph."""
_QUALITY: Final = 98
_SHARD_BYTES: Final = 12_000_000
_THREADS: Final = 2
_ORDER_KEY: Final = b"emlio.digit-pictures/1"


def write_digit_pictures(target: Path, records: int, size: tuple[int, int]) -> None:
    """Write a dataset of pictures with the names of features that ImageNet has.

    Args:
        target: empty folder of the dataset.
        records: number of records.
        size: width and height of the pictures.
    """
    pixels, all_labels = _read_digits()
    # The storage order is mixed, because some readers shuffle only within a window.
    order = Permutation(len(all_labels), _ORDER_KEY).forward(np.arange(len(all_labels), dtype=np.int64))
    order = order[:records]
    pictures = _encoded(pixels[order], size)
    labels = [int(all_labels[row]) for row in order]

    def record(number: int) -> bytes:
        place = number % len(pictures)
        return encode_example(
            {
                "image/class/label": labels[place],
                "image/encoded": numbered_picture(pictures[place], number),
                "image/filename": f"digit_{number:012d}.JPEG",
            }
        )

    sizes = np.array([len(record(number)) + FRAME_BYTES for number in range(records)], dtype=np.int64)
    bounds = cut(sizes, shard_bytes=_SHARD_BYTES, shards=None)

    def of_shard(shard: int) -> Iterator[Record]:
        for number in range(int(bounds[shard]), int(bounds[shard + 1])):
            yield Record(parts=(record(number),), label=labels[number % len(labels)])

    recipe = Recipe(
        digest=hashlib.blake2b(sizes.tobytes(), digest_size=16).hexdigest(),
        description={"made_by": "emlio-bench paper", "records": records, "mean_record_bytes": round(sizes.mean())},
        bounds=bounds,
        shard_bytes=np.add.reduceat(sizes, bounds[:-1]),
        records=of_shard,
        features={
            "image/class/label": Feature(kind="int64", shape=(1,)),
            "image/encoded": Feature(kind="bytes", shape=(1,)),
            "image/filename": Feature(kind="bytes", shape=(1,)),
        },
    )
    with sole_writer(target):
        write_shards(target, recipe, workers=1, verify=False, force=False, progress=False)


def _read_digits() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    if find_spec("sklearn") is None:
        raise ConfigError("the digits come with scikit-learn, which is not installed: pip install scikit-learn")
    datasets: Any = import_module("sklearn.datasets")
    pixels, labels = datasets.load_digits(return_X_y=True)
    return np.ascontiguousarray(pixels, np.float32), np.ascontiguousarray(labels, np.int64)


def _encoded(pixels: npt.NDArray[np.float32], size: tuple[int, int]) -> tuple[tuple[bytes, bytes], ...]:
    """Return the JPEG of each digit, as the part before its comment and the part after it."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ConfigError(
            f"pictures of digits need Pillow, which is not installed: {how_to_install('images')}"
        ) from error
    width, height = size
    behind = [
        _BEHIND * draw_picture(width, height, 1, number).pixels for number in range(min(_BACKGROUNDS, len(pixels)))
    ]
    side = min(size)
    left, top = (width - side) // 2, (height - side) // 2

    def encode(place: int) -> tuple[bytes, bytes]:
        ink = pixels[place].reshape(_SIDE, _SIDE) / _INK
        large: Any = Image.fromarray(ink).resize((side, side), Image.Resampling.BILINEAR)
        canvas = np.array(behind[place % len(behind)])
        canvas[top : top + side, left : left + side] += _CONTRAST * np.asarray(large)[:, :, np.newaxis]
        buffer = BytesIO()
        Image.fromarray(np.clip(canvas, 0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=_QUALITY)
        encoded = buffer.getvalue()
        # JFIF requires its own segment first; a comment may follow it.
        after = 4 + int.from_bytes(encoded[4:6], "big")
        return encoded[:after], encoded[after:]

    with ThreadPoolExecutor(_THREADS, "emlio-bench-digits") as threads:
        return tuple(islice(threads.map(encode, range(len(pixels))), len(pixels)))
