"""The configuration of token batches: a limit on tokens, or packing into rows of one length.

Covers: the value given to a loader, checked. Does not cover: cutting batches
(emlio.planner.tokens.plan), filling arrays (emlio.receiver.tokens.batches).
"""

from dataclasses import dataclass

from emlio.arguments import as_whole, choice, flag, suggests_arguments, whole
from emlio.errors import ConfigError

__all__ = ["TOKEN_TYPES", "TokenBatches"]

_BITS = {"int32": 32, "int64": 64}
_BYTES = {"int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8}

TOKEN_TYPES = tuple(_BYTES)
"""The types that tokens in records may have."""

_MOST = 2**31 - 1


@suggests_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatches:
    """The configuration of token batches.

    A record must be an array of little-endian tokens and nothing else; its length follows from its
    size. Datasets that `emlio convert` made, files of Megatron-LM and files served with
    ?format=tokens tell the type of their tokens; of other records it is `stored`.

        EmlioLoader(address, tokens=TokenBatches(max_tokens=16_384))        # padded, by length
        EmlioLoader(address, tokens=TokenBatches(pack=2048), batch_size=8)  # 8 rows of 2,048 tokens
        EmlioLoader(address, tokens=TokenBatches(pack=2048, recipe="causal"), batch_size=8)  # with labels

    Attributes:
        dtype: the type of the tokens in batches, "int32" or "int64": the types that embeddings of
            PyTorch take. By default int64 with a recipe, else int32.
        stored: the type of the tokens in records, such as "uint16", for datasets that do not tell it;
            by default `dtype`.
        recipe: "causal" for batches that a causal language model is trained on: `input_ids`,
            `labels`, `attention_mask` and `position_ids`; None for plain tokens.
        max_tokens: the most tokens in a batch, including padding; batches hold records of similar
            length.
        pack: tokens per row, instead of `max_tokens`; each row holds several records, and longer
            records are cut into several rows.
        pool: records of a rank from which batches are made at a time. More records waste less on
            padding and need more memory.
        pad_id: the token that fills padding.
        truncate: cut off what exceeds `max_tokens` in a single record; otherwise such a record is
            an error.
    """

    dtype: str | None = None
    max_tokens: int | None = None
    pack: int | None = None
    pool: int = 2048
    pad_id: int = 0
    truncate: bool = False
    stored: str | None = None
    recipe: str | None = None

    def __post_init__(self) -> None:
        if self.recipe is not None:
            choice("recipe", self.recipe, ("causal",), ", or None")
        if self.stored is not None:
            choice("stored", self.stored, TOKEN_TYPES, ", or None")
        if self.dtype is None:
            object.__setattr__(self, "dtype", "int32" if self.recipe is None else "int64")
        choice("dtype of tokens", self.dtype, tuple(_BITS))
        if (self.max_tokens is None) == (self.pack is None):
            raise ConfigError(
                f"either max_tokens or pack must be given, got max_tokens={self.max_tokens!r} and pack={self.pack!r}"
            )
        bound = "pack" if self.max_tokens is None else "max_tokens"
        for name in (bound, "pool"):
            object.__setattr__(self, name, whole(name, getattr(self, name), least=1, most=_MOST))
        beyond = 2 ** (_BITS[self.batch_type] - 1)
        pad_id = as_whole(self.pad_id)
        if pad_id is None or not -beyond <= pad_id < beyond:
            raise ConfigError(f"pad_id must be a whole number that fits {self.dtype}, got {self.pad_id!r}")
        object.__setattr__(self, "pad_id", pad_id)
        object.__setattr__(self, "truncate", flag("truncate", self.truncate))
        if self.pack is not None and self.truncate:
            raise ConfigError("truncate requires max_tokens: packing splits a long record into several rows")

    @property
    def batch_type(self) -> str:
        """The type of the tokens in batches."""
        return self.dtype or "int32"

    @property
    def record_type(self) -> str:
        """The type of the tokens in records of a dataset that does not tell it."""
        return self.stored or self.batch_type

    @property
    def token_bytes(self) -> int:
        """The bytes of one token in such a record."""
        return _BYTES[self.record_type]
