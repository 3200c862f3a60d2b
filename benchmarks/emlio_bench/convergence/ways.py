"""The ways of feeding the network, each with its processes.

Covers: starting the training and its daemon, on this machine or at the two ends of an emulated
link, and measurements from outside. Does not cover: training
(emlio_bench.convergence.training), comparing (emlio_bench.convergence.run).
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from emlio_bench.convergence.training import Epoch, Trained, TrainingOrder
from emlio_bench.link.emulated import EmulatedLink
from emlio_bench.link.ping import measure_rtt_ns
from emlio_bench.link.spec import LinkSpec
from emlio_bench.processes.child import Child
from emlio_bench.processes.daemon import running_daemon

__all__ = ["LinkUse", "Run", "train_from_memory", "train_over_link", "train_over_loopback"]

_SILENT_S: Final = 120.0
"""The time limit for importing torch and one epoch, on a machine with busy cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """The round trip and the traffic of a link.

    Attributes:
        rtt_ns: round trips measured before and after the training.
        to_training_bytes: bytes that crossed the link towards the training, with all headers.
    """

    rtt_ns: tuple[int, ...]
    to_training_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One training.

    Attributes:
        epochs: reports after each epoch.
        trained: report at the end.
        link: link of the training, if any.
    """

    epochs: tuple[Epoch, ...]
    trained: Trained
    link: LinkUse | None = None

    @property
    def losses(self) -> tuple[float, ...]:
        """Losses of all steps."""
        return tuple(loss for epoch in self.epochs for loss in epoch.losses)

    @property
    def accuracies(self) -> tuple[float, ...]:
        """Accuracies after each epoch."""
        return tuple(epoch.accuracy for epoch in self.epochs)


def train_from_memory(order: TrainingOrder, advance: Callable[[], None]) -> Run:
    """Train without a loader.

    Args:
        order: configuration of the training.
        advance: called after each epoch.
    """
    return _hear(order, _training(order), advance)


def train_over_loopback(order: TrainingOrder, advance: Callable[[], None]) -> Run:
    """Train with a daemon on this machine."""
    with running_daemon(Path(order.shards)) as daemon:
        order = msgspec.structs.replace(order, address=daemon.address)
        return _hear(order, _training(order), advance)


def train_over_link(order: TrainingOrder, advance: Callable[[], None], rtt_ns: int) -> Run:
    """Train at one end of a link, with a daemon at the other end.

    Args:
        order: configuration of the training.
        advance: called after each epoch.
        rtt_ns: round trip of the link.
    """
    with EmulatedLink(LinkSpec(rtt_ns=rtt_ns)) as link:
        before_ns = measure_rtt_ns(link)
        flags = ("--bind", f"tcp://{link.storage.address}:0", "--insecure")
        with running_daemon(Path(order.shards), flags, within=link.storage.command) as daemon:
            order = msgspec.structs.replace(order, address=daemon.address)
            run = _hear(order, link.training.command(_training(order)), advance)
            carried = link.counts().to_training.wire_bytes
        use = LinkUse(rtt_ns=(before_ns, measure_rtt_ns(link)), to_training_bytes=carried)
    return Run(epochs=run.epochs, trained=run.trained, link=use)


def _training(order: TrainingOrder) -> list[str]:
    return [sys.executable, "-m", "emlio_bench.convergence.training", msgspec.json.encode(order).decode()]


def _hear(order: TrainingOrder, command: list[str], advance: Callable[[], None]) -> Run:
    epochs: list[Epoch] = []
    with Child("the training", command) as training:
        for _ in range(order.epochs):
            epochs.append(training.hear(Epoch, _SILENT_S))
            advance()
        trained = training.hear(Trained, _SILENT_S)
        training.rest(_SILENT_S)
    return Run(epochs=tuple(epochs), trained=trained)
