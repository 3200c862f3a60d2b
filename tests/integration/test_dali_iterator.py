"""`emlio.dali.Iterator` beside DALI's own iterator: the same shapes, ends and resets; what it refuses."""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emlio.dali
from emlio import DaliPipeline, EmlioLoader
from emlio.errors import ConfigError
from emlio.example import encode_example
from emlio_testing.datasets import make_dataset

pytest.importorskip("nvidia.dali", reason="requires NVIDIA DALI")
pytest.importorskip("torch", reason="DALI's iterator makes tensors")

from nvidia.dali.pipeline import pipeline_def  # behind the skip, where it is not installed
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator

_dali: Any = import_module("nvidia.dali.fn")  # whose types are partial
_RECORDS = 25
_BATCH = 10
_SHAPE = (4, 3)


def _image(record: int) -> bytes:
    return bytes([record]) * (_SHAPE[0] * _SHAPE[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("data") / "records"
    make_dataset(
        folder,
        records=_RECORDS,
        shards=2,
        payload=lambda record: encode_example({"image": [_image(record)], "label": [record]}),
    )
    return folder


def _graph(encoded: Any, label: Any) -> Any:
    return _dali.reshape(encoded, shape=list(_SHAPE)), label


def _ours() -> Any:
    return _graph(*emlio.dali.inputs("image", "label"))


Make = Callable[..., EmlioLoader]


@pytest.fixture
def make(folder: Path) -> Iterator[Make]:
    made: list[EmlioLoader] = []

    def loader(**options: Any) -> EmlioLoader:
        usual: dict[str, Any] = {"batch_size": _BATCH, "shuffle": False, "threads": 2}
        usual["dali"] = DaliPipeline(_ours, outputs=["image", "label"])
        made.append(EmlioLoader(folder, **(usual | options)))
        return made[-1]

    yield loader
    for one in made:
        one.close()


def _theirs(**options: Any) -> Any:
    """DALI's iterator over the same records."""

    def batches(first: int) -> Any:
        numbers = range(first * _BATCH, min((first + 1) * _BATCH, _RECORDS))
        if not numbers:
            raise StopIteration
        return [np.frombuffer(_image(number), np.uint8) for number in numbers], [np.int64(n) for n in numbers]

    @pipeline_def
    def pipeline() -> Any:
        return _graph(*_dali.external_source(source=batches, num_outputs=2))

    made: Any = pipeline(batch_size=_BATCH, num_threads=2, device_id=None)
    return DALIGenericIterator(made, ["data", "label"], **options)


def _seen(batches: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for batch in batches:
        (one,) = batch
        found.append(
            (list(one), one["data"].dtype, tuple(one["data"].shape), one["data"].tolist(), one["label"].tolist())
        )
    return found


@pytest.mark.parametrize("auto_reset", [True, False, "yes", "no", None], ids=str)
def test_batches_and_epochs_are_those_of_dalis_iterator(make: Make, auto_reset: Any) -> None:
    ours = emlio.dali.Iterator(make(), ["data", "label"], auto_reset=auto_reset)
    theirs = _theirs(auto_reset=auto_reset)
    for _ in range(3):
        mine, other = _seen(ours), _seen(theirs)
        assert [len(one[4]) for one in mine] == [10, 10, 5]
        assert mine == other
        if auto_reset in (False, "no", None):
            with pytest.raises(StopIteration):
                next(ours)
            ours.reset()
            theirs.reset()
    assert len(ours) == 3
    assert ours.batch_size == _BATCH


def test_a_loop_that_counts_batches_resets_after_the_last(make: Make) -> None:
    batches = emlio.dali.Iterator(make(), ["data", "label"])
    for _ in range(3):
        assert sum(len(batches.next()[0]["label"]) for _ in range(len(batches))) == _RECORDS
        batches.reset()
    assert batches.loaders[0].epoch == 2


def test_a_reset_in_the_middle_is_ignored_with_a_warning(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    batches = emlio.dali.Iterator(make(), ["data", "label"])
    first = next(batches)[0]["label"].tolist()
    batches.reset()
    assert "not over" in caplog.text
    assert first + [label for batch in batches for label in batch[0]["label"].tolist()] == list(range(_RECORDS))


def test_several_loaders_take_the_place_of_several_pipelines(make: Make) -> None:
    loaders = [make(rank=rank, world_size=2, ids=True) for rank in range(2)]
    batches = emlio.dali.Iterator(loaders, ["data", "label"], size=_RECORDS, auto_reset=True)
    for _ in range(2):
        seen = [one["label"].tolist() for batch in batches for one in batch]
        assert sorted(label for labels in seen for label in labels) == list(range(_RECORDS))
        assert len(seen) == 2 * len(batches)


def test_a_loader_without_a_pipeline_is_named_too(folder: Path) -> None:
    with EmlioLoader(folder, _BATCH, fields=["label", "image"], ids=True, shuffle=False) as loader:
        (batch,) = next(emlio.dali.Iterator(loader, ["label", "data"]))
    assert list(batch) == ["label", "data", "__id__"]
    assert batch["label"].tolist() == batch["__id__"].tolist() == list(range(_BATCH))


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        (LastBatchPolicy.PARTIAL, {}),
        ("partial", {}),
        (LastBatchPolicy.DROP, {"drop_last": True}),
        (LastBatchPolicy.FILL, {"pad": True}),
        (LastBatchPolicy.FILL, {"batch_size": 5}),
    ],
    ids=["partial", "its name", "drop", "fill", "even"],
)
def test_a_policy_that_the_loader_has_is_accepted(make: Make, policy: Any, options: dict[str, Any]) -> None:
    batches = emlio.dali.Iterator(make(**options), ["data", "label"], last_batch_policy=policy)
    assert len(list(batches)) == len(batches)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"last_batch_policy": LastBatchPolicy.FILL},
            "policy FILL needs a loader with pad=True, this one has .* PARTIAL",
        ),
        ({"last_batch_policy": LastBatchPolicy.DROP}, "policy DROP needs a loader with drop_last=True"),
        ({"last_batch_policy": "REPEAT"}, "last_batch_policy must be one of"),
        ({"fill_last_batch": True}, "policy FILL needs"),
        ({"last_batch_policy": "FILL", "last_batch_padded": True}, "last_batch_padded=True .* repeats the last sample"),
        ({"size": 24}, "size must be -1, or the samples of these loaders in an epoch, 25, got 24"),
        ({"auto_reset": "maybe"}, "auto_reset must be"),
        ({"output_map": ["a", "a"]}, "output_map must be a list of different names"),
        ({"output_map": "data"}, "output_map must be a list"),
        ({"pipelines": 5}, "pipelines must be an EmlioLoader or a list of them, got 5"),
    ],
    ids=["fill", "drop", "no policy", "old name", "padded", "size", "reset", "same name", "text", "pipeline"],
)
def test_what_a_loader_does_not_do_is_refused(make: Make, options: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"pipelines": make(), "output_map": ["data", "label"]} | options
    with pytest.raises(ConfigError, match=words):
        emlio.dali.Iterator(**given)


def test_too_few_names_are_refused_with_the_outputs(make: Make) -> None:
    with pytest.raises(ConfigError, match="must name the 2 outputs image, label of the loader in this order"):
        next(emlio.dali.Iterator(make(), ["data"]))
