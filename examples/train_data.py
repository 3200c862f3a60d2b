"""The pictures of `train.py`: what the loader hands out, and what becomes of it before the network sees it.

Covers: decoding ahead of the loop, by threads with Pillow or by NVIDIA DALI; random views of training pictures; normalising. Does
not cover: the loop.

Every random choice is drawn from the loader's seed, the epoch and the picture, so a resumed run shows the network the same views,
also on another number of ranks.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from PIL import Image, ImageOps

from emlio import DaliPipeline, EmlioLoader
from emlio.errors import ConfigError

__all__ = ["DECODERS", "Batch", "Pictures"]

DECODERS = ("pillow", "dali")

_FIELDS = ["image/encoded", "image/class/label"]
_MARGIN = 8 / 7
"""For their middle, pictures are resized to this much more than the network wants: 256 pixels for 224."""

# The usual figures of ImageNet, for values of 0 to 255.
_MEAN = (123.675, 116.28, 103.53)
_DEVIATION = (58.395, 57.12, 57.375)

# Random views, as torchvision draws them by default: the part of the picture's area, and width to height.
_AREAS = (0.08, 1.0)
_RATIOS = (3 / 4, 4 / 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one rank trains on in one step.

    Attributes:
        images: as they came: bytes of count x 3 x height x width.
        labels: one for each.
        ids: the records' numbers in the dataset.
    """

    images: torch.Tensor
    labels: torch.Tensor
    ids: list[int]

    def __len__(self) -> int:
        return len(self.ids)


class Pictures:
    """A dataset of pictures with labels, epoch for epoch. Iterate it as the loader: again is the next epoch."""

    def __init__(
        self,
        address: str,
        *,
        batch_size: int,
        image_size: int,
        classes: int,
        training: bool,
        seed: int,
        prefetch: str,
        device: torch.device,
        decoder: str = "pillow",
    ) -> None:
        """See the class.

        Args:
            address: emlio://HOST:PORT[,HOST:PORT...]/DATASET, or a directory.
            batch_size: of this rank.
            image_size: width and height of what the network sees.
            classes: labels must lie below.
            training: shuffled, and random views of the pictures; otherwise in order, and their middle.
            seed: of the shuffling, and of the views.
            prefetch: what the loader may take off the wire ahead.
            device: where the network is; DALI decodes there.
            decoder: "pillow" or "dali".
        """
        self._classes = classes
        self._device = device
        self._mean = torch.tensor(_MEAN, device=device).view(1, 3, 1, 1)
        self._deviation = torch.tensor(_DEVIATION, device=device).view(1, 3, 1, 1)
        decoding: dict[str, Any]
        if decoder == "dali":
            preset = "image-train" if training else "image-eval"
            decoding = {"dali": DaliPipeline(preset, args={"size": image_size, "dtype": "uint8"})}
        else:
            decoding = {"fields": _FIELDS, "seeds": True, "transform": View(image_size, training=training)}
        self.loader = EmlioLoader(
            address,
            batch_size=batch_size,
            shuffle=training,
            seed=seed,
            ids=True,
            to="torch",
            device=str(device),
            prefetch=prefetch,
            **decoding,
        )

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.loader:
            yield Batch(images=batch["image"], labels=batch["label"], ids=batch["__id__"].tolist())

    def prepare(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Images and labels for the network, on its device."""
        labels = batch.labels.to(self._device)
        lowest, highest = int(labels.min()), int(labels.max())
        if lowest < 0 or highest >= self._classes:
            raise ConfigError(
                f"labels must be in [0, {self._classes}), the number of classes, got {lowest} to {highest}"
            )
        return (batch.images.to(self._device).float() - self._mean) / self._deviation, labels

    def close(self) -> None:
        """End the loader."""
        self.loader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class View:
    """One record to a square picture of one size; called by the loader's threads, ahead of the training."""

    def __init__(self, side: int, *, training: bool) -> None:
        """Make views of `side` pixels: random ones for training, else the middle."""
        self._side = side
        self._training = training

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """The picture as bytes of 3 x side x side, its label and its number."""
        with Image.open(BytesIO(sample["image/encoded"])) as image:
            picture = self._random(image, int(sample["__seed__"])) if self._training else self._middle(image)
        pixels = np.ascontiguousarray(np.asarray(picture).transpose(2, 0, 1))
        return {"image": pixels, "label": int(sample["image/class/label"]), "__id__": sample["__id__"]}

    def _random(self, image: Image.Image, seed: int) -> Image.Image:
        chances = np.random.default_rng(seed)
        width, height = image.size
        area = chances.uniform(*_AREAS) * width * height
        ratio = math.exp(chances.uniform(math.log(_RATIOS[0]), math.log(_RATIOS[1])))
        wide, high = min(math.sqrt(area * ratio) / width, 1.0), min(math.sqrt(area / ratio) / height, 1.0)
        left, top = chances.uniform(0, 1 - wide), chances.uniform(0, 1 - high)
        # libjpeg leaves out what the smaller picture does not show.
        image.draft("RGB", (math.ceil(self._side / wide), math.ceil(self._side / high)))
        across, down = image.size
        box = (left * across, top * down, (left + wide) * across, (top + high) * down)
        view = image.convert("RGB").resize((self._side, self._side), Image.Resampling.BILINEAR, box=box)
        return ImageOps.mirror(view) if chances.random() < 0.5 else view

    def _middle(self, image: Image.Image) -> Image.Image:
        shorter = round(self._side * _MARGIN)
        image.draft("RGB", (shorter, shorter))
        return ImageOps.fit(
            image.convert("RGB"),
            (self._side, self._side),
            Image.Resampling.BILINEAR,
            bleed=0.5 - self._side / shorter / 2,
        )
