"""The settings of a source besides its kind."""

from dataclasses import dataclass
from typing import Final

from emlio.arguments import choice, whole
from emlio.errors import ConfigError
from emlio.tokens import TOKEN_TYPES

__all__ = ["SourceSettings", "TokenizerSettings"]

_OF_TOKENS: Final = ("megatron", "tokens")
_OF_TABLES: Final = ("manifest",)
_WITHOUT_TEXT: Final = ("image-folder", "megatron", "npy", "npy-columns", "npy-rows", "npz", "tfrecord", "tokens")
_TEXTS: Final = {"files": "data", "manifest": "data", "webdataset": "txt"}
_TAB: Final = {"tab": "\t", "\\t": "\t"}
_MOST_TOKENS: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSettings:
    """The way from text to tokens.

    Attributes:
        name: a tokenizer.json of Hugging Face, a folder with one, or a name at their hub.
        text_field: the column with the text; None for the usual one.
        append_eos: whether the token that ends a document follows each one.
        eos_token: that token; None if the tokenizer tells it.
    """

    name: str
    text_field: str | None = None
    append_eos: bool = False
    eos_token: str | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("--tokenizer must be a tokenizer.json, a folder with one, or a name, got none")
        if self.eos_token is not None and not self.append_eos:
            raise ConfigError(f"--eos-token {self.eos_token!r} must be given with --append-eos")

    def field_of(self, kind: str) -> str:
        """Return the column with the text in a kind of source."""
        return self.text_field or _TEXTS.get(kind, "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    r"""The settings of a source.

    Attributes:
        dtype: the type of the tokens, in raw .bin files and in the records that are written; None
            for that of the files, or with a tokenizer for the smallest.
        sequence_length: the most tokens of a record; None for whole documents and rows, and for 2,048
            of flat files.
        tokenizer: makes tokens of text; None if the source is no text, or stays text.
        file_column: the column of a manifest with the paths; None for "file".
        delimiter: between the cells of a CSV table, "tab" or "\t" for a tab; None to find it.
    """

    dtype: str | None = None
    sequence_length: int | None = None
    tokenizer: TokenizerSettings | None = None
    file_column: str | None = None
    delimiter: str | None = None

    def __post_init__(self) -> None:
        if self.dtype is not None:
            choice("--dtype", self.dtype, TOKEN_TYPES)
        if self.sequence_length is not None:
            whole("--sequence-length", self.sequence_length, least=1, most=_MOST_TOKENS)
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", _TAB.get(self.delimiter, self.delimiter))
            if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
                raise ConfigError(f"--delimiter must be one character, or tab, got {self.delimiter!r}")

    def check(self, kind: str) -> None:
        """Check that a kind of source takes what was said.

        Raises:
            ConfigError: it does not.
        """
        if self.tokenizer is not None and kind in _WITHOUT_TEXT:
            raise ConfigError(f"--tokenizer requires a source with text, such as jsonl, got {kind}")
        for name, given, kinds in (
            ("--dtype", self.dtype, _OF_TOKENS if self.tokenizer is None else (kind,)),
            ("--sequence-length", self.sequence_length, _OF_TOKENS),
            ("--file-column", self.file_column, _OF_TABLES),
            ("--delimiter", self.delimiter, _OF_TABLES),
        ):
            if given is not None and kind not in kinds:
                wanted = " or ".join(f"--from {one}" for one in ("csv" if one == "manifest" else one for one in kinds))
                raise ConfigError(f"{name} must be given with {wanted}, got {name} {given} for a source of kind {kind}")
