"""Records that a pipeline cannot use are named, left out or replaced; the others come, each once and in their order."""

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import emlio.dali
from emlio import DaliPipeline, EmlioLoader, Recovery
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import ConfigError, CorruptRecordError
from emlio.example import encode_example
from emlio.receiver.stats import LoaderStats
from emlio.tfrecord import FRAME_BYTES
from emlio_testing.datasets import make_dataset

pytest.importorskip("nvidia.dali", reason="requires NVIDIA DALI")
pytest.importorskip("torch", reason="needs PyTorch")

from nvidia.dali import fn  # behind the skip, where it is not installed

_RECORDS = 60
_HALF = 30
_BATCH = 8

Examples = Mapping[int, Mapping[str, Any]]


def _picture(record: int) -> bytes:
    noise = np.random.default_rng(record).integers(0, 256, (40 + record % 7, 50, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "JPEG")
    return file.getvalue()


def _dataset(folder: Path, odd: Examples, records: int = _RECORDS) -> list[bytes]:
    """Records in two shards; of the odd ones some features are others, or None for none."""

    def example(record: int) -> bytes:
        features: dict[str, Any] = {"image/encoded": [_picture(record)], "image/class/label": [record]}
        features |= odd.get(record, {})
        return encode_example({name: values for name, values in features.items() if values is not None})

    return make_dataset(folder, records=records, shards=2, payload=example)


def _no_picture() -> dict[str, Any]:
    return {"image/encoded": [b"neither JPEG nor anything else"]}


def _cut() -> dict[str, Any]:
    return {"image/encoded": [_picture(1)[:-300]]}


def _head_only() -> dict[str, Any]:
    return {"image/encoded": [_picture(1)[:100]]}


def _unchecked(size: int = 8) -> Any:
    """Nothing says that it is an image: DALI meets what is wrong."""
    encoded, label = emlio.dali.inputs("image/encoded", "image/class/label")
    return fn.resize(fn.decoders.image(encoded), size=(size, size)), label


def _loader(address: "str | Path", pipeline: Any, on_error: str, args: Any = None, **options: Any) -> EmlioLoader:
    usual: dict[str, Any] = {"batch_size": _BATCH, "shuffle": False, "ids": True, "to": "numpy", "threads": 2}
    usual["dali"] = DaliPipeline(pipeline, args={"size": 8} | (args or {}), outputs=["image", "label"])
    return EmlioLoader(address, recovery=Recovery(on_error=on_error), **(usual | options))


def _labels(loader: EmlioLoader) -> list[list[int]]:
    batches: list[list[int]] = []
    for batch in loader:
        labels: list[int] = batch["label"].tolist()
        assert labels == batch["__id__"].tolist()
        assert batch["image"].shape[0] == len(labels)
        batches.append(labels)
    return batches


def _flat(batches: list[list[int]]) -> list[int]:
    return list(chain.from_iterable(batches))


def _offset(records: list[bytes], record: int) -> int:
    first = _HALF if record >= _HALF else 0
    return sum(len(data) + FRAME_BYTES for data in records[first:record])


_EXECUTORS: list[dict[str, Any]] = [
    {"prefetch_queue_depth": 4},
    {"exec_dynamic": False, "prefetch_queue_depth": 3},
    {"exec_async": False, "exec_pipelined": False},
]
_PIPELINES = [_unchecked, "image-train", "image-eval"]


@pytest.mark.parametrize("executor", _EXECUTORS)
@pytest.mark.parametrize("pipeline", _PIPELINES)
@pytest.mark.parametrize("odd", [_no_picture, _cut, _head_only, lambda: {"image/encoded": [b""]}])
def test_a_record_that_is_no_whole_picture_is_named_with_shard_and_offset_in_its_place(
    tmp_path: Path, pipeline: Any, odd: Callable[[], dict[str, Any]], executor: dict[str, Any]
) -> None:
    records = _dataset(tmp_path / "data", {43: odd()})
    with _loader(tmp_path / "data", pipeline, "raise", args=executor) as loader:
        handed = iter(loader)
        before = [next(handed)["label"].tolist() for _ in range(5)]
        assert _flat(before) == list(range(40))
        state = loader.state_dict()
        with pytest.raises(CorruptRecordError, match="record 13 of shard train-00001-of-00002") as told:
            next(handed)
        with pytest.raises(CorruptRecordError) as again:
            next(handed)
        assert str(again.value) == str(told.value), "asked again, it says the same"
        assert (told.value.shard, told.value.record) == ("train-00001-of-00002.tfrecord", 13)
        assert told.value.offset == _offset(records, 43)
        assert loader.state_dict() == state
        assert loader.stats().batches == 5
    with _loader(tmp_path / "data", pipeline, "skip", args=executor) as loader:
        loader.load_state_dict(state)
        assert _flat(_labels(loader)) == [record for record in range(40, _RECORDS) if record != 43]


def _counts(stats: LoaderStats) -> tuple[int, int, int]:
    return stats.skipped_records, stats.replaced_records, stats.records


_BAD = {0: _no_picture(), 17: _cut(), 18: _no_picture(), 25: _head_only(), 26: _cut(), 33: _no_picture(), 59: _cut()}


@pytest.mark.parametrize("executor", _EXECUTORS)
@pytest.mark.parametrize("pipeline", _PIPELINES)
def test_several_bad_records_in_batches_under_way_are_left_out_or_replaced_and_counted(
    tmp_path: Path, pipeline: Any, executor: dict[str, Any]
) -> None:
    _dataset(tmp_path / "data", _BAD)
    whole = [list(range(first, min(first + _BATCH, _RECORDS))) for first in range(0, _RECORDS, _BATCH)]
    good = [[record for record in batch if record not in _BAD] for batch in whole]
    with _loader(tmp_path / "data", pipeline, "skip", args=executor) as loader:
        assert _labels(loader) == good
        assert _counts(loader.stats()) == (7, 0, _RECORDS - 7)
        assert _labels(loader) == good, "the next epoch too"
    with _loader(tmp_path / "data", pipeline, "replace", args=executor) as loader:
        batches = _labels(loader)
        assert [len(batch) for batch in batches] == [len(batch) for batch in whole]
        for batch, usual, rest in zip(batches, whole, good, strict=True):
            assert set(batch) == set(rest)
            assert [a for a, b in zip(batch, usual, strict=True) if b not in _BAD] == rest
        assert _counts(loader.stats()) == (0, 7, _RECORDS)


@pytest.mark.parametrize("executor", _EXECUTORS)
@pytest.mark.parametrize("pipeline", _PIPELINES)
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_batch_without_a_good_record_is_an_error_and_the_next_epoch_goes_past_it(
    tmp_path: Path, pipeline: Any, on_error: str, executor: dict[str, Any]
) -> None:
    _dataset(tmp_path / "data", {record: _no_picture() for record in range(16, 24)})
    with _loader(tmp_path / "data", pipeline, on_error, args=executor) as loader:
        with pytest.raises(CorruptRecordError, match="all 8 records of the batch are bad"):
            _labels(loader)
        assert loader.stats().batches == 2
        loader.set_epoch(3)
        with pytest.raises(CorruptRecordError, match="record 16 of shard"):
            _labels(loader)
        assert loader.stats().batches == 4, "those before it come again"


def test_after_an_error_a_new_iteration_of_another_order_goes_on(tmp_path: Path) -> None:
    _dataset(tmp_path / "data", {5: _no_picture()})
    with _loader(tmp_path / "data", _unchecked, "raise", shuffle=True, seed=1) as loader:
        for _ in range(3):
            with pytest.raises(CorruptRecordError, match="record 5 of shard"):
                _labels(loader)
    with _loader(tmp_path / "data", _unchecked, "skip", shuffle=True, seed=1) as loader:
        for _ in range(3):
            assert sorted(_flat(_labels(loader))) == [record for record in range(_RECORDS) if record != 5]


@pytest.mark.parametrize("pipeline", _PIPELINES)
def test_ranks_have_as_many_batches_whatever_is_bad(tmp_path: Path, pipeline: Any) -> None:
    _dataset(tmp_path / "data", _BAD)
    came: list[list[list[int]]] = []
    for rank in range(2):
        options: dict[str, Any] = {"rank": rank, "world_size": 2, "shuffle": True}
        with _loader(tmp_path / "data", pipeline, "skip", **options) as loader:
            came.append(_labels(loader))
            assert len(came[-1]) == len(loader) == 4
    assert sorted(chain(*came[0], *came[1])) == [record for record in range(_RECORDS) if record not in _BAD]


@pytest.mark.parametrize("pipeline", _PIPELINES)
@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"image/class/label": None}, "has no feature 'image/class/label'"),
        ({"image/class/label": [b"cat"]}, "must hold .* as in (other records|earlier batches), got"),
        ({"image/class/label": [0.5]}, "must hold .* as in (other records|earlier batches), got"),
        ({"image/class/label": [3, 4]}, "must hold 1 numbers as in other records, got 2"),
        ({"image/encoded": [_picture(1), _picture(2)]}, "must hold one bytes value for a pipeline, holds 2"),
        ({"image/encoded": [7]}, "must hold .* as in (other records|earlier batches), got"),
    ],
)
def test_a_record_with_other_features_is_a_bad_one(
    tmp_path: Path, pipeline: Any, odd: dict[str, Any], said: str
) -> None:
    _dataset(tmp_path / "data", {12: odd})
    with _loader(tmp_path / "data", pipeline, "raise") as loader:
        with pytest.raises(CorruptRecordError, match=f"record 12 of shard .*{said}"):
            _labels(loader)
        assert loader.stats().batches == 1
    with _loader(tmp_path / "data", pipeline, "skip") as loader:
        assert _flat(_labels(loader)) == [record for record in range(_RECORDS) if record != 12]
        assert _counts(loader.stats()) == (1, 0, _RECORDS - 1)


