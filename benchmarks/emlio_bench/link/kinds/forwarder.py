"""The process of an emulated link: python -m emlio_bench.link.kinds.forwarder ORDER.

It makes both ends, measures the time that it adds to a round trip itself, reports the ends, and
then moves packets. It ends on SIGTERM, or when its standard output has no reader any more; in the
latter case it kills all processes left in its namespaces. SIGUSR1 requests the counts, SIGUSR2 the
bytes held since the previous SIGUSR2.

Covers: reading, delaying, writing; one thread for both directions, in C where there is a compiler. Does not cover: starting the
process (emlio_bench.link.kinds.emulated).
"""

import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final, Protocol

import msgspec

from emlio_bench.link.kinds.own_time import OwnTimeProbe, own_time_ns, trial_rtt_ns
from emlio_bench.link.namespaces.devices import (
    STORAGE_DEVICE,
    End,
    count_unread,
    make_end,
    storage_address,
    training_address,
    training_device,
)
from emlio_bench.link.namespaces.inhabitants import end_inhabitants
from emlio_bench.link.native.build import NotCompiledError, load_library
from emlio_bench.link.native.lines import CompiledWay
from emlio_bench.link.process.channel import LineCounts, LinkCounts, LinkOrder, Started
from emlio_bench.link.process.promptness import SAID_FD, be_prompt, hear_signals, ready_until
from emlio_bench.link.process.questions import answer
from emlio_bench.link.shaping.held import Held, HeldGauge, Stretch
from emlio_bench.link.shaping.jitter import JitterDraw
from emlio_bench.link.shaping.line import Line
from emlio_bench.link.shaping.loss import LossDraw
from emlio_bench.link.shaping.packets import OFFLOAD_BYTES, count_segments, count_wire_bytes, without_segments
from emlio_bench.link.spec import LinkSpec
from emlio_bench.processes.child import say

__all__ = ["InterpretedWay", "Way", "main"]

_PACKET_BYTES: Final = OFFLOAD_BYTES + 65_535
_BATCH_PACKETS: Final = 32
"""Packets read from one end before the other end is checked."""
_NOTED_NS: Final = 200_000
"""The least interval between notes of the held bytes in dense traffic."""


class _Direction:
    """The direction from one end to the other."""

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
        """Read the packets that are ready, up to one batch."""
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
        """Write the packets that are due, and return the time when the next packet is due."""
        target, line, clock, write = self._target.packets, self._line, time.monotonic_ns, os.write
        while (packet := line.give(clock())) is not None:
            try:
                write(target, packet)
            except OSError:
                self._refused += 1  # counted and reported: a router also drops packets that it cannot deliver
        return line.next_ns()

    def note(self, now_ns: int) -> None:
        """Note the bytes held now, if they are recorded."""
        if self._gauge is not None:
            self._gauge.note(self._line.held_bytes, now_ns)

    def held(self) -> tuple[Stretch, ...]:
        """Return the stretches since the previous call. The first call starts the recording."""
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


class Way(Protocol):
    """Both directions of the link, moved in Python or in C."""

    def forward(self, others: Sequence[int]) -> list[int]:
        """Move packets until one of the other descriptors is ready, and return those that are."""
        ...

    def counts(self) -> LinkCounts:
        """Return the counts so far."""
        ...

    def held(self) -> Held:
        """Return the bytes held since the previous call. The first call starts the recording."""
        ...


class InterpretedWay:
    """Both directions of the link, moved by the code above. See `Way`."""

    def __init__(self, storage: End, training: End, spec: LinkSpec, own_ns: int = 0) -> None:
        self._to_training = _Direction(storage, training, spec, "to-training", own_ns)
        self._to_storage = _Direction(training, storage, spec, "to-storage", own_ns)
        self._gauged = False
        self._noted_ns = 0

    def forward(self, others: Sequence[int]) -> list[int]:
        """See `Way`."""
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
        """See `Way`."""
        to_storage = self._to_storage.counts()
        # Counted last, because this leaves the process at the storage end, where it must stay.
        return LinkCounts(to_training=self._to_training.counts(), to_storage=to_storage)

    def held(self) -> Held:
        """See `Way`."""
        self._gauged = True
        return Held(to_training=self._to_training.held(), to_storage=self._to_storage.held())

    def _note_before(self, due_ns: int | None) -> bool:
        """Note the held bytes, and return whether to note them again after the wait.

        This is skipped if it was done a moment ago and the next packet is due at once. In a dense
        stream it would cost a tenth of the throughput.
        """
        now_ns = time.monotonic_ns()
        if due_ns is not None and due_ns - now_ns < _NOTED_NS and now_ns - self._noted_ns < _NOTED_NS:
            return False
        self._note(now_ns)
        return True

    def _note(self, now_ns: int) -> None:
        self._noted_ns = now_ns
        self._to_training.note(now_ns)
        self._to_storage.note(now_ns)


_WayMaker = Callable[[LinkSpec, int], Way]


def _mover(storage: End, training: End, spec: LinkSpec) -> tuple[str, _WayMaker]:
    """Choose between C and Python; return the words for results too."""
    reason = "it loses or delays packets at random"
    if not (spec.loss or spec.jitter_ns):
        try:
            library = load_library()
        except NotCompiledError as error:
            reason = str(error)
        else:
            return "C", lambda spec, own_ns: CompiledWay(library, storage, training, spec, own_ns)
    return f"Python ({reason})", lambda spec, own_ns: InterpretedWay(storage, training, spec, own_ns)


def _find_own_ns(make: _WayMaker, spec: LinkSpec, pingers: Sequence[socket.socket]) -> int:
    """Measure the time that this process and the kernel add to a round trip."""
    if not spec.rtt_ns:
        return 0
    held_ns = trial_rtt_ns(spec.rtt_ns)
    probe = OwnTimeProbe(*pingers)
    make(LinkSpec(rtt_ns=held_ns), 0).forward((probe.ended,))
    return own_time_ns(probe.close(), held_ns)


def _serve(way: Way, signals: int) -> bool:
    """Move packets and answer signals until the end.

    Returns:
        True after SIGTERM, False if standard output has no reader any more.
    """
    # For select, the write end of a pipe becomes readable when the pipe has no reader any more.
    while SAID_FD not in way.forward((signals, SAID_FD)):
        if not answer(signals, way.counts, way.held):
            return True
    return False


def main(orders: str) -> None:
    """Run the link until SIGTERM, or until standard output has no reader."""
    order = msgspec.json.decode(orders, type=LinkOrder)
    spec, place = order.spec, order.place
    signals = hear_signals()
    with ExitStack() as stack:
        try:
            # A thread that makes an end stays in its namespace until it makes the next one.
            shared = None if order.training is None else os.open(order.training, os.O_RDONLY | os.O_CLOEXEC)
            training = make_end(training_device(place), training_address(place), tuned=spec.tuned, within=shared)
            near = stack.enter_context(_datagrams(training_address(place)))
            # The storage end comes last, because the process stays there. Another link with the
            # same training end kills all processes at the training end when it loses its owner.
            storage = make_end(STORAGE_DEVICE, storage_address(place), tuned=spec.tuned)
            far = stack.enter_context(_datagrams(storage_address(place)))
        except OSError as error:
            say(Started(problem=str(error)))
            return
        moved_by, make = _mover(storage, training, spec)
        be_prompt()
        own_ns = _find_own_ns(make, spec, (near, far))
    started = Started(
        storage_namespace=storage.namespace,
        training_namespace=training.namespace,
        own_ns=own_ns,
        moved_by=moved_by,
    )
    say(started)
    if not _serve(make(spec, own_ns), signals):
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
