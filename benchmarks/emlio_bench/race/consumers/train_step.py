"""A real training step after each batch: a model of torchvision on the device where the pictures are."""

from importlib import import_module
from typing import Any

__all__ = ["TrainStep"]

_CLASSES = 1000
_SIZE = 224
_WARM_UPS = 3
"""Steps in which cuDNN chooses its algorithms, and memory is taken."""


class TrainStep:
    """A model in training. Used by one thread."""

    def __init__(self, name: str, device: str, batch: int) -> None:
        """Make the model, and take some steps before the clock runs.

        Args:
            name: a function of torchvision.models, such as "resnet50".
            device: device of the model, such as "cuda".
            batch: pictures in a batch.
        """
        self._torch: Any = import_module("torch")
        models: Any = import_module("torchvision.models")
        self._device = device
        self._torch.manual_seed(1)
        self._model: Any = getattr(models, name)(weights=None).to(device).train()
        self._optimizer: Any = self._torch.optim.SGD(self._model.parameters(), lr=0.01, momentum=0.9)
        self._loss: Any = self._torch.nn.CrossEntropyLoss()
        self._labels: Any = self._torch.randint(_CLASSES, (batch,), device=device)
        pictures = self._torch.zeros((batch, 3, _SIZE, _SIZE), device=device)
        for _ in range(_WARM_UPS):
            self._step(pictures)

    def __call__(self, batch: Any) -> None:
        """Take a step on the pictures of a batch, and return when the device has taken it."""
        self._step(batch.pictures)

    def _step(self, pictures: Any) -> None:
        pictures = pictures.to(self._device, non_blocking=True)
        self._optimizer.zero_grad(set_to_none=True)
        self._loss(self._model(pictures), self._labels[: len(pictures)]).backward()
        self._optimizer.step()
        if self._device != "cpu":
            self._torch.cuda.synchronize()
