"""torch, where it is wanted; the only file of the receiver that imports it.

Covers: whether it is installed, the process group's rank, arrays to tensors. torch is imported when a tensor is first made, never
to find out something: its import takes seconds. Does not cover: moving tensors to a device.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["distributed_world", "tensor_maker", "torch_is_installed"]


def torch_is_installed() -> bool:
    """Whether `import torch` would work, without doing it."""
    return "torch" in sys.modules or importlib.util.find_spec("torch") is not None


def distributed_world() -> tuple[int, int] | None:
    """Rank and world size of the initialised process group. Without torch in this process there is none."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


def tensor_maker() -> "Callable[[np.ndarray[Any, Any]], Any]":
    """What turns an array into a tensor that shares its memory."""
    torch: Any = importlib.import_module("torch")
    make: Callable[[np.ndarray[Any, Any]], Any] = torch.from_numpy
    return make
