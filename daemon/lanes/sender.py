"""The thread that sends all messages over the lanes of all ranks.

Covers: reading credits, jobs and their streams in turn, lanes that come up and are lost, ending connections. Does
not cover: the socket (emlio.daemon.network.lane_socket), the choice of a lane
(emlio.daemon.lanes.group), admission (emlio.daemon.network.zap_thread).
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import Lock, Thread
from typing import Final

from emlio.daemon.lanes.group import Lane, LaneGroup, LaneState
from emlio.daemon.lanes.outlet import Outlet, Waits
from emlio.daemon.lanes.stream_totals import SessionFigures, StreamTotals
from emlio.daemon.lanes.table import LaneSession, LaneTable
from emlio.daemon.lanes.timers import Timers
from emlio.daemon.network.lane_socket import LaneSocket, Outcome
from emlio.daemon.reading.job_turns import JobTurns
from emlio.daemon.reading.stream import Outgoing, Stream, StreamFailure
from emlio.errors import EmlioError, RemoteProtocolError
from emlio.thread_name import show_thread_name
from emlio.waker import Waker
from emlio.wire.credit import Credit
from emlio.wire.data import data_tail, header_apart, tail_room

__all__ = ["LaneSender", "frames_of", "most_bytes"]

_LOG = logging.getLogger("emlio.daemon.sender")

_CREDITS_A_TURN: Final = 256
_STREAMS_A_TURN: Final = 8
_MESSAGES_A_TURN: Final = 4
"""Messages of one stream per turn. Then new credits are read: a turn takes a few milliseconds at
most."""

_LEAST_BYTES: Final = 16 << 10
"""A turn in which no lane takes anything counts as much: it takes as long as giving so many bytes."""

_TRY_NS: Final = 2_000_000
_TRY_LATER_NS: Final = 20_000_000
_TRY_SOON_FOR_NS: Final = 500_000_000
"""An admitted lane comes up a round trip later. Until the rank's first credit, only an attempt to
send shows that it is up."""

_TRY_COST_NS: Final = 5_000
_TRIES_PART: Final = 4
"""Failed attempts take at most one part in so many of the thread's time. Otherwise a client that
connects thousands of lanes and finishes no handshake would take all of it."""


def most_bytes(outgoing: Outgoing) -> int:
    """Return an upper bound on the bytes of the message's frames."""
    return outgoing.payload_bytes + tail_room(outgoing.message.count)


def frames_of(outgoing: Outgoing, lane: int, sequence: int) -> tuple[memoryview | bytes, ...]:
    """Return the frames, in order.

    They refer to the message's own memory: after it was sent, it may not be given to another lane.
    """
    if outgoing.apart:
        payload = outgoing.payload
        return header_apart(outgoing.head, outgoing.head_crc, payload, lane, sequence), payload
    return (outgoing.with_tail(data_tail(outgoing.head, outgoing.head_crc, lane, sequence)),)


