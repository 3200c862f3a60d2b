"""The process that is the link: python -m emlio.benchmarks.link.forwarder SPEC.

It makes both ends, says where they are, and then moves packets until it is told to end (SIGTERM) or nobody listens to it any
more. SIGUSR1 asks it what it has counted.

Covers: reading, holding back, writing; one thread for both directions. Does not cover: starting it
(emlio.benchmarks.link.emulated).
"""

import contextlib
import ctypes
import gc
import os
import select
import signal
import sys
import time
from dataclasses import dataclass
from types import FrameType
from typing import Final

import msgspec

from emlio.benchmarks.link.devices import End, count_unread, make_end
from emlio.benchmarks.link.line import Line
from emlio.benchmarks.link.loss import LossDraw
from emlio.benchmarks.link.packets import OFFLOAD_BYTES, count_segments, count_wire_bytes, without_segments
from emlio.benchmarks.link.spec import LinkSpec
from emlio.benchmarks.processes import say

__all__ = ["STORAGE_ADDRESS", "TRAINING_ADDRESS", "LineCounts", "LinkCounts", "Started", "main"]

# Every link has namespaces of its own, so all can have the same addresses.
STORAGE_ADDRESS: Final = "10.77.0.1"
TRAINING_ADDRESS: Final = "10.77.0.2"

_PACKET_BYTES: Final = OFFLOAD_BYTES + 65_535
_BATCH_PACKETS: Final = 32
"""Read from one side before the other side is looked at."""
_PRIORITY: Final = 1
_PR_SET_TIMERSLACK: Final = 29
_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_MEMORY_STEP_BYTES: Final = 8 << 20
_SAID_FD: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The first that a forwarder says.

    Attributes:
        storage_namespace: number of its descriptor of the storage side's namespace.
        training_namespace: the same of the training side's.
        problem: why there is no link, or None.
    """

    storage_namespace: int = -1
    training_namespace: int = -1
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCounts:
    """What became of one direction's packets. A packet may stand for many segments.

    Attributes:
        packets: taken, those with lost segments in the pieces that remained.
        wire_bytes: of them, each segment with its headers.
        lost_segments: by the loss that was asked for.
        overflowed_packets: beyond what the direction holds.
        unread_packets: dropped by the kernel before the forwarder read them: it was too slow.
        refused_packets: that the receiving kernel did not take.
        latest_ns: how long after its time a packet was handed over at worst.
    """

    packets: int
    wire_bytes: int
    lost_segments: int
    overflowed_packets: int
    unread_packets: int
    refused_packets: int
    latest_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCounts:
    """Both directions, named after where they lead."""

    to_training: LineCounts
    to_storage: LineCounts


class _Direction:
    """From one end to the other."""

    def __init__(self, source: End, target: End, spec: LinkSpec, name: str) -> None:
        self.source = source
        self._target = target
        self._line = Line(delay_ns=spec.delay_ns, rate_bytes_per_s=spec.rate_bytes_per_s, held_bytes=spec.held_bytes)
        self._loss = LossDraw(spec.loss, spec.seed, name) if spec.loss else None
        self._refused = 0

    def take(self) -> None:
        """Read what there is, up to a batch."""
        source, line, clock, read = self.source.packets, self._line, time.monotonic_ns, os.read
        for _ in range(_BATCH_PACKETS):
            try:
                packet = read(source, _PACKET_BYTES)
            except BlockingIOError:
                return
            now_ns = clock()
            lost = self._loss.draw(count_segments(packet)) if self._loss is not None else ()
            if lost:
                for rest in without_segments(packet, lost):
                    line.take(rest, count_wire_bytes(rest), now_ns)
            else:
                line.take(packet, count_wire_bytes(packet), now_ns)

    def give(self) -> int | None:
        """Write what has arrived; when the next arrives."""
        target, line, clock, write = self._target.packets, self._line, time.monotonic_ns, os.write
        while (packet := line.give(clock())) is not None:
            try:
                write(target, packet)
            except OSError:
                self._refused += 1  # counted and told; a router too drops what it cannot hand over
        return line.next_ns()

    def counts(self) -> LineCounts:
        return LineCounts(
            packets=self._line.packets,
            wire_bytes=self._line.size_bytes,
            lost_segments=self._loss.lost if self._loss is not None else 0,
            overflowed_packets=self._line.overflowed,
            unread_packets=count_unread(self.source),
            refused_packets=self._refused,
            latest_ns=self._line.latest_ns,
        )


def _forward(to_training: _Direction, to_storage: _Direction, signals: int) -> None:
    # The write end of a pipe becomes readable, as far as select knows, when nobody can read from it any more.
    watched = [to_training.source.packets, to_storage.source.packets, signals, _SAID_FD]
    while True:
        dues = [due for due in (to_training.give(), to_storage.give()) if due is not None]
        wait_s = max(min(dues) - time.monotonic_ns(), 0) / 1e9 if dues else None
        ready = select.select(watched, [], [], wait_s)[0]
        for descriptor in ready:
            if descriptor == to_training.source.packets:
                to_training.take()
            elif descriptor == to_storage.source.packets:
                to_storage.take()
            elif descriptor == _SAID_FD:
                return
            else:
                told = os.read(signals, 64)
                if signal.SIGTERM in told:
                    return
                say(LinkCounts(to_training=to_training.counts(), to_storage=to_storage.counts()))


def _make_ready() -> None:
    # Ahead of every ordinary process: a nicer value alone leaves packets tens of milliseconds late on a busy machine. Where it is
    # not allowed `latest_ns` tells.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)  # else each wait is up to 50 µs too long
    if hasattr(libc, "mallopt"):
        # Else memory goes back to the kernel with nearly every packet, and its pages are cleared for the next.
        libc.mallopt(_M_TRIM_THRESHOLD, -1)
        libc.mallopt(_M_TOP_PAD, _MEMORY_STEP_BYTES)
    gc.disable()  # nothing here refers to itself, and a pause is a delay


def _leave_it_to_the_descriptor(number: int, frame: FrameType | None) -> None:
    """A handler must be there, or the default one ends the process."""


def main(orders: str) -> None:
    """Be the link until told to end."""
    spec = msgspec.json.decode(orders, type=LinkSpec)
    signals, told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(told)
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, _leave_it_to_the_descriptor)
    try:
        storage = make_end("emlio-storage", STORAGE_ADDRESS)
        training = make_end("emlio-training", TRAINING_ADDRESS)
    except OSError as error:
        say(Started(problem=str(error)))
        return
    _make_ready()
    say(Started(storage_namespace=storage.namespace, training_namespace=training.namespace))
    _forward(
        _Direction(storage, training, spec, "to-training"), _Direction(training, storage, spec, "to-storage"), signals
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
