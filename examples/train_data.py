"""The pictures of `train.py`: what the loader hands out, and what becomes of it before the network sees it.

Covers: decoding ahead of the loop, random views of a training batch, normalising, moving to the device. Does not cover: the loop.
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

from emlio import EmlioLoader
from emlio.errors import ConfigError

__all__ = ["Batch", "Pictures"]

_MARGIN = 8 / 7
"""Pictures are decoded this much larger than the network wants them: 256 pixels for views of 224."""

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
        images: as they came: bytes of count x height x width x 3.
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
    ) -> None:
        """See the class.

        Args:
            address: emlio://HOST:PORT[,HOST:PORT...]/DATASET.
            batch_size: of this rank.
            image_size: width and height of what the network sees.
            classes: labels must lie below.
            training: shuffled, and random views of the pictures; otherwise in order, and their middle.
            seed: of the shuffling.
            prefetch: what the loader may take off the wire ahead.
            device: where the network is.
        """
        self._image_size = image_size
        self._classes = classes
        self._training = training
        self._device = device
        self._mean = torch.tensor(_MEAN, device=device).view(1, 3, 1, 1)
        self._deviation = torch.tensor(_DEVIATION, device=device).view(1, 3, 1, 1)
        self.loader = EmlioLoader(
            address,
            batch_size=batch_size,
            shuffle=training,
            seed=seed,
            fields=["image/encoded", "image/class/label"],
            ids=True,
            transform=_Decode(round(image_size * _MARGIN)),
            to="torch",
            prefetch=prefetch,
        )

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.loader:
            yield Batch(images=batch["image"], labels=batch["label"], ids=batch["__id__"].tolist())

    def prepare(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Images and labels for the network, on its device. Draws from torch's generator of this process."""
        lowest, highest = int(batch.labels.min()), int(batch.labels.max())
        if lowest < 0 or highest >= self._classes:
            raise ConfigError(
                f"labels must be in [0, {self._classes}), the number of classes, got {lowest} to {highest}"
            )
        images = batch.images.to(self._device).permute(0, 3, 1, 2).float()
        images = (images - self._mean) / self._deviation
        views = _random_views(images, self._image_size) if self._training else _middle(images, self._image_size)
        return views, batch.labels.to(self._device)

    def close(self) -> None:
        """End the loader."""
        self.loader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Decode:
    """One record to a square picture of one size; runs in the loader's thread, ahead of the training.

    Nothing random happens here: how far ahead this thread is must not decide what a resumed run sees.
    """

    def __init__(self, side: int) -> None:
        self._size = (side, side)

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        with Image.open(BytesIO(sample["image/encoded"])) as image:
            image.draft("RGB", self._size)  # libjpeg leaves out what the smaller picture does not show
            picture = ImageOps.fit(image.convert("RGB"), self._size, Image.Resampling.BILINEAR)
        return {"image": np.asarray(picture), "label": int(sample["image/class/label"]), "__id__": sample["__id__"]}


def _random_views(images: torch.Tensor, side: int) -> torch.Tensor:
    """A random part of each picture, resized and perhaps mirrored: all of the batch at once, on its device."""
    count = len(images)
    areas = torch.empty(count).uniform_(*_AREAS)
    ratios = torch.empty(count).uniform_(math.log(_RATIOS[0]), math.log(_RATIOS[1])).exp()
    widths = (areas * ratios).sqrt().clamp(max=1.0)
    heights = (areas / ratios).sqrt().clamp(max=1.0)
    mirrored = torch.where(torch.rand(count) < 0.5, -1.0, 1.0)
    # From places in the view to places in the picture, both from -1 to 1: scaled, then moved so that it stays inside.
    maps = torch.zeros(count, 2, 3)
    maps[:, 0, 0] = widths * mirrored
    maps[:, 1, 1] = heights
    maps[:, 0, 2] = (torch.rand(count) * 2 - 1) * (1 - widths)
    maps[:, 1, 2] = (torch.rand(count) * 2 - 1) * (1 - heights)
    grid = torch.nn.functional.affine_grid(maps.to(images.device), [count, 3, side, side], align_corners=False)
    return torch.nn.functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def _middle(images: torch.Tensor, side: int) -> torch.Tensor:
    top, left = ((size - side) // 2 for size in images.shape[-2:])
    return images[:, :, top : top + side, left : left + side]
