"""The recipe "causal": what a causal language model is trained on, made of a batch of tokens.

Covers: `input_ids`, `labels`, `attention_mask` and `position_ids`, as models of Hugging Face take
them. Does not cover: laying out the tokens (emlio.receiver.tokens.batches).
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["IGNORED", "causal"]

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
