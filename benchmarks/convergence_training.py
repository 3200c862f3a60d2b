"""The process that learns digits: python -m emlio.benchmarks.convergence_training ORDERS.

Wherever its batches come from, all else is the same: the weights at the start, the arithmetic of a step, one thread. So
whether the batches are the same can be read off the losses. torch is imported here and nowhere else.

Covers: batches out of memory in the plan's order, batches from a loader, learning, telling the driver about each epoch. Does not
cover: comparing (emlio.benchmarks.convergence).
"""

import hashlib
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from emlio import EmlioLoader
from emlio.benchmarks.convergence_digits import LABEL, PIXELS, SIDE, Digits, read_arrays
from emlio.benchmarks.processes import say
from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog
from emlio.planner.plan import Plan, PlanSpec
from emlio.shards.dataset import open_dataset

__all__ = ["Batches", "Epoch", "Learner", "Trained", "TrainingOrder", "check_torch", "main"]

_LIFE_S: Final = 1800
"""A process whose driver was killed must not stay for ever."""

_TIMEOUT: Final = "60s"
_INK: Final = 16.0
_RATE: Final = 0.05
_MOMENTUM: Final = 0.9


class TrainingOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a training process must know.

    Attributes:
        arrays: file of the digits as arrays.
        shards: the training part's dataset, for its catalog.
        address: of a daemon that serves it; None for batches from memory.
        epochs: how many.
        batch_size: digits in a step.
        seed: draws the weights at the start.
        order_seed: draws the order of the records.
    """

    arrays: str
    shards: str
    address: str | None
    epochs: int
    batch_size: int
    seed: int
    order_seed: int


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """What is said after each epoch.

    Attributes:
        losses: of its steps; float32, written exactly.
        waits_ns: how long there was no batch to learn from before each step; the first is from before the first connection on.
        accuracy: the share of the test part that is told right after it.
    """

    losses: tuple[float, ...]
    waits_ns: tuple[int, ...]
    accuracy: float


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """What is said at the end.

    Attributes:
        parameters: SHA-256 of each parameter tensor's bytes, by name.
        training_ns: from before the first connection to the last step, without the tests after each epoch.
        torch: its version.
    """

    parameters: dict[str, str]
    training_ns: int
    torch: str


Batches = Iterator[tuple[Any, Any]]
"""One epoch: pixels and labels of each step, as tensors."""


def check_torch() -> None:
    """Raise when it is not installed."""
    if find_spec("torch") is None:
        raise ConfigError('the network is written in PyTorch, which is not installed: pip install "emlio[torch]"')


class Learner:
    """A small convolutional network on one processor, and gradient descent with momentum. Equal batches, equal bits."""

    def __init__(self, seed: int) -> None:
        """Draw the weights.

        Args:
            seed: what they follow from.
        """
        torch: Any = import_module("torch")
        torch.use_deterministic_algorithms(True)
        torch.set_num_threads(1)  # a sum that threads share out has another last bit
        torch.manual_seed(seed)
        layers = torch.nn
        self._torch = torch
        self._network = layers.Sequential(
            layers.Conv2d(1, 16, 3, padding=1),
            layers.ReLU(),
            layers.Conv2d(16, 32, 3, padding=1),
            layers.ReLU(),
            layers.MaxPool2d(2),
            layers.Flatten(),
            layers.Linear(32 * (SIDE // 2) ** 2, 10),
        )
        self._parameters = list(self._network.parameters())
        self._speeds = [torch.zeros_like(one) for one in self._parameters]

    def step(self, pixels: Any, labels: Any) -> float:
        """Learn from a batch; returns its loss before that, a float32."""
        loss = self._torch.nn.functional.cross_entropy(self._scores(pixels), labels.reshape(-1))
        loss.backward()
        # Written out, for torch's own optimisers import its compiler at their first step, which takes seconds.
        with self._torch.no_grad():
            for weights, speed in zip(self._parameters, self._speeds, strict=True):
                speed.mul_(_MOMENTUM).add_(weights.grad)
                weights.sub_(speed, alpha=_RATE)
                weights.grad = None
        return float(loss.item())

    def accuracy(self, digits: Digits) -> float:
        """The share that it tells right."""
        with self._torch.no_grad():
            told = self._scores(self._torch.from_numpy(digits.pixels)).argmax(dim=1)
        return float((told.numpy() == digits.labels).mean())

    def parameters(self) -> dict[str, str]:
        """SHA-256 of each tensor's bytes, by name."""
        return {
            name: hashlib.sha256(tensor.detach().numpy().tobytes()).hexdigest()
            for name, tensor in self._network.named_parameters()
        }

    def _scores(self, pixels: Any) -> Any:
        # The quotient lies in memory of torch's own, so where a batch came from cannot choose between aligned and other code.
        return self._network(pixels.reshape(-1, 1, SIDE, SIDE) / _INK)


