"""The process that is the link: python -m emlio.benchmarks.link.forwarder SPEC.

It makes both ends, says where they are, and then moves packets until it is told to end (SIGTERM) or nobody listens to it any
more; in the latter case it ends whoever is left in its namespaces. SIGUSR1 asks it what it has counted.

Covers: reading, holding back, writing; one thread for both directions. Does not cover: starting it
(emlio.benchmarks.link.emulated).
"""

import os
import select
import signal
import sys
import time
from typing import Final

import msgspec

from emlio.benchmarks.link.devices import (
    STORAGE_ADDRESS,
    STORAGE_DEVICE,
    TRAINING_ADDRESS,
    TRAINING_DEVICE,
    End,
    count_unread,
    make_end,
)
from emlio.benchmarks.link.inhabitants import end_inhabitants
from emlio.benchmarks.link.jitter import JitterDraw
from emlio.benchmarks.link.line import Line
from emlio.benchmarks.link.loss import LossDraw
from emlio.benchmarks.link.packets import OFFLOAD_BYTES, count_segments, count_wire_bytes, without_segments
from emlio.benchmarks.link.promptness import SAID_FD, be_prompt, hear_signals
from emlio.benchmarks.link.spec import LinkSpec
from emlio.benchmarks.link.talk import LineCounts, LinkCounts, Started
from emlio.benchmarks.processes import say

__all__ = ["main"]

_PACKET_BYTES: Final = OFFLOAD_BYTES + 65_535
_BATCH_PACKETS: Final = 32
"""Read from one side before the other side is looked at."""


class _Direction:
    """From one end to the other."""

    def __init__(self, source: End, target: End, spec: LinkSpec, name: str) -> None:
        self.source = source
        self._target = target
        self._line: Line[bytes] = Line(
            delay_ns=spec.delay_ns,
            rate_bytes_per_s=spec.rate_bytes_per_s,
            held_bytes=spec.held_bytes,
            jitter=JitterDraw(spec.jitter_ns, spec.seed, name).draw if spec.jitter_ns else None,
        )
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


def _forward(to_training: _Direction, to_storage: _Direction, signals: int) -> bool:
    """Until the end; whether somebody asked for it. Else nobody listens any more."""
    # The write end of a pipe becomes readable, as far as select knows, when nobody can read from it any more.
    watched = [to_training.source.packets, to_storage.source.packets, signals, SAID_FD]
    while True:
        dues = [due for due in (to_training.give(), to_storage.give()) if due is not None]
        wait_s = max(min(dues) - time.monotonic_ns(), 0) / 1e9 if dues else None
        ready = select.select(watched, [], [], wait_s)[0]
        for descriptor in ready:
            if descriptor == to_training.source.packets:
                to_training.take()
            elif descriptor == to_storage.source.packets:
                to_storage.take()
            elif descriptor == SAID_FD:
                return False
            else:
                told = os.read(signals, 64)
                if signal.SIGTERM in told:
                    return True
                say(LinkCounts(to_training=to_training.counts(), to_storage=to_storage.counts()))


def main(orders: str) -> None:
    """Be the link until told to end."""
    spec = msgspec.json.decode(orders, type=LinkSpec)
    signals = hear_signals()
    try:
        storage = make_end(STORAGE_DEVICE, STORAGE_ADDRESS, tuned=spec.tuned)
        training = make_end(TRAINING_DEVICE, TRAINING_ADDRESS, tuned=spec.tuned)
    except OSError as error:
        say(Started(problem=str(error)))
        return
    be_prompt()
    say(Started(storage_namespace=storage.namespace, training_namespace=training.namespace))
    asked = _forward(
        _Direction(storage, training, spec, "to-training"), _Direction(training, storage, spec, "to-storage"), signals
    )
    if not asked:
        end_inhabitants((storage.namespace, training.namespace))


if __name__ == "__main__":
    main(*sys.argv[1:])
