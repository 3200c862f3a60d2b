"""torch, if it is wanted. The only file of the receiver that imports it.

torch is imported when a tensor is first made, never to check for it: the import takes seconds.

Covers: whether torch is installed, the process group's rank and store, arrays to tensors, copies to
a device, events on it. Does not cover: decoding.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import msgspec
import numpy as np

from emlio.errors import ConfigError
from emlio.extras import how_to_install

__all__ = [
    "CudaEvents",
    "DeviceMover",
    "GroupStore",
    "Moving",
    "cuda_events",
    "cuda_stream",
    "distributed_world",
    "from_dlpack",
    "group_store",
    "is_torch_device",
    "tensor_maker",
    "torch_is_installed",
]


def torch_is_installed() -> bool:
    """Return whether `import torch` would work, without importing it."""
    return "torch" in sys.modules or importlib.util.find_spec("torch") is not None


def is_torch_device(value: object) -> bool:
    """Return whether a value is a `torch.device`."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.device)


def distributed_world() -> tuple[int, int] | None:
    """Return rank and world size of the initialised process group; None without one.

    If torch is not loaded in this process there is no group.
    """
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


def group_store() -> "GroupStore | None":
    """Return the store of the initialised process group; None if there is none."""
    group: Any = sys.modules.get("torch.distributed.distributed_c10d")
    find: Any = getattr(group, "_get_default_store", None)
    return GroupStore(find()) if find is not None and distributed_world() is not None else None


class GroupStore:
    """See `emlio.receiver.other_ranks.Store`: the store of the process group."""

    def __init__(self, store: Any) -> None:
        """Wrap torch's store."""
        self._store = store

    def claim(self, key: str, value: bytes) -> bytes:
        """See `Store`."""
        return bytes(self._store.compare_set(key, "", value.decode("ascii")))

    def put(self, key: str, value: bytes) -> None:
        """See `Store`."""
        self._store.set(key, value.decode("ascii"))

    def look(self, key: str) -> bytes | None:
        """See `Store`. torch's `get` alone would wait for the value."""
        return bytes(self._store.get(key)) if self._store.check([key]) else None


def tensor_maker() -> "Callable[[np.ndarray[Any, Any]], Any]":
    """Return the function that turns an array into a tensor sharing its memory."""
    if not torch_is_installed():
        raise ConfigError(f"to must be 'numpy' where PyTorch is not installed, got 'torch'; {how_to_install('torch')}")
    torch: Any = importlib.import_module("torch")
    make: Callable[[np.ndarray[Any, Any]], Any] = torch.from_numpy
    return make


def from_dlpack(thing: Any) -> Any:
    """Return a tensor on the memory of an object that supports DLPack."""
    torch: Any = importlib.import_module("torch")
    return torch.from_dlpack(thing)


def cuda_stream(device: int) -> Any:
    """Return the stream on which the user's next work on a device will run."""
    torch: Any = importlib.import_module("torch")
    return torch.cuda.current_stream(device)


def cuda_events(device: str | None) -> "CudaEvents | None":
    """Return events on the CUDA device that this process uses; None if it has used none so far.

    Args:
        device: the device as given to the loader; a number in it selects the device.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    number = (device or "").partition(":")[2]
    return CudaEvents(torch, int(number) if number else int(torch.cuda.current_device()))


class CudaEvents:
    """See `emlio.receiver.timing.device_steps.DeviceEvents`."""

    def __init__(self, torch: Any, device: int) -> None:
        """Use this device."""
        self.name = f"cuda:{device}"
        self._torch = torch
        self._device = device

    def mark(self, used: Any) -> Any:
        """See `DeviceEvents`. Records on the current stream of the calling thread."""
        event = self._torch.cuda.Event(enable_timing=True) if used is None else used
        event.record(self._torch.cuda.current_stream(self._device))
        return event


class Moving(msgspec.Struct, frozen=True, eq=False):
    """A batch that is being copied to a device."""

    batch: Any
    arrived: Any


class DeviceMover:
    """Copies batches to a CUDA device, in parallel with other work there.

    `start` is called by the threads that make batches, `finish` by the user's thread.
    """

    def __init__(self, device: str) -> None:
        """Use "cuda" or "cuda:1"; raise `ConfigError` if there is no such device."""
        torch: Any = importlib.import_module("torch")
        if not torch.cuda.is_available():
            raise ConfigError(f"device {device!r} requires a CUDA device that PyTorch can use, found none")
        wanted = torch.device(device)
        count = torch.cuda.device_count()
        number = torch.cuda.current_device() if wanted.index is None else wanted.index
        if number >= count:
            raise ConfigError(f"device must be one of {count} CUDA devices, got {device!r}")
        self._torch = torch
        self._device = torch.device("cuda", number)
        self._stream = torch.cuda.Stream(self._device)

    def start(self, batch: Any) -> Moving:
        """Begin the copy of all tensors in a batch, through pinned memory."""
        with self._torch.cuda.stream(self._stream):
            moved = _mapped(batch, self._torch.Tensor, self._copy)
            return Moving(moved, self._stream.record_event())

    def _copy(self, tensor: Any) -> Any:
        # The allocator of pinned memory keeps the block until the copy is done.
        return tensor.pin_memory().to(self._device, non_blocking=True)

    def finish(self, moving: Moving) -> Any:
        """Return the batch; the user's work on the current stream waits for the copy."""
        stream = self._torch.cuda.current_stream(self._device)
        stream.wait_event(moving.arrived)

        def keep(tensor: Any) -> Any:
            tensor.record_stream(stream)
            return tensor

        return _mapped(moving.batch, self._torch.Tensor, keep)


def _mapped(value: Any, kind: type[Any], change: Callable[[Any], Any]) -> Any:
    """Return the value with every tensor in dicts, lists and tuples changed."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        names = list(cast("Iterable[Any]", value))
        return {name: _mapped(value[name], kind, change) for name in names}
    if isinstance(value, list | tuple):
        changed = [_mapped(item, kind, change) for item in cast("Sequence[Any]", value)]
        make = cast("Any", type(cast("object", value)))
        # A named tuple takes its items one by one.
        return make(*changed) if hasattr(make, "_fields") else make(changed)
    return value
