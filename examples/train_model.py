"""What `train.py` trains: a network with its optimiser and learning rate, and the file that keeps a whole run.

Covers: one step, mixed precision, DDP, random states, a checkpoint that is there whole or not at all. Does not cover: when these
happen, and on which rank (train.py).
"""

import hashlib
import importlib
import math
import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from emlio.errors import ConfigError

__all__ = [
    "MODELS",
    "SCHEDULES",
    "Learner",
    "Schedule",
    "derived_seed",
    "random_state",
    "read_checkpoint",
    "restore_random_state",
    "write_checkpoint",
]

MODELS = {"resnet50": 0.1, "vgg19": 0.01, "tiny": 0.1}
"""Each with the learning rate that suits it at 256 pictures a step; VGG has no normalisation and bears less."""

SCHEDULES = ("cosine", "steps")

_VERSION = 1
"""Of what a checkpoint holds."""

_DROPS = (1 / 3, 2 / 3, 8 / 9)
"""Where in a run the rate falls to a tenth: epochs 30, 60 and 80 of 90."""


def _build_network(name: str, classes: int) -> nn.Module:
    """An untrained network. "tiny" learns little and fast, for tests."""
    if name == "tiny":
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.1),
            nn.Linear(128, classes),
        )
    models: Any = importlib.import_module("torchvision.models")
    network: nn.Module = getattr(models, name)(weights=None, num_classes=classes)
    return network


