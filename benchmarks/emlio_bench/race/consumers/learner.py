"""A training in place of a pause: a small ResNet that learns from each batch.

The network has the parts of ResNet-50: the same stem, four stages of bottleneck blocks, the same
widths between them. It is shrunk to fit: one block in each stage instead of 3, 4, 6 and 3, a quarter
of the channels, and pictures of 64 x 64 instead of 224 x 224. It runs on a GPU where there is one.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from emlio.extras import how_to_install

__all__ = ["Learner", "shrunk_resnet"]

_SIDE = 64
"""Width and height of a picture, see training_graph."""

_CLASSES = 10
_BLOCKS = 1
"""Blocks in a stage."""
_WIDTH = 16
"""Channels of the first stage; 64 in ResNet-50."""
_WIDER = 4
"""Channels after a block, for each inside it."""
_STAGES = 4
_RATE = 0.02
"""Learning rate. At 0.05 the loss rises for dozens of steps before it falls."""
_MOMENTUM = 0.9
_THREADS = 1
"""Reading, decoding and the link need processors too."""


class Learner:
    """The training of one network, which begins when the object is made."""

    def __init__(self, seed: int, batch: int) -> None:
        """Draw the weights, and take a step on another network, for torch's one-time work.

        Args:
            seed: seed of the weights.
            batch: pictures in a batch.
        """
        if find_spec("torch") is None:
            raise SystemExit(f"training needs PyTorch, which is not installed: {how_to_install('torch')}")
        self._torch: Any = import_module("torch")
        self._device = "cuda" if self._torch.cuda.is_available() else "cpu"
        if self._device == "cpu":
            self._torch.set_num_threads(_THREADS)
        self._begin(0)
        self.step(self._torch.zeros(batch, 3, _SIDE, _SIDE), self._torch.zeros(batch, dtype=self._torch.int64))
        self._begin(seed)

    def __call__(self, batch: Any) -> float:
        """Learn from the pictures and labels of a batch; return its loss before that."""
        return self.step(batch.pictures, batch.labels)

    def step(self, pictures: Any, labels: Any) -> float:
        """Learn from a batch; return its loss before that.

        Args:
            pictures: float32 of the shape (batch, 3, _SIDE, _SIDE), a tensor or an array.
            labels: their classes.
        """
        scores = self._network(self._here(pictures))
        loss = self._torch.nn.functional.cross_entropy(scores, self._here(labels).reshape(-1).long())
        self._descent.zero_grad()
        loss.backward()
        self._descent.step()
        return float(loss.item())

    def _begin(self, seed: int) -> None:
        self._torch.manual_seed(seed)
        self._network = shrunk_resnet(self._torch).to(self._device)
        self._descent = self._torch.optim.SGD(self._network.parameters(), lr=_RATE, momentum=_MOMENTUM)

    def _here(self, values: Any) -> Any:
        return self._torch.as_tensor(values).to(self._device)


def shrunk_resnet(torch: Any) -> Any:
    """Return the network with new weights.

    Args:
        torch: the module.
    """
    nn = torch.nn

    def convolved(inside: int, outside: int, size: int, stride: int = 1) -> list[Any]:
        layer = nn.Conv2d(inside, outside, size, stride=stride, padding=size // 2, bias=False)
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        return [layer, nn.BatchNorm2d(outside)]

    class Bottleneck(nn.Module):  # type: ignore[misc, name-defined, unused-ignore]  # torch is untyped here
        """The block of ResNet-50: 1 x 1, 3 x 3 and 1 x 1, beside a short cut."""

        def __init__(self, inside: int, width: int, stride: int) -> None:
            super().__init__()  # pyright: ignore[reportUnknownMemberType]  # torch is untyped here
            outside = _WIDER * width
            self.long = nn.Sequential(
                *convolved(inside, width, 1),
                nn.ReLU(),
                *convolved(width, width, 3, stride),
                nn.ReLU(),
                *convolved(width, outside, 1),
            )
            nn.init.zeros_(self.long[-1].weight)  # a block begins as its short cut
            same = inside == outside and stride == 1
            self.short = nn.Identity() if same else nn.Sequential(*convolved(inside, outside, 1, stride))

        def forward(self, given: Any) -> Any:
            return torch.relu(self.long(given) + self.short(given))

    layers = [*convolved(3, _WIDTH, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inside = _WIDTH
    for stage in range(_STAGES):
        width = _WIDTH << stage
        for block in range(_BLOCKS):
            layers.append(Bottleneck(inside, width, 2 if stage and not block else 1))
            inside = _WIDER * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, _CLASSES))
