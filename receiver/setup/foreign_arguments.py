"""Arguments and attributes that users bring from other loaders or look for in the wrong place.

Covers: the error for such an argument or attribute. Does not cover: checking the loader's own arguments
(emlio.receiver.setup.config, emlio.receiver.batch_kinds.options).
"""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Final, ParamSpec, TypeVar

from emlio.arguments import like

__all__ = ["ATTRIBUTE_HINTS", "HINTS", "explains_foreign_arguments"]

ATTRIBUTE_HINTS: Final = {
    "dataset": "loader.samples is the number of samples in an epoch, and EmlioDataset reads single records",
    "sampler": "loader.set_epoch(epoch) chooses the epoch, and seed= the order",
    "num_workers": "the loader uses threads and no worker processes",
    "size": "len(loader) is the number of batches, loader.samples that of samples in an epoch",
    **dict.fromkeys(("decode", "map", "to_tuple"), "transform= is called for each record"),
    **dict.fromkeys(
        ("batched", "shuffle", "select", "with_epoch"), "docs/guide/migrating.md has the loader's argument for it"
    ),
}
"""The advice for an attribute of another loader, by its name."""

_P = ParamSpec("_P")
_T = TypeVar("_T")

_NO_WORKERS = "the loader uses threads and no worker processes; threads= sets how many decode"
_ADDRESS = "the first argument is the dataset's address"
_AHEAD = "prefetch= bounds what is held ahead of the loop, in bytes"
_SHUFFLE = "shuffle= says how far records move"
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
    "prefetch_factor": _AHEAD,
    "pin_memory": 'device="cuda" copies batches through pinned memory in the background',
    "pin_memory_device": 'device="cuda" copies batches through pinned memory in the background',
    "sampler": _ORDER,
    "batch_sampler": _ORDER,
    "indices": _SUBSET,
    "split": f"?split=NAME behind the folder chooses one of its splits; {_SUBSET}",
    "generator": _ORDER,
    "num_replicas": "world_size= is the number of processes that share the epoch",
    "dataset": _ADDRESS,
    "url": _ADDRESS,
    "urls": _ADDRESS,
    **dict.fromkeys(("remote", "input_dir"), f"{_ADDRESS}, at a daemon or in a bucket"),
    "streams": "the first argument may be a Mixture of several addresses",
    **dict.fromkeys(("predownload", "max_pre_download"), _AHEAD),
    **dict.fromkeys(
        ("cache_dir", "cache_limit", "cache_size", "keep_zip", "local_dir", "max_cache_size"),
        "nothing is cached on this host",
    ),
    "epoch_size": "samples= with weights= or in a Mixture is the length of an epoch",
    "sampling_method": "repeat=, samples= and weights= say how often records come",
    "validate_hash": "every record is checked, unless recovery=Recovery(verify=...) says otherwise",
    "shuffle_seed": "seed= sets the order",
    "shuffle_algo": _SHUFFLE,
    "shuffle_block_size": _SHUFFLE,
    "shardshuffle": _SHUFFLE,
    "shuffle_buffer": f"{_SHUFFLE}: shuffle=True mixes all records, without a buffer",
    **dict.fromkeys(("num_canonical_nodes", "partition_algo"), "the order does not depend on the number of ranks"),
    **dict.fromkeys(
        ("nodesplitter", "workersplitter", "resampled"), "each record comes once in an epoch, over all ranks"
    ),
    **dict.fromkeys(
        ("download_retry", "download_timeout"), "recovery=Recovery(timeout=...) bounds how long failures are waited for"
    ),
    "subsample": _SUBSET,
    "item_loader": "tokens=TokenBatches(pack=...) makes rows of tokens, and docs/guide/migrating.md copies the records",
    "block_size": "it belongs to tokens=TokenBatches(...), as pack=",
    "format": "the format is found from the files; ?format=NAME behind the folder names another",
    "handler": 'recovery=Recovery(on_error="skip") leaves out bad records',
    "workers": _NO_WORKERS,
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
