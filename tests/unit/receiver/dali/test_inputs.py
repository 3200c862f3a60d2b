"""What a DALI pipeline asks of its loader, and the device and arguments it is built with; without running one."""

from collections.abc import Sequence
from typing import Any

import pytest

from emlio.errors import ConfigError
from emlio.receiver.dali.graph import PipeOptions, dali_device, name_outputs
from emlio.receiver.dali.inputs import InputRequest, Inputs, defining, inputs
from emlio.receiver.dali.pipeline import DaliPipeline


def test_a_request_without_more_asks_for_its_features_and_nothing_else() -> None:
    request = InputRequest(fields=("a", "b"))
    assert (request.random, request.images, request.vectors) == (0, (), ())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"fields": ()}, "at least one feature name"),
        ({"fields": ("a", "")}, "at least one feature name"),
        ({"fields": ("a", "b", "a")}, "must be called with each feature once"),
        ({"random": -1}, "random must be a whole number of at least 0, got -1"),
        ({"random": 1.5}, "random must be a whole number"),
        ({"random": True}, "random must be a whole number"),
        ({"images": ("c",)}, r"images must be among the fields \('a', 'b'\), got \['c'\]"),
        ({"vectors": ("a", "c")}, r"vectors must be among the fields \('a', 'b'\), got \['c'\]"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        InputRequest(**({"fields": ("a", "b")} | wrong))


def _nothing(request: int, number: int) -> Sequence[Any]:
    raise AssertionError(f"request {request} runs as number {number}, though only graphs are defined here")


def test_inputs_belong_to_the_pipeline_that_is_being_defined_and_to_none_afterwards() -> None:
    dali = pytest.importorskip("nvidia.dali", reason="requires NVIDIA DALI")
    outer, inner = Inputs(source=_nothing), Inputs(source=_nothing)
    with dali.Pipeline(batch_size=1, num_threads=1, device_id=None):
        with defining(outer):
            assert len(inputs("a", "b", random=2, vectors=["b"])) == 3
            with defining(inner):
                assert not isinstance(inputs("c"), tuple), "a single source is a node"
            inputs("d", images=["d"])
        with pytest.raises(ConfigError, match="must be called inside a pipeline function"):
            inputs("e")
    assert outer.requests == [
        InputRequest(fields=("a", "b"), random=2, vectors=("b",)),
        InputRequest(fields=("d",), images=("d",)),
    ]
    assert inner.requests == [InputRequest(fields=("c",))]


def test_a_definition_that_fails_leaves_no_pipeline_behind() -> None:
    with pytest.raises(KeyError), defining(Inputs(source=_nothing)):
        raise KeyError("in the user's function")
    with pytest.raises(ConfigError, match="must be called inside a pipeline function"):
        inputs("a")


def _options(**changes: Any) -> PipeOptions:
    dali = DaliPipeline(**({"pipeline": "image-train"} | changes))
    return PipeOptions(dali=dali, batch_size=4, device_id=None, threads=2, seed=1, tensors=True)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"pipeline": "image-best"}, "must be one of image-train, image-eval, or a function, got 'image-best'"),
        ({"pipeline": 3}, "must be a preset's name or a function"),
        ({"args": {"batch_size": 4}}, "batch_size must be given to the loader, as batch_size="),
        ({"args": {"device_id": None}}, "device_id must be given to the loader, as device="),
        ({"args": [1]}, r"args must be a dictionary of arguments by their names, got \[1\]"),
        ({"args": {1: 2}}, r"args must be a dictionary of arguments by their names, got \{1: 2\}"),
        ({"outputs": "image"}, "outputs must be a list of names, or None, got 'image'"),
        ({"outputs": ["x", "x"]}, r"outputs must be different names, .* got \['x', 'x'\]"),
        ({"outputs": ["x", ""]}, r"outputs must be different names, .* got \['x', ''\]"),
        ({"outputs": ["x", "__id__"]}, r"outputs must be different names, none of them empty or '__id__', got"),
        ({"outputs": [1]}, r"outputs must be different names, .* got \[1\]"),
    ],
)
def test_a_pipeline_that_cannot_be_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        _options(**wrong)


def test_outputs_are_named_by_the_map_the_preset_or_the_inputs() -> None:
    requests = [InputRequest(fields=("a", "b"), random=1), InputRequest(fields=("c",))]
    assert name_outputs(_options(), [], 2) == ("image", "label")
    assert name_outputs(_options(outputs=["x", "y"]), [], 2) == ("x", "y")
    assert name_outputs(_options(pipeline=len), requests, 3) == ("a", "b", "c")
    assert name_outputs(_options(pipeline=len, outputs=["x"]), requests, 1) == ("x",)


@pytest.mark.parametrize("names", [["x"], ["x", "y", "z"], []])
def test_outputs_without_a_name_of_their_own_are_refused_with_what_there_is(names: list[str]) -> None:
    with pytest.raises(ConfigError, match="it has 2, outputs names") as refused:
        name_outputs(_options(outputs=names), [], 2)
    assert str(refused.value).endswith(str(names))


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets how many CUDA devices DALI finds."""
    backend = pytest.importorskip("nvidia.dali.backend", reason="requires NVIDIA DALI")
    return lambda count: monkeypatch.setattr(backend, "GetCUDADeviceCount", lambda: count)


@pytest.mark.parametrize(
    ("device", "count", "environment", "wanted"),
    [
        (None, 2, {}, None),
        ("cpu", 2, {"LOCAL_RANK": "1"}, None),
        ("cuda", 2, {}, 0),
        ("cuda", 4, {"LOCAL_RANK": "3"}, 3),
        ("cuda", 4, {"LOCAL_RANK": "no number"}, 0),
        ("cuda", 1, {"LOCAL_RANK": "3"}, 0),  # a launcher that shows each process its own device only
        ("cuda:2", 4, {"LOCAL_RANK": "1"}, 2),
    ],
)
def test_the_device_is_the_one_named_or_that_of_the_local_rank(
    devices: Any, device: str | None, count: int, environment: dict[str, str], wanted: int | None
) -> None:
    devices(count)
    assert dali_device(device, environment) == wanted


@pytest.mark.parametrize(
    ("device", "count", "environment", "said"),
    [
        ("cuda:2", 2, {}, "must be one of 2 CUDA devices that DALI can use, got 'cuda:2'"),
        ("cuda", 2, {"LOCAL_RANK": "2"}, "must be one of 2 CUDA devices"),
        ("cuda", 0, {}, "found none"),
        ("cuda:x", 2, {}, 'must be "cpu", "cuda" or "cuda:NUMBER"'),
        ("tpu", 2, {}, 'must be "cpu", "cuda" or "cuda:NUMBER"'),
    ],
)
def test_a_device_that_is_not_there_is_refused(
    devices: Any, device: str, count: int, environment: dict[str, str], said: str
) -> None:
    devices(count)
    with pytest.raises(ConfigError, match=said):
        dali_device(device, environment)
