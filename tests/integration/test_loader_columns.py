"""Features of Examples through a whole loader: records unlike the others, arrays of many lengths, whose memory it is."""

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader
from emlio.daemon.service import Daemon
from emlio.errors import ConfigError, CorruptRecordError
from emlio.example.encode import encode_example
from emlio.receiver.torch_adapter import torch_is_installed
from emlio.tfrecord import frame
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.serving import daemon_of, peer_of

_RECORDS = 40
_BATCH = 10
_NO_LABEL, _TEXT_LABEL = 17, 33
_WAYS = pytest.mark.parametrize("way", ["daemon", "directory"])
_NEEDS_TORCH = pytest.mark.skipif(not torch_is_installed(), reason="torch is not installed")

_Address = Callable[[str, str], "str | Path"]


def _example(number: int) -> bytes:
    boxes = [0.5 * number] * (1 + number % 3)
    return encode_example({"label": [number], "boxes": boxes, "name": [b"n%d" % number], "pair": [number, -number]})


def _with_two_unlike(number: int) -> bytes:
    if number == _NO_LABEL:
        return encode_example({"boxes": [1.0], "name": [b"n17"], "pair": [17, -17]})
    if number == _TEXT_LABEL:
        return encode_example({"label": [b"thirty-three"], "boxes": [1.0], "name": [b"n33"], "pair": [33, -33]})
    return _example(number)


def _with_two_torn(number: int) -> bytes:
    return b"\xff no Example" if number in (_NO_LABEL, _TEXT_LABEL) else _example(number)


_DATASETS = {"good": _example, "mixed": _with_two_unlike, "torn": _with_two_torn}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name, payload in _DATASETS.items():
        make_dataset(folder / name, records=_RECORDS, shards=2, payload=payload)
    return folder


@pytest.fixture
def address(folder: Path) -> Iterator[_Address]:
    """A dataset through a daemon, or as a directory of this host."""
    with daemon_of({name: folder / name for name in _DATASETS}, message_size=4096, memory=1 << 20) as daemon:
        yield lambda way, name: f"{peer_of(daemon)}/{name}" if way == "daemon" else folder / name


def _loader(address: "str | Path", **options: Any) -> EmlioLoader:
    usual: dict[str, Any] = {"batch_size": _BATCH, "ids": True, "to": "numpy", "timeout": "20s", "shuffle": False}
    return EmlioLoader(address, **loader_arguments(**(usual | options)))


# ---- daemons unlike the others ------------------------------------------------------------------------------------


@pytest.fixture
def two_daemons(tmp_path: Path) -> Iterator[str]:
    """The address of two daemons, each with a shard of one dataset; only records of the first have labels."""

    def payload(number: int) -> bytes:
        first = number < _RECORDS // 2
        return encode_example({"name": [b"n%d" % number], **({"label": [number]} if first else {})})

    make_dataset(tmp_path / "numbers", records=_RECORDS, shards=2, payload=payload)
    with ExitStack() as stack:
        daemons: list[Daemon] = []
        for shard in range(2):
            half = tmp_path / str(shard) / "numbers"
            half.mkdir(parents=True)
            for path in (
                *(tmp_path / "numbers").glob(f"*{shard:05d}-of*"),
                *(tmp_path / "numbers").glob(f"*{shard:05d}.json"),
            ):
                (half / path.name).hardlink_to(path)
            daemons.append(stack.enter_context(daemon_of({"numbers": half}, message_size=4096, memory=1 << 20)))
        yield f"{peer_of(*daemons)}/numbers"


