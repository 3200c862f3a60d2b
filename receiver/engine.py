"""The receive thread: all sockets of one loader, and the state machines that say what to do with them.

Covers: greeting the daemons, agreeing on the plan, opening streams at a position, taking messages within the window, checking
and placing them. Does not cover: the rules of the conversation (emlio.session.rank), placing (emlio.receiver.reorder), handing
out (emlio.receiver.prefetch).
"""

import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from emlio import __version__
from emlio.clock import Clock
from emlio.errors import DatasetError, EmlioError, PeerLostError, RemoteProtocolError
from emlio.planner.catalog import ShardEntry
from emlio.planner.owners import Holdings, assign_owners, merge_holdings
from emlio.planner.plan import Plan
from emlio.planner.spec import PlanSpec
from emlio.receiver.config import LoaderConfig
from emlio.receiver.lanes import lanes_for
from emlio.receiver.prefetch import Prefetch
from emlio.receiver.reorder import LaneOrder, Reorder
from emlio.receiver.transport import ControlLink, Lane, Network, Waker, receive_buffer_bytes
from emlio.receiver.window import Window
from emlio.session.instructions import Agreed, Failed, Listed, RankInstruction, Send, StreamOpened
from emlio.session.rank import RankSession
from emlio.tfrecord import check_frames
from emlio.units import format_duration
from emlio.wire.control import Hello, PlanOffer, ShardRow, decode_control, encode_control
from emlio.wire.data import DataHeader, decode_data_header

__all__ = ["Engine", "EngineTotals"]

_LOG = logging.getLogger("emlio.receiver")
_GOODBYE_MS = 200
_MESSAGES_A_TURN = 8
"""Messages read from one lane before the others get their turn; asking which lanes can be read costs about as much as one."""

_ANSWER_S = 5.0


@dataclass(slots=True, kw_only=True)
class EngineTotals:
    """What the receive thread did."""

    messages: int = 0
    records: int = 0
    received_bytes: int = 0
    bad_records: int = 0
    worked_ns: int = 0
    waited_ns: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Message:
    header: DataHeader
    payload: memoryview
    sizes: npt.NDArray[np.int64]


class _Tap:
    """A lane as the engine sees it: its order, and a message it may hold back."""

    def __init__(self, lane: Lane, order: LaneOrder) -> None:
        self.lane = lane
        self.order = order
        self.held: _Message | None = None


class _Daemon:
    """One daemon: its conversation and its lanes."""

    def __init__(self, number: int, machine: RankSession, link: ControlLink) -> None:
        self.number = number
        self.machine = machine
        self.link = link
        self.taps: list[_Tap] = []
        self.rows: tuple[ShardRow, ...] | None = None
        self.missing: tuple[str, ...] = ()
        self.agreed = False
        self.owned = np.zeros(0, np.bool_)
        self.received_bytes = 0  # of the stream
        self.farewell: EmlioError | None = None


