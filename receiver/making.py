"""Making batches: the seam between whole batches of records and what the user gets.

Covers: the values that pass it, and the makers: columns as they are, columns for DALI, samples transformed by a pool of
threads. Does not cover: the queue in front of it (emlio.receiver.prefetch), DALI (emlio.receiver.dali_adapter).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock, Thread
from typing import Any, Protocol

from emlio.receiver.assemble import Assembler
from emlio.receiver.bad_records import BadRecordPolicy
from emlio.receiver.dali_columns import SourceColumns
from emlio.receiver.decoded import Decoded
from emlio.receiver.energy_work import WorkLog
from emlio.receiver.promise import Promise
from emlio.receiver.reorder import WholeBatch
from emlio.receiver.unended import PATIENCE_S
from emlio.receiver.workers import Workers

__all__ = ["ColumnMaker", "Made", "Maker", "NotedMaker", "PipeMaker", "SampleMaker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What became of a whole batch.

    Attributes:
        value: for the user.
        bad: records of it that were not what they must be.
    """

    value: Any
    bad: int


class Maker(Protocol):
    """Makes batches, one call after the other, from one thread."""

    @property
    def ahead(self) -> int:
        """How many batches to make before the user asks; 0: when he asks, in his thread."""
        ...

    @property
    def worked_ns(self) -> int:
        """How long it has been at work, as a thread that does nothing else would have."""
        ...

    @property
    def threads(self) -> Sequence[Thread]:
        """Its own, in which users' functions run."""
        ...

    def make(self, batch: WholeBatch) -> Made | Promise:
        """Make the batch, or begin to."""
        ...

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """End its threads, and wait so long for that; what was begun and is not done is dropped. It may be called again."""
        ...


class ColumnMaker:
    """Columns, or what a `collate_fn` makes of the records. See `Maker`."""

    threads: Sequence[Thread] = ()

    def __init__(self, assembler: Assembler, finish: Callable[[Any], Any] | None, *, ahead: int) -> None:
        """See the class.

        Args:
            assembler: decodes.
            finish: the last step, such as a copy to a device; None where there is none.
            ahead: batches made before the user asks. For what takes microseconds, handing over to a thread and back takes
                longer than the work: then 0.
        """
        self.ahead = ahead
        self.worked_ns = 0
        self._assembler = assembler
        self._finish = finish

    def make(self, batch: WholeBatch) -> Made:
        """See `Maker`."""
        begun_ns = time.monotonic_ns()
        decoded = self._assembler.decode(batch)
        value = self._assembler.batch(decoded)
        if self._finish is not None:
            value = self._finish(value)
        self.worked_ns += time.monotonic_ns() - begun_ns
        return Made(value=value, bad=decoded.bad)

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """See `Maker`."""


class NotedMaker:
    """A maker whose work is noted. See `Maker`."""

    def __init__(self, maker: Maker, log: WorkLog) -> None:
        """Owns the maker."""
        self._maker = maker
        self._log = log

    @property
    def ahead(self) -> int:
        """See `Maker`."""
        return self._maker.ahead

    @property
    def worked_ns(self) -> int:
        """See `Maker`."""
        return self._maker.worked_ns

    @property
    def threads(self) -> Sequence[Thread]:
        """See `Maker`."""
        return self._maker.threads

    def make(self, batch: WholeBatch) -> Made | Promise:
        """See `Maker`."""
        self._log.begin()
        try:
            return self._maker.make(batch)
        finally:
            self._log.end()

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """See `Maker`."""
        self._maker.close(patience_s)


class PipeMaker:
    """Columns for a DALI pipeline, as `Decoded`. See `Maker`."""

    threads: Sequence[Thread] = ()

    def __init__(
        self, assembler: Assembler, images: Sequence[str], policy: BadRecordPolicy, vectors: Sequence[str] = ()
    ) -> None:
        """See the class.

        Args:
            assembler: decodes the records.
            images: features that must be whole images.
            policy: what becomes of a record where one is not, or that a pipeline's sources cannot take.
            vectors: features that hold any number of numbers.
        """
        self.ahead = 0
        self.worked_ns = 0
        self._assembler = assembler
        self._columns = SourceColumns(images, vectors)
        self._policy = policy

    def make(self, batch: WholeBatch) -> Made:
        """See `Maker`."""
        begun_ns = time.monotonic_ns()
        decoded = self._assembler.decode(batch)
        faults = self._columns.faults(decoded)
        if faults:
            decoded = decoded.take(self._policy.settle(decoded.ids, faults), len(faults))
        decoded = replace(decoded, columns=self._columns.fit(decoded))
        self.worked_ns += time.monotonic_ns() - begun_ns
        return Made(value=decoded, bad=decoded.bad)

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """See `Maker`."""


