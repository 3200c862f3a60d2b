"""The memory of requests: NumPy arrays, torch's tensors, anything with Python's buffer interface.

torch is never imported unless `pinned` is called: a caller that has a tensor has torch.
"""

import importlib
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.reading.buffers import aligned

__all__ = ["DeviceMemory", "HostMemory", "aligned", "memory_of", "pinned"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostMemory:
    """Memory that the kernel reads or writes. `owner` keeps it."""

    address: int
    size_bytes: int
    owner: object


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceMemory:
    """The bytes of a tensor on a GPU, as a tensor of one dimension."""

    flat: Any
    size_bytes: int

    def host_tensor(self, size_bytes: int) -> Any:
        """Return a tensor of the host to copy by, pinned if that helps."""
        return self.flat.new_empty(size_bytes, device="cpu", pin_memory=bool(self.flat.is_cuda))


def pinned(size: int) -> Any:
    """Return a tensor of `size` bytes of page-locked memory, which GPUs copy from and to without a detour.

    Raises:
        ConfigError: torch is not installed, or has no GPU.
    """
    try:
        torch: Any = importlib.import_module("torch")
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    except (ImportError, RuntimeError) as error:
        raise ConfigError(f"pinned memory needs torch and a GPU: {error}") from error


def memory_of(buffer: object, *, written: bool) -> HostMemory | DeviceMemory:
    """Return the memory of a buffer.

    Args:
        buffer: a contiguous array or tensor, a bytearray or anything else with Python's buffer interface.
        written: whether its bytes will be changed.

    Raises:
        ConfigError: it cannot be used.
    """
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(buffer, torch.Tensor):
        return _of_tensor(buffer, torch)
    given: Any = buffer
    array: npt.NDArray[Any]
    try:
        array = given if _is_array(given) else np.frombuffer(given, np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        raise ConfigError(
            f"a buffer must be an array, a tensor or bytes, got {type(buffer).__name__}: {error}"
        ) from error
    if not array.flags.c_contiguous or array.dtype.hasobject:
        raise ConfigError(f"an array must be contiguous and of numbers, got {array.dtype} with strides {array.strides}")
    address, read_only = array.__array_interface__["data"]
    if written and read_only:
        raise ConfigError("a buffer that is read into must be writable, got a read-only one")
    return HostMemory(address=address, size_bytes=array.nbytes, owner=array)


def _of_tensor(tensor: Any, torch: Any) -> HostMemory | DeviceMemory:
    if not tensor.is_contiguous():
        raise ConfigError(f"a tensor must be contiguous, got strides {tensor.stride()}")
    if tensor.is_meta:
        raise ConfigError("a tensor must have memory, got one on the device meta")
    if is_on_host(tensor):
        return HostMemory(address=tensor.data_ptr(), size_bytes=tensor.nbytes, owner=tensor)
    if tensor.is_cuda:  # what was begun on it must end before another thread copies
        torch.cuda.current_stream(tensor.device).synchronize()
    return DeviceMemory(flat=tensor.detach().reshape(-1).view(torch.uint8), size_bytes=tensor.nbytes)


def is_on_host(tensor: Any) -> bool:
    """Return whether the kernel can read and write a tensor's memory."""
    return bool(tensor.device.type == "cpu")


def _is_array(buffer: object) -> bool:
    return isinstance(buffer, np.ndarray)
