"""A DALI pipeline fed by the loader.

Counting: DALI runs batches before they are requested, as many as its queue is deep. The loader
counts a batch when its outputs are handed to the user, so a position saved in the meantime does not
include the batches in progress here.

Interrupts: a signal handler may raise in any call of the user's thread, even after DALI has acted
but before the result is recorded. So a flag notes that the pipeline is at work. A call that finds
the flag set feeds the batches in progress to a new pipeline.

Covers: feeding the pipeline batch by batch, its outputs as tensors without a copy, the batches in
progress, dropping them, continuing without a record that it fails on. Does not cover: building it
(emlio.receiver.dali.graph), finding such a record (emlio.receiver.dali.probe), CUDA devices in
general.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from traceback import clear_frames
from typing import Any

import msgspec
import numpy as np

from emlio.errors import ClosedError, ConfigError, CorruptRecordError, EmlioError
from emlio.interrupts import interrupt_behind
from emlio.receiver.batches.patience import PatientBatches
from emlio.receiver.batches.prefetch import MadeBatch
from emlio.receiver.dali.graph import PipeOptions, build, build_for_one, name_outputs
from emlio.receiver.dali.inputs import Inputs
from emlio.receiver.dali.probe import find_faults
from emlio.receiver.iteration.epoch_pass import Handed
from emlio.receiver.records.bad_records import BadRecordPolicy, first_fault
from emlio.receiver.records.decoded import Decoded
from emlio.receiver.torch_adapter import cuda_stream, from_dlpack

__all__ = ["DaliPipe"]

Draw = Callable[[Decoded, int], Any]
"""Returns random numbers for the records of a batch, this many for each."""

Finish = Callable[[dict[str, Any], Decoded], dict[str, Any]]
"""Returns the user's value, from a batch's outputs and its records."""


class _UnderWay(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that DALI works on or will work on.

    It is kept until its outputs are here: if a record stops the pipeline, it is fed again. A batch
    with an error is not fed: the error is raised in its place each time it is requested.
    """

    batch: MadeBatch
    decoded: Decoded
    error: Exception | None = None


class _NothingYetError(Exception):
    """The pipeline asks for a batch ahead, as it does when it first runs; it gets it later."""


