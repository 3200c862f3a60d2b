"""A small tokenizer trained on a few words."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["END", "save_tokenizer"]

END = "<|endoftext|>"
"""The token that ends a document."""


def save_tokenizer(path: Path, texts: Sequence[str], *, end: str = END, vocabulary: int = 300) -> Path:
    """Train a tokenizer of bytes and some pairs of them, and return the path of its tokenizer.json."""
    library: Any = import_module("tokenizers")
    byte_level = library.pre_tokenizers.ByteLevel
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = byte_level(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[end],
        initial_alphabet=byte_level.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))
    return path