@pytest.mark.parametrize("pipeline", _PIPELINES)
def test_a_batch_all_of_another_kind_than_those_before_is_an_error_that_says_so(tmp_path: Path, pipeline: Any) -> None:
    _dataset(tmp_path / "data", {record: {"image/class/label": [0.5]} for record in range(32, 40)})
    said = "record 2 of shard .*'image/class/label' must hold int64 as in earlier batches, got float32"
    with _loader(tmp_path / "data", pipeline, "raise") as loader, pytest.raises(CorruptRecordError, match=said):
        _labels(loader)


def test_a_feature_of_images_that_holds_numbers_is_the_users_mistake(tmp_path: Path) -> None:
    _dataset(tmp_path / "data", {})
    arguments = {"encoded": "image/class/label", "label": "image/encoded"}
    with (
        _loader(tmp_path / "data", "image-eval", "skip", args=arguments) as loader,
        pytest.raises(ConfigError, match="'image/class/label' must hold images, got int64"),
    ):
        _labels(loader)


def _together(size: int = 8) -> Any:
    """Fails for batches of more than one: they hold pictures of several heights, which cannot be put on each other."""
    encoded, label = emlio.dali.inputs("image/encoded", "image/class/label")
    images = fn.decoders.image(encoded)
    return fn.resize(images + fn.permute_batch(images, indices=[0]), size=(size, size)), label


