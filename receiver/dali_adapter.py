"""A DALI pipeline fed by the loader.

Covers: building a user's pipeline or a preset, feeding it batch by batch, its outputs as tensors without a copy, the
batches under way, leaving them, and finding the record it stumbles over. Does not cover: what a pipeline asks for
(emlio.receiver.dali_inputs), the presets (emlio.receiver.dali_presets), CUDA devices in general.

Counting: DALI runs batches before they are asked for, as many as its queue is deep. The loader counts a batch when its
outputs are handed to the user, so a position saved meanwhile knows nothing of what is under way here.
"""

import importlib
import importlib.util
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from emlio.errors import ConfigError, CorruptRecordError
from emlio.receiver.bad_records import BadRecordPolicy
from emlio.receiver.dali_inputs import InputRequest, Inputs, defining
from emlio.receiver.dali_presets import OUTPUTS, PRESETS
from emlio.receiver.decoded import Decoded
from emlio.receiver.prefetch import MadeBatch
from emlio.receiver.torch_adapter import cuda_stream, from_dlpack

__all__ = ["DaliPipe", "PipeOptions", "dali_device"]

Draw = Callable[[Decoded, int], Any]
"""Random numbers for the records of a batch, so many for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeOptions:
    """What a pipeline is built with.

    Attributes:
        pipeline: a preset's name, or a function that defines a graph, decorated with `pipeline_def` or not.
        arguments: for the function, and for DALI's `Pipeline`.
        output_map: names of the outputs; None for those of a preset, or for the names of the inputs.
        batch_size: records in a batch, at most.
        device_id: a CUDA device, or None.
        threads: of DALI, where the arguments do not say it.
        seed: of DALI's own random numbers, likewise.
        tensors: whether outputs are torch's tensors, or NumPy's arrays.
    """

    pipeline: "str | Callable[..., Any]"
    arguments: Mapping[str, Any]
    output_map: Sequence[str] | None
    batch_size: int
    device_id: int | None
    threads: int
    seed: int
    tensors: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnderWay:
    """A batch that DALI works on, kept until its outputs are here: should a record stop the pipeline, it is fed again."""

    batch: MadeBatch
    decoded: Decoded


def dali_device(device: str | None, environment: Mapping[str, str]) -> int | None:
    """The CUDA device that "cuda", "cuda:1" or "gpu" means, or None for the CPU; an error where it is not there."""
    if importlib.util.find_spec("nvidia") is None or importlib.util.find_spec("nvidia.dali") is None:
        raise ConfigError('a pipeline needs NVIDIA DALI, which is not installed: pip install "emlio[dali]"')
    if device in (None, "cpu"):
        return None
    kind, _, number = str(device).partition(":")
    if kind not in ("cuda", "gpu") or (number and not number.isdigit()):
        raise ConfigError(f'device must be "cpu", "cuda" or "cuda:NUMBER", got {device!r}')
    backend: Any = importlib.import_module("nvidia.dali.backend")
    try:
        count = int(backend.GetCUDADeviceCount())
    except RuntimeError as error:
        raise ConfigError(
            f"device {device!r} needs a CUDA device that DALI can use; there is none here: {error}"
        ) from error
    # One process per device is what launchers start; which of them this is they say in a variable.
    wanted = int(number or environment.get("LOCAL_RANK", "0"))
    if wanted >= count:
        raise ConfigError(f"device must be one of {count} CUDA devices that DALI can use, got {device!r}")
    return wanted


class DaliPipe:
    """One pipeline and the batches under way in it. Used by the user's thread only.

    Attributes:
        fields: the features its sources want.
        images: those that must be whole images.
        depth: how many batches it works on at once.
        waited_ns: for outputs, with the records at hand.
    """

    def __init__(self, options: PipeOptions, policy: BadRecordPolicy, draw: Draw) -> None:
        """Build the pipeline.

        Args:
            options: what of.
            policy: what becomes of a record it cannot decode.
            draw: see `Draw`.
        """
        self._options = options
        self._policy = policy
        self._draw = draw
        self._fetch: Callable[[], MadeBatch] = _nothing_to_fetch
        self._inputs = Inputs(source=self._source)
        self._fed: deque[_UnderWay] = deque()
        self._feeding: tuple[int, Decoded] | None = None
        self._again: deque[_UnderWay] = deque()
        self.waited_ns = 0
        self._pipe: Any = self._build(self._inputs)
        requests = self._inputs.requests
        if not requests:
            raise ConfigError("a pipeline must take its records from emlio.dali.inputs, this one never calls it")
        self.fields = tuple(dict.fromkeys(name for request in requests for name in request.fields))
        self.images = tuple(dict.fromkeys(name for request in requests for name in request.images))
        self.depth = max(int(self._pipe.cpu_queue_size), 1) if self._pipe.exec_pipelined else 1
        self._names = self._name_outputs(requests)
        # The other executors use the memory of outputs again as soon as the next ones are asked for.
        self._own_memory = bool(self._pipe.exec_dynamic)

    def _build(self, collector: Inputs, **changes: Any) -> Any:
        options = self._options
        dali: Any = importlib.import_module("nvidia.dali")
        graph: Any = options.pipeline
        arguments: dict[str, Any] = {"num_threads": options.threads, "seed": options.seed, "prefetch_queue_depth": 2}
        if isinstance(graph, str):
            if graph not in PRESETS:
                raise ConfigError(f"a pipeline must be one of {', '.join(PRESETS)}, or a function, got {graph!r}")
            graph = PRESETS[graph]
            arguments["decoder"] = "cpu" if options.device_id is None else "mixed"
        if isinstance(graph, dali.Pipeline) or not callable(graph):
            raise ConfigError(
                f"a pipeline must be a preset's name or a function that defines the graph, got {type(graph).__name__}"
            )
        make: Any = graph if hasattr(graph, "_is_pipeline_def") else dali.pipeline_def(graph)
        arguments |= {"device_id": options.device_id, **options.arguments, "batch_size": options.batch_size, **changes}
        with defining(collector):
            try:
                pipe: Any = make(**arguments)
                pipe.build()
            except ConfigError:
                raise
            except (RuntimeError, TypeError, ValueError) as error:
                raise ConfigError(f"the pipeline cannot be built: {error}") from error
        return pipe

    def _name_outputs(self, requests: Sequence[InputRequest]) -> tuple[str, ...]:
        count, given = int(self._pipe.num_outputs), self._options.output_map
        names = tuple(given) if given is not None else OUTPUTS
        what = "output_map names"
        if given is None and not isinstance(self._options.pipeline, str):
            names = tuple(name for request in requests for name in request.fields)
            what = "without output_map they take the names of the inputs,"
        if len(names) != count or len(set(names)) != count:
            raise ConfigError(
                f"each output of the pipeline must have a name of its own: it has {count}, {what} {list(names)}"
            )
        return names

    # ---- feeding --------------------------------------------------------------------------------------------------

    def _source(self, request: int, number: int) -> Sequence[Any]:
        """What DALI's sources call; all those of one run get the same batch."""
        if self._feeding is None or self._feeding[0] != number:
            under_way = self._again.popleft() if self._again else None
            if under_way is None:
                batch = self._fetch()
                under_way = _UnderWay(batch=batch, decoded=batch.value)
            self._fed.append(under_way)
            self._feeding = number, under_way.decoded
        return self._sources(self._inputs.requests[request], self._feeding[1])

    def _sources(self, request: InputRequest, decoded: Decoded) -> list[Any]:
        sources = [_for_dali(decoded.columns[name], name) for name in request.fields]
        if request.random:
            sources.append(self._draw(decoded, request.random))
        return sources

    # ---- for the loader -------------------------------------------------------------------------------------------

    def next(self, fetch: Callable[[], MadeBatch], ready: Callable[[], bool]) -> tuple[MadeBatch, Decoded]:
        """The outputs of the next batch and the records they are of, with the pipeline's queue filled behind it.

        Args:
            fetch: gives the next batch of columns, waiting for it; what it raises comes out here.
            ready: whether it would find one at once. A batch that is done does not wait for one that has not come.
        """
        while True:
            self._fetch = fetch
            try:
                self._fill(ready)
            finally:
                self._fetch = _nothing_to_fetch  # it belongs to the loader, which must be free to end
            begun_ns = time.monotonic_ns()
            try:
                outputs = self._outputs()
            except RuntimeError as error:
                self._recover(error)
                continue
            finally:
                self.waited_ns += time.monotonic_ns() - begun_ns
            done = self._fed.popleft()
            return replace(done.batch, value=outputs, bad=done.decoded.bad), done.decoded

    def _fill(self, ready: Callable[[], bool]) -> None:
        while not self._fed or (len(self._fed) < self.depth and (self._again or ready())):
            try:
                self._pipe.schedule_run()
            except Exception:
                # What is wrong behind the batches under way is told in its place: when they are handed out.
                if not self._fed:
                    raise
                return

    def _outputs(self) -> dict[str, Any]:
        stream = None
        if self._options.device_id is not None and self._options.tensors and self._own_memory:
            stream = cuda_stream(self._options.device_id)
        outputs = self._pipe.outputs(stream) if stream is not None else self._pipe.outputs()
        return {name: self._handed_out(output) for name, output in zip(self._names, outputs, strict=True)}

    def _handed_out(self, output: Any) -> Any:
        take = from_dlpack if self._options.tensors else _array
        if output.is_dense_tensor():
            tensor = take(output.as_tensor())
        else:
            return [self._kept(take(one)) for one in output]
        return self._kept(tensor)

    def _kept(self, tensor: Any) -> Any:
        if self._own_memory:
            return tensor
        return tensor.clone() if self._options.tensors else tensor.copy()

    def drop(self) -> None:
        """Leave the batches under way."""
        self._again.clear()
        try:
            while self._fed:
                self._fed.popleft()
                self._pipe.outputs()
        except RuntimeError:
            self._rebuild()  # one of those that nobody wants cannot be decoded
        self._fed.clear()

    def close(self) -> None:
        """Let go of the pipeline and its threads."""
        self._fed.clear()
        self._again.clear()
        self._pipe = None

    # ---- a record it cannot decode --------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        """A pipeline that failed cannot be used again."""
        self._pipe = None
        self._feeding = None
        self._inputs = Inputs(source=self._source)
        self._pipe = self._build(self._inputs)

    def _recover(self, error: RuntimeError) -> None:
        """Find the records of the failed batch that cannot be decoded, deal with them, feed all under way again."""
        waiting, self._fed = self._fed, deque()
        failed = waiting.popleft()
        faults = self._find_faults(failed.decoded)
        if not faults:
            raise ConfigError(
                f"the pipeline failed, and with none of the records of the batch alone: {error}"
            ) from error
        try:
            places = self._policy.settle(failed.decoded.ids, faults)
        except CorruptRecordError as told:
            raise told from error
        mended = replace(failed, decoded=failed.decoded.take(places, len(faults)))
        self._rebuild()
        self._again.extend([mended, *waiting])

    def _find_faults(self, decoded: Decoded) -> dict[int, str]:
        """Each record through a pipeline of its own."""
        faults: dict[int, str] = {}
        prober: Any = None
        for place in range(len(decoded.ids)):
            one = decoded.take(np.array([place]), 0)
            if prober is None:
                prober = _Prober(self, one)
            try:
                prober.run(one)
            except RuntimeError as error:
                faults[place] = f"DALI cannot decode it: {_essence(error)}"
                prober = None
        return faults

    def probe(self, collector: Inputs) -> Any:
        """A pipeline of the same graph for one record at a time."""
        return self._build(
            collector, batch_size=1, prefetch_queue_depth=1, exec_async=False, exec_pipelined=False, num_threads=1
        )

    def sources(self, request: InputRequest, decoded: Decoded) -> list[Any]:
        """What the sources of one request get of these records."""
        return self._sources(request, decoded)


