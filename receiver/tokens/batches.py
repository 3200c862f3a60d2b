"""From the token records of one share to the user's batches.

Covers: decoding records, padded batches, packed batches with their segments and positions, recipes,
the user's collation. Does not cover: which tokens go where (emlio.planner.tokens.epoch), when this
happens (emlio.receiver.batches.prefetch).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.planner.tokens.epoch import TokenBatch
from emlio.receiver.batches.collate import collated_by

__all__ = ["IGNORED", "TokenAssembler", "causal"]

_Tokens = npt.NDArray[np.integer[Any]]
_Numbers = npt.NDArray[np.int64]
_Form = Callable[["TokenAssembler", list[_Tokens], _Numbers, TokenBatch, Mapping[str, _Numbers]], Any]
"""Makes a batch of its pieces, their sizes, the positions of their tokens, and what else it holds."""


IGNORED: Final = -100
"""The label that losses leave out; PyTorch's `cross_entropy` does by default."""


def causal(batch: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Return the arrays for a causal language model.

    Labels are the tokens themselves, not shifted: a model's output at one place is compared with the
    label at the next. They are `IGNORED` at padding, and at the first token of each sequence, which
    nothing before it predicts.

    Args:
        batch: a padded or a packed one, as `TokenAssembler` makes them.

    Returns:
        (rows, tokens) each: `input_ids` with the type of the tokens; int64 `labels`;
        `attention_mask`, 1 at tokens and 0 at padding; `position_ids`, from 0 in each sequence. Of a
        packed batch `segments`, too: attention must not leave a segment.
    """
    tokens = batch["tokens"]
    if "segments" in batch:
        there, positions = batch["segments"] > 0, batch["positions"].astype(np.int64)
    else:
        columns = np.arange(tokens.shape[1], dtype=np.int64)
        there = columns < batch["lengths"][:, np.newaxis]
        positions = np.where(there, columns, 0)
    made = {
        "input_ids": tokens,
        "labels": np.where(there & (positions > 0), tokens, IGNORED).astype(np.int64, copy=False),
        "attention_mask": there.astype(np.int64),
        "position_ids": positions,
    }
    return made | ({"segments": batch["segments"]} if "segments" in batch else {})


class TokenAssembler:
    """Makes batches for one loader. Keeps no state between batches, so threads may share it.

    A padded batch is {"tokens": (records, longest), "lengths": (records,)}. A packed one is
    {"tokens", "segments", "positions"}, each (rows, row_tokens): segments number the sequences of a
    row from 1 and are 0 where there is none, positions count the tokens of each sequence from 0.
    With the recipe "causal" both have the arrays of `causal` instead.
    """

    def __init__(
        self,
        *,
        tokens: str,
        packed: bool,
        stored: str | None = None,
        recipe: str | None = None,
        pad_id: int = 0,
        collate_fn: Callable[[Sequence[Any]], Any] | None = None,
        to_tensor: Callable[[Any], Any] | None = None,
    ) -> None:
        """Configure the batches.

        Args:
            tokens: the type of the tokens in batches: "int32" or "int64".
            packed: several sequences in a row, with segments and positions; otherwise one, with
                lengths.
            stored: the type of the tokens in records, little-endian; by default that of the batches.
            recipe: "causal", or None.
            pad_id: fills the places without a token; lengths or segments say which these are.
            collate_fn: makes the batch from the list of its records' arrays instead, without
                padding; not with packed.
            to_tensor: makes a tensor of an array; None leaves arrays.
        """
        if packed and collate_fn is not None:
            raise ConfigError("collate_fn cannot be used with packing, which makes the whole batch")
        if recipe is not None and collate_fn is not None:
            raise ConfigError("collate_fn cannot be used with a recipe, which makes the whole batch")
        self._dtype = np.dtype(tokens)
        self._limits = np.iinfo(tokens)
        self.know(np.dtype(stored or tokens).newbyteorder("<"))
        self._causal = recipe is not None
        self._pad_id = pad_id
        self._to_tensor = to_tensor
        form: _Form = TokenAssembler._packed if packed else TokenAssembler._padded
        # No bound method: it would keep this object, and the user's function, until garbage is collected.
        self._form: _Form = form if collate_fn is None else partial(_collated, collate_fn)

    def know(self, stored: "np.dtype[Any]") -> None:
        """Decode tokens of this type from now on."""
        self._stored = stored
        self._may_exceed = not np.can_cast(stored, self._dtype)

    @property
    def token_bytes(self) -> int:
        """The size of one token in a record, in bytes."""
        return int(self._stored.itemsize)

    def decode(self, record: memoryview) -> _Tokens:
        """Return the tokens of a record: a view of its bytes.

        Raises:
            DatasetError: these are no whole tokens, or one of them does not fit into a batch's type.
        """
        if len(record) % self.token_bytes:
            raise DatasetError(
                f"a record's size must be a multiple of {self.token_bytes} bytes (one token), got {len(record)} "
                f"bytes; the dataset must hold arrays of {self._stored}"
            )
        found: _Tokens = np.frombuffer(record, dtype=self._stored)
        if self._may_exceed and len(found):
            for token in (int(found.min()), int(found.max())):
                if not self._limits.min <= token <= self._limits.max:
                    raise DatasetError(
                        f"tokens must fit {self._dtype.name}, the type of the batches, got {token}. Ask for "
                        'dtype="int64"'
                    )
        return found

    def __call__(
        self, records: Sequence[_Tokens | None], batch: TokenBatch, added: Mapping[str, _Numbers] = MappingProxyType({})
    ) -> Any:
        """Return the batch for the user; a copy, so the records may be freed.

        Args:
            records: the share's records, decoded, in the order of its slots; those of other batches
                may be None. A record of this batch that is None (it was bad and is skipped) leaves
                padding, or is left out of the collate_fn's input.
            batch: the positions of their tokens.
            added: numbers to add to the batch, by name: one for each piece, row by row.
        """
        wanted: list[int] = batch.records.tolist()
        there = np.array([records[record] is not None for record in wanted], dtype=np.bool_)
        sizes = (batch.ends - batch.begins) * there
        pieces = [
            _piece(records[record], begin, end)
            for record, begin, end in zip(wanted, batch.begins.tolist(), batch.ends.tolist(), strict=True)
            if records[record] is not None
        ]
        return self._form(self, pieces, sizes, batch, added)

    def copied(self, pieces: Sequence[_Tokens]) -> list[_Tokens]:
        """Return copies: a message's bytes can neither be written nor kept, and may not be aligned."""
        return [piece.astype(self._dtype) for piece in pieces]

    def _padded(self, pieces: list[_Tokens], sizes: _Numbers, batch: TokenBatch, added: Mapping[str, _Numbers]) -> Any:
        before, count = _counted(sizes)
        places = _places(before, count, sizes, batch)
        made: dict[str, Any] = {"tokens": self._laid_out(pieces, places, batch), "lengths": sizes}
        return self._handed_out(made, added)

    def _packed(self, pieces: list[_Tokens], sizes: _Numbers, batch: TokenBatch, added: Mapping[str, _Numbers]) -> Any:
        before, count = _counted(sizes)
        places = _places(before, count, sizes, batch)
        made: dict[str, Any] = {"tokens": self._laid_out(pieces, places, batch)}
        for name, numbers in (
            ("segments", np.repeat(_numbers(batch.rows, sizes), sizes)),
            ("positions", count - np.repeat(before, sizes)),
        ):
            made[name] = np.zeros((batch.height, batch.width), dtype=np.int32)
            made[name].ravel()[places] = numbers
        return self._handed_out(made, added)

    def _laid_out(self, pieces: list[_Tokens], places: _Numbers, batch: TokenBatch) -> npt.NDArray[Any]:
        """Return the array of the batch's tokens."""
        tokens = np.full((batch.height, batch.width), self._pad_id, dtype=self._dtype)
        if pieces:
            tokens.ravel()[places] = np.concatenate(pieces)
        return tokens

    def _handed_out(self, made: dict[str, Any], added: Mapping[str, _Numbers]) -> dict[str, Any]:
        made = {**(causal(made) if self._causal else made), **added}
        make = self._to_tensor
        return made if make is None else {name: make(array) for name, array in made.items()}


def _collated(
    collate: Callable[[Sequence[Any]], Any], assembler: TokenAssembler, pieces: list[_Tokens], *_: object
) -> Any:
    return collated_by(collate, assembler.copied(pieces))


def _counted(sizes: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Return the number of tokens before each piece, and a number for each token of all pieces."""
    return np.cumsum(sizes) - sizes, np.arange(int(sizes.sum()), dtype=np.int64)


def _places(before: _Numbers, count: _Numbers, sizes: _Numbers, batch: TokenBatch) -> _Numbers:
    """Return the place of each token in the batch, row by row."""
    return count + np.repeat(batch.rows * batch.width + batch.columns - before, sizes)


def _piece(record: _Tokens | None, begin: int, end: int) -> _Tokens:
    if record is None or len(record) < end:
        raise DatasetError(
            f"a record must have at least {end} tokens as in its index, got {0 if record is None else len(record)}"
        )
    return record[begin:end]


def _numbers(rows: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of each piece's sequence in its row, from 1.

    Pieces without tokens are not counted.
    """
    counted = np.cumsum(sizes > 0)
    first = np.searchsorted(rows, rows)
    return counted - (counted[first] - (sizes[first] > 0))