class LaneSender:
    """Owns the socket and its thread.

    Methods may be called by any thread. A session is registered before its lanes are expected.

    Attributes:
        sent_bytes: the bytes that were given to lanes.
    """

    def __init__(
        self,
        socket: LaneSocket,
        *,
        on_failure: Callable[[StreamFailure], None],
        on_fault: Callable[[int, RemoteProtocolError], None],
        on_lane_ended: Callable[[str], None] = lambda _: None,
    ) -> None:
        """See the class.

        Args:
            socket: the socket of the lanes; closed with this.
            on_failure: called with a stream that ended by a defect.
            on_fault: called with a session whose rank broke the protocol. Nothing more is sent to
                it.
            on_lane_ended: called, with the session's group, for each admitted lane whose connection
                has ended. The thread calls all three.
        """
        self.sent_bytes = 0
        self._socket = socket
        self._on_failure = on_failure
        self._timers = Timers()
        self._table = LaneTable(socket, self._timers, on_fault, self._wake, on_lane_ended)
        self._orders: deque[Callable[[], None]] = deque()
        self._signalled: set[Stream] = set()
        self._lock = Lock()
        self._outlets: dict[Stream, tuple[Outlet, LaneSession]] = {}
        self._former: dict[str, StreamTotals] = {}  # of streams that ended, by the name of their dataset
        self._counting = Lock()  # a stream that ends must be counted once, here or there
        self._ready: JobTurns[tuple[Outlet, LaneSession]] = JobTurns(_LEAST_BYTES)
        # Full lanes, and the frames of a message still to be sent.
        self._stuck: dict[Lane, tuple[memoryview | bytes, ...]] = {}
        # The time from which attempts are allowed again, given the cost of failed ones.
        self._tries_free_ns = 0
        self._waker = Waker()
        self._stop = False
        self._thread = Thread(target=self._run, name="emlio-lanes", daemon=True)

    # ---- for other threads --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def register(self, group: LaneGroup) -> None:
        """Register a session that begins; its lanes may be admitted."""
        self._order(partial(self._table.register, group))

    def admitted(self, group: str, number: int) -> None:
        """Note that a lane of a session was admitted."""
        self._order(partial(self._admit, group, number))

    def attach(self, stream: Stream, group: str, *, lanes: int, credit: Credit) -> None:
        """Send the stream's messages over this many lanes of the session.

        Another stream of the session sends no more.
        """
        self._order(partial(self._attach, stream, group, lanes, credit))

    def tune(self, stream: Stream, lanes: int) -> None:
        """Give the stream's messages to so many lanes from now on, the newest ones."""
        self._order(partial(self._tune, stream, lanes))

    def detach(self, stream: Stream) -> None:
        """Send nothing more of the stream. Messages that its lanes already have still arrive."""
        self._order(partial(self._detach, stream))

    def signal(self, stream: Stream) -> None:
        """Note that the stream has a message ready."""
        with self._lock:
            first = not self._signalled
            self._signalled.add(stream)
        if first:
            self._waker.wake()

    def totals(self, stream: Stream) -> StreamTotals:
        """Return the stream's totals so far."""
        known = self._outlets.get(stream)
        return known[0].totals_at(time.monotonic_ns()) if known is not None else StreamTotals()

    def figures(self, group: str) -> SessionFigures:
        """Return the figures of a session."""
        session = self._table.session(group)
        if session is None:
            return SessionFigures()
        lanes = session.group.lanes
        with self._counting:
            outlet, totals = session.outlet, session.former
            if outlet is not None:
                totals = totals.plus(outlet.totals_at(time.monotonic_ns()))
        return SessionFigures(
            totals=totals,
            waits_for=outlet.waits_for if outlet is not None else "",
            lanes=sum(lane.state is LaneState.UP for lane in lanes),
            unread_bytes=sum(lane.under_way_bytes for lane in lanes),
            place=outlet.place if outlet is not None else (0, 0),
            idle=session.group.idle(),
        )

    def dataset_totals(self) -> dict[str, StreamTotals]:
        """Return the totals of all streams so far, by the name of their dataset.

        A message that no lane takes counts for a moment, so they may fall by its size.
        """
        now_ns = time.monotonic_ns()
        with self._counting:
            found = dict(self._former)
            for stream, (outlet, _) in list(self._outlets.items()):
                found[stream.name] = found.get(stream.name, StreamTotals()).plus(outlet.totals_at(now_ns))
        return found

    @property
    def lanes_lost(self) -> int:
        """The number of lanes whose connection ended or never came up."""
        return self._table.lanes_lost

    @property
    def strangers(self) -> int:
        """The number of messages from connections that are not, or no longer, a lane."""
        return self._table.strangers

    def is_settled(self, stream: Stream, group: str) -> bool:
        """Return whether the rank has read all that was sent.

        A message may still be ready if the rank's credit does not allow it.
        """
        known = self._outlets.get(stream)
        stops = known is not None and (known[0].closed or known[0].waits is Waits.CREDIT)
        return not self.unread_bytes(group) and (stops or stream.first() is None)

    def stops(self, stream: Stream, group: str) -> bool:
        """Send nothing more of a stream that is settled; return whether that is so by now.

        Only the thread that sends can decide it: the rank's credit may come at this moment.
        """
        known = self._outlets.get(stream)
        if known is None or known[0].closed:
            return not self.unread_bytes(group)
        self._order(partial(self._stop_settled, stream, group))
        return False

    def unread_bytes(self, group: str) -> int:
        """Return the bytes sent over the lanes of a session and not known to have been read."""
        return self._table.under_way_bytes(group)

    def close_group(self, group: str) -> None:
        """End a session: send nothing more, and close connections that the rank does not close."""
        self._order(partial(self._table.end, group))

    def close(self) -> None:
        """Stop the thread and end all connections."""
        if self._thread.ident is not None:
            self._stop = True
            self._waker.wake()
            self._thread.join()
        else:
            self._socket.close()
        self._waker.close()

    def _order(self, action: Callable[[], None]) -> None:
        self._orders.append(action)
        self._waker.wake()

    # ---- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        show_thread_name()
        try:
            while not self._stop:
                self._socket.wait(self._waker, self._timeout_ms())
                self._obey()
                self._guarded(self._listen)
                with self._lock:
                    signalled, self._signalled = self._signalled, set()
                for stream in signalled:
                    if (known := self._outlets.get(stream)) is not None:
                        self._queue(*known)
                now_ns = time.monotonic_ns()
                while (action := self._timers.take(now_ns)) is not None:
                    self._guarded(action)
                for _ in range(min(len(self._ready), _STREAMS_A_TURN)):
                    self._take_turn(*self._ready.take(), now_ns)
        finally:
            self._socket.close()
            self._outlets.clear()
            self._stuck.clear()

    def _timeout_ms(self) -> int | None:
        if self._ready:
            return 0
        due_ns = self._timers.due_ns()
        if due_ns is None:
            return None
        return max((due_ns - time.monotonic_ns()) // 1_000_000 + 1, 0)

    def _obey(self) -> None:
        while self._orders:
            self._guarded(self._orders.popleft())

    @staticmethod
    def _guarded(action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:  # noqa: BLE001  # one order must not end the thread of all streams
            _LOG.exception("a command of the sending thread failed")

    # ---- lanes and their credits --------------------------------------------------------------------------------------

    def _admit(self, label: str, number: int) -> None:
        session = self._table.admit(label, number)
        if session is not None:
            self._wake(session)

    def _listen(self) -> None:
        for _ in range(_CREDITS_A_TURN):
            heard = self._socket.receive()
            if heard is None:
                return
            if not self._table.knows(heard.name):
                self._obey()  # it was admitted since this turn began
            session = self._table.hear(heard)
            if session is not None:
                self._wake(session)

    def _wake(self, session: LaneSession) -> None:
        """Queue the stream again: something happened that it may wait for."""
        outlet = session.outlet
        if outlet is not None and outlet.waits in (Waits.CREDIT, Waits.LANE):
            self._queue(outlet, session)

    # ---- streams ------------------------------------------------------------------------------------------------------

    def _attach(self, stream: Stream, label: str, lanes: int, credit: Credit) -> None:
        session, now_ns = self._table.session(label), time.monotonic_ns()
        if session is None or session.group.ended or stream.closed:
            return
        if session.outlet is not None:
            session.outlet.closed = True
        group = session.group
        outlet = Outlet(stream, lanes, group.open(stream.stream, credit), now_ns, young=group.is_young)
        session.outlet = outlet
        self._outlets[stream] = outlet, session
        self._queue(outlet, session)  # messages that were read before

    def _tune(self, stream: Stream, lanes: int) -> None:
        if (known := self._outlets.get(stream)) is not None:
            self._table.narrow(known[1], lanes)
            self._wake(known[1])

    def _detach(self, stream: Stream) -> None:
        known = self._outlets.get(stream)
        if known is None:
            return
        outlet, session = known
        outlet.closed = True
        with self._counting:
            del self._outlets[stream]
            if session.outlet is outlet:
                session.outlet = None
            ended = outlet.totals_at(time.monotonic_ns())
            session.former = session.former.plus(ended)
            self._former[stream.name] = self._former.get(stream.name, StreamTotals()).plus(ended)

    def _stop_settled(self, stream: Stream, group: str) -> None:
        known = self._outlets.get(stream)
        if known is not None and not known[0].queued and self.is_settled(stream, group):
            known[0].closed = True

    def _queue(self, outlet: Outlet, session: LaneSession) -> None:
        if not outlet.queued and not outlet.closed:
            outlet.queued = True
            self._ready.add(outlet.stream.job, (outlet, session))

    def _take_turn(self, outlet: Outlet, session: LaneSession, now_ns: int) -> None:
        outlet.queued = False
        if outlet.closed:
            return
        before_bytes = outlet.totals.sent_bytes
        try:
            outlet.now(now_ns)
            outlet.waits = self._send_some(outlet, session, now_ns)
            gave_bytes = outlet.totals.sent_bytes - before_bytes
            self._ready.gave(outlet.stream.job, gave_bytes)
            self.sent_bytes += gave_bytes
        except Exception as error:  # noqa: BLE001  # one stream must not end the thread of all
            facts = {"session": outlet.stream.session, "dataset": outlet.stream.name}
            _LOG.exception("%s: sending failed", outlet.stream.label, extra=facts)
            self._detach(outlet.stream)
            failure = EmlioError(f"internal error while sending: {error!r}")
            self._on_failure(StreamFailure(stream=outlet.stream, error=failure))
            return
        if outlet.waits is Waits.TURN:
            self._queue(outlet, session)
        elif outlet.waits is Waits.LANE:
            self._retry(outlet, session, now_ns)

    def _send_some(self, outlet: Outlet, session: LaneSession, now_ns: int) -> Waits:
        stream, credit, totals = outlet.stream, outlet.credit, outlet.totals
        for _ in range(_MESSAGES_A_TURN):
            outgoing = stream.first()
            if outgoing is None:
                return outlet.waits_for_reading
            message = outgoing.message
            if not credit.allows((message.epoch, message.slot), message.size_bytes):
                return Waits.CREDIT
            # Counted before it can leave, so that a total never lacks a message that has left.
            totals.sent_bytes += message.size_bytes
            lane = self._give(outlet, session, outgoing, now_ns)
            if lane is None:
                totals.sent_bytes -= message.size_bytes
                return Waits.LANE
            outlet.gave(lane, now_ns)
            outlet.sent((message.epoch, message.slot), message.size_bytes)
            stream.sent()
        return Waits.TURN

    def _give(self, outlet: Outlet, session: LaneSession, outgoing: Outgoing, now_ns: int) -> Lane | None:
        """Send the message over a lane; return None if no lane may have it."""
        group = session.group
        if now_ns >= session.try_ns and (awaited := group.awaited(outlet.lanes)):
            for lane in awaited:
                if self._send(lane, session, outlet, outgoing) is Outcome.SENT:
                    group.came_up(lane)
                    return lane
            young = any(now_ns - lane.admitted_ns < _TRY_SOON_FOR_NS for lane in awaited)
            self._tries_free_ns = max(self._tries_free_ns, now_ns) + len(awaited) * _TRY_COST_NS * _TRIES_PART
            session.try_ns = max(now_ns + (_TRY_NS if young else _TRY_LATER_NS), self._tries_free_ns)

        def may_have(lane: Lane) -> bool:
            return lane not in self._stuck and outlet.may_have(lane, now_ns)

        size_bytes = most_bytes(outgoing)
        while (chosen := group.choose(outlet.lanes, size_bytes, may_have)) is not None:
            outcome = self._send(chosen, session, outlet, outgoing)
            if outcome is Outcome.SENT:
                return chosen
            if outcome is Outcome.GONE:
                self._table.lose(chosen, session)
            else:
                self._is_stuck(chosen, session, ())
        return None

    def _send(self, lane: Lane, session: LaneSession, outlet: Outlet, outgoing: Outgoing) -> Outcome:
        frames = frames_of(outgoing, lane.number, lane.sequence)
        outcome = self._socket.send(lane.name, frames[0])
        if outcome is not Outcome.SENT:
            return outcome
        for place, frame in enumerate(frames[1:], 1):
            outcome = self._socket.send(lane.name, frame)
            if outcome is Outcome.GONE:
                return outcome
            if outcome is Outcome.FULL:
                self._is_stuck(lane, session, frames[place:])
                break
        lane.gave(*(len(frame) for frame in frames), now_ns=time.monotonic_ns())
        return Outcome.SENT

    # ---- trying again -------------------------------------------------------------------------------------------------

    def _retry(self, outlet: Outlet, session: LaneSession, now_ns: int) -> None:
        """Try the stream again when more lanes may take a message without sending a credit."""
        dues = [outlet.start_ends_ns(now_ns), session.try_ns if session.group.awaited(outlet.lanes) else None]
        due_ns = min((due for due in dues if due is not None), default=None)
        if due_ns is not None and (outlet.retry_ns is None or due_ns < outlet.retry_ns):
            outlet.retry_ns = due_ns
            self._timers.at(due_ns, partial(self._again, outlet, session))

    def _again(self, outlet: Outlet, session: LaneSession) -> None:
        outlet.retry_ns = None
        self._queue(outlet, session)

    def _is_stuck(self, lane: Lane, session: LaneSession, owed: tuple[memoryview | bytes, ...]) -> None:
        """Hold back a lane whose queue is full; later send it the missing frames first.

        The lane's credit should prevent a full queue.
        """
        self._stuck[lane] = owed
        self._timers.at(time.monotonic_ns() + _TRY_NS, partial(self._unstick, lane, session))

    def _unstick(self, lane: Lane, session: LaneSession) -> None:
        owed = self._stuck.pop(lane, None)
        if owed is None or lane.state is LaneState.GONE:
            return
        for place, frame in enumerate(owed):
            outcome = self._socket.send(lane.name, frame)
            if outcome is Outcome.GONE:
                self._table.lose(lane, session)
                return
            if outcome is Outcome.FULL:
                self._is_stuck(lane, session, owed[place:])
                return
        self._wake(session)
