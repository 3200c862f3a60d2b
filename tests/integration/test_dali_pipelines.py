"""Users' own DALI pipelines: how they are given, what they take, what becomes of their outputs."""

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import emlio.dali
from emlio import DaliPipeline, EmlioLoader, Mixture
from emlio.errors import ConfigError, CorruptRecordError
from emlio.example import encode_example
from emlio.planner.sample_seeds import sample_seeds, uniforms
from emlio_testing.datasets import make_dataset

pytest.importorskip("nvidia.dali", reason="requires NVIDIA DALI")
torch = pytest.importorskip("torch", reason="needs PyTorch")

from nvidia.dali import Pipeline, fn, pipeline_def, types  # noqa: E402  # skipped above where it is not installed

_RECORDS = 40


def _picture(record: int) -> bytes:
    """Of one colour, which says the record; its size differs from record to record."""
    file = io.BytesIO()
    Image.new("RGB", (20 + record, 60 - record), (record, 2 * record, 255 - record)).save(file, "PNG")
    return file.getvalue()


def _example(record: int) -> bytes:
    corners = [float(record), record + 0.5] * (record % 3)
    return encode_example(
        {
            "picture": [_picture(record)],
            "label": [record],
            "pair": [record / 2, float(-record)],
            "corners": corners or [-1.0],
            "name": [f"record {record}".encode()],
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "pictures", records=_RECORDS, shards=3, payload=_example)
    return tmp_path / "pictures"


def _loader(folder: Path, pipeline: Any, **options: Any) -> EmlioLoader:
    usual: dict[str, Any] = {"batch_size": 8, "seed": 7, "ids": True, "threads": 2}
    graph = {name: options.pop(name) for name in ("args", "outputs") if name in options}
    return EmlioLoader(folder, dali=DaliPipeline(pipeline, **graph), **(usual | options))


def _small(side: int = 4) -> tuple[Any, Any]:
    encoded, label = emlio.dali.inputs("picture", "label")
    return fn.resize(fn.decoders.image(encoded), size=(side, side)), label


def _check(batch: dict[str, Any], side: int = 4) -> None:
    """The picture at each place is that of the label and the id beside it."""
    assert batch["label"].tolist() == batch["__id__"].tolist()
    assert tuple(batch["image"].shape) == (len(batch["label"]), side, side, 3)
    for picture, label in zip(np.asarray(batch["image"]), batch["label"].tolist(), strict=True):
        assert (picture == (label, 2 * label, 255 - label)).all()


_NAMES = ["image", "label"]


@pytest.mark.parametrize("pipeline", [_small, pipeline_def(_small), partial(_small), lambda: _small()])
def test_a_pipeline_is_a_function_decorated_or_not(folder: Path, pipeline: Callable[[], Any]) -> None:
    with _loader(folder, pipeline, outputs=_NAMES) as loader:
        for batch in loader:
            _check(batch)
        assert (loader.stats().batches, loader.stats().records) == (5, _RECORDS)


def test_a_pipeline_gets_its_own_arguments(folder: Path) -> None:
    with _loader(folder, _small, outputs=_NAMES, args={"side": 9}) as loader:
        _check(next(iter(loader)), 9)


def test_conditions_may_depend_on_what_comes_from_the_loader(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    @pipeline_def(enable_conditionals=True)
    def halves() -> tuple[Any, Any]:
        label, number = emlio.dali.inputs("label", random=1)
        if number[0] < 0.5:  # DALI knows statements, not expressions
            kept = label * 2
        else:
            kept = -label
        return kept, label

    with _loader(folder, halves, outputs=["kept", "label"]) as loader:
        batches = list(loader)
    ids = np.concatenate([batch["__id__"].numpy() for batch in batches])
    low = uniforms(sample_seeds(7, 0, ids), 1)[:, 0] < 0.5
    assert low.any()
    assert not low.all()
    assert torch.cat([batch["kept"] for batch in batches]).tolist() == np.where(low, 2 * ids, -ids).tolist()
    assert not caplog.records, "DALI has nothing to say about our code"


def test_inputs_may_be_called_more_than_once_and_outputs_take_their_names(folder: Path) -> None:
    def several() -> tuple[Any, ...]:
        pair, name = emlio.dali.inputs("pair", "name")
        label = emlio.dali.inputs("label")
        return pair, name, label

    with _loader(folder, several) as loader:
        for batch in loader:
            assert set(batch) == {"pair", "name", "label", "__id__"}
            labels = batch["label"]
            assert labels.tolist() == batch["__id__"].tolist()
            assert batch["pair"].dtype == torch.float32
            assert (batch["pair"] == torch.stack([labels / 2, -labels], 1)).all()
            assert [bytes(name.numpy()) for name in batch["name"]] == [f"record {n}".encode() for n in labels.tolist()]


def test_a_feature_with_any_number_of_numbers_comes_as_vectors_in_every_batch(folder: Path) -> None:
    def boxes() -> Any:
        return emlio.dali.inputs("corners", "label", vectors=["corners"])

    for batch_size in (1, 8):
        with _loader(folder, boxes, batch_size=batch_size) as loader:
            for batch in loader:
                for corners, label in zip(batch["corners"], batch["label"].tolist(), strict=True):
                    assert corners.tolist() == ([float(label), label + 0.5] * (label % 3) or [-1.0])


def test_a_feature_of_other_width_than_most_is_a_bad_record_that_says_what_to_do(folder: Path) -> None:
    said = r"feature 'corners' must hold \d numbers as in other records, got \d.*vectors="
    with _loader(folder, lambda: emlio.dali.inputs("corners")) as loader, pytest.raises(CorruptRecordError, match=said):
        list(loader)


def test_random_numbers_are_those_of_seed_epoch_and_record(folder: Path) -> None:
    with _loader(folder, lambda: emlio.dali.inputs("label", random=3), outputs=["label", "drawn"]) as loader:
        for epoch in range(2):
            for batch in loader:
                wanted = uniforms(sample_seeds(7, epoch, batch["__id__"].numpy()), 3)
                assert batch["drawn"].dtype == torch.float32
                assert (batch["drawn"].numpy() == wanted).all()


def test_one_output_is_a_dict_of_one(folder: Path) -> None:
    with _loader(folder, lambda: emlio.dali.inputs("label"), ids=False) as loader:
        assert sorted(torch.cat([batch["label"] for batch in loader]).tolist()) == list(range(_RECORDS))


def test_outputs_of_varying_shape_come_as_lists(folder: Path) -> None:
    def as_they_are() -> tuple[Any, Any]:
        encoded, label = emlio.dali.inputs("picture", "label")
        return fn.decoders.image(encoded), label

    for to, kind in (("torch", torch.Tensor), ("numpy", np.ndarray)):
        with _loader(folder, as_they_are, outputs=_NAMES, to=to) as loader:
            batches = list(loader)
        for batch in batches:  # they too outlive the loader
            assert isinstance(batch["image"], list)
            for picture, label in zip(batch["image"], batch["label"].tolist(), strict=True):
                assert isinstance(picture, kind)
                assert tuple(picture.shape) == (60 - label, 20 + label, 3)
                assert (np.asarray(picture) == (label, 2 * label, 255 - label)).all()


@pytest.mark.parametrize("dtype", ["BOOL", "UINT8", "INT8", "UINT16", "INT32", "INT64", "FLOAT16", "FLOAT", "FLOAT64"])
def test_every_type_of_number_comes_to_numpy_and_torch_and_may_be_written(folder: Path, dtype: str) -> None:
    def typed() -> Any:
        return fn.cast(emlio.dali.inputs("label"), dtype=getattr(types, dtype))

    for to in ("numpy", "torch"):
        with _loader(folder, typed, outputs=["x"], to=to) as loader:
            batch = next(iter(loader))
            ids = np.asarray(batch["__id__"])
            name = dtype.lower() + ("32" if dtype == "FLOAT" else "")
            assert str(batch["x"].dtype).removeprefix("torch.") == name
            assert np.asarray(batch["x"]).tolist() == (ids != 0 if dtype == "BOOL" else ids).tolist()
            batch["x"][0] = 1
            assert batch["x"][0] == 1


_EXECUTORS: dict[str, dict[str, Any]] = {
    "depth 1": {"prefetch_queue_depth": 1},
    "depth 5": {"prefetch_queue_depth": 5},
    "older": {"exec_dynamic": False},
    "older, depth 1": {"exec_dynamic": False, "prefetch_queue_depth": 1},
    "older, two queues": {"prefetch_queue_depth": {"cpu_size": 3, "gpu_size": 2}},
    "not pipelined": {"exec_pipelined": False},
    "waiting": {"exec_async": False},
    "waiting, depth 1": {"exec_async": False, "prefetch_queue_depth": 1},
    "one by one": {"exec_async": False, "exec_pipelined": False},
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("to", ["torch", "numpy"])
@pytest.mark.parametrize("executor", _EXECUTORS)
def test_with_every_executor_batches_stay_as_they_were_handed_out(folder: Path, executor: str, to: str) -> None:
    with _loader(folder, _small, outputs=_NAMES, args=_EXECUTORS[executor], to=to) as loader:
        kept = [batch for _ in range(3) for batch in loader]
    # After the loader's end too, with its memory given back and other memory taken.
    with _loader(folder, _small, outputs=_NAMES, args=_EXECUTORS[executor], to=to) as other:
        list(other)
    assert len(kept) == 15
    for batch in kept:
        _check(batch)


def test_outputs_lie_where_dali_made_them_and_outlive_the_loader(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: set[int] = set()
    build = Pipeline.outputs

    def watched(pipe: Pipeline, *arguments: Any) -> Any:
        outputs = build(pipe, *arguments)
        made.update(output.as_tensor().data_ptr() for output in outputs)
        return outputs

    monkeypatch.setattr(Pipeline, "outputs", watched)
    for to in ("torch", "numpy"):
        with _loader(folder, _small, outputs=_NAMES, to=to) as loader:
            batches = list(loader)
        for batch in batches:
            for name in _NAMES:
                at = batch[name].data_ptr() if to == "torch" else batch[name].ctypes.data
                assert at in made
            _check(batch)


def test_arguments_of_dalis_pipeline_reach_it_and_those_of_the_decorator_hold(folder: Path) -> None:
    seen: list[tuple[Any, ...]] = []

    def look() -> Any:
        pipe = Pipeline.current()
        seen.append((pipe.max_batch_size, pipe.num_threads, pipe.seed, pipe.prefetch_queue_depth))
        return emlio.dali.inputs("label")

    with _loader(folder, look) as loader:
        list(loader)
    assert seen[-1][:2] == (8, 2)
    _loader(folder, look, args={"num_threads": 3, "seed": 5, "prefetch_queue_depth": 4}).close()
    assert seen[-1] == (8, 3, 5, 4)
    decorated = pipeline_def(batch_size=2, num_threads=4, seed=6, prefetch_queue_depth=3)(look)
    _loader(folder, decorated).close()
    assert seen[-1] == (8, 4, 6, 3)
    _loader(folder, decorated, args={"seed": 1}).close()
    assert seen[-1] == (8, 4, 1, 3)


def _drawn() -> tuple[Any, Any]:
    label = emlio.dali.inputs("label")
    return fn.random.uniform(range=(0.0, 1.0), shape=(2,)), label


def _draws(folder: Path, epochs: int = 2, **options: Any) -> list[list[list[float]]]:
    with _loader(folder, _drawn, outputs=["drawn", "label"], **options) as loader:
        return [batch["drawn"].tolist() for _ in range(epochs) for batch in loader]


def test_what_a_pipeline_draws_itself_is_alike_in_two_runs_and_differs_from_rank_to_rank_and_seed_to_seed(
    folder: Path,
) -> None:
    first = _draws(folder)
    assert _draws(folder) == first
    assert _draws(folder, threads=1, prefetch="1MiB", args={"prefetch_queue_depth": 5}) == first
    assert first[:5] != first[5:], "another epoch, other numbers"
    ranks = [_draws(folder, rank=rank, world_size=2) for rank in (0, 1)]
    assert ranks[0][0][0] != ranks[1][0][0]
    assert _draws(folder, seed=8)[0] != first[0]


def _half_used() -> Any:
    emlio.dali.inputs("label")
    return fn.constant(idata=[1], shape=(1,))


def _asked_of_nobody() -> Any:
    return fn.constant(idata=[1], shape=(1,))


@pytest.mark.parametrize(
    ("pipeline", "options", "said"),
    [
        (_small, {"outputs": ["image"]}, r"it has 2, outputs names \['image'\]"),
        (_small, {"outputs": ["image", "image"]}, r"outputs must be different names.*, got \['image', 'image'\]"),
        (_small, {"outputs": ["a", "b", "c"]}, "it has 2"),
        (_small, {"outputs": ["a", ""]}, "outputs must be different names, none of them empty"),
        (_small, {"outputs": []}, "it has 2"),
        (_small, {"outputs": "ab"}, "outputs must be a list of names"),
        (_small, {"outputs": ["image", "__id__"]}, "none of them empty or '__id__'"),
        (_drawn, {}, "without outputs= they take the names of the inputs"),
        ("image-eval", {"outputs": ["image"]}, "it has 2"),
        (_asked_of_nobody, {}, "must call emlio.dali.inputs"),
        (_small, {"args": {"colour": 1}}, "args must be arguments of _small or of DALI's Pipeline, got 'colour'$"),
        (
            pipeline_def(_small),
            {"args": {"sise": 1}},
            "args must be arguments of _small or of DALI's Pipeline, got 'sise'",
        ),
        (
            "image-train",
            {"args": {"sise": 3}},
            r"args must be arguments of image-train .*, got 'sise'; did you mean 'size'\?$",
        ),
        ("image-eval", {"args": {"num_thread": 3}}, r"got 'num_thread'; did you mean 'num_threads'\?$"),
        (_small, {"args": {"prefetch_queue_depth": "many"}}, "the pipeline cannot be built"),
        (_small, {"args": {"batch_size": 4}}, "batch_size must be given to the loader"),
        (lambda: emlio.dali.inputs(), {}, "at least one feature name"),
        (lambda: emlio.dali.inputs("label", "label"), {}, "with each feature once"),
        (lambda: emlio.dali.inputs("label", images="label"), {}, "images must be a list of names"),
        (lambda: emlio.dali.inputs("label", vectors=["pair"]), {}, "vectors must be among the fields"),
        (7, {}, "pipeline must be a preset's name or a function"),
        (_small, {"raw": True}, "raw cannot be given beside it"),
        (_small, {"transform": len, "collate_fn": len}, "transform, collate_fn cannot be given beside it"),
        (_small, {"fields": ["label"], "seeds": True}, "fields, seeds cannot be given beside it"),
    ],
)
def test_what_cannot_be_is_refused_when_the_loader_is_made(
    folder: Path, pipeline: Any, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        _loader(folder, pipeline, **options)


def test_a_users_own_mistake_in_a_pipeline_comes_out_as_it_is(folder: Path) -> None:
    with pytest.raises(KeyError, match="nowhere"):
        _loader(folder, lambda: {}["nowhere"])


def test_a_pipeline_whose_outputs_have_nothing_to_do_with_the_records_is_an_error(folder: Path) -> None:
    with _loader(folder, _half_used, outputs=["x"]) as loader, pytest.raises(ConfigError, match="none does"):
        list(loader)


def test_inputs_outside_a_loader_are_an_error_that_says_so() -> None:
    with pytest.raises(ConfigError, match="must be called inside a pipeline function"):
        emlio.dali.inputs("label")
    with pytest.raises(ConfigError, match="must be called inside a pipeline function"):
        pipeline_def(_small)(batch_size=1, num_threads=1, device_id=None)


def test_datasets_of_one_format_are_mixed_in_a_pipeline_and_others_are_refused(folder: Path, tmp_path: Path) -> None:
    make_dataset(tmp_path / "more", records=10, shards=1, payload=lambda record: _example(record % 3))
    mixture = Mixture([(folder, 0.75), (tmp_path / "more", 0.25)])
    with EmlioLoader(mixture, 8, dali=DaliPipeline(_small), ids=True, threads=2, to="torch") as loader:
        for batch in loader:
            ids, sources = batch["__id__"], batch["__source__"]
            assert sources.tolist() == (ids >= _RECORDS).int().tolist()
            assert batch["label"].tolist() == [id_ if id_ < _RECORDS else (id_ - _RECORDS) % 3 for id_ in ids.tolist()]
        assert sum(loader.stats().datasets.values()) == loader.stats().records
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "part.jsonl").write_text('{"picture": "no"}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"a DALI pipeline needs datasets of one format .* 'lines' is jsonl"):
        EmlioLoader(Mixture([(folder, 1), (tmp_path / "lines", 1)]), 8, dali=DaliPipeline(_small))
