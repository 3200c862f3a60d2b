"""The process that is the link: python -m emlio.benchmarks.link.forwarder ORDER.

It makes both ends, finds out what it takes of a round trip itself, says where they are, and then moves packets until it is told
to end (SIGTERM) or nobody listens to it any more; in the latter case it ends whoever is left in its namespaces. SIGUSR1 asks it
what it has counted, SIGUSR2 what it has held since it was asked that before.

Covers: reading, holding back, writing; one thread for both directions. Does not cover: starting it
(emlio.benchmarks.link.emulated).
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import msgspec

from emlio.benchmarks.link.devices import (
    STORAGE_DEVICE,
    End,
    count_unread,
    make_end,
    storage_address,
    training_address,
    training_device,
)
from emlio.benchmarks.link.held import Held, HeldGauge, Stretch
from emlio.benchmarks.link.inhabitants import end_inhabitants
from emlio.benchmarks.link.jitter import JitterDraw
from emlio.benchmarks.link.line import Line
from emlio.benchmarks.link.loss import LossDraw
from emlio.benchmarks.link.own_time import OwnTimeProbe, own_time_ns, trial_rtt_ns
from emlio.benchmarks.link.packets import OFFLOAD_BYTES, count_segments, count_wire_bytes, without_segments
from emlio.benchmarks.link.promptness import SAID_FD, be_prompt, hear_signals, ready_until
from emlio.benchmarks.link.spec import LinkSpec
from emlio.benchmarks.link.talk import LineCounts, LinkCounts, LinkOrder, Started
from emlio.benchmarks.processes import say

__all__ = ["main"]

_PACKET_BYTES: Final = OFFLOAD_BYTES + 65_535
_BATCH_PACKETS: Final = 32
"""Read from one side before the other side is looked at."""
_NOTED_NS: Final = 200_000
"""While packets come more densely than this, what is held is noted as rarely."""


class _Direction:
    """From one end to the other."""

    def __init__(self, source: End, target: End, spec: LinkSpec, name: str, own_ns: int = 0) -> None:
        self.source = source
        self._target = target
        self._line: Line[bytes] = Line(
            delay_ns=spec.delay_ns - own_ns // 2,
            rate_bytes_per_s=spec.rate_bytes_per_s,
            held_bytes=spec.held_bytes,
            jitter=JitterDraw(spec.jitter_ns, spec.seed, name).draw if spec.jitter_ns else None,
        )
        self._loss = LossDraw(spec.loss, spec.seed, name) if spec.loss else None
        self._refused = 0
        self._gauge: HeldGauge | None = None

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

    def note(self, now_ns: int) -> None:
        """What it holds now, where that is gauged."""
        if self._gauge is not None:
            self._gauge.note(self._line.held_bytes, now_ns)

    def held(self) -> tuple[Stretch, ...]:
        """In the stretches since this was called before; from the first time on it is gauged."""
        now_ns = time.monotonic_ns()
        if self._gauge is None:
            self._gauge = HeldGauge(now_ns)
            self._gauge.note(self._line.held_bytes, now_ns)
        return self._gauge.take(now_ns)

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


class _Way:
    """Both directions."""

    def __init__(self, storage: End, training: End, spec: LinkSpec, own_ns: int = 0) -> None:
        self._to_training = _Direction(storage, training, spec, "to-training", own_ns)
        self._to_storage = _Direction(training, storage, spec, "to-storage", own_ns)
        self._gauged = False
        self._noted_ns = 0

    def forward(self, others: Sequence[int]) -> list[int]:
        """Move packets until one of these descriptors is ready; which are."""
        to_training, to_storage = self._to_training, self._to_storage
        one, other = to_training.source.packets, to_storage.source.packets
        watched = [one, other, *others]
        while True:
            due_ns, other_due_ns = to_training.give(), to_storage.give()
            if due_ns is None or (other_due_ns is not None and other_due_ns < due_ns):
                due_ns = other_due_ns
            noting = self._gauged and self._note_before(due_ns)
            ready = ready_until(watched, due_ns)
            if one in ready:
                to_training.take()
            if other in ready:
                to_storage.take()
            if noting:
                self._note(time.monotonic_ns())
            told = [descriptor for descriptor in ready if descriptor not in (one, other)]
            if told:
                return told

    def counts(self) -> LinkCounts:
        to_storage = self._to_storage.counts()
        # Last: it leaves the process at the storage's end, where it stays.
        return LinkCounts(to_training=self._to_training.counts(), to_storage=to_storage)

    def held(self) -> Held:
        """Since it was asked before; from the first time on it is gauged."""
        self._gauged = True
        return Held(to_training=self._to_training.held(), to_storage=self._to_storage.held())

    def _note_before(self, due_ns: int | None) -> bool:
        """Note what is held, unless that was just done and nothing will wait: of a dense stream it would cost a tenth."""
        now_ns = time.monotonic_ns()
        if due_ns is not None and due_ns - now_ns < _NOTED_NS and now_ns - self._noted_ns < _NOTED_NS:
            return False
        self._note(now_ns)
        return True

    def _note(self, now_ns: int) -> None:
        self._noted_ns = now_ns
        self._to_training.note(now_ns)
        self._to_storage.note(now_ns)


def _find_own_ns(storage: End, training: End, spec: LinkSpec, pingers: Sequence[socket.socket]) -> int:
    """What this process and the kernel take of a round trip."""
    if not spec.rtt_ns:
        return 0
    held_ns = trial_rtt_ns(spec.rtt_ns)
    probe = OwnTimeProbe(*pingers)
    _Way(storage, training, LinkSpec(rtt_ns=held_ns)).forward((probe.ended,))
    return own_time_ns(probe.close(), held_ns)


def _serve(way: _Way, signals: int) -> bool:
    """Until the end; whether somebody asked for it. Else nobody listens any more."""
    # The write end of a pipe becomes readable, as far as select knows, when nobody can read from it any more.
    while SAID_FD not in way.forward((signals, SAID_FD)):
        told = os.read(signals, 64)
        if signal.SIGTERM in told:
            return True
        for number in told:
            say(way.counts() if number == signal.SIGUSR1 else way.held())
    return False


def main(orders: str) -> None:
    """Be the link until told to end."""
    order = msgspec.json.decode(orders, type=LinkOrder)
    spec, place = order.spec, order.place
    signals = hear_signals()
    with ExitStack() as stack:
        try:
            # A thread that makes an end is in its namespace until it makes the next one.
            shared = None if order.training is None else os.open(order.training, os.O_RDONLY | os.O_CLOEXEC)
            training = make_end(training_device(place), training_address(place), tuned=spec.tuned, within=shared)
            near = stack.enter_context(_datagrams(training_address(place)))
            # Last, for this is where the process stays: another link of the same training end ends whoever is there.
            storage = make_end(STORAGE_DEVICE, storage_address(place), tuned=spec.tuned)
            far = stack.enter_context(_datagrams(storage_address(place)))
        except OSError as error:
            say(Started(problem=str(error)))
            return
        be_prompt()
        own_ns = _find_own_ns(storage, training, spec, (near, far))
    say(Started(storage_namespace=storage.namespace, training_namespace=training.namespace, own_ns=own_ns))
    if not _serve(_Way(storage, training, spec, own_ns), signals):
        end_inhabitants((storage.namespace, training.namespace))


def _datagrams(address: str) -> socket.socket:
    pinger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        pinger.bind((address, 0))
    except OSError:
        pinger.close()
        raise
    return pinger


if __name__ == "__main__":
    main(*sys.argv[1:])
