"""Text of any source as tokens."""

from typing import Any, Final, cast

import numpy as np

from emlio.arguments import like
from emlio.errors import ConfigError, DatasetError
from emlio.formats.token_form import TOKENS
from emlio.prepare.sample import Sample
from emlio.prepare.sources.record_source import Fingerprint, Listing, RecordSource
from emlio.prepare.sources.token_source import as_tokens
from emlio.prepare.sources.tokenizer_library import Tokenizer

__all__ = ["TokenizedText"]

_BYTES_PER_TOKEN: Final = 4
"""About as many as in English; it only decides how many records lie in a shard."""


class TokenizedText:
    """The tokens of each record's text; what else a record holds is left out. It owns its source."""

    def __init__(self, source: RecordSource, tokenizer: Tokenizer, field: str, dtype: str | None) -> None:
        """Choose the type of the tokens.

        Args:
            source: has the text; closed with this one.
            tokenizer: makes the tokens.
            field: the column with the text.
            dtype: of the tokens; None for uint16 where all tokens fit, else int32.

        Raises:
            ConfigError: not all tokens of the tokenizer fit the type.
        """
        name = dtype or ("uint16" if tokenizer.largest <= np.iinfo(np.uint16).max else "int32")
        if tokenizer.largest > np.iinfo(name).max:
            raise ConfigError(f"--dtype must hold the tokenizer's largest token, {tokenizer.largest}, got {name}")
        self._source = source
        self._tokenizer = tokenizer
        self._field = field
        self._dtype = np.dtype(name).newbyteorder("<")
        listing = source.listing
        fingerprint = Fingerprint("tokenized")
        fingerprint.add(listing.fingerprint, tokenizer.fingerprint, field, name)
        self.listing = Listing(
            sizes_bytes=np.maximum(listing.sizes_bytes // _BYTES_PER_TOKEN, 1) * self._dtype.itemsize,
            fingerprint=fingerprint.hexdigest(),
            label_names={},
            ignored=listing.ignored,
            tokens=name,
        )

    def key(self, place: int) -> str:
        """Return the name of the record in the source."""
        return self._source.key(place)

    def record(self, place: int) -> Sample:
        """Read the text of one record and encode it."""
        sample = self._source.record(place)
        tokens = as_tokens(self._tokenizer.encode(_text(sample, self._field)), self._dtype)
        return Sample(columns={TOKENS: tokens}, main=TOKENS, bare=True, path=sample.path, key=sample.key)

    def close(self) -> None:
        """Close the source."""
        self._source.close()


def _text(sample: Sample, field: str) -> str:
    if field not in sample.columns:
        names = sorted(sample.columns)
        raise DatasetError(
            f"the text must be in a column {field!r} (--text-field), there are {', '.join(map(repr, names)) or 'none'}"
            f"{like(field, names)}"
        )
    value: Any = sample.columns[field]
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | memoryview):
        try:
            return bytes(cast("bytes", value)).decode()
        except UnicodeDecodeError as error:
            raise DatasetError(f"the column {field!r} must hold text in UTF-8: {error}") from error
    raise DatasetError(f"the column {field!r} must hold text, got {value!r:.80}")
