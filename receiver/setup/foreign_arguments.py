"""Arguments that users bring from PyTorch's DataLoader or give in the wrong place.

Covers: the error for such an argument. Does not cover: checking the loader's own arguments
(emlio.receiver.setup.config, emlio.receiver.batch_kinds.options).
"""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Final, ParamSpec, TypeVar

from emlio.arguments import like

__all__ = ["HINTS", "explains_foreign_arguments"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_NO_WORKERS = "the loader uses threads and no worker processes; threads= sets how many decode"
_SUBSET = "subset=[ids] chooses records, or subset=Fraction(0, 0.9) a part of them"
_ORDER = "the order follows from shuffle= and seed=, and the rank's part from rank= and world_size="
_RECOVERY = "it belongs to recovery=Recovery(...)"
_SECURITY = "it belongs to security=Security(...)"
_DALI = "it belongs to dali=DaliPipeline(...)"
_TOKENS = "it belongs to tokens=TokenBatches(...)"

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
    "indices": _SUBSET,
    "split": _SUBSET,
    "generator": _ORDER,
    "num_replicas": "world_size= is the number of processes that share the epoch",
    "dataset": "the first argument is the dataset's address",
    "timeout": _RECOVERY,
    "heartbeat": _RECOVERY,
    "on_error": _RECOVERY,
    "verify": _RECOVERY,
    "keys": _SECURITY,
    "daemon_key": _SECURITY,
    "encryption": _SECURITY,
    "pipeline": _DALI,
    "pipeline_args": "it belongs to dali=DaliPipeline(...), as args=",
    "outputs": _DALI,
    "max_tokens": _TOKENS,
    "pack": _TOKENS,
    "pad_id": _TOKENS,
    "truncate": _TOKENS,
}
"""The advice for each argument, by its name."""


def explains_foreign_arguments(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Have a function that does not know one of these arguments say what to do instead.

    The error is Python's own for an unknown argument, TypeError. An unknown argument that is like no
    known one is left to Python.
    """
    known = signature(function).parameters
    places = [name for name, argument in known.items() if argument.kind is Parameter.POSITIONAL_OR_KEYWORD]

    @wraps(function)
    def call(*args: _P.args, **options: _P.kwargs) -> _T:
        if len(args) > len(places):
            raise TypeError(
                f"EmlioLoader takes {' and '.join(places[1:])} by position, got {len(args) - 1} values. Name the other "
                "arguments, as in shuffle=False"
            )
        for name in (name for name in options if name not in known):
            if name in HINTS:
                raise TypeError(f"EmlioLoader has no argument {name!r}: {HINTS[name]}")
            if meant := like(name, [*known][1:]):
                raise TypeError(f"EmlioLoader got an unexpected keyword argument {name!r}{meant}")
        return function(*args, **options)

    return call