class Engine:
    """Owns the receive thread. Public methods may be called from any thread, `run`'s parts only from its own."""

    def __init__(self, config: LoaderConfig, prefetch: Prefetch, clock: Clock) -> None:
        self.totals = EngineTotals()
        self.plan: Plan | None = None
        self.holdings: Holdings | None = None
        self._config = config
        self._prefetch = prefetch
        self._clock = clock
        self._waker = Waker()
        self._network = Network(self._waker)
        self._owners = np.zeros(0, np.int64)
        self._calls: deque[Callable[[], None]] = deque()
        self._ready = Event()
        self._error: EmlioError | None = None
        self._stop = False
        self._window = Window(config.prefetch_bytes)
        self._delivered: deque[tuple[int, int]] = deque()
        self._paused = False
        self._generation = 0
        self._pending = 0
        self._reorder: Reorder | None = None
        self._daemons: list[_Daemon] = []
        self._thread = Thread(target=self._run, name="emlio-receive", daemon=True)

    # ---- for other threads ----------------------------------------------------------------------------------------

    def start(self) -> Plan:
        """Connect, and return the plan all daemons agree to."""
        self._thread.start()
        # The machines have their own deadlines; this one only catches a thread that died.
        if not self._ready.wait(2 * self._config.timeout_ns / 1e9 + _ANSWER_S):
            raise PeerLostError("the receive thread must end its greeting within twice the timeout; it did not")
        if self._error is not None:
            raise self._error
        if self.plan is None:
            raise PeerLostError("the receive thread ended before there was a plan")
        return self.plan

    def go_to(self, epoch: int, origin: int, generation: int) -> None:
        """Drop everything and receive from the start of this epoch's rest on, as batches of `generation`."""
        self._call(lambda: self._go_to(epoch, origin, generation))

    def delivered(self, generation: int, size_bytes: int) -> None:
        """The user got a batch."""
        self._delivered.append((generation, size_bytes))
        if self._paused:
            self._waker.wake()

    def describe_wait(self) -> str:
        """What the next batch waits for, in words."""
        answer: list[str] = []
        done = Event()

        def describe() -> None:
            try:
                answer.append(self._describe_wait())
            finally:
                done.set()

        self._call(describe)
        done.wait(_ANSWER_S)
        return answer[0] if answer else "the receive thread does not answer"

    @property
    def lanes(self) -> int:
        """Connections for data, over all daemons."""
        return sum(len(daemon.taps) for daemon in self._daemons)

    @property
    def peak_bytes(self) -> int:
        """The most the window ever held."""
        return self._window.peak_bytes

    def reports(self) -> tuple[int, int]:
        """Nanoseconds that the daemons' streams were blocked by full lanes, and starved by slow reading."""
        machines = [daemon.machine.report for daemon in self._daemons]
        return sum(report.blocked_ns for report in machines), sum(report.starved_ns for report in machines)

    def round_trip_ns(self) -> int | None:
        """The longest of the shortest round trips to each daemon."""
        found = [daemon.machine.round_trip_ns for daemon in self._daemons]
        known = [value for value in found if value is not None]
        return max(known) if known else None

    def close(self) -> None:
        """Say goodbye, end the thread, free the sockets. Closing again does nothing."""
        if self._thread.ident is None:
            self._network.close()
            self._waker.close()
            return

        def stop() -> None:
            self._stop = True

        self._call(stop)
        self._thread.join()

    def _call(self, action: Callable[[], None]) -> None:
        self._calls.append(action)
        self._waker.wake()

    # ---- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._greet()
            while not self._stop:
                self._turn()
        except EmlioError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  # the user's thread waits for an answer, whatever went wrong here
            _LOG.exception("the receive thread failed")
            self._fail(EmlioError(f"internal error while receiving: {error!r}"))
        finally:
            for daemon in self._daemons:
                for instruction in daemon.machine.leave():
                    if isinstance(instruction, Send):
                        daemon.link.send(encode_control(instruction.message))
                self._close_taps(daemon)
                self._network.forget(daemon.link)
                daemon.link.close(_GOODBYE_MS)
            self._network.close()
            self._ready.set()
            while self._calls:  # whoever asked something must not wait for ever
                self._calls.popleft()()
            self._waker.close()

    def _fail(self, error: EmlioError) -> None:
        self._error = self._error or error
        self._prefetch.fail(error)

    def _greet(self) -> None:
        config = self._config
        now_ns = self._clock.monotonic_ns()
        for number, peer in enumerate(config.address.peers):
            machine = RankSession(peer=str(peer), timeout_ns=config.timeout_ns)
            daemon = _Daemon(number, machine, self._network.control(peer.endpoint()))
            self._daemons.append(daemon)
            hello = Hello(
                job=config.job,
                client=uuid4().hex,
                rank=config.rank,
                world_size=config.world_size,
                dataset=config.address.dataset,
                host=socket.gethostname(),
                pid=os.getpid(),
                software=__version__,
            )
            self._carry_out(daemon, machine.greet(hello, now_ns))

    def _turn(self) -> None:
        before = time.monotonic_ns()
        ready = set(self._network.wait(self._timeout_ms(), self._sources()))
        after = time.monotonic_ns()
        self.totals.waited_ns += after - before
        while self._calls:
            self._calls.popleft()()
        if self._stop:
            return
        self._settle_deliveries()
        for daemon in self._daemons:
            if daemon.link in ready:
                self._receive_control(daemon)
            for tap in daemon.taps:
                if tap.lane in ready:
                    self._receive_data(daemon, tap)
        now_ns = self._clock.monotonic_ns()
        for daemon in self._daemons:
            self._carry_out(daemon, daemon.machine.tick(now_ns))
        self.totals.worked_ns += time.monotonic_ns() - after

    def _sources(self) -> list[ControlLink | Lane]:
        links: list[ControlLink | Lane] = [daemon.link for daemon in self._daemons]
        return links + [tap.lane for daemon in self._daemons for tap in daemon.taps if tap.held is None]

    def _timeout_ms(self) -> int | None:
        if self._paused and self._delivered:
            return 0  # handed out after the last look and before `_paused` was set: nobody wakes for it
        deadlines = [deadline for daemon in self._daemons if (deadline := daemon.machine.deadline_ns()) is not None]
        if not deadlines:
            return None
        return max(0, (min(deadlines) - self._clock.monotonic_ns()) // 1_000_000 + 1)

    def _receive_control(self, daemon: _Daemon) -> None:
        while (data := daemon.link.receive()) is not None:
            now_ns = self._clock.monotonic_ns()
            try:
                message = decode_control(data)
            except RemoteProtocolError as error:
                raise RemoteProtocolError(f"the daemon at {daemon.machine.peer}: {error}") from error
            self._carry_out(daemon, daemon.machine.receive(message, now_ns))

    def _carry_out(self, daemon: _Daemon, instructions: list[RankInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Send(message=message):
                    daemon.link.send(encode_control(message))
                case Listed(rows=rows, missing=missing):
                    daemon.rows, daemon.missing = rows, missing
                    if all(other.rows is not None for other in self._daemons):
                        self._propose()
                case Agreed():
                    daemon.agreed = True
                    if all(other.agreed for other in self._daemons):
                        self._ready.set()
                case StreamOpened(stream=stream, ports=ports):
                    self._connect(daemon, stream, ports)
                case Failed(error=error):
                    if not daemon.machine.dismissed:
                        raise error
                    daemon.farewell = error
                    self._part(daemon)

    @staticmethod
    def _part(daemon: _Daemon) -> None:
        """Give up a daemon that said goodbye, once all it sent is here."""
        if daemon.farewell is None:
            return
        if not daemon.taps or daemon.received_bytes >= daemon.machine.report.sent_bytes:
            raise daemon.farewell

    # ---- agreeing -------------------------------------------------------------------------------------------------

    def _propose(self) -> None:
        config = self._config
        holdings = merge_holdings(
            {
                daemon.machine.peer: [
                    ShardEntry(name=row.name, records=row.records, size_bytes=row.size_bytes, digest=row.digest)
                    for row in daemon.rows or ()
                ]
                for daemon in self._daemons
            }
        )
        catalog = holdings.catalog
        present = {entry.name for entry in catalog.shards}
        absent = sorted({name for daemon in self._daemons for name in daemon.missing} - present)
        # A daemon names only the first of those it lacks, but counts them all.
        welcomes = [daemon.machine.welcome for daemon in self._daemons if daemon.machine.welcome is not None]
        known = max((welcome.shards + welcome.missing_count for welcome in welcomes), default=0)
        lacking = max(known - len(present), len(absent))
        if lacking:
            named = ", ".join(absent) or "none of them is named"
            more = f" and {lacking - len(absent)} more" if 0 < len(absent) < lacking else ""
            raise DatasetError(
                f"every shard of {config.address.dataset!r} must be held by one of the daemons "
                f"{', '.join(str(peer) for peer in config.address.peers)}; {lacking} missing: {named}{more}"
            )
        spec = PlanSpec(
            seed=config.seed,
            shuffle=config.shuffle,
            batch_size=config.batch_size,
            world_size=config.world_size,
            drop_last=config.drop_last,
            pad=config.pad,
        )
        plan = Plan(catalog, spec)
        owner_names = sorted({daemon.machine.peer for daemon in self._daemons})
        by_name = {daemon.machine.peer: daemon.number for daemon in self._daemons}
        numbers = np.array([by_name[name] for name in owner_names], np.int64)
        self._owners = numbers[assign_owners(holdings)]
        for daemon in self._daemons:
            daemon.owned = self._owners == daemon.number
        self.plan, self.holdings = plan, holdings
        offer_rows = [
            ShardRow(name=entry.name, records=entry.records, size_bytes=entry.size_bytes, digest=entry.digest)
            for entry in catalog.shards
        ]
        now_ns = self._clock.monotonic_ns()
        for daemon in self._daemons:
            offer = PlanOffer(
                session=daemon.machine.session,
                fingerprint=catalog.fingerprint,
                digest=plan.digest,
                seed=spec.seed,
                shuffle=spec.shuffle.mode.value,
                block_records=spec.shuffle.block_records,
                window_blocks=spec.shuffle.window_blocks,
                batch_size=spec.batch_size,
                drop_last=spec.drop_last,
                pad=spec.pad,
            )
            self._carry_out(daemon, daemon.machine.offer(offer, offer_rows, now_ns))

    # ---- streaming ------------------------------------------------------------------------------------------------

    def _go_to(self, epoch: int, origin: int, generation: int) -> None:
        if self.plan is None or self._stop or self._error is not None:
            return
        self._generation = generation
        self._window.clear()
        self._pending = 0
        self._reorder = Reorder(
            plan=self.plan,
            rank=self._config.rank,
            owners=self._owners,
            streams=[f"daemon {daemon.machine.peer}" for daemon in self._daemons],
            epoch=epoch,
            origin=origin,
            in_order=self._config.in_order,
        )
        receive_buffer = receive_buffer_bytes()
        now_ns = self._clock.monotonic_ns()
        for daemon in self._daemons:
            self._close_taps(daemon)
            self._part(daemon)
            if not daemon.owned.any() or daemon.machine.welcome is None:
                continue
            round_trip = daemon.machine.round_trip_ns or 0
            lanes = lanes_for(round_trip, daemon.machine.welcome.send_buffer_bytes, receive_buffer)
            owned = np.packbits(daemon.owned, bitorder="little").tobytes()
            for instruction in daemon.machine.open(
                epoch=epoch, origin=origin, slot=0, owned=owned, lanes=lanes, now_ns=now_ns
            ):
                if isinstance(instruction, Send):
                    daemon.link.send(encode_control(instruction.message))

    def _connect(self, daemon: _Daemon, stream: int, ports: tuple[int, ...]) -> None:
        self._close_taps(daemon)
        daemon.received_bytes = 0
        peer = self._config.address.peers[daemon.number]
        for number, port in enumerate(ports):
            order = LaneOrder(
                session=daemon.machine.session, stream=stream, lane=number, label=f"daemon {peer} lane {number}"
            )
            daemon.taps.append(_Tap(self._network.lane(peer.endpoint(port)), order))
        _LOG.debug("daemon %s: %d lanes, round trip %s", peer, len(ports), daemon.machine.round_trip_ns)

    def _close_taps(self, daemon: _Daemon) -> None:
        for tap in daemon.taps:
            tap.held = None
            self._network.forget(tap.lane)
            tap.lane.close()
        daemon.taps = []

    def _receive_data(self, daemon: _Daemon, tap: _Tap) -> None:
        for _ in range(_MESSAGES_A_TURN):
            received = tap.lane.receive()
            if received is None:
                return
            self._take_frames(daemon, tap, *received)
            if tap.held is not None:
                return

    def _take_frames(self, daemon: _Daemon, tap: _Tap, head: bytes, frames: list[memoryview]) -> None:
        if len(frames) != 1:
            raise RemoteProtocolError(
                f"daemon {daemon.machine.peer}: a data message must have 2 frames, got {1 + len(frames)}"
            )
        header = decode_data_header(head, len(frames[0]))
        tap.order.check(header)
        message = _Message(header, frames[0], header.record_sizes())
        if self._reorder is None or not self._admits(message):
            tap.held, self._paused = message, True
            self._network.forget(tap.lane)
        else:
            self._accept(daemon, message)

    def _admits(self, message: _Message) -> bool:
        reorder, header = self._reorder, message.header
        if reorder is None or header.epoch > reorder.next_epoch + 1:
            return False
        first = reorder.next_step * self._config.batch_size
        ahead = header.slot - first
        if header.epoch > reorder.next_epoch:
            ahead += reorder.epoch_slots(reorder.next_epoch)
        needed = ahead < self._config.batch_size and not self._pending
        return self._window.admits(ahead_slots=ahead, size_bytes=len(message.payload), needed=needed)

    def _accept(self, daemon: _Daemon, message: _Message) -> None:
        reorder, header = self._reorder, message.header
        if reorder is None:
            return
        run = check_frames(message.payload, message.sizes, verify=self._config.verify == "all")
        reorder.place(daemon.number, header, message.payload, run.starts, run.ends, message.sizes, run.faults)
        self._window.take(header.count, len(message.payload))
        self.totals.messages += 1
        self.totals.records += header.count
        self.totals.received_bytes += len(message.payload)
        self.totals.bad_records += len(run.faults)
        while (batch := reorder.take()) is not None:
            self._pending += 1
            self._prefetch.put(self._generation, batch)
        daemon.received_bytes += len(message.payload)
        self._part(daemon)

    def _settle_deliveries(self) -> None:
        while self._delivered:
            generation, size_bytes = self._delivered.popleft()
            if generation == self._generation:
                self._pending -= 1
                self._window.hand_over(size_bytes)
        if not self._paused:
            return
        self._paused = False
        for daemon in self._daemons:
            for tap in daemon.taps:
                if tap.held is None:
                    continue
                if self._admits(tap.held):
                    message, tap.held = tap.held, None
                    self._accept(daemon, message)
                    self._network.remember(tap.lane)
                else:
                    self._paused = True

    def _describe_wait(self) -> str:
        if self._reorder is None:
            return "no stream was opened"
        names = ", ".join(self._reorder.missing_from()) or "nothing"
        now_ns = self._clock.monotonic_ns()
        states = ", ".join(
            f"{daemon.machine.peer} {daemon.machine.state.value}, "
            f"{format_duration(daemon.machine.silence_ns(now_ns))} since it last spoke"
            for daemon in self._daemons
        )
        return f"batch {self._reorder.next_step} of epoch {self._reorder.next_epoch} waits for records from {names} ({states})"
