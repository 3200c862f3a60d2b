"""A DALI pipeline fed by the loader.

Covers: feeding it batch by batch, its outputs as tensors without a copy, the batches under way, leaving them, going on
without a record it stumbles over. Does not cover: building it (emlio.receiver.dali_graph), finding such a record
(emlio.receiver.dali_probe), CUDA devices in general.

Counting: DALI runs batches before they are asked for, as many as its queue is deep. The loader counts a batch when its
outputs are handed to the user, so a position saved meanwhile knows nothing of what is under way here.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from traceback import clear_frames
from typing import Any

import numpy as np

from emlio.errors import ClosedError, ConfigError, CorruptRecordError, EmlioError
from emlio.receiver.bad_records import BadRecordPolicy
from emlio.receiver.dali_graph import PipeOptions, build, build_for_one, name_outputs
from emlio.receiver.dali_inputs import Inputs
from emlio.receiver.dali_probe import find_faults
from emlio.receiver.decoded import Decoded
from emlio.receiver.prefetch import MadeBatch
from emlio.receiver.torch_adapter import cuda_stream, from_dlpack

__all__ = ["DaliPipe"]

Draw = Callable[[Decoded, int], Any]
"""Random numbers for the records of a batch, so many for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnderWay:
    """A batch that DALI works on or will, kept until its outputs are here: should a record stop the pipeline, it is fed again.

    One with an error is not fed: the error is told in its place, however often it is asked for.
    """

    batch: MadeBatch
    decoded: Decoded
    error: Exception | None = None


class _NothingYetError(Exception):
    """The pipeline asks for a batch ahead, as it does when it first runs, and gets it later."""


