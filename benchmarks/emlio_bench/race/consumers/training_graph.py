"""The processing of a picture before training, by DALI on the processor or with a GPU."""

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

__all__ = ["IMAGE", "LABEL", "NAME", "Ids", "device_of", "ids_of", "imported", "tensor_of", "train_on"]

IMAGE, LABEL, NAME = "image/encoded", "image/class/label", "image/filename"


@contextmanager
def imported(order: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
    """Import what decoding needs before the clock runs, and PyTorch, which every training has imported."""
    if order["decode"]:
        for name in ("nvidia.dali.fn", "torch"):
            if find_spec(name.partition(".")[0]) is not None:
                import_module(name)
    yield order


def device_of(order: dict[str, Any]) -> str:
    """Return the device of a real model, which pictures are decoded for; "cpu" without one."""
    return str(order["options"].get("device", "cpu"))


def train_on(encoded: Any, device: str = "cpu", *, learn: bool = False) -> Any:
    """Decode a picture, crop it at random, resize, mirror and normalise it.

    Args:
        encoded: the picture.
        device: device of the result, such as "cuda".
        learn: whether a model learns from it: a digit is cropped and stretched less, so that it
            can still be read, not mirrored, and as small as the model takes it.
    """
    fn: Any = import_module("nvidia.dali.fn")
    types: Any = import_module("nvidia.dali.types")
    pictures = fn.decoders.image_random_crop(
        encoded,
        device="cpu" if device == "cpu" else "mixed",
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


class Ids(list[bytes]):
    """The ids of a batch, each as the 8 bytes that stand for a record.

    Attributes:
        pictures: their pictures as a tensor; None where nothing is trained on them.
        labels: their labels; None where nothing is learned.
    """

    pictures: Any = None
    labels: Any = None


def ids_of(numbers: Any, pictures: Any = None, labels: Any = None) -> Ids:
    """Return the ids of a batch, with the pictures and labels that a model is trained on."""
    found = Ids(int(number).to_bytes(8, "little") for number in numbers)
    found.pictures, found.labels = pictures, labels
    return found


def tensor_of(batch: Any, count: int, device: str) -> Any:
    """Return the first pictures of DALI's batch as a tensor of PyTorch, which outlives the batch."""
    torch: Any = import_module("torch")
    feed: Any = import_module("nvidia.dali.plugin.pytorch").feed_ndarray
    dense = batch.as_tensor()
    made = torch.empty(dense.shape(), dtype=torch.float32, device=device)
    feed(dense, made, cuda_stream=None if device == "cpu" else torch.cuda.current_stream())
    return made[:count]
