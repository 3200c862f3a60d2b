"""The number of tokens of each record, and the cost of padding.

Covers: lengths from the sizes in shards' indexes, checked; the fraction of padding in given
batches. Does not cover: fetching sizes, decoding tokens (emlio.receiver.tokens.batches).
"""

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.planner.catalog import Catalog
from emlio.tfrecord import FRAME_BYTES

__all__ = ["name_record", "padding_waste", "token_lengths"]


def name_record(catalog: Catalog, record: int) -> str:
    """Return the name of a record in messages."""
    shards, numbers = catalog.locate(np.array([record], dtype=np.int64))
    return f"record {int(numbers[0])} of shard {catalog.shards[int(shards[0])].name}"


def token_lengths(
    catalog: Catalog,
    sizes: npt.NDArray[np.int64],
    token_bytes: int,
    frame_bytes: int = FRAME_BYTES,
    *,
    name: Callable[[int], str] | None = None,
) -> npt.NDArray[np.int32]:
    """Return the number of tokens of every record.

    Args:
        catalog: the dataset.
        sizes: (records,) bytes of each record with its frame, by record id.
        token_bytes: bytes of one token: 1, 2, 4 or 8.
        frame_bytes: of a frame; 0 if records have none.
        name: names a record in errors; by default `name_record`.
    """
    if token_bytes not in (1, 2, 4, 8):
        raise ConfigError(f"token_bytes must be 1, 2, 4 or 8, got {token_bytes}")
    if sizes.shape != (catalog.records,):
        raise DatasetError(f"there must be one size for each of {catalog.records} records, got {sizes.shape}")
    data = sizes - frame_bytes
    lengths = data // token_bytes
    wrong = np.flatnonzero((data < 0) | (lengths * token_bytes != data) | (lengths >= 2**31))
    if wrong.size:
        record = int(wrong[0])
        named = name(record) if name is not None else name_record(catalog, record)
        raise DatasetError(
            f"{named}: its size must be a multiple of {token_bytes} bytes (one token) and "
            f"below 2**31 tokens, got {int(data[record])} bytes; {wrong.size} of {catalog.records} records are wrong"
        )
    return lengths.astype(np.int32)


def padding_waste(lengths: npt.NDArray[np.int32], batches: Iterable[npt.NDArray[np.int64]]) -> float:
    """Return the fraction of places in padded batches that hold no token: 0 is best.

    Args:
        lengths: tokens by record id.
        batches: the ids of each batch's records; a batch is as wide as its longest record.
    """
    tokens = places = 0
    for batch in batches:
        of_batch = lengths[batch]
        tokens += int(of_batch.sum(dtype=np.int64))
        places += len(batch) * int(of_batch.max(initial=0))
    return 1.0 - tokens / places if places else 0.0
