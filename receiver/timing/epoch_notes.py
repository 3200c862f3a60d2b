"""The notes of one iteration of a loader, batch by batch.

Covers: steps by the device or the host, waits, work in the user's thread; the epoch's spans and
processor time. Does not cover: readings at edges, writing (emlio.receiver.energy.observer), other
threads' work (emlio.receiver.timing.decode_times).
"""

import logging
import time

from emlio.energy.job.span_log import SpanLog
from emlio.energy.job.stages import CpuUse
from emlio.energy.values.spans import Span, Stage
from emlio.interrupts import is_interrupt
from emlio.receiver.timing.decode_times import WorkLog
from emlio.receiver.timing.device_steps import DeviceSteps
from emlio.receiver.timing.observers import PassObserver
from emlio.receiver.timing.thread_times import CpuLook, look, used

__all__ = ["EpochNotes"]

_LOG = logging.getLogger("emlio.receiver")

_USER = "user"
_DECODERS = "decoders"
_MOST_STEPS = 1 << 16


class EpochNotes(PassObserver):
    """Notes of one iteration.

    `asked` to `finish` belong to the user's thread; `spans` may be called by any thread,
    afterwards.

    Attributes:
        epoch: its number.
        from_ns: its first edge.
        left_ns: when the iteration was dropped; None while it exists.
    """

    def __init__(self, *, epoch: int, from_ns: int, work: WorkLog, steps: DeviceSteps | None) -> None:
        """Begin the notes of an iteration.

        Args:
            epoch: its number.
            from_ns: its first edge.
            work: where decoding threads note their work.
            steps: the device's steps, whose epoch has begun; None if the user's steps are noted by
                the host's clock.
        """
        self.epoch = epoch
        self.from_ns = from_ns
        self.left_ns: int | None = None
        self._work = work
        self._steps = steps
        self._host = SpanLog(joins=False, most=_MOST_STEPS)
        self._waits = SpanLog()
        self._device: list[tuple[int, int]] = []
        self._cpu_from: CpuLook = look()
        self._own_cpu_ns = self._asked_cpu_ns = 0

    def asked(self, at_ns: int) -> None:
        """Note that the user requests a batch."""
        self._host.end(at_ns)
        if self._steps is not None:
            self._mark(self._steps)
        self._work.begin()
        self._asked_cpu_ns = time.thread_time_ns()

    def _mark(self, steps: DeviceSteps, *, handed: bool = False) -> None:
        try:
            if handed:
                steps.handed()
            else:
                steps.asked()
        except Exception as error:  # no error of the device may end the training
            if is_interrupt(error):
                raise
            self._lose_steps(error)

    def _lose_steps(self, error: Exception) -> None:
        self._steps = None
        _LOG.warning(
            "the device's steps can no longer be timed in epoch %s, the host's are used instead: %r", self.epoch, error
        )

    def handed(self, asked_ns: int, at_ns: int) -> None:
        """Note that the user has the batch.

        The processor time of the user's thread in between was spent making the batch: waiting uses
        none.
        """
        self._own_cpu_ns += time.thread_time_ns() - self._asked_cpu_ns
        self._work.end()
        self._waits.add(asked_ns, at_ns)
        self._host.begin(at_ns)
        if self._steps is not None:
            self._mark(self._steps, handed=True)

    def failed(self) -> None:
        """Note that the user got an error, or the end, instead of a batch."""
        self._work.end()

    def left(self) -> None:
        """Note that the iteration was dropped; any thread may call this. The first call counts."""
        if self.left_ns is None:
            self.left_ns = time.monotonic_ns()

    def settle(self) -> None:
        """Wait until the device has done its work: the second edge is near."""
        if self._steps is None:
            return
        try:
            self._device = self._steps.end()
        except Exception as error:  # see _mark
            if is_interrupt(error):
                raise
            self._lose_steps(error)

    def finish(self, to_ns: int) -> CpuUse:
        """End the notes at the second edge; return the processor time, without the node's own.

        Processor time of this process that neither received nor decoded counts as training.
        """
        self._host.end(to_ns)
        process_ns, readers_ns, decoders_ns = used(self._cpu_from, look())
        decoders_ns += self._own_cpu_ns
        train_ns = max(process_ns - readers_ns - decoders_ns, 0)
        return CpuUse(train_ns=train_ns, preprocess_ns=decoders_ns, read_ns=readers_ns)

    def spans(self, to_ns: int) -> tuple[Span, ...]:
        """Return all spans of the epoch, in the order of time."""
        if self._steps is None:
            train, name = self._host.cut(self.from_ns, to_ns), _USER
        else:
            train, name = _within(self._device, self.from_ns, to_ns), self._steps.name
        parts = (
            (Stage.TRAIN, name, train),
            (Stage.PREPROCESS, _DECODERS, self._work.cut(self.from_ns, to_ns)),
            (Stage.READ, _USER, self._waits.cut(self.from_ns, to_ns)),
        )
        spans = [
            Span(stage=stage, start_ns=start_ns, end_ns=end_ns, thread=thread)
            for stage, thread, pieces in parts
            for start_ns, end_ns in pieces
        ]
        return tuple(sorted(spans, key=lambda span: (span.start_ns, span.end_ns, span.stage)))


def _within(steps: list[tuple[int, int]], from_ns: int, to_ns: int) -> list[tuple[int, int]]:
    """Return the steps of a device, bounded like those of a host."""
    log = SpanLog(joins=False, most=_MOST_STEPS)
    for start_ns, end_ns in steps:
        log.add(start_ns, max(end_ns, start_ns))
    return log.cut(from_ns, to_ns)
