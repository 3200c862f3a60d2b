"""What cannot be made into batches of tokens, and what becomes of records that are damaged."""

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio import DaliPipeline, EmlioLoader, TokenBatches
from emlio.errors import ConfigError, CorruptRecordError, DatasetError
from emlio.tfrecord import FRAME_BYTES, HEADER_BYTES
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.serving import daemon_of, peer_of
from emlio_testing.token_records import all_tokens, count_tokens, make_token_dataset, read_packed, read_padded

_LENGTHS = [5 + number % 40 for number in range(60)] + [130]
_BAD = 60  # the longest, the last of the second shard
_SHARD = "train-00001-of-00002.tfrecord"
_PADDED: dict[str, Any] = {"tokens": TokenBatches(max_tokens=150, pool=20)}
_PACKED: dict[str, Any] = {"tokens": TokenBatches(pack=50, pool=20), "batch_size": 2}
_WAYS = pytest.mark.parametrize("way", [_PADDED, _PACKED], ids=["padded", "packed"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_token_dataset(tmp_path / "tokens", _LENGTHS, shards=2)
    make_dataset(tmp_path / "bytes", records=10, shards=2, payload=lambda number: bytes(8 if number != 8 else 13))
    return tmp_path


@pytest.fixture
def daemon(folder: Path) -> Iterator[str]:
    with daemon_of({name: folder / name for name in ("tokens", "bytes")}, message_size=4096, memory=1 << 20) as daemon:
        yield peer_of(daemon)


def _loader(daemon: str, dataset: str = "tokens", **options: Any) -> EmlioLoader:
    usual: dict[str, Any] = {"ids": True, "to": "numpy", "timeout": "20s", "seed": 3}
    return EmlioLoader(f"{daemon}/{dataset}", **loader_arguments(**(usual | options)))


def _offset() -> int:
    """The byte at which the bad record's frame begins."""
    return sum(FRAME_BYTES + 4 * length for length in _LENGTHS[30:_BAD])


def _damage(folder: Path) -> None:
    """Change a byte of the record's data, in a file that keeps its size and time of change."""
    path = folder / "tokens" / _SHARD
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(_offset() + HEADER_BYTES + 50)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes((byte[0] ^ 1,)))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize(("dtype", "got"), [("int32", "13 bytes; 1 of 10"), ("int64", "13 bytes; 1 of 10")])
def test_a_record_that_is_no_array_of_tokens_is_named_before_anything_is_handed_out(
    daemon: str, dtype: str, got: str
) -> None:
    with pytest.raises(DatasetError, match=f"record 3 of shard {_SHARD}: .*a multiple of . bytes.*got {got}"):
        _loader(daemon, "bytes", tokens=TokenBatches(dtype=dtype, max_tokens=100))


def test_a_record_beyond_the_bound_is_named_before_anything_is_handed_out(daemon: str) -> None:
    with pytest.raises(DatasetError, match=f"record 30 of shard {_SHARD}: .*max_tokens=120 tokens, got 130; 1 of"):
        _loader(daemon, tokens=TokenBatches(max_tokens=120))
    mixed = [(f"{daemon}/tokens", 1.0)]
    with pytest.raises(DatasetError, match=f"record 30 of shard {_SHARD} of dataset tokens: .*max_tokens=120 tokens"):
        EmlioLoader(mixed, tokens=TokenBatches(max_tokens=120), to="numpy")
    with _loader(daemon, tokens=TokenBatches(max_tokens=120, truncate=True)) as loader:
        assert sum(int(batch["lengths"].sum()) for batch in loader) == sum(_LENGTHS) - 10


@_WAYS
def test_a_damaged_record_is_an_error_that_names_it_until_the_job_goes_on(
    folder: Path, daemon: str, way: dict[str, Any]
) -> None:
    _damage(folder)
    with _loader(daemon, **way) as loader:
        batches = iter(loader)
        with pytest.raises(CorruptRecordError, match=f"record 30 of shard {_SHARD} at byte {_offset()}") as error:
            list(batches)
        assert (error.value.shard, error.value.record, error.value.offset) == (_SHARD, 30, _offset())
        with pytest.raises(CorruptRecordError, match="record 30"):
            next(batches)
        state = loader.state_dict()
    with _loader(daemon, on_error="skip", **way) as loader:
        loader.load_state_dict(state)
        assert len(list(loader)) == loader.stats().batches > 0


@_WAYS
def test_a_damaged_record_leaves_padding_where_it_is_to_be_skipped_and_is_counted_once(
    folder: Path, daemon: str, way: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with _loader(daemon, **way) as loader:
        whole = list(loader)
        stats = loader.stats()
        assert stats.handed_bytes == stats.received_bytes - stats.ahead_bytes > 4 * sum(_LENGTHS)
    _damage(folder)
    with _loader(daemon, on_error="skip", **way) as loader:
        batches = list(loader)
        stats = loader.stats()
        assert (stats.skipped_records, stats.records) == (1, len(_LENGTHS) - 1)
    assert f"epoch 0: 1 of {len(_LENGTHS)} records is bad and was left out. The first is record 30 of" in caplog.text
    assert [batch["tokens"].shape for batch in batches] == [batch["tokens"].shape for batch in whole]
    named = chain.from_iterable(batch["__id__"].tolist() for batch in batches)
    assert set(named) == set(range(len(_LENGTHS)))
    read = read_packed if way is _PACKED else read_padded
    runs = list(chain.from_iterable(map(read, batches)))
    assert count_tokens(runs) == all_tokens(length if number != _BAD else 0 for number, length in enumerate(_LENGTHS))


def test_a_collate_fn_does_not_see_a_damaged_record(folder: Path, daemon: str) -> None:
    def collate(arrays: list[np.ndarray]) -> list[int]:
        return [array.size for array in arrays]

    _damage(folder)
    with _loader(daemon, on_error="skip", collate_fn=collate, **_PADDED) as loader:
        assert sorted(chain.from_iterable(loader)) == sorted(_LENGTHS[:_BAD])


def _first(arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[0]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (_PADDED | {"on_error": "replace"}, 'on_error must be "raise" or "skip" for tokens'),
        (_PADDED | {"in_order": False}, "in_order must be True for tokens"),
        (_PADDED | {"raw": True}, "raw cannot be given"),
        (_PADDED | {"fields": ["text"]}, "fields cannot be given"),
        (_PADDED | {"seeds": True}, "seeds cannot be given"),
        (_PADDED | {"transform": len}, "transform cannot be given"),
        (_PADDED | {"dali": DaliPipeline("image-train")}, "dali cannot be given"),
        (_PADDED | {"drop_last": True}, "drop_last and pad cannot be used"),
        (_PADDED | {"pad": True}, "drop_last and pad cannot be used"),
        (_PADDED | {"batch_size": 8}, "batch_size must not be given with max_tokens"),
        (_PACKED | {"batch_size": None}, "batch_size must be given with pack="),
        (_PACKED | {"batch_size": 0}, "batch_size must be a whole number of at least 1"),
        (_PACKED | {"collate_fn": _first}, "collate_fn cannot be used with packing"),
        ({}, "batch_size must be given: samples per step"),
    ],
)
def test_what_does_not_go_with_tokens_is_refused(daemon: str, options: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        _loader(daemon, **options)