class _Prober:
    """A pipeline that runs one record."""

    def __init__(self, pipe: DaliPipe, first: Decoded) -> None:
        self._owner = pipe
        self._record = first
        self._inputs = Inputs(source=self._source)
        self._pipe = pipe.probe(self._inputs)

    def _source(self, request: int, number: int) -> Sequence[Any]:
        return self._owner.sources(self._inputs.requests[request], self._record)

    def run(self, record: Decoded) -> None:
        self._record = record
        self._pipe.run()


def _nothing_to_fetch() -> MadeBatch:
    raise AssertionError("a pipeline runs only when a batch is asked for")


def _for_dali(column: Any, name: str) -> Any:
    """A column as DALI's sources take it."""
    if isinstance(column, np.ndarray):
        return column
    first = column[0]
    if isinstance(first, bytes | memoryview):
        return [np.frombuffer(value, np.uint8) for value in column]
    if isinstance(first, np.ndarray):
        return column
    raise ConfigError(
        f"a source of a pipeline must hold bytes or numbers, feature {name!r} holds {type(first).__name__}"
    )


def _array(tensor: Any) -> Any:
    numpy: Any = np
    return numpy.from_dlpack(tensor)


def _essence(error: RuntimeError) -> str:
    """The line that says what happened, without the traces around it."""
    lines = [line.strip() for line in str(error).splitlines()]
    after = lines[lines.index("encountered:") + 1 :] if "encountered:" in lines else lines
    said = [line for line in after if line and not line.startswith("Current pipeline object")]
    return said[0].rstrip(" :") if said else "no reason given"