@pytest.mark.parametrize("fields", [["name", "label"], None])
def test_a_feature_that_one_daemon_lacks_is_none_in_its_records(
    two_daemons: str, fields: list[str] | None, caplog: pytest.LogCaptureFixture
) -> None:
    labels = [*range(_RECORDS // 2), *[None] * (_RECORDS // 2)]
    with _loader(two_daemons, fields=fields, shuffle=True, batch_size=_RECORDS) as loader:
        (batch,) = loader
    assert batch["label"] == [labels[number] for number in batch["__id__"].tolist()]
    with _loader(two_daemons, fields=fields, batch_size=_RECORDS // 2) as loader:
        assert [list(batch["label"]) for batch in loader] == [labels[: _RECORDS // 2], labels[_RECORDS // 2 :]]
    assert not caplog.records


# ---- records unlike the others ------------------------------------------------------------------------------------

_FIELDS = pytest.mark.parametrize("fields", [None, ["label", "name"]], ids=["all fields", "some fields"])


def _without_boxes(sample: dict[str, Any]) -> dict[str, Any]:
    return {name: sample[name] for name in ("__id__", "label", "name")}


_TRANSFORMS = pytest.mark.parametrize("transform", [None, _without_boxes], ids=["columns", "samples"])


@_WAYS
@_FIELDS
@_TRANSFORMS
@pytest.mark.parametrize("batch_size", [1, 40])
def test_a_record_without_a_label_or_with_one_of_another_kind_comes_as_it_is(
    address: _Address, way: str, fields: list[str] | None, transform: Any, batch_size: int
) -> None:
    with _loader(address(way, "mixed"), fields=fields, transform=transform, batch_size=batch_size) as loader:
        batches = list(loader)
        assert loader.stats().skipped_records == 0
    labels = [label for batch in batches for label in batch["label"]]
    assert [bytes(label) if isinstance(label, memoryview) else label for label in labels] == [
        None if number == _NO_LABEL else b"thirty-three" if number == _TEXT_LABEL else number
        for number in range(_RECORDS)
    ]
    assert [number for batch in batches for number in batch["__id__"].tolist()] == list(range(_RECORDS))


@_WAYS
@_FIELDS
@_TRANSFORMS
def test_a_record_that_is_no_example_is_an_error_in_its_place_that_leads_to_it_in_its_file(
    address: _Address, folder: Path, way: str, fields: list[str] | None, transform: Any
) -> None:
    with _loader(address(way, "torn"), fields=fields, transform=transform) as loader:
        batches = iter(loader)
        assert next(batches)["__id__"].tolist() == list(range(10))
        with pytest.raises(CorruptRecordError, match="not a tf") as raised:
            next(batches)
    error = raised.value
    assert (error.shard, error.record) == ("train-00000-of-00002.tfrecord", _NO_LABEL)
    assert f"record {_NO_LABEL} of shard {error.shard} at byte {error.offset}: not a " in str(error)
    record = _with_two_torn(_NO_LABEL)
    data = (folder / "torn" / error.shard).read_bytes()
    assert data[error.offset : error.offset + len(record) + 16] == frame(record)


@_WAYS
@_FIELDS
@_TRANSFORMS
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_records_that_are_no_examples_are_dealt_with_and_counted(
    address: _Address, way: str, fields: list[str] | None, transform: Any, on_error: str
) -> None:
    with _loader(address(way, "torn"), fields=fields, transform=transform, on_error=on_error) as loader:
        batches = list(loader)
        stats = loader.stats()
    ids = [number for batch in batches for number in batch["__id__"].tolist()]
    assert [number for batch in batches for number in batch["label"].tolist()] == ids
    assert [bytes(name) for batch in batches for name in batch["name"]] == [b"n%d" % number for number in ids]
    assert set(range(_RECORDS)) - set(ids) == {_NO_LABEL, _TEXT_LABEL}
    if on_error == "skip":
        assert [len(batch["label"]) for batch in batches] == [10, 9, 10, 9]
        assert (stats.records, stats.skipped_records, stats.replaced_records) == (38, 2, 0)
    else:
        assert [len(batch["label"]) for batch in batches] == [10] * 4
        assert (stats.records, stats.skipped_records, stats.replaced_records) == (40, 0, 2)


def test_all_ranks_have_as_many_batches_though_one_has_all_the_bad_records(address: _Address) -> None:
    lengths = []
    for rank in range(2):
        with _loader(address("daemon", "torn"), rank=rank, world_size=2, on_error="skip", batch_size=5) as loader:
            lengths.append((len(loader), len(list(loader))))
    assert lengths == [(4, 4), (4, 4)]


# ---- arrays of many lengths ---------------------------------------------------------------------------------------


def _padded(samples: Sequence[dict[str, Any]]) -> "np.ndarray[Any, Any]":
    made = np.zeros((len(samples), 3), np.float32)
    for row, sample in zip(made, samples, strict=True):
        row[: sample["boxes"].size] = sample["boxes"]
    return made


@pytest.mark.parametrize("transform", [None, lambda sample: {"boxes": np.atleast_1d(sample["boxes"]) * 2}])
def test_a_collate_fn_pads_what_differs_in_length(address: _Address, transform: Any) -> None:
    factor = 1 if transform is None else 2
    with _loader(address("daemon", "good"), transform=transform, collate_fn=_padded) as loader:
        made = np.concatenate(list(loader))
    for number, row in enumerate(made.tolist()):
        filled = 1 + number % 3
        assert row == [0.5 * number * factor] * filled + [0.0] * (3 - filled)


def test_without_one_a_column_is_a_list_and_what_a_transform_leaves_ragged_is_an_error(address: _Address) -> None:
    with _loader(address("daemon", "good")) as loader:
        boxes = next(iter(loader))["boxes"]
        assert [len(each) for each in boxes] == [1 + number % 3 for number in range(_BATCH)]
    with (
        _loader(address("daemon", "good"), transform=lambda sample: sample) as loader,
        pytest.raises(ConfigError, match="arrays must have the same shape"),
    ):
        next(iter(loader))


@_NEEDS_TORCH
def test_tensors_that_a_transform_leaves_ragged_are_an_error_that_says_what_to_do(address: _Address) -> None:
    import torch

    def as_tensor(sample: dict[str, Any]) -> dict[str, Any]:
        return {"boxes": torch.tensor(np.atleast_1d(sample["boxes"]))}

    with (
        _loader(address("daemon", "good"), transform=as_tensor, to="torch") as loader,
        pytest.raises(
            ConfigError, match=r"tensors must have the same shape to be stacked, got \[\(1,\), \(2,\), .*collate_fn"
        ),
    ):
        next(iter(loader))


# ---- whose memory it is -------------------------------------------------------------------------------------------


@_NEEDS_TORCH
@_WAYS
def test_what_the_user_does_to_his_tensors_changes_nothing_else(address: _Address, way: str) -> None:
    with _loader(address(way, "good"), to="torch", shuffle=True, seeds=True) as loader:
        loader.set_epoch(0)
        untouched = [_plain(batch) for batch in loader]
        loader.set_epoch(0)
        seen = []
        kept: list[Any] = []
        for batch in loader:
            seen.append(_plain(batch))
            names = [bytes(name) for name in batch["name"]]
            for column in (batch["label"], batch["pair"], batch["__id__"], batch["__seed__"], *batch["boxes"]):
                column.fill_(77)  # written to without a warning, so the memory is its own
            assert [bytes(name) for name in batch["name"]] == names
            kept.append(batch)
        assert seen == untouched
        assert all(batch["label"].tolist() == [77] * len(batch["label"]) for batch in kept)


def _plain(batch: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [bytes(each) if isinstance(each, memoryview) else each.tolist() for each in column]
        if isinstance(column, list)
        else column.tolist()
        for name, column in batch.items()
    }


@_NEEDS_TORCH
def test_samples_of_a_batch_share_no_memory_with_one_another(address: _Address) -> None:
    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        sample["pair"] += 1000
        return {"pair": sample["pair"], "label": sample["label"]}

    with _loader(address("daemon", "good"), to="torch", transform=transform, threads=3) as loader:
        for batch in loader:
            labels = batch["label"]
            assert batch["pair"].tolist() == [[1000 + number, 1000 - number] for number in labels.tolist()]


def _referred(batch: dict[str, Any]) -> list["weakref.ref[Any]"]:
    # The views of records refer to the messages received, of which nothing else may be left.
    return [weakref.ref(batch["name"][0].obj), weakref.ref(batch["label"])]


@_WAYS
@pytest.mark.parametrize("made_by", ["columns", "collate_fn", "transform"])
def test_nothing_of_a_batch_is_kept_when_the_user_has_dropped_it(address: _Address, way: str, made_by: str) -> None:
    def collate(samples: Sequence[Any]) -> dict[str, Any]:
        return {"name": [sample["name"] for sample in samples], "label": np.array([s["label"] for s in samples])}

    options: dict[str, Any] = {"columns": {}, "collate_fn": {"collate_fn": collate}}.get(
        made_by, {"transform": lambda sample: sample, "collate_fn": collate, "threads": 2}
    )
    gc.collect()
    gc.disable()  # what only the collector frees would be kept in a training job, too
    try:
        with _loader(address(way, "good"), batch_size=_RECORDS, **options) as loader:
            batches = iter(loader)
            batch = next(batches)
            referred = _referred(batch)
            assert all(reference() is not None for reference in referred)
            del batch
            for _ in range(3):  # threads let go of a batch when they take the next; a message may end in the next batch
                assert next(batches, None) is None
                batches = iter(loader)
                next(batches)
            assert [reference() for reference in referred] == [None] * len(referred)
    finally:
        gc.enable()
