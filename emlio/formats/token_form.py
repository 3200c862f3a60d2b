"""Records that are arrays of tokens and nothing else, whatever files they lie in."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from emlio.errors import DatasetError
from emlio.example.columns import Piece
from emlio.formats.contents import TFRECORD, Contents
from emlio.formats.each_record import EachRecord
from emlio.formats.record_form import RowForm, equal_rows

__all__ = ["TOKENS", "stored_tokens", "token_form", "token_settings"]

TOKENS: Final = "tokens"
"""The column of such records."""

_FORMATS: Final = ("megatron", "tokens")
"""The formats whose records are tokens, always."""


def token_settings(dtype: "np.dtype[Any]", window: int | None = None) -> bytes:
    """Return what a daemon tells of tokens; see `Contents.settings`.

    Args:
        dtype: their type.
        window: records have one token more than this; None if their lengths differ.
    """
    return json.dumps({"dtype": dtype.str, **({"window": window} if window is not None else {})}).encode()


def stored_tokens(contents: Contents) -> "np.dtype[Any] | None":
    """Return the type of the tokens in a dataset's records; None if the dataset does not know.

    Raises:
        DatasetError: its records are no tokens.
    """
    if contents.format in _FORMATS:
        return _told(contents)[0]
    if contents.format == TFRECORD.format:
        return _told(contents)[0] if contents.settings else None
    raise DatasetError(
        "tokens= must be given for records that are tokens, those of the dataset are of format "
        f"{contents.format}. Files of tokens are served as such with ?format=tokens&window=L behind their folder"
    )


def _told(contents: Contents) -> "tuple[np.dtype[Any], int | None]":
    """Return the type of tokens, and the window, that the daemon told."""
    try:
        told = json.loads(contents.settings)
        dtype = np.dtype(str(told["dtype"]))
        window = int(told["window"]) if "window" in told else None
    except (ValueError, TypeError, KeyError, OverflowError, SyntaxError, RecursionError) as error:
        raise DatasetError(f"tokens must be told with their type, got {contents.settings!r}") from error
    if dtype.kind not in "iu":
        raise DatasetError(f"tokens must be whole numbers, the dataset says {dtype}")
    return dtype, window


def token_form(contents: Contents, fields: Sequence[str] | None) -> RowForm:
    """Return what makes the column of such records.

    Args:
        contents: with the type of the tokens.
        fields: see `Format.form`.

    Raises:
        ConfigError: `fields` are no names.
        DatasetError: the type is not told.
    """
    dtype, window = _told(contents)

    def read(view: memoryview, note: bytes) -> Mapping[str, Any]:
        try:
            return {TOKENS: np.frombuffer(view, dtype).astype(dtype.newbyteorder("="), copy=False)}
        except ValueError as error:
            raise DatasetError(f"must be whole tokens of {dtype}, has {len(view)} bytes") from error

    each = EachRecord(read, fields, names=(TOKENS,))
    return each if window is None or fields not in (None, [TOKENS], (TOKENS,)) else _Windows(dtype, window + 1, each)


class _Windows:
    """Windows of one length, copied to one array together. See `RecordForm`."""

    def __init__(self, dtype: "np.dtype[Any]", tokens: int, each: EachRecord) -> None:
        self._dtype = dtype
        self._tokens = tokens
        self._each = each

    def columns(self, pieces: Sequence[Piece], count: int) -> dict[str, Any]:
        """See `RecordForm`."""
        rows = equal_rows(pieces, count, self._tokens * self._dtype.itemsize)
        if rows is None:
            return self._each.columns(pieces, count)
        together = rows.view(self._dtype)
        return {TOKENS: together.astype(self._dtype.newbyteorder("="), copy=False)}

    def row(self, view: memoryview, note: bytes) -> Mapping[str, Any]:
        """See `RowForm`."""
        return self._each.row(view, note)

    def faults(self, pieces: Sequence[Piece]) -> Mapping[int, str]:
        """See `RecordForm`."""
        return self._each.faults(pieces)