class DaliPipe:
    """One pipeline and its batches in progress.

    Used by the user's thread only; any thread may close it.

    Attributes:
        fields: the features that its sources take.
        images: those that must be complete images.
        vectors: those that hold any number of numbers.
        depth: how many batches it works on at once.
        waited_ns: time spent waiting for outputs whose records were here.
    """

    def __init__(self, options: PipeOptions, policy: BadRecordPolicy, draw: Draw, finish: Finish) -> None:
        """Build the pipeline.

        Args:
            options: the pipeline's options.
            policy: how to handle a record that it cannot decode.
            draw: see `Draw`.
            finish: see `Finish`.
        """
        self._options = options
        self._policy = policy
        self._draw = draw
        self._finish = finish
        self._closed = False
        self._under_way: deque[_UnderWay] = deque()
        self._fed = 0  # how many of them DALI has
        self._at_work = False  # and may have finished
        self._untaken: MadeBatch | None = None  # in progress, but maybe still in the queue
        self._next: Sequence[Sequence[Any]] | None = None  # the sources' input for the next run
        self._running: Sequence[Sequence[Any]] = ()
        self._number = -1
        self.waited_ns = 0
        self._pipe: Any = self._build()
        try:
            self._know_pipe()
        except ConfigError:
            self._pipe = None  # and with it its threads, even if the error is kept
            raise

    def _know_pipe(self) -> None:
        requests = self._inputs.requests
        if not requests:
            raise ConfigError("a pipeline must call emlio.dali.inputs for its records, this one does not")
        self.fields = tuple(dict.fromkeys(name for request in requests for name in request.fields))
        self.images = tuple(dict.fromkeys(name for request in requests for name in request.images))
        self.vectors = tuple(dict.fromkeys(name for request in requests for name in request.vectors))
        self.depth = max(int(self._pipe.cpu_queue_size), 1) if self._pipe.exec_pipelined else 1
        self._names = name_outputs(self._options, requests, int(self._pipe.num_outputs))
        # The other executors reuse the memory of outputs as soon as it is released.
        self._own_memory = bool(self._pipe.exec_dynamic)

    def _build(self) -> Any:
        self._inputs = Inputs(source=self._source)
        return build(self._options, self._inputs)

    # ---- feeding --------------------------------------------------------------------------------------------------

    def _source(self, request: int, number: int) -> Sequence[Any]:
        """Return the input of a source, as DALI calls it.

        All sources of one run get the same batch.
        """
        if number != self._number:
            if self._next is None:
                raise _NothingYetError
            self._number, self._running, self._next = number, self._next, None
        return self._running[request]

    def _sources(self, decoded: Decoded) -> Sequence[Sequence[Any]]:
        """Return the input of each request's sources for these records."""
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
            pass  # the batch is being processed, the pipeline only asked for more
        finally:
            self._next, self._running = None, ()
        if self._number == before:
            raise ConfigError(
                "at least one output of the pipeline must depend on the outputs of emlio.dali.inputs, none does"
            )

    # ---- for the loader -------------------------------------------------------------------------------------------

    def next(self, batches: PatientBatches, handed: Handed) -> MadeBatch:
        """Return the next batch with its finished outputs, and keep the pipeline's queue filled.

        Args:
            batches: the batches of columns; their errors are raised here. A finished batch does not
                wait for one that has not come.
            handed: keeps the batch until it is counted.
        """
        try:
            return self._next_batch(batches, handed)
        except IndexError as error:
            if self._closed:  # by another thread, which took the batches away
                raise ClosedError("the loader was closed while a batch was made") from error
            raise

    def _next_batch(self, batches: PatientBatches, handed: Handed) -> MadeBatch:
        if self._at_work:
            self._start_over()
        if self._untaken is not None:
            batches.taken(self._untaken)
            self._untaken = None
        while True:
            while not self._fed or (self._fed < self.depth and (self._fed < len(self._under_way) or batches.ready)):
                if not self._await_one(batches):
                    break
                coming = self._under_way[self._fed]
                self._at_work = True
                self._fed += 1
                self._guarded(partial(self._run, coming.decoded))
                self._at_work = False
            if not self._fed:
                continue
            begun_ns = time.monotonic_ns()
            self._at_work = True
            outputs = self._guarded(self._outputs)
            self.waited_ns += time.monotonic_ns() - begun_ns
            if outputs is None:
                self._at_work = False
                continue
            done = self._under_way[0]
            value = self._finish(outputs, done.decoded)
            made = msgspec.structs.replace(done.batch, value=value, bad=done.decoded.bad, fault=done.decoded.fault)
            # Python handles signals where a call ends, so not between these lines.
            handed.ready = made
            del self._under_way[0]
            self._fed -= 1
            self._at_work = False
            return made

    def _await_one(self, batches: PatientBatches) -> bool:
        """Return whether there is a batch to feed.

        An error in its place is raised once no batch is in progress before it.
        """
        if self._closed:
            raise ClosedError("the loader was closed while it waited for a batch")
        try:
            if self._fed >= len(self._under_way):
                self._fetch(batches)
            error = self._under_way[self._fed].error
            if error is not None:
                raise error
        except Exception as error:
            _raise_interrupt(error)
            if self._fed:
                return False
            raise
        return True

    def _fetch(self, batches: PatientBatches) -> None:
        batch = batches.first()
        coming = [_UnderWay(batch=batch, decoded=batch.value)]
        untaken = msgspec.structs.replace(batch, value=None)  # its columns are freed once DALI has them
        # Python handles signals where a call ends, so not between these lines.
        self._under_way += coming
        self._untaken = untaken
        batches.taken(untaken)
        self._untaken = None

    def _guarded(self, work: Callable[[], Any]) -> Any:
        """Return the result of the pipeline's work; None if all batches must be fed again."""
        try:
            return work()
        except Exception as error:  # the pipeline cannot be used after any error; the cause is found below
            if self._closed:
                raise ClosedError("the loader was closed while a batch was made") from error
            _raise_interrupt(error)
            # Code that keeps the error must not keep the pipeline and its threads alive.
            clear_frames(error.__traceback__)
            self._recover(error)
            return None

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
        """Return the user's own output: on memory that the pipeline gives away, or a copy."""
        if not self._options.tensors:
            return np.array(one, copy=None if self._own_memory else True)
        tensor = from_dlpack(one)
        if self._own_memory:
            return tensor
        copy = tensor.clone()
        if copy.is_cuda:
            # The copy runs on the user's stream; the pipeline must not write to this memory before
            # it is done.
            cuda_stream(copy.device.index).synchronize()
        return copy

    def drop(self) -> None:
        """Drop the batches in progress."""
        fed, was_at_work = self._fed, self._at_work
        nothing: deque[_UnderWay] = deque()
        self._at_work = True
        self._under_way, self._fed, self._untaken = nothing, 0, None
        try:
            if was_at_work:
                self._rebuild()
            else:
                for _ in range(fed):
                    self._pipe.share_outputs()
                    self._pipe.release_outputs()
        except Exception as error:  # noqa: BLE001  # one of the unwanted records cannot be decoded
            _raise_interrupt(error)
            self._rebuild()
        self._at_work = False

    def close(self) -> None:
        """Release the pipeline and its threads."""
        self._closed = True
        self._pipe = None
        self._fed = 0
        self._under_way.clear()

    # ---- a record it cannot decode --------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        """Build a new pipeline: one that failed cannot be used again."""
        self._pipe = None
        self._number = -1
        self._next, self._running = None, ()
        if self._closed:
            return
        try:
            self._pipe = self._build()
        except ConfigError as error:
            _raise_interrupt(error)
            raise

    def _start_over(self) -> None:
        """Rebuild the pipeline; all batches in progress wait to be fed to it."""
        self._fed = 0
        self._rebuild()
        self._at_work = False

    def _recover(self, error: Exception) -> None:
        """Find the batch that failed and handle its records that cannot be decoded; feed all again.

        DALI does not say which batch failed: its older executors raise for the batch that is
        requested, whichever failed.
        """
        fed = self._fed
        self._start_over()
        for number in range(fed):
            decoded = self._under_way[number].decoded
            faults = find_faults(decoded, self._sources, partial(build_for_one, self._options))
            if faults:
                self._under_way[number] = self._without(self._under_way[number], faults, error)
                return
        if not isinstance(error, EmlioError):
            cause, error = (
                error,
                ConfigError(f"the pipeline failed on a batch, but on none of its records alone: {error}"),
            )
            error.__cause__ = cause
        self._under_way[0] = msgspec.structs.replace(self._under_way[0], error=error)

    def _without(self, failed: _UnderWay, faults: dict[int, str], error: Exception) -> _UnderWay:
        ids, reasons = failed.decoded.ids, failed.decoded.with_paths(faults)
        try:
            places = self._policy.settle(ids, reasons)
        except CorruptRecordError as told:
            told.__cause__ = error
            return msgspec.structs.replace(failed, error=told)
        return msgspec.structs.replace(
            failed, decoded=failed.decoded.take(places, len(faults), first_fault(ids, reasons))
        )


def _raise_interrupt(error: Exception) -> None:
    """Raise the interrupt behind an error, if any: it says nothing about the pipeline."""
    interrupt = interrupt_behind(error)
    if interrupt is not None:
        raise interrupt
