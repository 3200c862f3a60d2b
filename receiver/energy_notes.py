"""What one iteration of a loader notes, batch by batch.

Covers: steps by the device or the host, waits, work in the user's thread; the epoch's spans and processor time. Does not cover:
readings at edges, writing (emlio.receiver.loader_energy), other threads' work (emlio.receiver.energy_work).
"""

import logging
import time

from emlio.energy.span_log import SpanLog
from emlio.energy.spans import Span, Stage
from emlio.energy.stages import CpuUse
from emlio.receiver.energy_steps import DeviceSteps
from emlio.receiver.energy_threads import CpuLook, look, used
from emlio.receiver.energy_work import WorkLog
from emlio.receiver.interrupts import is_interrupt

__all__ = ["EpochNotes"]

_LOG = logging.getLogger("emlio.receiver")

_USER = "user"
_DECODERS = "decoders"
_MOST_STEPS = 1 << 16


class EpochNotes:
    """Notes of one iteration. `asked` to `finish` belong to the user's thread, `spans` to any, afterwards.

    Attributes:
        epoch: its number.
        from_ns: its first edge.
        left_ns: when the iteration was dropped; None while it is there.
    """

    def __init__(self, *, epoch: int, from_ns: int, work: WorkLog, steps: DeviceSteps | None) -> None:
        """An iteration begins.

        Args:
            epoch: its number.
            from_ns: its first edge.
            work: what threads that decode note to.
            steps: of the device; None where the user's steps are the host's. Its epoch has begun.
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
        """The user asks for a batch."""
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
        except Exception as error:  # whatever the device says to an event, no training ends for it
            if is_interrupt(error):
                raise
            self._lose_steps(error)

    def _lose_steps(self, error: Exception) -> None:
        self._steps = None
        _LOG.warning("steps of the device cannot be noted any more in epoch %s, the host's are: %r", self.epoch, error)

    def handed(self, asked_ns: int, at_ns: int) -> None:
        """He has it. What his thread did meanwhile was to make it: while it waits it takes no processor's time."""
        self._own_cpu_ns += time.thread_time_ns() - self._asked_cpu_ns
        self._work.end()
        self._waits.add(asked_ns, at_ns)
        self._host.begin(at_ns)
        if self._steps is not None:
            self._mark(self._steps, handed=True)

    def failed(self) -> None:
        """He got an error, or the end, instead."""
        self._work.end()

    def left(self) -> None:
        """The iteration was dropped; any thread may say so. The first word counts."""
        if self.left_ns is None:
            self.left_ns = time.monotonic_ns()

    def settle(self) -> None:
        """The second edge is near: wait until the device has done what it was given."""
        if self._steps is None:
            return
        try:
            self._device = self._steps.end()
        except Exception as error:  # see _mark
            if is_interrupt(error):
                raise
            self._lose_steps(error)

    def finish(self, to_ns: int) -> CpuUse:
        """The second edge was reached; returns what processors were used for, without the node's own time.

        What of this process neither received nor decoded is taken for training.
        """
        self._host.end(to_ns)
        process_ns, readers_ns, decoders_ns = used(self._cpu_from, look())
        decoders_ns += self._own_cpu_ns
        train_ns = max(process_ns - readers_ns - decoders_ns, 0)
        return CpuUse(train_ns=train_ns, preprocess_ns=decoders_ns, read_ns=readers_ns)

    def spans(self, to_ns: int) -> tuple[Span, ...]:
        """All of the epoch, in the order of time."""
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
    """The steps of a device, bounded as a host's are."""
    log = SpanLog(joins=False, most=_MOST_STEPS)
    for start_ns, end_ns in steps:
        log.add(start_ns, max(end_ns, start_ns))
    return log.cut(from_ns, to_ns)
