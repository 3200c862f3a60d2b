"""Building a DALI pipeline from the user's options.

Covers: the device, presets and users' functions, decorated or not, their arguments, names of the
outputs. Does not cover: running it (emlio.receiver.dali.adapter), its requests for records
(emlio.receiver.dali.inputs).
"""

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from typing import Any

import msgspec

from emlio.arguments import like
from emlio.errors import ConfigError
from emlio.extras import how_to_install
from emlio.receiver.dali.inputs import InputRequest, Inputs, defining, inputs
from emlio.receiver.dali.pipeline import DaliPipeline
from emlio.receiver.dali.presets import OUTPUTS, PRESETS
from emlio.receiver.records.decoded import IDS

__all__ = ["PipeOptions", "build", "build_for_one", "dali_device", "name_outputs"]

_OF_THE_DECORATOR = ("debug", "enable_conditionals")
"""Arguments that DALI's `pipeline_def` takes itself."""


class PipeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options to build a pipeline with.

    Attributes:
        dali: the pipeline as given to the loader.
        batch_size: the most records in a batch.
        device_id: a CUDA device, or None.
        threads: DALI's threads, if neither the arguments nor the decorator give a number.
        seed: the seed of DALI's own random numbers, likewise.
        tensors: whether outputs are torch tensors, else NumPy arrays.
    """

    dali: DaliPipeline
    batch_size: int
    device_id: int | None
    threads: int
    seed: int
    tensors: bool


def dali_device(device: str | None, environment: Mapping[str, str]) -> int | None:
    """Return the number of the CUDA device named "cuda" or "cuda:1", or None for the CPU.

    Raises `ConfigError` if the device is not there.
    """
    if importlib.util.find_spec("nvidia") is None or importlib.util.find_spec("nvidia.dali") is None:
        raise ConfigError(f"a pipeline requires NVIDIA DALI, which is not installed: {how_to_install('dali')}")
    if device in (None, "cpu"):
        return None
    kind, _, number = str(device).partition(":")
    if kind != "cuda" or (number and not number.isdigit()):
        raise ConfigError(f'device must be "cpu", "cuda" or "cuda:NUMBER", got {device!r}')
    backend: Any = importlib.import_module("nvidia.dali.backend")
    try:
        count = int(backend.GetCUDADeviceCount())
    except RuntimeError as error:
        raise ConfigError(f"device {device!r} requires a CUDA device that DALI can use, found none: {error}") from error
    if not count:
        raise ConfigError(f"device {device!r} requires a CUDA device that DALI can use, found none")
    # Launchers start one process per device and give its number in LOCAL_RANK. Some show each
    # process only its own device, which is then the first.
    local_rank = environment.get("LOCAL_RANK", "")
    wanted = int(number) if number else int(local_rank) if local_rank.isdigit() and count > 1 else 0
    if wanted >= count:
        raise ConfigError(f"device must be one of {count} CUDA devices that DALI can use, got {device!r} as {wanted}")
    return wanted


def build(options: PipeOptions, collector: Inputs, **changes: Any) -> Any:
    """Return a pipeline that is ready to run.

    Args:
        options: the pipeline's options.
        collector: collects the requests of its graph.
        changes: changed arguments for DALI.
    """
    dali: Any = importlib.import_module("nvidia.dali")
    # With conditionals, DALI rewrites the functions that a graph's function calls; `inputs` must
    # not be rewritten.
    importlib.import_module("nvidia.dali.pipeline").do_not_convert(inputs)
    graph: Any = options.dali.pipeline
    given: dict[str, Any] = {**options.dali.args, "batch_size": options.batch_size, "device_id": options.device_id}
    if isinstance(graph, str):
        graph = PRESETS[graph]
        given.setdefault("decoder", "cpu" if options.device_id is None else "mixed")
    defaults: dict[str, Any] = {"num_threads": options.threads, "seed": options.seed}
    _check_names(options.dali, graph, dali.Pipeline)
    decorated = hasattr(graph, "_is_pipeline_def")
    make: Any = graph if decorated else dali.pipeline_def(graph)
    try:
        if decorated:
            # The decorator's values are known only after a graph was defined with it.
            with defining(Inputs(source=collector.source)):
                said: Any = make(**given)
            defaults = {name: value for name, value in defaults.items() if getattr(said, name) is None}
        with defining(collector):
            pipe: Any = make(**{**defaults, **given, **changes})
        pipe.build()
    except ConfigError:
        raise
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(f"the pipeline cannot be built: {error}") from error
    return pipe


def _check_names(given: DaliPipeline, graph: Any, pipeline: Any) -> None:
    """Check that each argument is one of the function that defines the graph, or of DALI's `Pipeline`."""
    try:
        own, usual = signature(graph).parameters, signature(pipeline.__init__).parameters
    except (TypeError, ValueError):
        return  # it does not say what it takes
    if any(argument.kind is Parameter.VAR_KEYWORD for argument in own.values()):
        return  # DALI refuses such a function itself
    known = {*own, *usual, *_OF_THE_DECORATOR} - {"self"}
    what = given.pipeline if isinstance(given.pipeline, str) else getattr(graph, "__name__", "the function")
    for name in given.args:
        if name not in known:
            raise ConfigError(
                f"args must be arguments of {what} or of DALI's Pipeline, got {name!r}{like(name, sorted(known))}"
            )


def build_for_one(options: PipeOptions, collector: Inputs) -> Any:
    """Return the same pipeline for one record at a time, which fails only when it is run."""
    changes = {"batch_size": 1, "prefetch_queue_depth": 1, "num_threads": 1}
    return build(options, collector, **changes, exec_async=False, exec_pipelined=False, exec_dynamic=False)


def name_outputs(options: PipeOptions, requests: Sequence[InputRequest], count: int) -> tuple[str, ...]:
    """Return a name for each output; raise `ConfigError` on a wrong number or duplicates."""
    names, what = tuple(options.dali.outputs or ()), "outputs names"
    if options.dali.outputs is None and isinstance(options.dali.pipeline, str):
        names = OUTPUTS
    elif options.dali.outputs is None:
        names = tuple(name for request in requests for name in request.fields)
        what = "without outputs= they take the names of the inputs,"
    if len(names) != count or len(set(names)) != count or not all(names) or IDS in names:
        raise ConfigError(
            f"each output of the pipeline must have a name of its own, and none {IDS!r}: "
            f"it has {count}, {what} {list(names)}"
        )
    return names
