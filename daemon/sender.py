"""The threads that hand messages to the lanes.

Covers: a fixed pool; each worker serves many streams and all their lanes, whichever can take a message, and sleeps when none
can. Every socket is made, used and closed by its worker alone. Does not cover: reading, the conversation.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock, Thread

from emlio.daemon.even_start import EvenStart
from emlio.daemon.lane_binder import LaneBinder
from emlio.daemon.lane_guard import LaneGuard
from emlio.daemon.reservation import Reservation
from emlio.daemon.stream import Outgoing, Stream, StreamFailure
from emlio.daemon.transport import Lane, Network, Waiter
from emlio.errors import EmlioError
from emlio.waker import Waker
from emlio.wire.data import DATA_VERSION, DataHeader, data_tail, encode_data_header, header_apart, tail_room
from emlio.wire.seal import TAG_BYTES, LaneSeal

__all__ = ["Sender", "StreamTotals"]

_LOG = logging.getLogger("emlio.daemon.sender")

OnBound = Callable[[Sequence[int]], None]
"""Hears the ports of lanes."""

OnFailure = Callable[[EmlioError], None]
"""Hears why there are none."""


@dataclass(slots=True, kw_only=True)
class StreamTotals:
    """What a stream sent and what held it up.

    Attributes:
        sent_bytes: payload handed to lanes.
        blocked_ns: time a message was ready and every lane was full: the network or the rank is slower.
        starved_ns: time a lane could have taken a message and none was ready: reading is slower.
    """

    sent_bytes: int = 0
    blocked_ns: int = 0
    starved_ns: int = 0


class _Outlet:
    """A stream and its lanes, as its worker sees them."""

    def __init__(self, stream: Stream, lanes: Sequence[Lane], guard: LaneGuard, now_ns: int) -> None:
        self.stream = stream
        self.lanes = lanes
        self._seals = [guard.seal(number) for number in range(len(lanes))]
        self.totals = StreamTotals()
        self.blocked = False
        self._full = False
        self._sequences = [0] * len(lanes)
        self._start = EvenStart(len(lanes))
        self._turn = 0
        self._since_ns = now_ns
        self._owing: list[Lane] = []

    @property
    def waits(self) -> bool:
        """True if it goes on when a lane has room."""
        return self.blocked or bool(self._owing)

    def waits_for(self, now_ns: int) -> list[Lane]:
        """The lanes of which one must have room before it can go on."""
        if not self.blocked:
            return self._owing
        return [lane for number, lane in enumerate(self.lanes) if lane.owes or self._start.may_have(number, now_ns)]

    @property
    def due_ns(self) -> int | None:
        """When there may be more of them, whatever happens."""
        return self._start.ends_ns

    def push(self, now_ns: int) -> None:
        """Hand over what is ready until the lanes are full or nothing is."""
        self._owing = [lane for lane in self._owing if not lane.settle()]
        waited, self._since_ns = now_ns - self._since_ns, now_ns
        if self.blocked or self._full:
            self.totals.blocked_ns += waited
        else:
            self.totals.starved_ns += waited
        while (outgoing := self.stream.first()) is not None:
            size_bytes = outgoing.message.size_bytes
            # Before it can leave: what has left must not be missing where the sum is told.
            self.totals.sent_bytes += size_bytes
            if not self._offer(outgoing, now_ns):
                self.totals.sent_bytes -= size_bytes
                self.blocked = True
                return
            self.stream.sent()
        self.blocked = False
        # Nothing is ready because reading may not go on before the network has taken what is under way.
        self._full = self.stream.parked

    def _offer(self, outgoing: Outgoing, now_ns: int) -> bool:
        """Give the message to the first lane, in turn, that takes it."""
        message = outgoing.message
        for step in range(len(self.lanes)):
            number = (self._turn + step) % len(self.lanes)
            if not self._start.may_have(number, now_ns):
                continue
            seal = self._seals[number]
            if seal is not None and not self.lanes[number].has_room:
                continue  # sealing is work, and a number is sealed once only
            header = DataHeader(
                version=DATA_VERSION,
                session=self.stream.session,
                stream=self.stream.stream,
                epoch=message.epoch,
                lane=number,
                lane_sequence=self._sequences[number],
                slot=message.slot,
                count=message.count,
                ids_crc=message.ids_crc,
                sizes=outgoing.sizes,
            )
            sent = self._hand_over(self.lanes[number], encode_data_header(header), outgoing, header.lane_sequence, seal)
            if sent or seal is not None:
                # A sealed number is used up, even if the lane lost its rank just now; that one then opens its stream anew.
                self._sequences[number] += 1
            if sent:
                self._start.gave(number, now_ns)
                self._turn = number + 1
                return True
        return False

    def _hand_over(self, lane: Lane, head: bytes, outgoing: Outgoing, sequence: int, seal: LaneSeal | None) -> bool:
        payload_bytes = outgoing.message.size_bytes
        if seal is not None:
            sealed_bytes = payload_bytes + TAG_BYTES
            memory = self.stream.take_memory(sealed_bytes + tail_room(outgoing.message.count)).data
            seal.seal(sequence, head, outgoing.payload, memory[:sealed_bytes])
            return lane.send(_with_tail(memory, sealed_bytes, head))
        if not outgoing.apart:
            return lane.send(_with_tail(outgoing.memory.data, payload_bytes, head))
        sent = lane.send_apart(header_apart(head, outgoing.payload), outgoing.payload)
        if lane.owes and lane not in self._owing:
            self._owing.append(lane)
        return sent

    def close(self) -> None:
        for lane in self.lanes:
            lane.close()


def _with_tail(memory: memoryview, payload_bytes: int, head: bytes) -> memoryview:
    """The frame: a payload and the tail that is written behind it."""
    tail = data_tail(head)
    end = payload_bytes + len(tail)
    memory[payload_bytes:end] = tail
    return memory[:end]


class _Worker:
    """One thread."""

    def __init__(
        self, name: str, network: Network, high_water_mark: int, on_failure: Callable[[StreamFailure], None]
    ) -> None:
        self._on_failure = on_failure
        self._orders: deque[Callable[[], None]] = deque()
        self._signalled: set[Stream] = set()
        self._lock = Lock()
        self._outlets: dict[Stream, _Outlet] = {}
        self._reserved: dict[Reservation, list[Lane]] = {}
        self._pending: dict[Stream, Reservation] = {}  # streams whose lanes are being bound
        self._binder = LaneBinder(network, high_water_mark)
        self._waker = Waker()
        self._stop = False
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def order(self, action: Callable[[], None]) -> None:
        self._orders.append(action)
        self._waker.wake()

    def signal(self, stream: Stream) -> None:
        with self._lock:
            first = not self._signalled
            self._signalled.add(stream)
        if first:
            self._waker.wake()

    def reserve(self, reservation: Reservation, on_bound: OnBound, on_failure: OnFailure) -> None:
        def bound(made: list[Lane]) -> None:
            self._reserved[reservation] = made
            on_bound([lane.port for lane in made])

        # No stream waits for these lanes yet, so a full range fails at once.
        self._binder.bind(reservation, time.monotonic_ns(), bound, on_failure, waits=False)

    def attach(self, stream: Stream, reservation: Reservation, on_bound: OnBound, on_failure: OnFailure) -> None:
        def bound(made: list[Lane]) -> None:
            self._pending.pop(stream, None)
            self._outlets[stream] = _Outlet(stream, made, reservation.guard, time.monotonic_ns())
            with self._lock:
                self._signalled.add(stream)  # what was read before there were lanes
            on_bound([lane.port for lane in made])

        def failed(error: EmlioError) -> None:
            self._pending.pop(stream, None)
            on_failure(error)

        made = self._reserved.pop(reservation, None)
        if stream.closed:
            # Its rank has ordered another one, or gone, and nobody listens any more.
            for lane in made or ():
                lane.close()
        elif made:
            bound(made)
        else:
            self._pending[stream] = reservation
            self._binder.bind(reservation, time.monotonic_ns(), bound, failed, waits=True)

    def release(self, reservation: Reservation) -> None:
        self._binder.give_up(reservation)
        for lane in self._reserved.pop(reservation, ()):
            lane.close()

    def detach(self, stream: Stream) -> None:
        pending = self._pending.pop(stream, None)
        if pending is not None:
            self._binder.give_up(pending)
        outlet = self._outlets.pop(stream, None)
        if outlet is not None:
            outlet.close()

    def totals(self, stream: Stream) -> StreamTotals:
        outlet = self._outlets.get(stream)
        return outlet.totals if outlet is not None else StreamTotals()

    def _run(self) -> None:
        waiter = Waiter(self._waker)
        try:
            while not self._stop:
                waiting = [outlet for outlet in self._outlets.values() if outlet.waits]
                now_ns = time.monotonic_ns()
                dues = [outlet.due_ns for outlet in waiting if outlet.blocked]
                due_ns = min((at for at in (*dues, self._binder.due_ns(now_ns)) if at is not None), default=None)
                waiter.wait(
                    None if due_ns is None else max((due_ns - now_ns) // 1_000_000 + 1, 0),
                    lanes=[lane for outlet in waiting for lane in outlet.waits_for(now_ns)],
                )
                while self._orders:
                    self._obey(self._orders.popleft())
                self._obey(self._bind_more)
                with self._lock:
                    signalled, self._signalled = self._signalled, set()
                now_ns = time.monotonic_ns()
                for stream, outlet in list(self._outlets.items()):
                    if outlet.waits or stream in signalled:
                        self._push(stream, outlet, now_ns)
        finally:
            self._binder.close()
            for outlet in self._outlets.values():
                outlet.close()
            self._outlets.clear()
            for reservation in list(self._reserved):
                self.release(reservation)

    def _bind_more(self) -> None:
        self._binder.turn(time.monotonic_ns())

    @staticmethod
    def _obey(action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:  # noqa: BLE001  # a defect in one order must not end the thread all streams share
            _LOG.exception("an order to a sending thread failed")

    def _push(self, stream: Stream, outlet: _Outlet, now_ns: int) -> None:
        try:
            outlet.push(now_ns)
        except Exception as error:  # noqa: BLE001  # a defect in one stream must not end the thread all streams share
            _LOG.exception("%s: sending failed", stream.label)
            self.detach(stream)
            self._on_failure(StreamFailure(stream=stream, error=EmlioError(f"internal error while sending: {error!r}")))

    def close(self) -> None:
        def stop() -> None:
            self._stop = True

        if self._thread.ident is not None:
            self.order(stop)
            self._thread.join()
        self._waker.close()


class Sender:
    """The pool of workers. Used by the control thread; `signal` from any."""

    def __init__(
        self,
        *,
        threads: int,
        network: Network,
        high_water_mark: int,
        on_failure: Callable[[StreamFailure], None],
    ) -> None:
        self._workers = [_Worker(f"emlio-send-{n}", network, high_water_mark, on_failure) for n in range(threads)]
        self._serves: dict[Stream, _Worker] = {}
        self._keeps: dict[Reservation, _Worker] = {}

    def start(self) -> None:
        """Start the threads."""
        for worker in self._workers:
            worker.start()

    def reserve(self, reservation: Reservation, on_bound: OnBound, on_failure: OnFailure) -> None:
        """Bind lanes for a stream to come, until `attach` or `release`; one of the two is called in a worker's thread."""
        worker = self._keeps[reservation] = self._worker(reservation.session)
        worker.order(partial(worker.reserve, reservation, on_bound, on_failure))

    def attach(self, stream: Stream, reservation: Reservation, on_bound: OnBound, on_failure: OnFailure) -> None:
        """Give a stream its lanes, and bind them where they are not; one of the two is then called in a worker's thread."""
        self._keeps.pop(reservation, None)
        worker = self._worker(reservation.session)
        self._serves[stream] = worker
        worker.order(partial(worker.attach, stream, reservation, on_bound, on_failure))

    def _worker(self, session: int) -> _Worker:
        """Always the same for a session: what it had is closed before what it gets is bound."""
        return self._workers[session % len(self._workers)]

    def release(self, reservation: Reservation) -> None:
        """No stream takes these lanes: have them closed, soon."""
        worker = self._keeps.pop(reservation, None)
        if worker is not None:
            worker.order(partial(worker.release, reservation))

    def detach(self, stream: Stream) -> None:
        """Have the stream's lanes closed, soon."""
        worker = self._serves.pop(stream, None)
        if worker is not None:
            worker.order(partial(worker.detach, stream))

    def signal(self, stream: Stream) -> None:
        """The stream has a message ready."""
        worker = self._serves.get(stream)
        if worker is not None:
            worker.signal(stream)

    def totals(self, stream: Stream) -> StreamTotals:
        """What the stream sent so far."""
        worker = self._serves.get(stream)
        return worker.totals(stream) if worker is not None else StreamTotals()

    def close(self) -> None:
        """Stop all threads and close all lanes."""
        for worker in self._workers:
            worker.close()
        self._serves.clear()
        self._keeps.clear()
