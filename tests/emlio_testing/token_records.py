"""Records with unique tokens, and finding those tokens in batches."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio_testing.datasets import make_dataset

__all__ = ["TokenRun", "all_tokens", "count_tokens", "make_token_dataset", "read_packed", "read_padded", "token_record"]

_STRIDE = {"int32": 10_000, "int64": 10**15}
"""Tokens of record r begin at r times this; a 64-bit token does not fit 32 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRun:
    """Consecutive tokens of one record in a batch: those from `begin` up to before `end`."""

    record: int
    begin: int
    end: int


def token_record(record: int, length: int, dtype: str = "int32") -> bytes:
    """Return a record: tokens that count up from its number times a stride."""
    tokens: npt.NDArray[Any] = np.arange(length, dtype=np.dtype(dtype).newbyteorder("<")) + record * _STRIDE[dtype]
    return tokens.tobytes()


def make_token_dataset(directory: Path, lengths: Sequence[int], *, shards: int, dtype: str = "int32") -> None:
    """Make a dataset of records of these lengths."""
    make_dataset(
        directory,
        records=len(lengths),
        shards=shards,
        payload=lambda record: token_record(record, lengths[record], dtype),
    )


def all_tokens(lengths: Iterable[int]) -> Counter[tuple[int, int]]:
    """Return every token of a dataset once: its record, and its position there."""
    return Counter((record, place) for record, length in enumerate(lengths) for place in range(length))


def count_tokens(runs: Iterable[TokenRun]) -> Counter[tuple[int, int]]:
    """Return how often each token is in these runs."""
    return Counter(chain.from_iterable(((run.record, at) for at in range(run.begin, run.end)) for run in runs))


def read_padded(batch: Mapping[str, Any], *, pad_id: int = 0) -> list[TokenRun]:
    """Return the non-empty rows of a padded batch; fail if the batch is not as it must be."""
    tokens, lengths = np.asarray(batch["tokens"]), np.asarray(batch["lengths"])
    assert tokens.ndim == 2
    assert lengths.shape == tokens.shape[:1]
    assert lengths.dtype == np.int64
    for row, length in zip(tokens, lengths.tolist(), strict=True):
        assert (row[length:] == pad_id).all()
    return [_run(row[:length]) for row, length in zip(tokens, lengths.tolist(), strict=True) if length]


def read_packed(batch: Mapping[str, Any], *, pad_id: int = 0) -> list[TokenRun]:
    """Return the sequences of a packed batch, row by row; fail if it is not as it must be."""
    tokens, segments, positions = (np.asarray(batch[name]) for name in ("tokens", "segments", "positions"))
    assert tokens.ndim == 2
    assert segments.shape == positions.shape == tokens.shape
    assert segments.dtype == positions.dtype == np.int32
    nowhere = segments == 0
    assert (tokens[nowhere] == pad_id).all()
    assert not positions[nowhere].any()
    runs: list[TokenRun] = []
    for row, numbers, places in zip(tokens, segments, positions, strict=True):
        for number in range(1, int(numbers.max()) + 1):
            at = np.flatnonzero(numbers == number)
            assert at.size, f"segment {number} is missing in {numbers}"
            assert (np.diff(at) == 1).all()
            assert places[at].tolist() == list(range(at.size))
            runs.append(_run(row[at]))
    return runs


def _run(tokens: npt.NDArray[Any]) -> TokenRun:
    record, begin = divmod(int(tokens[0]), _STRIDE[tokens.dtype.name])
    assert (np.diff(tokens) == 1).all()
    return TokenRun(record=record, begin=begin, end=begin + len(tokens))
