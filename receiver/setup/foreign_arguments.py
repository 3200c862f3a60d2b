"""Arguments that users bring from PyTorch's DataLoader or give in the wrong place.

Covers: the error for such an argument. Does not cover: checking the loader's own arguments
(emlio.receiver.setup.config, emlio.receiver.batch_kinds.options).
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Final, ParamSpec, TypeVar

__all__ = ["HINTS", "explains_foreign_arguments"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_NO_WORKERS = "the loader uses threads and no worker processes; threads= sets how many decode"
_ORDER = "the order follows from shuffle= and seed=, and the rank's part from rank= and world_size="
_RECOVERY = "it belongs to recovery=Recovery(...)"
_SECURITY = "it belongs to security=Security(...)"

HINTS: Final = {
    "num_workers": _NO_WORKERS,
    "worker_init_fn": _NO_WORKERS,
    "persistent_workers": _NO_WORKERS,
    "multiprocessing_context": _NO_WORKERS,
    "prefetch_factor": "prefetch= bounds what is held ahead of the loop, in bytes",
    "pin_memory": 'device="cuda" copies batches through pinned memory in the background',
    "pin_memory_device": 'device="cuda" copies batches through pinned memory in the background',
    "sampler": _ORDER,
    "batch_sampler": _ORDER,
    "generator": _ORDER,
    "dataset": "the first argument is the dataset's address",
    "timeout": _RECOVERY,
    "heartbeat": _RECOVERY,
    "on_error": _RECOVERY,
    "verify": _RECOVERY,
    "keys": _SECURITY,
    "daemon_key": _SECURITY,
    "encryption": _SECURITY,
}
"""The advice for each argument, by its name."""


def explains_foreign_arguments(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Have a function that does not know one of these arguments say what to do instead.

    The error is Python's own for an unknown argument, TypeError. Other unknown arguments are left
    to Python.
    """
    known = signature(function).parameters

    @wraps(function)
    def call(*args: _P.args, **options: _P.kwargs) -> _T:
        for name in options:
            if name not in known and name in HINTS:
                raise TypeError(f"EmlioLoader has no argument {name!r}: {HINTS[name]}")
        return function(*args, **options)

    return call
