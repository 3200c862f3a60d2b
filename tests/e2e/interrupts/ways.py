"""The ways batches are made in, and what a loader that nobody interrupts hands out.

Covers: datasets, options, telling batches apart, the expected batches and states. Does not cover: strikes
(tests.e2e.interrupts.strikes).
"""

import importlib.util
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import emlio.dali
from emlio import DaliPipeline, EmlioLoader, TokenBatches
from emlio.example import encode_example
from emlio_testing.datasets import make_dataset
from emlio_testing.token_records import make_token_dataset

__all__ = ["WAYS", "Expected", "expect", "identity", "make_data", "make_loader"]

_RECORDS = 150
_EPOCHS = 6
_PREFETCH = 1 << 20


def _same(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


def _ids_alone(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"__id__": [int(sample["__id__"]) for sample in samples]}


def _pipeline() -> Any:
    return emlio.dali.inputs("label")


def _dali(**more: Any) -> dict[str, Any]:
    return {"dali": DaliPipeline(_pipeline, args={"prefetch_queue_depth": 3, **more}), "threads": 1}


_WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "transform": {"transform": _same, "threads": 2},
    "collate": {"collate_fn": _ids_alone},
    "dali": _dali(),
    "dali-old": _dali(exec_dynamic=False),
    "packed": {"tokens": TokenBatches(pack=64, pool=16), "batch_size": 3},
    "padded": {"tokens": TokenBatches(max_tokens=300, pool=16), "batch_size": None},
    "noted": {},
}
_HAS_DALI = all(importlib.util.find_spec(name) is not None for name in ("nvidia", "nvidia.dali"))
WAYS = tuple(way for way in _WAYS if _HAS_DALI or not way.startswith("dali"))


def _example(record: int) -> bytes:
    return encode_example({"label": [record], "noise": [bytes([record % 256]) * 8_000]})


def make_data(folder: Path) -> dict[str, Path]:
    """Two datasets, by the names that `make_loader` asks for."""
    make_dataset(folder / "examples", records=_RECORDS, shards=3, payload=_example)
    make_token_dataset(folder / "tokens", [1 + record * 37 % 90 for record in range(_RECORDS)], shards=2)
    return {name: folder / name for name in ("examples", "tokens")}


def make_loader(way: str, root: str, notes: Path, **more: Any) -> EmlioLoader:
    """A loader of this way.

    Args:
        way: one of `WAYS`.
        root: the folder of `make_data`, or emlio://HOST:PORT of a daemon that serves it.
        notes: where energy is noted.
        more: options of the loader.
    """
    options: dict[str, Any] = {"batch_size": 10, "ids": True, "to": "numpy", "seed": 5, "prefetch": _PREFETCH}
    options |= _WAYS[way] | more
    os.environ["EMLIO_ENERGY"] = str(notes) if way == "noted" else ""
    return EmlioLoader(f"{root}/{'tokens' if 'tokens' in options else 'examples'}", **options)


def identity(batch: Any) -> tuple[int, ...]:
    """What tells a batch from all others of its epoch."""
    ids: Any = batch["__id__"]
    return tuple(int(number) for row in ids for number in (row if hasattr(row, "__len__") else [row]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What comes when nobody interrupts.

    Attributes:
        batches: of some epochs.
        states: those that are right after so many batches: at an epoch's end two.
        begins: how many batches come before each epoch.
    """

    batches: tuple[tuple[int, ...], ...]
    states: tuple[tuple[str, ...], ...]
    begins: tuple[int, ...]


def expect(make: Callable[[], EmlioLoader]) -> Expected:
    """See `Expected`."""
    batches: list[tuple[int, ...]] = []
    states: list[tuple[str, ...]] = []
    begins: list[int] = []
    with make() as loader:
        states.append((json.dumps(loader.state_dict()),))
        for _ in range(_EPOCHS):
            begins.append(len(batches))
            for batch in loader:
                batches.append(identity(batch))
                states.append((json.dumps(loader.state_dict()),))
            states[-1] += (json.dumps(loader.state_dict()),)
    return Expected(batches=tuple(batches), states=tuple(states), begins=tuple(begins))