class SampleMaker:
    """Each record through `transform`, in threads, then collated. See `Maker`.

    Threads share the records of a batch and go on to the next batch while the last record of one is still in work, so that
    none is idle at its end. It pays where the transform gives the interpreter's lock away, as image decoders do.
    """

    def __init__(
        self,
        assembler: Assembler,
        transform: Callable[[Any], Any],
        policy: BadRecordPolicy,
        finish: Callable[[Any], Any] | None,
        *,
        threads: int,
        batch_size: int,
        log: WorkLog | None = None,
    ) -> None:
        """See the class.

        Args:
            assembler: decodes before and collates after.
            transform: of one sample.
            policy: what becomes of a record whose transform fails.
            finish: as for `ColumnMaker`.
            threads: how many.
            batch_size: of the loader; small batches need more of them under way to keep all threads busy.
            log: told when a thread is at work; None where nobody wants to know.
        """
        # One to hand out, one being finished, and as many as give every thread another record.
        self.ahead = 2 + -(-threads // batch_size)
        self._assembler = assembler
        self._transform = transform
        self._policy = policy
        self._finish = finish
        self._threads = threads
        self._decode_ns = 0
        self._workers = Workers(threads, "emlio-transform", log)

    @property
    def worked_ns(self) -> int:
        """See `Maker`."""
        return max(self._decode_ns, self._workers.worked_ns // self._threads)

    @property
    def threads(self) -> Sequence[Thread]:
        """See `Maker`."""
        return self._workers.threads

    def make(self, batch: WholeBatch) -> Promise:
        """See `Maker`."""
        begun_ns = time.monotonic_ns()
        decoded = self._assembler.decode(batch)
        self._decode_ns += time.monotonic_ns() - begun_ns
        job = _Job(decoded, self._transform, self._collate, self._policy)
        self._workers.add(job.step, len(decoded.ids), job.cancel)
        return job.made

    def _collate(self, samples: list[Any]) -> Any:
        value = self._assembler.collate(samples)
        return value if self._finish is None else self._finish(value)

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """See `Maker`."""
        self._workers.close(patience_s)


class _Job:
    """A batch whose records are being transformed; the thread that does the last one collates."""

    def __init__(
        self,
        decoded: Decoded,
        transform: Callable[[Any], Any],
        collate: Callable[[list[Any]], Any],
        policy: BadRecordPolicy,
    ) -> None:
        self.made = Promise()
        self._decoded = decoded
        self._transform = transform
        self._collate = collate
        self._policy = policy
        self._samples: list[Any] = [None] * len(decoded.ids)
        self._failures: dict[int, BaseException] = {}
        self._fatal: int | None = None  # the lowest place whose failure will be raised
        self._left = len(decoded.ids)
        self._lock = Lock()

    def step(self, place: int) -> None:
        """Transform one record."""
        try:
            if self._is_wanted(place):
                self._samples[place] = self._transform(self._decoded.sample(place))
        except BaseException as error:  # noqa: BLE001  # whatever a user's function raises belongs to the user's thread
            self._note(place, error)
        with self._lock:
            self._left -= 1
            last = not self._left
        if last:
            self._end()

    def _is_wanted(self, place: int) -> bool:
        # Places before one that failed are still done, so that the error raised is the first of the batch whatever thread won.
        return not self.made.cancelled() and (self._fatal is None or place < self._fatal)

    def _note(self, place: int, error: BaseException) -> None:
        # What is no Exception, such as SystemExit, says nothing about the record: no policy may swallow it.
        is_fatal = self._policy.on_error == "raise" or not isinstance(error, Exception)
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
        # An error's trace refers to this job: without this only the garbage collector would free the samples.
        self._samples, self._failures = [], {}

    def _finish(self) -> Made:
        decoded, samples = self._decoded, self._samples
        if self._fatal is not None:
            raise self._told(self._failures[self._fatal], self._fatal)
        if self._failures:
            first = min(self._failures)
            reasons = {place: _reason(error) for place, error in self._failures.items()}
            try:
                places = self._policy.settle(decoded.ids, reasons)
            except Exception as error:
                # Nothing is left: it was not the data that failed for every record, so the cause is worth more than the count.
                raise error from self._failures[first]
            samples = [samples[place] for place in places.tolist()]
        return Made(value=self._collate(samples), bad=decoded.bad + len(self._failures))

    def _told(self, error: BaseException, place: int) -> BaseException:
        """The user's own error, with a word on where it came from."""
        if isinstance(error, StopIteration):  # it would end the user's loop and nobody would know
            told = RuntimeError(f"a transform must not raise StopIteration: {error!r}")
            told.__cause__, error = error, told
        error.add_note(f"in the transform of {self._policy.describe(int(self._decoded.ids[place]))}")
        return error

    def cancel(self) -> None:
        """It will not be done."""
        self.made.cancel()


def _reason(error: BaseException) -> str:
    return f"its transform failed: {type(error).__name__}: {error}"
