"""The process that keeps a GPU busy, steadily or in pulses.

Covers: matrix products on the first GPU. Does not cover: measuring.
"""

import importlib
import time
from typing import Any, Final

import msgspec

from emlio_bench.processes.child import say

__all__ = ["LoadOrder", "Loaded", "load"]

_SIDE: Final = 4096
_PRODUCTS: Final = 16
"""Products between two looks at the clock, some milliseconds of work."""


class LoadOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration: this long at work, then this long at rest, until the process is ended."""

    busy_ns: int
    rest_ns: int


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The report that the GPU is at work."""

    name: str


def load(orders: bytes) -> None:
    """Multiply matrices until this process is ended."""
    order = msgspec.json.decode(orders, type=LoadOrder)
    torch: Any = importlib.import_module("torch")
    left = torch.randn(_SIDE, _SIDE, device="cuda", dtype=torch.float16)
    right, out = torch.randn_like(left), torch.empty_like(left)
    torch.mm(left, right, out=out)
    torch.cuda.synchronize()
    say(Loaded(name=torch.cuda.get_device_name(0)))
    while True:
        until_ns = time.monotonic_ns() + order.busy_ns
        while time.monotonic_ns() < until_ns:
            for _ in range(_PRODUCTS):
                torch.mm(left, right, out=out)
            torch.cuda.synchronize()
        time.sleep(order.rest_ns / 1e9)