@pytest.mark.parametrize("executor", _EXECUTORS)
def test_a_pipeline_that_fails_for_a_batch_and_for_no_record_alone_is_the_users_mistake(
    tmp_path: Path, executor: dict[str, Any]
) -> None:
    _dataset(tmp_path / "data", {})
    with _loader(tmp_path / "data", _together, "skip", args=executor) as loader:
        handed = iter(loader)
        for _ in range(2):
            with pytest.raises(ConfigError, match="the pipeline failed on a batch, but on none of its records alone"):
                next(handed)
        assert loader.stats().batches == 0


def _tall(size: int = 8) -> Any:
    """Fails for pictures of less than 42 rows."""
    encoded, label = emlio.dali.inputs("image/encoded", "image/class/label", images=["image/encoded"])
    rows = fn.slice(fn.decoders.image(encoded), start=[0], shape=[42], axes=[0], out_of_bounds_policy="error")
    return fn.resize(rows, size=(size, size)), label


def test_what_dali_says_of_a_whole_picture_is_told_in_one_line_with_its_own_error_as_the_cause(tmp_path: Path) -> None:
    _dataset(tmp_path / "data", {})
    with _loader(tmp_path / "data", _tall, "raise") as loader:
        with pytest.raises(CorruptRecordError, match=r"record 0 .*DALI cannot decode it: Slice can't be") as told:
            _labels(loader)
        assert "\n" not in str(told.value)
        assert "Critical error" in str(told.value.__cause__)
    with _loader(tmp_path / "data", _tall, "skip") as loader:
        assert _flat(_labels(loader)) == [record for record in range(_RECORDS) if record % 7 >= 2]


@contextmanager
def _daemon(folder: Path) -> Iterator[str]:
    data = (DatasetSource(name="data", directory=folder),)
    bind = Endpoint(host="127.0.0.1", port=0)
    with Daemon(DaemonConfig(data=data, bind=bind)) as daemon:
        yield f"{daemon.endpoint.replace('tcp', 'emlio')}/data"


@pytest.mark.parametrize("pipeline", _PIPELINES)
def test_through_a_daemon_a_bad_record_is_named_and_left_out_as_from_a_directory(tmp_path: Path, pipeline: Any) -> None:
    records = _dataset(tmp_path / "data", _BAD)
    with _daemon(tmp_path / "data") as address:
        with _loader(address, pipeline, "raise") as loader:
            with pytest.raises(CorruptRecordError, match="record 0 of shard") as told:
                _labels(loader)
            assert told.value.offset == _offset(records, 0)
        with _loader(address, pipeline, "skip") as loader:
            assert _flat(_labels(loader)) == [record for record in range(_RECORDS) if record not in _BAD]
