"""Batches of tokens as a rank gets them: every token once, the bound, the layout, whichever way the records come."""

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from emlio import EmlioLoader, TokenBatches
from emlio.formats.tfrecord.mapping import mapping_name
from emlio_testing.serving import daemon_of, raw_loader
from emlio_testing.token_records import (
    TokenRun,
    all_tokens,
    count_tokens,
    make_token_dataset,
    read_packed,
    read_padded,
)

_SHARDS = 4
_DRAWS = random.Random(3)
_LENGTHS = [0, 0, 90, 70, *(min(int(_DRAWS.lognormvariate(2.5, 0.9)), 90) for _ in range(399))]
_PADDED: dict[str, Any] = {"tokens": TokenBatches(max_tokens=300, pool=40)}
_PACKED: dict[str, Any] = {"tokens": TokenBatches(pack=64, pool=40), "batch_size": 3}
_WAYS = pytest.mark.parametrize("way", [_PADDED, _PACKED], ids=["padded", "packed"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset, its halves as they would lie on two hosts, and others."""
    folder = tmp_path_factory.mktemp("data")
    make_token_dataset(folder / "tokens", _LENGTHS, shards=_SHARDS)
    make_token_dataset(folder / "wide", _LENGTHS, shards=1, dtype="int64")
    make_token_dataset(folder / "large", [5_000] * 150, shards=1)
    make_token_dataset(folder / "empty", [0] * 5, shards=1)
    make_token_dataset(folder / "one", [7], shards=1)
    make_token_dataset(folder / "two", [150, 3], shards=1)
    for name, shards in (("first", (0, 1)), ("second", (2, 3))):
        (folder / name).mkdir()
        for number in shards:
            for file in (f"train-{number:05d}-of-{_SHARDS:05d}.tfrecord", mapping_name(number)):
                shutil.copy2(folder / "tokens" / file, folder / name / file)
    return folder


@contextmanager
def _daemon(**data: Path) -> Iterator[str]:
    """HOST:PORT of a daemon that serves these."""
    with daemon_of(data, message_size=4096, memory=1 << 20) as daemon:
        yield daemon.endpoint.removeprefix("tcp://")


@pytest.fixture
def daemon(folder: Path) -> Iterator[str]:
    """Of one that has everything."""
    names = ("tokens", "wide", "large", "empty", "one", "two")
    with _daemon(**{name: folder / name for name in names}) as peer:
        yield peer


def _loader(address: "str | Path", **options: Any) -> EmlioLoader:
    return raw_loader(address, **({"raw": False, "batch_size": None} | options))


def _read(batch: Any) -> list[TokenRun]:
    """What is in a batch; its ids must be those of its pieces."""
    packed = "segments" in batch
    runs = read_packed(batch) if packed else read_padded(batch)
    lengths = batch["lengths"].tolist() if not packed else []
    named = [record for record in batch["__id__"].tolist() if _LENGTHS[record]]
    assert [run.record for run in runs] == named or not packed
    assert packed or [run.end for run in runs] == [length for length in lengths if length]
    return runs


def _epoch(address: "str | Path", world: int, **options: Any) -> list[list[dict[str, Any]]]:
    """One epoch's batches of each rank."""
    found: list[list[dict[str, Any]]] = []
    for rank in range(world):
        with _loader(address, rank=rank, world_size=world, **options) as loader:
            steps = len(loader)
            assert loader.stats().repeated_records == 0
            found.append(list(loader))
            assert len(found[-1]) == steps
    return found


@_WAYS
@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_token_of_every_record_comes_once_in_equally_many_steps(
    daemon: str, way: dict[str, Any], world: int
) -> None:
    ranks = _epoch(f"emlio://{daemon}/tokens", world, **way)
    assert len({len(batches) for batches in ranks}) == 1
    batches = list(chain.from_iterable(ranks))
    assert count_tokens(chain.from_iterable(map(_read, batches))) == all_tokens(_LENGTHS)
    assert set(chain.from_iterable(batch["__id__"].tolist() for batch in batches)) == set(range(len(_LENGTHS)))
    for batch in batches:
        assert batch["tokens"].dtype == np.int32
        if way is _PACKED:
            assert batch["tokens"].shape == (3, 64)
        else:
            assert 0 < batch["tokens"].size <= 300
            assert batch["lengths"].max() == batch["tokens"].shape[1]


@_WAYS
def test_two_daemons_this_host_and_all_together_give_the_same_batches(
    folder: Path, daemon: str, way: dict[str, Any]
) -> None:
    def plain(address: "str | Path", **options: Any) -> list[list[dict[str, Any]]]:
        ranks = _epoch(address, 2, **way, **options)
        return [[{name: array.tolist() for name, array in batch.items()} for batch in batches] for batches in ranks]

    one = plain(f"emlio://{daemon}/tokens")
    assert plain(folder / "tokens") == one
    assert plain(f"emlio://{daemon}/tokens", local=folder / "second") == one
    with _daemon(tokens=folder / "first") as first, _daemon(tokens=folder / "second") as second:
        assert plain(f"emlio://{first},{second}/tokens") == one
        assert plain(f"emlio://{second},{first}/tokens", local=folder / "first") == one


@_WAYS
def test_the_second_epoch_is_whole_and_in_another_order(daemon: str, way: dict[str, Any]) -> None:
    with _loader(f"emlio://{daemon}/tokens", **way) as loader:
        epochs = [[_read(batch) for batch in loader] for _ in range(2)]
        assert loader.stats().records == 2 * len(_LENGTHS)
        assert loader.stats().assemble_ns > 0
    assert epochs[0] != epochs[1]
    for epoch in epochs:
        assert count_tokens(chain.from_iterable(epoch)) == all_tokens(_LENGTHS)


@_WAYS
def test_tokens_may_have_64_bits_and_padding_any_number(daemon: str, way: dict[str, Any]) -> None:
    old: TokenBatches = way["tokens"]
    tokens = TokenBatches(dtype="int64", max_tokens=old.max_tokens, pack=old.pack, pool=old.pool, pad_id=-(2**40))
    with _loader(f"emlio://{daemon}/wide", **(way | {"tokens": tokens})) as loader:
        batches = list(loader)
    assert all(batch["tokens"].dtype == np.int64 for batch in batches)
    read = read_packed if way is _PACKED else read_padded
    runs = chain.from_iterable(read(batch, pad_id=-(2**40)) for batch in batches)
    assert count_tokens(runs) == all_tokens(_LENGTHS)
    assert any((batch["tokens"] == -(2**40)).any() for batch in batches)


def test_a_packed_record_longer_than_a_row_comes_in_pieces_from_its_front_to_its_end(daemon: str) -> None:
    with _loader(f"emlio://{daemon}/tokens", **_PACKED) as loader:
        runs = [run for batch in loader for run in _read(batch) if run.record == 2]
        assert loader.stats().records == len(_LENGTHS)
    assert [(run.begin, run.end) for run in runs] in ([(0, 64), (64, 90)], [(0, 26), (26, 90)])


def test_tensors_are_the_default_where_torch_is(daemon: str) -> None:
    for way in (_PADDED, _PACKED):
        with _loader(f"emlio://{daemon}/tokens", to=None, **way) as loader:
            batch = next(iter(loader))
        assert all(isinstance(value, torch.Tensor) for value in batch.values())
        assert batch["tokens"].dtype == torch.int32
        batch["tokens"] += 1  # it is the user's
        assert _read({name: value.numpy() for name, value in (batch | {"tokens": batch["tokens"] - 1}).items()}) or way


def test_a_collate_fn_gets_the_records_arrays(daemon: str) -> None:
    given: list[list[np.ndarray]] = []

    def collate(arrays: list[np.ndarray]) -> int:
        given.append(arrays)
        return len(given)

    with _loader(f"emlio://{daemon}/tokens", collate_fn=collate, **_PADDED) as loader:
        assert list(loader) == list(range(1, len(loader) + 1))
    for arrays in given:
        assert len(arrays) * max(array.size for array in arrays) <= 300
        for array in arrays:
            array += 1  # it is the user's
    tokens = Counter(divmod(token - 1, 10_000) for arrays in given for array in arrays for token in array.tolist())
    assert tokens == all_tokens(_LENGTHS)


def test_a_collate_fns_error_is_the_users_and_its_batch_comes_again(daemon: str) -> None:
    errors: list[Exception] = [KeyError("no such token"), StopIteration()]

    def collate(arrays: list[np.ndarray]) -> int:
        if errors:
            raise errors.pop(0)
        return sum(array.size for array in arrays)

    with _loader(f"emlio://{daemon}/tokens", collate_fn=collate, **_PADDED) as loader:
        batches = iter(loader)
        with pytest.raises(KeyError, match="no such token"):
            next(batches)
        with pytest.raises(RuntimeError, match="must not raise StopIteration"):
            next(batches)
        assert sum(batches) == sum(_LENGTHS)


def test_a_pool_larger_than_what_may_be_taken_ahead_comes_all_the_same(daemon: str) -> None:
    tokens = TokenBatches(max_tokens=20_000, pool=100)
    with _loader(f"emlio://{daemon}/large", tokens=tokens, prefetch="1MiB") as loader:
        runs = [run for batch in loader for run in read_padded(batch)]
        assert loader.stats().peak_window_bytes > 100 * 5_000 * 4
    assert Counter(run.record for run in runs) == Counter(range(150))


def test_of_a_record_beyond_the_bound_the_end_is_cut_off_where_that_is_wanted(daemon: str) -> None:
    tokens = TokenBatches(max_tokens=50, pool=40, truncate=True)
    with _loader(f"emlio://{daemon}/tokens", tokens=tokens) as loader:
        batches = list(loader)
    assert max(batch["tokens"].size for batch in batches) == 50
    runs = chain.from_iterable(map(read_padded, batches))
    assert count_tokens(runs) == all_tokens(min(length, 50) for length in _LENGTHS)


@_WAYS
def test_a_dataset_of_one_record_gives_one_batch(daemon: str, way: dict[str, Any]) -> None:
    ((batch,),) = _epoch(f"emlio://{daemon}/one", 1, **way)
    assert (batch["tokens"].ravel()[:7].tolist(), batch["__id__"].tolist()) == (list(range(7)), [0])


@_WAYS
def test_with_fewer_records_than_ranks_all_have_as_many_batches(daemon: str, way: dict[str, Any]) -> None:
    read = read_packed if way is _PACKED else read_padded
    tokens: Counter[tuple[int, int]] = Counter()
    for rank in range(5):
        with _loader(f"emlio://{daemon}/two", rank=rank, world_size=5, **way) as loader:
            assert len(loader) == 1
            assert loader.stats().repeated_records == 3
            (batch,) = loader
            tokens.update(count_tokens(read(batch)))
    assert set(tokens) == set(all_tokens([150, 3]))


@_WAYS
def test_records_without_tokens_are_counted_and_named(daemon: str, way: dict[str, Any]) -> None:
    with _loader(f"emlio://{daemon}/empty", **way) as loader:
        batches = list(loader)
        assert loader.stats().records == 5
    assert sorted(chain.from_iterable(batch["__id__"].tolist() for batch in batches)) == list(range(5))
    assert not any(batch["tokens"].any() for batch in batches)
    assert not any(batch["segments" if way is _PACKED else "lengths"].any() for batch in batches)
