"""Tokenizers of Hugging Face, whose library tokenizers (extra `tokenizers`) is imported here only."""

import hashlib
import os
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.extras import how_to_install
from emlio.prepare.sources.settings import TokenizerSettings

__all__ = ["Tokenizer"]

_FILE: Final = "tokenizer.json"
_CONFIG: Final = "tokenizer_config.json"
_ENDS: Final = ("<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "<|eos|>", "[EOS]")
"""Names that tokens at the end of documents have in well-known tokenizers."""


class Tokenizer:
    """A tokenizer that threads may share.

    Attributes:
        fingerprint: differs when a text would become other tokens.
        largest: the largest token.
    """

    def __init__(self, settings: TokenizerSettings) -> None:
        """Load it.

        Raises:
            ConfigError: the library is missing, there is no such tokenizer, or it does not tell which
                token ends a document.
        """
        try:
            library: Any = import_module("tokenizers")
        except ImportError as error:
            raise ConfigError(f"--tokenizer requires tokenizers: {how_to_install('tokenizers')}") from error
        file = _file_of(settings.name)
        try:
            self._of: Any = (
                library.Tokenizer.from_pretrained(settings.name)
                if file is None
                else library.Tokenizer.from_file(str(file))
            )
        except Exception as error:  # the library raises nothing more precise
            raise ConfigError(_reason(settings.name, file, error)) from error
        # Settings of training, which would cut texts or fill them.
        self._of.no_truncation()
        self._of.no_padding()
        vocabulary: dict[str, int] = self._of.get_vocab(with_added_tokens=True)
        self.largest = max(vocabulary.values(), default=0)
        self._eos = _eos(settings, file, self._of, vocabulary) if settings.append_eos else None
        digest = hashlib.blake2b(self._of.to_str().encode(), digest_size=16)
        digest.update(repr(self._eos).encode())
        self.fingerprint = digest.hexdigest()

    def encode(self, text: str) -> npt.NDArray[np.int64]:
        """Return the tokens of a text, with those that the tokenizer itself puts around it.

        Raises:
            DatasetError: the text cannot be encoded.
        """
        try:
            tokens: list[int] = self._of.encode(text).ids
        except Exception as error:  # the library raises nothing more precise
            raise DatasetError(f"the text cannot be encoded: {error}") from error
        if self._eos is not None and tokens[-1:] != [self._eos]:
            tokens.append(self._eos)
        return np.array(tokens, np.int64)


def _file_of(name: str) -> Path | None:
    """Return the file of a tokenizer; None if it is a name at the hub."""
    path = Path(name)
    if path.is_dir():
        path /= _FILE
    if path.is_file():
        return path
    if path.exists() or path.suffix == ".json" or name.startswith((".", "/", "~")) or name.count(os.sep) > 1:
        raise ConfigError(
            f"--tokenizer {name}: must be a {_FILE}, a folder with one, or a name, there is no file {path}"
        )
    return None


def _reason(name: str, file: Path | None, error: Exception) -> str:
    why = " ".join(str(error).split())[:300].rstrip(".")
    if file is not None:
        return f"--tokenizer {file}: must be a {_FILE} of Hugging Face's library tokenizers: {why}"
    return (
        f"--tokenizer {name}: there is no such file here, and the tokenizer of this name cannot be fetched: {why}. Without a "
        f"network give the path of a {_FILE}"
    )


def _eos(settings: TokenizerSettings, file: Path | None, tokenizer: Any, vocabulary: dict[str, int]) -> int:
    """Return the token that ends a document."""
    name = settings.eos_token or _told_eos(file)
    special = sorted(str(token.content) for token in tokenizer.get_added_tokens_decoder().values())
    if name is None:
        found = [end for end in _ENDS if end in special]
        name = found[0] if len(found) == 1 else None
    if name is None:
        raise ConfigError(
            f"--append-eos must be given with --eos-token for this tokenizer, which does not tell the token that ends a "
            f"document. Its special tokens are {', '.join(special) or 'none'}"
        )
    if name not in vocabulary:
        raise ConfigError(
            f"--eos-token must be a token of the tokenizer, got {name!r}. Its special tokens are "
            f"{', '.join(special) or 'none'}"
        )
    return vocabulary[name]


def _told_eos(file: Path | None) -> str | None:
    """Return the token that the configuration beside a tokenizer names, if there is one."""
    if file is None:
        return None
    try:
        told: Any = msgspec.json.decode((file.parent / _CONFIG).read_bytes(), type=dict[str, Any]).get("eos_token")
    except (OSError, msgspec.MsgspecError):
        return None
    if isinstance(told, dict):
        told = cast("dict[str, Any]", told).get("content")  # a token with its own settings
    return told if isinstance(told, str) else None
