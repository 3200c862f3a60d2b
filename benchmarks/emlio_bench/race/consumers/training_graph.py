"""The processing of a picture before training, by DALI on the processor.

Covers: the graph, ids of pictures, batches to learn from. Does not cover: the source of pictures,
learning (emlio_bench.race.consumers.learner).
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

__all__ = ["IMAGE", "LABEL", "NAME", "THREADS", "Lesson", "ids_of", "imported", "train_on"]

IMAGE, LABEL, NAME = "image/encoded", "image/class/label", "image/filename"
THREADS = 1
"""The number of decoding threads.

Storage and link need processors too. If they waited for decoding, an epoch would show the cost of
the link instead of its round trip.
"""


@contextmanager
def imported(order: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
    """Import what decoding needs before the clock runs, and PyTorch, which every training has imported."""
    if order["decode"]:
        for name in ("nvidia.dali.fn", "torch"):
            if find_spec(name.partition(".")[0]) is not None:
                import_module(name)
    yield order


class Lesson(list[bytes]):
    """The ids of a batch, with its pictures and labels to learn from."""

    def __init__(self, ids: Iterable[bytes], pictures: Any, labels: Any) -> None:
        super().__init__(ids)
        self.pictures = pictures
        self.labels = labels


def train_on(encoded: Any, *, learn: bool = False) -> Any:
    """Decode a picture, crop it at random, resize, mirror and normalise it.

    Args:
        encoded: the picture.
        learn: whether a model learns from it: a digit is cropped and stretched less, so that it
            can still be read, not mirrored, and as small as the model takes it.
    """
    fn: Any = import_module("nvidia.dali.fn")
    types: Any = import_module("nvidia.dali.types")
    pictures = fn.decoders.image_random_crop(
        encoded,
        device="cpu",
        output_type=types.RGB,
        random_area=[0.85 if learn else 0.08, 1.0],
        random_aspect_ratio=[1.2, 1.5] if learn else [3 / 4, 4 / 3],
    )
    side = 64 if learn else 224
    pictures = fn.resize(pictures, size=(side, side))
    return fn.crop_mirror_normalize(
        pictures,
        dtype=types.FLOAT,
        output_layout="CHW",
        mean=[0.485 * 255, 0.456 * 255, 0.406 * 255],
        std=[0.229 * 255, 0.224 * 255, 0.225 * 255],
        mirror=fn.random.coin_flip(probability=0.0 if learn else 0.5),
    )


def ids_of(numbers: Any) -> list[bytes]:
    """Return each id as the 8 bytes that stand for a record."""
    return [int(number).to_bytes(8, "little") for number in numbers]
