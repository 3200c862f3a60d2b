"""The training process, a role of emlio_bench.processes.worker.

Apart from the source of batches, everything is the same: the initial weights, the arithmetic of a
step, one thread. The losses therefore show whether the batches are the same. torch is imported in
this module and in emlio_bench.convergence.descent only.

Covers: batches from memory in the order of the plan, batches from a loader, training, a report
after each epoch. Does not cover: comparing (emlio_bench.convergence.run).
"""

import hashlib
import signal
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

from emlio import EmlioLoader, Recovery
from emlio.errors import ConfigError
from emlio.extras import how_to_install
from emlio.index.opening import open_dataset
from emlio.planner.catalog import Catalog
from emlio.planner.plan import Plan, PlanSpec
from emlio_bench.convergence.descent import Descent
from emlio_bench.convergence.digits import LABEL, PIXELS, SIDE, Digits, read_arrays
from emlio_bench.processes.child import say

__all__ = ["Batches", "Epoch", "Learner", "Trained", "TrainingOrder", "check_torch", "train"]

_LIFE_S: Final = 1800
"""The time limit of a process, which ends it if its driver was killed."""

_TIMEOUT: Final = "60s"
_INK: Final = 16.0


class TrainingOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a training process.

    Attributes:
        arrays: file with the digits as arrays.
        shards: the training part's dataset, for its catalog.
        address: address of a daemon that serves it; None for batches from memory.
        epochs: number of epochs.
        batch_size: digits in a step.
        seed: seed of the initial weights.
        order_seed: seed of the order of records.
    """

    arrays: str
    shards: str
    address: str | None
    epochs: int
    batch_size: int
    seed: int
    order_seed: int


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """The report after each epoch.

    Attributes:
        losses: losses of its steps; float32, written exactly.
        waits_ns: waiting time before each step; the first one starts before the first connection.
        accuracy: share of the test part classified correctly after the epoch.
    """

    losses: tuple[float, ...]
    waits_ns: tuple[int, ...]
    accuracy: float


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """The report at the end.

    Attributes:
        parameters: SHA-256 of each parameter tensor's bytes, by name.
        training_ns: time from before the first connection to the last step, without the tests after
            each epoch.
        torch: version of torch.
    """

    parameters: dict[str, str]
    training_ns: int
    torch: str


Batches = Iterator[tuple[Any, Any]]
"""The batches of one epoch: pixels and labels of each step, as tensors."""


def check_torch() -> None:
    """Raise if torch is not installed."""
    if find_spec("torch") is None:
        raise ConfigError(f"the network is written in PyTorch, which is not installed: {how_to_install('torch')}")


class Learner:
    """A small convolutional network on the CPU, with gradient descent and momentum.

    Equal batches give equal bits.
    """

    def __init__(self, seed: int) -> None:
        """Draw the initial weights.

        Args:
            seed: seed of the weights.
        """
        torch: Any = import_module("torch")
        torch.use_deterministic_algorithms(True)
        torch.set_num_threads(1)  # a sum over several threads may differ in its last bit
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
        self._descent = Descent(self._network)

    def step(self, pixels: Any, labels: Any) -> float:
        """Train on a batch; return its loss before the update, a float32."""
        return self._descent.step(self._scores(pixels), labels.reshape(-1))

    def accuracy(self, digits: Digits) -> float:
        """Return the share of digits classified correctly."""
        with self._torch.no_grad():
            told = self._scores(self._torch.from_numpy(digits.pixels)).argmax(dim=1)
        return float((told.numpy() == digits.labels).mean())

    def parameters(self) -> dict[str, str]:
        """Return SHA-256 of each tensor's bytes, by name."""
        return {
            name: hashlib.sha256(tensor.detach().numpy().tobytes()).hexdigest()
            for name, tensor in self._network.named_parameters()
        }

    def _scores(self, pixels: Any) -> Any:
        # The quotient is in memory allocated by torch. The source of a batch therefore cannot
        # change its alignment, which could select different code.
        return self._network(pixels.reshape(-1, 1, SIDE, SIDE) / _INK)


def train(orders: bytes) -> None:
    """Train, and report the result."""
    signal.alarm(_LIFE_S)  # instead of the worker's limit
    order = msgspec.json.decode(orders, type=TrainingOrder)
    training, test = read_arrays(Path(order.arrays))
    Learner(order.seed).step(*_tensors(training, np.arange(order.batch_size)))  # run torch's one-time work now
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
    """Provide a function that returns the batches of an epoch.

    Epochs must be asked for in order.
    """
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
        recovery=Recovery(timeout=_TIMEOUT),
    ) as loader:
        yield lambda epoch: _received(loader, epoch)


def _remembered(plan: Plan, number: int, training: Digits) -> Batches:
    """Yield an epoch from memory. The plan selects the records, without a loader."""
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