def main(orders: str) -> None:
    """Learn, and say how it went."""
    signal.alarm(_LIFE_S)
    order = msgspec.json.decode(orders, type=TrainingOrder)
    training, test = read_arrays(Path(order.arrays))
    Learner(order.seed).step(*_tensors(training, np.arange(order.batch_size)))  # what torch does only once, it does now
    learner = Learner(order.seed)
    begun_ns = asked_ns = time.monotonic_ns()
    testing_ns = 0
    with _source(order, training) as source:
        for epoch in range(order.epochs):
            losses: list[float] = []
            waits_ns: list[int] = []
            for batch in source(epoch):
                waits_ns.append(time.monotonic_ns() - asked_ns)
                losses.append(learner.step(*batch))
                asked_ns = time.monotonic_ns()
            ended_ns = time.monotonic_ns()
            say(Epoch(losses=tuple(losses), waits_ns=tuple(waits_ns), accuracy=learner.accuracy(test)))
            asked_ns = time.monotonic_ns()
            testing_ns += asked_ns - ended_ns
        say(
            Trained(
                parameters=learner.parameters(),
                training_ns=asked_ns - begun_ns - testing_ns,
                torch=str(import_module("torch").__version__),
            )
        )


@contextmanager
def _source(order: TrainingOrder, training: Digits) -> Generator[Callable[[int], Batches], None, None]:
    """What gives the batches of an epoch; epochs are asked for in their order."""
    if order.address is None:
        with open_dataset("digits", Path(order.shards)) as dataset:
            catalog = Catalog(shards=dataset.entries)
        plan = Plan(catalog, PlanSpec(seed=order.order_seed, batch_size=order.batch_size))
        yield lambda epoch: _remembered(plan, epoch, training)
        return
    with EmlioLoader(
        order.address,
        batch_size=order.batch_size,
        seed=order.order_seed,
        rank=0,
        world_size=1,
        fields=[PIXELS, LABEL],
        to="torch",
        timeout=_TIMEOUT,
    ) as loader:
        yield lambda epoch: _received(loader, epoch)


def _remembered(plan: Plan, number: int, training: Digits) -> Batches:
    """An epoch out of memory. The plan says which records, and no loader has a part in it."""
    epoch = plan.epoch(number)
    for step in range(epoch.steps):
        yield _tensors(training, epoch.ids(0, *epoch.batch_slots(0, step)))


def _received(loader: EmlioLoader, number: int) -> Batches:
    loader.set_epoch(number)
    for batch in loader:
        yield batch[PIXELS], batch[LABEL]


def _tensors(digits: Digits, rows: npt.NDArray[np.int64]) -> tuple[Any, Any]:
    torch: Any = import_module("torch")
    return torch.from_numpy(digits.pixels[rows]), torch.from_numpy(digits.labels[rows])


if __name__ == "__main__":
    main(*sys.argv[1:])
