"""The GPUs of this machine, and what is missing to use them.

It needs nothing but Python, and is a program too: before anything is installed, `python3 cuda.py`
says what is missing and exits with status 1.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["gpu_words", "why_no_gpu"]

_NAME_BYTES = 128
_Load = Callable[[str], Any]


def why_no_gpu(load: _Load = ctypes.CDLL) -> str | None:
    """Return what is missing, or None if there is a GPU.

    Args:
        load: loads a shared library; raises OSError if there is none.
    """
    try:
        driver = load("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver is installed (libcuda.so.1 cannot be loaded)"
    status, count = _count(driver)
    if status:
        return f"the NVIDIA driver finds no GPU that can be used (CUDA error {status})"
    return None if count else "the NVIDIA driver has no GPU"


def gpu_words(load: _Load = ctypes.CDLL) -> str:
    """Return the number and the name of the GPUs and the driver's CUDA version; there must be one."""
    driver = load("libcuda.so.1")
    _, count = _count(driver)
    name, version = ctypes.create_string_buffer(_NAME_BYTES), ctypes.c_int()
    driver.cuDeviceGetName(name, _NAME_BYTES, 0)
    driver.cuDriverGetVersion(ctypes.byref(version))
    major, minor = version.value // 1000, version.value % 1000 // 10
    return f"{count} x {name.value.decode(errors='replace')}, driver for CUDA {major}.{minor}"


def _count(driver: Any) -> tuple[int, int]:
    """Return the status of the driver's answer, and its number of GPUs."""
    count = ctypes.c_int()
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    return status, count.value


if __name__ == "__main__":
    sys.exit(why_no_gpu())