def _build_optimiser(network: nn.Module, momentum: float, weight_decay: float) -> torch.optim.Optimizer:
    """Gradient descent with Nesterov's momentum. The rate is set for each step, from a Schedule."""
    weights = [parameter for parameter in network.parameters() if parameter.ndim > 1]
    # To pull biases and the scales of normalisations towards zero does harm.
    others = [parameter for parameter in network.parameters() if parameter.ndim <= 1]
    groups = [{"params": weights, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=0.0, momentum=momentum, nesterov=momentum > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The learning rate's course over a run. It asks for the epochs done, not for steps: those depend on the number of ranks.

    Attributes:
        kind: of SCHEDULES: along a cosine to zero, or to a tenth three times.
        peak: the highest rate.
        warm_up: epochs of rising to it.
        epochs: of the whole run.
    """

    kind: str
    peak: float
    warm_up: float
    epochs: int

    def __post_init__(self) -> None:
        if self.kind not in SCHEDULES:
            raise ConfigError(f"a schedule must be one of {', '.join(SCHEDULES)}, got {self.kind!r}")
        if self.epochs < 1 or not 0 <= self.warm_up <= self.epochs:
            raise ConfigError(f"the warm-up must be in [0, {self.epochs}] epochs, got {self.warm_up}")

    def rate(self, epochs_done: float) -> float:
        """The rate of a step at whose end so many epochs are done; a share of one counts."""
        if epochs_done < self.warm_up:
            return self.peak * epochs_done / self.warm_up
        if self.kind == "cosine":
            share = (epochs_done - self.warm_up) / max(self.epochs - self.warm_up, 1e-9)
            return self.peak * 0.5 * (1.0 + math.cos(math.pi * min(share, 1.0)))
        return self.peak * 0.1 ** sum(epochs_done > drop * self.epochs for drop in _DROPS)


class Learner:
    """A network, what improves it, and their state. Where a process group exists, its ranks learn together."""

    def __init__(
        self,
        *,
        model: str,
        classes: int,
        schedule: Schedule,
        momentum: float,
        weight_decay: float,
        label_smoothing: float,
        mixed_precision: bool,
        device: torch.device,
    ) -> None:
        self._device = device
        self._schedule = schedule
        self._network = _build_network(model, classes).to(device).to(memory_format=torch.channels_last)
        self._optimiser = _build_optimiser(self._network, momentum, weight_decay)
        self._criterion = nn.CrossEntropyLoss(label_smoothing=label_smoothing)
        half = device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False)
        self._mixed = mixed_precision
        self._precision = torch.float16 if half else torch.bfloat16
        # Small gradients vanish in float16 unless the loss is scaled; bfloat16 has the range of 32 bits.
        self._scaler = torch.amp.GradScaler(device.type, enabled=mixed_precision and half)
        self._distributed: nn.Module | None = None

    def step(self, images: torch.Tensor, labels: torch.Tensor, epochs_done: float) -> torch.Tensor:
        """Learn from one batch. Returns the sum of its losses, the right answers and the pictures, on the device."""
        if self._distributed is None:  # not before here, so that a checkpoint can be loaded, which all ranks then share
            self._distributed = self._distribute()
        for group in self._optimiser.param_groups:
            group["lr"] = self._schedule.rate(epochs_done)
        self._optimiser.zero_grad(set_to_none=True)
        with torch.autocast(self._device.type, self._precision, enabled=self._mixed):
            scores = self._distributed(images)
            loss = self._criterion(scores, labels)
        # DDP takes the mean of the ranks' means. Last batches differ by one picture at most, which shifts it by less than noise.
        self._scaler.scale(loss).backward()
        self._scaler.step(self._optimiser)
        self._scaler.update()
        right = (scores.detach().argmax(dim=1) == labels).sum().double()
        # No item() here: the loop need not wait for a GPU.
        return torch.stack([loss.detach().double() * len(labels), right, torch.full_like(right, len(labels))])

    def _distribute(self) -> nn.Module:
        if not dist.is_initialized() or dist.get_world_size() == 1:
            return self._network
        devices = [self._device] if self._device.type == "cuda" else None
        distributed: nn.Module = nn.parallel.DistributedDataParallel(self._network, device_ids=devices)
        return distributed

    def examine(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Right answers and pictures of one batch, on the device; nothing is learned."""
        self._network.eval()
        with torch.no_grad(), torch.autocast(self._device.type, self._precision, enabled=self._mixed):
            right = (self._network(images).argmax(dim=1) == labels).sum().double()
        self._network.train()
        return torch.stack([right, torch.full_like(right, len(labels))])

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps; the same on all ranks. The rate needs nothing: it follows from the position in the data."""
        return {
            "network": self._network.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "scaler": self._scaler.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, before the first step.

        Raises:
            ConfigError: it is of another network.
        """
        try:
            self._network.load_state_dict(state["network"])
        except RuntimeError as error:
            raise ConfigError(f"the network must be the one that was saved: {error}") from error
        self._optimiser.load_state_dict(state["optimiser"])
        if self._scaler.is_enabled() and state["scaler"]:
            self._scaler.load_state_dict(state["scaler"])


# ---- randomness -----------------------------------------------------------------------------------------------------


def derived_seed(*parts: int) -> int:
    """A seed of its own for each tuple of numbers. A sum would give seed 1, rank 0 what seed 0, rank 1 has."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def random_state(device: torch.device) -> dict[str, torch.Tensor]:
    """Where torch's generators of this process stand."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(state: Mapping[str, torch.Tensor], device: torch.device) -> None:
    """Go on drawing from there."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


# ---- checkpoints ----------------------------------------------------------------------------------------------------


def write_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Replace `path`. A crash leaves the old file or the new one, never a piece."""
    # One name for all, so that what a killed run left is overwritten by the next.
    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("wb") as file:
        torch.save({"version": _VERSION, **content}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name, too, must be on the disk
    finally:
        os.close(folder)


def read_checkpoint(path: Path, model: str) -> dict[str, Any]:
    """What `write_checkpoint` wrote; nothing in the file is run.

    Raises:
        ConfigError: the file is something else, or of another model.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, LookupError, pickle.UnpicklingError) as error:
        what = type(error).__name__  # its text says how to load files less carefully
        raise ConfigError(f"{path} must be a checkpoint of train.py, and cannot be read as one ({what})") from error
    if not isinstance(content, dict) or content.get("version") != _VERSION:
        raise ConfigError(f"{path} must be a checkpoint of train.py of version {_VERSION}, and is not")
    if content["model"] != model:
        raise ConfigError(f"{path} must be a checkpoint of the model {model}, and is of {content['model']}")
    return content