class DaliPipe:
    """One pipeline and the batches under way in it. Used by the user's thread only; any thread may close it.

    Attributes:
        fields: the features its sources want.
        images: those that must be whole images.
        vectors: those that hold any number of numbers.
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
        self._closed = False
        self._fed: deque[_UnderWay] = deque()
        self._waiting: deque[_UnderWay] = deque()
        self._next: Sequence[Sequence[Any]] | None = None  # for the sources: what the coming run gets
        self._running: Sequence[Sequence[Any]] = ()
        self._number = -1
        self.waited_ns = 0
        self._pipe: Any = self._build()
        try:
            self._know_pipe()
        except ConfigError:
            self._pipe = None  # and with it its threads, whoever keeps the error
            raise

    def _know_pipe(self) -> None:
        requests = self._inputs.requests
        if not requests:
            raise ConfigError("a pipeline must take its records from emlio.dali.inputs, this one never calls it")
        self.fields = tuple(dict.fromkeys(name for request in requests for name in request.fields))
        self.images = tuple(dict.fromkeys(name for request in requests for name in request.images))
        self.vectors = tuple(dict.fromkeys(name for request in requests for name in request.vectors))
        self.depth = max(int(self._pipe.cpu_queue_size), 1) if self._pipe.exec_pipelined else 1
        self._names = name_outputs(self._options, requests, int(self._pipe.num_outputs))
        # The other executors use the memory of outputs again as soon as it is given back.
        self._own_memory = bool(self._pipe.exec_dynamic)

    def _build(self) -> Any:
        self._inputs = Inputs(source=self._source)
        return build(self._options, self._inputs)

    # ---- feeding --------------------------------------------------------------------------------------------------

    def _source(self, request: int, number: int) -> Sequence[Any]:
        """What DALI's sources call; all those of one run get the same batch."""
        if number != self._number:
            if self._next is None:
                raise _NothingYetError
            self._number, self._running, self._next = number, self._next, None
        return self._running[request]

    def _sources(self, decoded: Decoded) -> Sequence[Sequence[Any]]:
        """What the sources of each request get of these records."""
        return [
            [decoded.columns[name] for name in request.fields]
            + ([self._draw(decoded, request.random)] if request.random else [])
            for request in self._inputs.requests
        ]

    def _run(self, decoded: Decoded) -> None:
        before = self._number
        self._next = self._sources(decoded)
        try:
            self._pipe.schedule_run()
        except _NothingYetError:
            pass  # the batch is on its way, the pipeline only wanted more of them
        finally:
            self._next, self._running = None, ()
        if self._number == before:
            raise ConfigError("an output of the pipeline must depend on what emlio.dali.inputs gives, none does")

    # ---- for the loader -------------------------------------------------------------------------------------------

    def next(self, fetch: Callable[[], MadeBatch], ready: Callable[[], bool]) -> tuple[MadeBatch, Decoded]:
        """The outputs of the next batch and the records they are of, with the pipeline's queue filled behind it.

        Args:
            fetch: gives the next batch of columns, waiting for it; what it raises comes out here.
            ready: whether it would find one at once. A batch that is done does not wait for one that has not come.
        """
        try:
            return self._next_batch(fetch, ready)
        except IndexError as error:
            if self._closed:  # by another thread, which took the batches away
                raise ClosedError("the loader was closed while a batch was made") from error
            raise

    def _next_batch(self, fetch: Callable[[], MadeBatch], ready: Callable[[], bool]) -> tuple[MadeBatch, Decoded]:
        while True:
            while not self._fed or (len(self._fed) < self.depth and (self._waiting or ready())):
                if not self._await_one(fetch):
                    break
                self._fed.append(self._waiting.popleft())
                self._guarded(partial(self._run, self._fed[-1].decoded))
            begun_ns = time.monotonic_ns()
            outputs = self._guarded(self._outputs) if self._fed else None
            self.waited_ns += time.monotonic_ns() - begun_ns
            if outputs is not None:
                done = self._fed.popleft()
                return replace(done.batch, value=outputs, bad=done.decoded.bad), done.decoded

    def _await_one(self, fetch: Callable[[], MadeBatch]) -> bool:
        """Whether there is a batch to feed; what stands in the way of one is told once nothing is under way before it."""
        if self._closed:
            raise ClosedError("the loader was closed while a batch was waited for")
        try:
            if not self._waiting:
                batch = fetch()
                self._waiting.append(_UnderWay(batch=batch, decoded=batch.value))
            error = self._waiting[0].error
            if error is not None:
                raise error
        except Exception:
            if self._fed:
                return False
            raise
        return True

    def _guarded(self, work: Callable[[], Any]) -> Any:
        """What the pipeline gives; None if it failed and all that was under way is to be fed again."""
        try:
            return work()
        except Exception as error:  # whatever it is, the pipeline is done for; what to tell is found out
            if self._closed:
                raise ClosedError("the loader was closed while a batch was made") from error
            # Who keeps the error must not keep the pipeline and its threads.
            clear_frames(error.__traceback__)
            self._recover(error)
            return None
        except BaseException:
            # An interrupt: whoever goes on after it must get the same batches.
            self._start_over()
            raise

    def _outputs(self) -> dict[str, Any]:
        pipe = self._pipe
        if not self._own_memory:
            outputs = pipe.share_outputs()
            try:
                return self._named(outputs)
            finally:
                pipe.release_outputs()
        stream = None
        if self._options.device_id is not None and self._options.tensors:
            stream = cuda_stream(self._options.device_id)
        return self._named(pipe.outputs(stream) if stream is not None else pipe.outputs())

    def _named(self, outputs: Sequence[Any]) -> dict[str, Any]:
        return {name: self._handed_out(output) for name, output in zip(self._names, outputs, strict=True)}

    def _handed_out(self, output: Any) -> Any:
        if output.is_dense_tensor():
            return self._taken(output.as_tensor())
        return [self._taken(one) for one in output]

    def _taken(self, one: Any) -> Any:
        """The user's own: on memory that the pipeline gives away, or a copy."""
        if not self._options.tensors:
            return np.array(one, copy=None if self._own_memory else True)
        tensor = from_dlpack(one)
        if self._own_memory:
            return tensor
        copy = tensor.clone()
        if copy.is_cuda:
            # Behind what the user has on his stream; the pipeline must not write there before it is done.
            cuda_stream(copy.device.index).synchronize()
        return copy

    def drop(self) -> None:
        """Leave the batches under way."""
        self._waiting.clear()
        try:
            while self._fed:
                self._fed.popleft()
                self._pipe.share_outputs()
                self._pipe.release_outputs()
        except BaseException as error:
            self._fed.clear()
            self._rebuild()
            if not isinstance(error, Exception):  # otherwise one of those that nobody wants cannot be decoded
                raise

    def close(self) -> None:
        """Let go of the pipeline and its threads."""
        self._closed = True
        self._pipe = None
        self._fed.clear()
        self._waiting.clear()

    # ---- a record it cannot decode --------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        """A pipeline that failed cannot be used again."""
        self._pipe = None
        self._number = -1
        if not self._closed:
            self._pipe = self._build()

    def _start_over(self) -> None:
        """All that was under way waits to be fed to a new pipeline."""
        self._waiting.extendleft(reversed(self._fed))
        self._fed.clear()
        self._rebuild()

    def _recover(self, error: Exception) -> None:
        """Find the batch that failed and deal with its records that cannot be decoded; feed all under way again.

        Which batch it was DALI does not say: its older executors fail for the one they are asked for, whichever was to blame.
        """
        under_way = len(self._fed)
        self._start_over()
        for number in range(under_way):
            decoded = self._waiting[number].decoded
            faults = find_faults(decoded, self._sources, partial(build_for_one, self._options))
            if faults:
                self._waiting[number] = self._without(self._waiting[number], faults, error)
                return
        if not isinstance(error, EmlioError):
            cause, error = error, ConfigError(f"the pipeline failed, and with none of the records alone: {error}")
            error.__cause__ = cause
        self._waiting[0] = replace(self._waiting[0], error=error)

    def _without(self, failed: _UnderWay, faults: dict[int, str], error: Exception) -> _UnderWay:
        try:
            places = self._policy.settle(failed.decoded.ids, faults)
        except CorruptRecordError as told:
            told.__cause__ = error
            return replace(failed, error=told)
        return replace(failed, decoded=failed.decoded.take(places, len(faults)))
