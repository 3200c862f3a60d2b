"""A DALI pipeline fed by the loader.

Covers: feeding it batch by batch, its outputs as tensors without a copy, the batches under way, leaving them, going on
without a record it stumbles over. Does not cover: building it (emlio.receiver.dali_graph), finding such a record
(emlio.receiver.dali_probe), CUDA devices in general.

Counting: DALI runs batches before they are asked for, as many as its queue is deep. The loader counts a batch when its
outputs are handed to the user, so a position saved meanwhile knows nothing of what is under way here.

Interrupts: a signal's handler may raise in any call of the user's thread, also when DALI has done something and nobody knows. So
it is noted that the pipeline is at work; a call that finds such a note gives what is under way to a new pipeline.
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
from emlio.receiver.interrupts import interrupt_behind
from emlio.receiver.iteration import Handed
from emlio.receiver.prefetch import MadeBatch, MadeBatches
from emlio.receiver.torch_adapter import cuda_stream, from_dlpack

__all__ = ["DaliPipe"]

Draw = Callable[[Decoded, int], Any]
"""Random numbers for the records of a batch, so many for each."""

Finish = Callable[[dict[str, Any], Decoded], dict[str, Any]]
"""What the user gets, of a batch's outputs and its records."""


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

    def __init__(self, options: PipeOptions, policy: BadRecordPolicy, draw: Draw, finish: Finish) -> None:
        """Build the pipeline.

        Args:
            options: what of.
            policy: what becomes of a record it cannot decode.
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
        self._at_work = False  # and perhaps has done it
        self._untaken: MadeBatch | None = None  # under way, and perhaps still in the queue
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

    def next(self, batches: MadeBatches, handed: Handed) -> MadeBatch:
        """The next batch's outputs, finished, with the pipeline's queue filled behind it.

        Args:
            batches: of columns; what they raise comes out here. A batch that is done does not wait for one that has not come.
            handed: keeps the batch until it is counted.
        """
        try:
            return self._next_batch(batches, handed)
        except IndexError as error:
            if self._closed:  # by another thread, which took the batches away
                raise ClosedError("the loader was closed while a batch was made") from error
            raise

    def _next_batch(self, batches: MadeBatches, handed: Handed) -> MadeBatch:
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
            made = replace(done.batch, value=value, bad=done.decoded.bad)
            # Signals are handled where a call ends, not between these.
            handed.ready = made
            del self._under_way[0]
            self._fed -= 1
            self._at_work = False
            return made

    def _await_one(self, batches: MadeBatches) -> bool:
        """Whether there is a batch to feed; what stands in the way of one is told once nothing is under way before it."""
        if self._closed:
            raise ClosedError("the loader was closed while a batch was waited for")
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

    def _fetch(self, batches: MadeBatches) -> None:
        batch = batches.first()
        coming = [_UnderWay(batch=batch, decoded=batch.value)]
        untaken = replace(batch, value=None)  # its columns are let go once DALI has them
        # Signals are handled where a call ends, not between these.
        self._under_way += coming
        self._untaken = untaken
        batches.taken(untaken)
        self._untaken = None

    def _guarded(self, work: Callable[[], Any]) -> Any:
        """What the pipeline gives; None if it failed and all that was under way is to be fed again."""
        try:
            return work()
        except Exception as error:  # whatever it is, the pipeline is done for; what to tell is found out
            if self._closed:
                raise ClosedError("the loader was closed while a batch was made") from error
            _raise_interrupt(error)
            # Who keeps the error must not keep the pipeline and its threads.
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
        except Exception as error:  # noqa: BLE001  # one of those that nobody wants cannot be decoded
            _raise_interrupt(error)
            self._rebuild()
        self._at_work = False

    def close(self) -> None:
        """Let go of the pipeline and its threads."""
        self._closed = True
        self._pipe = None
        self._fed = 0
        self._under_way.clear()

    # ---- a record it cannot decode --------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        """A pipeline that failed cannot be used again."""
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
        """All that was under way waits to be fed to a new pipeline."""
        self._fed = 0
        self._rebuild()
        self._at_work = False

    def _recover(self, error: Exception) -> None:
        """Find the batch that failed and deal with its records that cannot be decoded; feed all under way again.

        Which batch it was DALI does not say: its older executors fail for the one they are asked for, whichever was to blame.
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
            cause, error = error, ConfigError(f"the pipeline failed, and with none of the records alone: {error}")
            error.__cause__ = cause
        self._under_way[0] = replace(self._under_way[0], error=error)

    def _without(self, failed: _UnderWay, faults: dict[int, str], error: Exception) -> _UnderWay:
        try:
            places = self._policy.settle(failed.decoded.ids, faults)
        except CorruptRecordError as told:
            told.__cause__ = error
            return replace(failed, error=told)
        return replace(failed, decoded=failed.decoded.take(places, len(faults)))


def _raise_interrupt(error: Exception) -> None:
    """What a signal's handler raised says nothing of the pipeline, whatever DALI made of it."""
    interrupt = interrupt_behind(error)
    if interrupt is not None:
        raise interrupt
