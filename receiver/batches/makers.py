"""Makers of batches: from complete batches of records to what the user gets.

Covers: the values exchanged, and the makers: plain columns, columns for DALI, samples transformed
by a pool of threads. Does not cover: the queue in front of them (emlio.receiver.batches.prefetch),
DALI (emlio.receiver.dali.adapter).
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock, Thread
from traceback import TracebackException
from typing import Any

import msgspec

from emlio.errors import ClusterError
from emlio.ray import OnRay, RayFunction, UserError
from emlio.receiver.batches.assemble import Assembler
from emlio.receiver.batches.source_columns import SourceColumns
from emlio.receiver.batches.workers import Workers
from emlio.receiver.placement.reorder import WholeBatch
from emlio.receiver.records.bad_records import BadRecordPolicy, RecordFault, first_fault
from emlio.receiver.records.decoded import Decoded
from emlio.receiver.threads.promise import Promise
from emlio.receiver.threads.unended import PATIENCE_S
from emlio.receiver.timing.observers import UNOBSERVED_WORK, WorkObserver

__all__ = ["ColumnMaker", "Made", "Maker", "PipeMaker", "RayMaker", "SampleMaker"]


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """The result of making a batch.

    Attributes:
        value: the value for the user.
        bad: the number of bad records in the batch.
        fault: the first of them that was found.
    """

    value: Any
    bad: int
    fault: RecordFault | None = None


class Maker(ABC):
    """Makes batches; without threads of its own by default. Called by one thread at a time.

    Attributes:
        ahead: the number of batches to make before the user asks; 0: on request, in the user's thread.
        threads: the maker's own threads, in which users' functions run.
        elsewhere: what other hosts do for it, in words.
    """

    ahead = 0
    elsewhere = ""
    threads: Sequence[Thread] = ()
    _worked_ns = 0
    _usual_ahead: int | None = None

    @property
    def worked_ns(self) -> int:
        """Time spent at work, as if by one thread that does nothing else."""
        return self._worked_ns

    def worked(self, since_ns: int) -> None:
        """Count the time since then as time at work."""
        self._worked_ns += time.monotonic_ns() - since_ns

    def tune(self, *, threads: int, ahead: int) -> None:  # without threads there are none to set
        """Make so many batches ahead, if any are, from now on, with so many threads; 0 for the usual numbers."""
        if self._usual_ahead is None:
            self._usual_ahead = self.ahead
        if self._usual_ahead:
            self.ahead = ahead or self._usual_ahead

    @abstractmethod
    def make(self, batch: WholeBatch) -> Made | Promise:
        """Make the batch, or start making it."""

    def close(self, patience_s: float = PATIENCE_S) -> None:  # noqa: B027  # without threads there is nothing to do
        """Stop the threads and wait up to `patience_s` for them; unfinished work is dropped.

        May be called again.
        """


class ColumnMaker(Maker):
    """Makes plain columns, or what a `collate_fn` makes of the records."""

    def __init__(self, assembler: Assembler, finish: Callable[[Any], Any], *, ahead: int) -> None:
        """Configure the maker.

        Args:
            assembler: decodes the records.
            finish: the last step, such as a copy to a device.
            ahead: batches made before the user asks. 0 if making one takes microseconds: handing
                over to a thread and back would take longer.
        """
        self.ahead = ahead
        self._assembler = assembler
        self._finish = finish

    def make(self, batch: WholeBatch) -> Made:
        """See `Maker`."""
        begun_ns = time.monotonic_ns()
        decoded = self._assembler.decode(batch)
        value = self._finish(self._assembler.batch(decoded))
        self.worked(begun_ns)
        return Made(value=value, bad=decoded.bad, fault=decoded.fault)


class PipeMaker(Maker):
    """Makes columns for a DALI pipeline, as `Decoded`."""

    def __init__(
        self, assembler: Assembler, images: Sequence[str], policy: BadRecordPolicy, vectors: Sequence[str] = ()
    ) -> None:
        """Configure the maker.

        Args:
            assembler: decodes the records.
            images: features that must be complete images.
            policy: how to handle a record with an incomplete image, or that the pipeline's sources
                cannot take.
            vectors: features that hold any number of numbers.
        """
        self._assembler = assembler
        self._columns = SourceColumns(images, vectors)
        self._policy = policy

    def make(self, batch: WholeBatch) -> Made:
        """See `Maker`."""
        begun_ns = time.monotonic_ns()
        decoded = self._assembler.decode(batch)
        faults = self._columns.faults(decoded)
        if faults:
            reasons = decoded.with_paths(faults)
            fault = first_fault(decoded.ids, reasons)
            decoded = decoded.take(self._policy.settle(decoded.ids, reasons), len(faults), fault)
        decoded = replace(decoded, columns=self._columns.fit(decoded))
        self.worked(begun_ns)
        return Made(value=decoded, bad=decoded.bad, fault=decoded.fault)


class SampleMaker(Maker):
    """Applies `transform` to each record in threads, then collates.

    The threads share the records of a batch. They go on to the next batch while the last record of
    one is still in progress, so that none is idle at its end. This pays if the transform releases
    the interpreter lock, as image decoders do.
    """

    def __init__(
        self,
        assembler: Assembler,
        transform: Callable[[Any], Any],
        policy: BadRecordPolicy,
        finish: Callable[[Any], Any],
        *,
        threads: int,
        batch_size: int,
        work: WorkObserver = UNOBSERVED_WORK,
    ) -> None:
        """Prepare the threads; the first batch starts them.

        Args:
            assembler: decodes before and collates after the transform.
            transform: the function for one sample.
            policy: how to handle a record whose transform fails.
            finish: as for `ColumnMaker`.
            threads: the number of threads.
            batch_size: of the loader. Small batches need more of them in progress to keep all
                threads busy.
            work: told when a thread is at work.
        """
        # One to hand out, one being finished, and enough that every thread has another record.
        self.ahead = 2 + -(-threads // batch_size)
        self._assembler = assembler
        self._transform = transform
        self._policy = policy
        self._finish = finish
        self._threads = threads
        self._workers = Workers(threads, "emlio-transform")
        self.threads = self._workers.threads
        self._work = work
        self._together = 1

    @property
    def worked_ns(self) -> int:
        """See `Maker`."""
        return max(self._worked_ns, self._workers.worked_ns // self._threads)

    def make(self, batch: WholeBatch) -> Promise:
        """See `Maker`."""
        begun_ns = time.monotonic_ns()
        decoded = self._assembler.decode(batch)
        self.worked(begun_ns)
        job = _Job(decoded, self._apply, self._together, self._collate, self._policy)
        self._workers.add(self._work.observed(job.step, epoch=batch.epoch, batch=batch.step), job.steps, job.cancel)
        return job.made

    def _apply(self, samples: list[Any], cancelled: Callable[[], bool]) -> list[Any]:
        return [self._transform(sample) for sample in samples]

    def tune(self, *, threads: int, ahead: int) -> None:
        """See `Maker`."""
        super().tune(threads=threads, ahead=ahead)
        self._workers.use(threads or self._threads)

    def _collate(self, samples: list[Any]) -> Any:
        return self._finish(self._assembler.collate(samples))

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """See `Maker`."""
        self._workers.close(patience_s)


class RayMaker(SampleMaker):
    """Applies a transform on the hosts of a Ray cluster. The threads here only wait for it."""

    def __init__(
        self,
        assembler: Assembler,
        transform: OnRay,
        policy: BadRecordPolicy,
        finish: Callable[[Any], Any],
        *,
        batch_size: int,
        timeout_s: float,
        work: WorkObserver = UNOBSERVED_WORK,
    ) -> None:
        """Connect to the cluster; see `SampleMaker` and `RayFunction`."""
        self._function = RayFunction(transform, timeout_s)
        function = transform.function
        self.elsewhere = f"{getattr(function, '__qualname__', type(function).__qualname__)} on the Ray cluster"
        together = min(self._function.records, batch_size)
        super().__init__(
            assembler,
            transform,
            policy,
            finish,
            threads=self._function.tasks,
            batch_size=max(batch_size // together, 1),
            work=work,
        )
        self._together = together

    def tune(self, *, threads: int, ahead: int) -> None:  # threads that wait cost nothing
        """See `Maker`."""
        Maker.tune(self, threads=0, ahead=ahead)

    def _apply(self, samples: list[Any], cancelled: Callable[[], bool]) -> list[Any]:
        return self._function.apply(samples, cancelled)


class _Job:
    """A batch whose records are being transformed, some of them with each step.

    The thread that does the last record collates.
    """

    def __init__(
        self,
        decoded: Decoded,
        apply: Callable[[list[Any], Callable[[], bool]], list[Any]],
        together: int,
        collate: Callable[[list[Any]], Any],
        policy: BadRecordPolicy,
    ) -> None:
        self.made = Promise()
        self.steps = -(-len(decoded.ids) // together)
        self._decoded = decoded
        self._apply = apply
        self._together = together
        self._collate = collate
        self._policy = policy
        self._samples: list[Any] = [None] * len(decoded.ids)
        self._failures: dict[int, BaseException] = {}
        self._fatal: int | None = None  # the lowest place whose failure will be raised
        self._left = self.steps
        self._lock = Lock()

    def step(self, number: int) -> None:
        """Transform some records."""
        first = number * self._together
        here = range(first, min(first + self._together, len(self._samples)))
        places = [place for place in here if self._is_wanted(place)]
        try:
            if places:
                made = self._apply([self._decoded.sample(place) for place in places], self.made.cancelled)
                for place, sample in zip(places, made, strict=True):
                    if isinstance(sample, UserError):
                        self._note(place, sample.error)
                    else:
                        self._samples[place] = sample
        except BaseException as error:  # noqa: BLE001  # whatever a user's function raises belongs to the user's thread
            for place in places:
                self._note(place, error)
        with self._lock:
            self._left -= 1
            last = not self._left
        if last:
            self._end()

    def _is_wanted(self, place: int) -> bool:
        # Places before a failed one are still done, so that the error raised is the first of the
        # batch, whatever the order of the threads.
        return not self.made.cancelled() and (self._fatal is None or place < self._fatal)

    def _note(self, place: int, error: BaseException) -> None:
        # An error that is no Exception, such as SystemExit, or that of a cluster, says nothing about
        # the record: no policy may swallow it.
        is_fatal = self._policy.raises or not isinstance(error, Exception) or isinstance(error, ClusterError)
        with self._lock:
            self._failures[place] = error
            if is_fatal and (self._fatal is None or place < self._fatal):
                self._fatal = place

    def _end(self) -> None:
        if not self.made.cancelled():
            try:
                made = self._finish()
            except BaseException as error:  # noqa: BLE001  # likewise
                self.made.set_exception(error)
            else:
                self.made.set_result(made)
        # An error's traceback refers to this job: without this, only the garbage collector would
        # free the samples.
        self._samples, self._failures = [], {}

    def _finish(self) -> Made:
        decoded, samples, fault = self._decoded, self._samples, self._decoded.fault
        if self._fatal is not None:
            raise self._told(self._failures[self._fatal], self._fatal)
        if self._failures:
            first = min(self._failures)
            reasons = decoded.with_paths({place: _reason(error) for place, error in self._failures.items()})
            try:
                places = self._policy.settle(decoded.ids, reasons)
            except Exception as error:
                # Every record failed, so the data is not the reason: the cause is worth more than
                # the count.
                raise error from self._failures[first]
            samples = [samples[place] for place in places.tolist()]
            fault = fault or first_fault(decoded.ids, reasons, of_transform=True)
        return Made(value=self._collate(samples), bad=decoded.bad + len(self._failures), fault=fault)

    def _told(self, error: BaseException, place: int) -> BaseException:
        """Return the user's own error, with a note on where it came from."""
        if isinstance(error, StopIteration):  # it would end the user's loop silently
            told = RuntimeError(f"a transform must not raise StopIteration: {error!r}")
            told.__cause__, error = error, told
        record = self._policy.describe(int(self._decoded.ids[place]))
        error.add_note(self._decoded.in_transform(error, place, record))
        return error

    def cancel(self) -> None:
        """Drop the job."""
        self.made.cancel()


def _reason(error: BaseException) -> str:
    told = TracebackException(type(error), error, None)  # also where the error itself cannot tell
    return f"its transform failed: {type(error).__name__}: {told}"
