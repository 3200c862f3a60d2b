"""The receive thread: all sockets of one loader, and the state machines that say what to do with them.

Covers: greeting the daemons, offering them the plan, opening streams at a position, reading lanes as long as there is room, and
taking what is read from this host's disks. Does not cover: the rules of the conversation (emlio.session.rank), reading disks
(emlio.receiver.local), what becomes of a message (emlio.receiver.intake).
"""

import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import Event, Thread
from uuid import uuid4

import numpy as np

from emlio import __version__
from emlio.clock import Clock
from emlio.errors import EmlioError, LocalProtocolError, PeerLostError, RemoteProtocolError
from emlio.planner.plan import Plan
from emlio.receiver.agreement import Agreement, Holding, agree
from emlio.receiver.config import LoaderConfig
from emlio.receiver.intake import Intake, IntakeTotals, Message
from emlio.receiver.lanes import lanes_for
from emlio.receiver.local import LocalShards
from emlio.receiver.memory import keep_freed_memory
from emlio.receiver.prefetch import Prefetch
from emlio.receiver.record_sizes import NO_SIZES, RecordSizes
from emlio.receiver.reorder import Reorder
from emlio.receiver.source import Source, Sources, Tap
from emlio.receiver.transport import Network, receive_buffer_bytes
from emlio.session.instructions import Agreed, Failed, Listed, RankInstruction, Send, SizesCame, StreamOpened
from emlio.session.rank import RankSession
from emlio.waker import Waker
from emlio.wire.control import Hello, decode_control, encode_control

__all__ = ["Engine"]

_LOG = logging.getLogger("emlio.receiver")
_GOODBYE_MS = 200
_MESSAGES_A_TURN = 8
"""Messages read from one lane before the others get their turn; asking which lanes can be read costs about as much as one."""

_ANSWER_S = 5.0


class Engine:
    """Owns the receive thread. Public methods may be called from any thread, `run`'s parts only from its own."""

    def __init__(self, config: LoaderConfig, prefetch: Prefetch, clock: Clock, *, progress: bool = False) -> None:
        """See the class; with `progress`, a line is shown while shards of this host are indexed."""
        self.worked_ns = 0  # what the receive thread did besides waiting
        self._agreement: Agreement | None = None
        self._config = config
        self._intake = Intake(config, prefetch)
        self._prefetch = prefetch
        self._clock = clock
        self._waker = Waker()
        self._network = Network(self._waker)
        self._local: LocalShards | None = None
        directory = config.address.directory
        if directory is not None:
            try:
                self._local = LocalShards(
                    directory,
                    self._waker,
                    clock,
                    verify=config.verify == "all",
                    window_bytes=config.prefetch_bytes,
                    progress=progress,
                )
            except BaseException:
                self._free()
                raise
        keep_freed_memory()
        self._calls: deque[Callable[[], None]] = deque()
        self._ready = Event()
        self._error: EmlioError | None = None
        self._stop = False
        self._sources = Sources()
        self._asked: dict[tuple[int, str, int], list[Future[RecordSizes]]] = {}
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
        if self._agreement is None:
            raise PeerLostError("the receive thread ended before there was a plan")
        return self._agreement.plan

    def go_to(self, epoch: int, origin: int, generation: int) -> None:
        """Drop everything and receive from the start of this epoch's rest on, as batches of `generation`."""
        self._call(lambda: self._go_to(epoch, origin, generation))

    def delivered(self, generation: int, size_bytes: int) -> None:
        """The user got a batch."""
        self._intake.delivered(generation, size_bytes)
        if self._intake.held_back:
            self._waker.wake()

    def describe_wait(self) -> str:
        """What the next batch waits for, in words."""
        answer: Future[str] = Future()
        self._call(lambda: answer.set_result(self._describe_wait()))
        try:
            return answer.result(_ANSWER_S)
        except TimeoutError:
            return "the receive thread does not answer"

    def sizes(self, shard: int, first: int, count: int) -> "Future[RecordSizes]":
        """Where record `first` of a shard begins in its file, and the sizes of it and those after it; maybe not all `count`."""
        future: Future[RecordSizes] = Future()
        self._call(lambda: self._ask_sizes(shard, first, count, future))
        return future

    @property
    def lanes(self) -> int:
        """Connections for data, over all daemons."""
        return self._sources.lanes

    @property
    def peak_bytes(self) -> int:
        """The most the window ever held."""
        return self._intake.peak_bytes

    @property
    def totals(self) -> IntakeTotals:
        """What was taken off the wire."""
        return self._intake.totals

    def reports(self) -> tuple[int, int]:
        """Nanoseconds that the daemons' streams were blocked by full lanes, and starved by slow reading."""
        return self._sources.reports()

    def round_trip_ns(self) -> int | None:
        """The longest of the shortest round trips to each daemon."""
        return self._sources.round_trip_ns()

    def close(self) -> None:
        """Say goodbye, end the thread, free the sockets. Closing again does nothing."""
        if self._thread.ident is None:
            self._free()
            return
        self._call(self._end)
        self._thread.join()

    def _end(self) -> None:
        self._stop = True

    def _free(self) -> None:
        if self._local is not None:
            self._local.close()
        self._network.close()
        self._waker.close()

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
            for daemon in self._sources:
                self._carry_out(daemon, daemon.machine.leave())
                daemon.close(_GOODBYE_MS)
            self._ready.set()
            while self._calls:  # whoever asked something must not wait for ever
                self._calls.popleft()()
            for question in list(self._asked):
                self._told_sizes(question, NO_SIZES)
            self._free()

    def _fail(self, error: EmlioError) -> None:
        self._error = self._error or error
        self._prefetch.fail(error)

    def _greet(self) -> None:
        config = self._config
        now_ns = self._clock.monotonic_ns()
        for number, peer in enumerate(config.address.peers):
            machine = RankSession(peer=str(peer), timeout_ns=config.timeout_ns)
            daemon = Source(number, peer, machine, self._network)
            self._sources.add(daemon)
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
        if not self._sources:
            self._propose()
            self._ready.set()

    def _turn(self) -> None:
        ready = set(self._network.wait(self._timeout_ms(), self._sources.readable()))
        begun_ns = time.monotonic_ns()
        while self._calls:
            self._calls.popleft()()
        if self._stop:
            return
        self._intake.settle()
        self._take_held()
        self._receive_local()
        for daemon in self._sources:
            if daemon.link in ready:
                self._receive_control(daemon)
            for tap in daemon.taps:
                if tap.lane in ready:
                    self._receive_data(daemon, tap)
        now_ns = self._clock.monotonic_ns()
        for daemon in self._sources:
            self._carry_out(daemon, daemon.machine.tick(now_ns))
        self.worked_ns += time.monotonic_ns() - begun_ns

    def _timeout_ms(self) -> int | None:
        if self._intake.held_back and self._intake.has_news():
            return 0  # handed out after the last look and before it was said that a message waits: nobody wakes for it
        deadline_ns = self._sources.deadline_ns()
        if deadline_ns is None:
            return None
        return max(0, (deadline_ns - self._clock.monotonic_ns()) // 1_000_000 + 1)

    def _receive_control(self, daemon: Source) -> None:
        while (data := daemon.link.receive()) is not None:
            now_ns = self._clock.monotonic_ns()
            try:
                message = decode_control(data)
            except RemoteProtocolError as error:
                raise RemoteProtocolError(f"the daemon at {daemon.machine.peer}: {error}") from error
            self._carry_out(daemon, daemon.machine.receive(message, now_ns))

    def _carry_out(self, daemon: Source, instructions: list[RankInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Send(message=message):
                    daemon.link.send(encode_control(message))
                case Listed(rows=rows, missing=missing):
                    count = daemon.machine.welcome.missing_count if daemon.machine.welcome is not None else 0
                    daemon.holding = Holding(peer=daemon.machine.peer, rows=rows, missing=missing, missing_count=count)
                    self._propose()
                case Agreed():
                    daemon.agreed = True
                    if all(other.agreed for other in self._sources):
                        self._ready.set()
                case SizesCame(shard=shard, first=first, offset=offset, sizes=packed):
                    sizes = np.frombuffer(packed, "<u4").astype(np.int64)
                    self._told_sizes((daemon.number, shard, first), RecordSizes(offset=offset, sizes=sizes))
                case StreamOpened(stream=stream, ports=ports):
                    daemon.connect(stream, ports)
                case Failed(error=error):
                    if not daemon.machine.dismissed:
                        raise error
                    daemon.farewell = error
                    daemon.part()

    def _propose(self) -> None:
        """Offer the plan, once every daemon has said what it holds."""
        holdings = [daemon.holding for daemon in self._sources if daemon.holding is not None]
        if len(holdings) < len(self._config.address.peers):
            return
        if self._local is not None:
            holdings.append(self._local.holding)
        agreement = agree(self._config, holdings)
        rows, now_ns = agreement.rows(), self._clock.monotonic_ns()
        self._agreement = agreement
        if self._local is not None:
            self._local.owned = agreement.owners == len(self._sources)
        for daemon in self._sources:
            daemon.owned = agreement.owners == daemon.number
            self._carry_out(daemon, daemon.machine.offer(agreement.offer(daemon.machine.session), rows, now_ns))

    def _ask_sizes(self, shard: int, first: int, count: int, future: "Future[RecordSizes]") -> None:
        agreement, name = self._agreement, ""
        source = None
        if agreement is not None and self._error is None and not self._stop:
            name = agreement.plan.catalog.shards[shard].name
            source = self._sources.number(int(agreement.owners[shard]))
        if source is not None:
            self._asked.setdefault((source.number, name, first), []).append(future)
            try:
                self._carry_out(source, source.machine.ask_sizes(name, first, count))
            except LocalProtocolError:  # the conversation is over; why is told in another place
                self._told_sizes((source.number, name, first), NO_SIZES)
        elif self._local is not None and (found := self._local.sizes(name, first, count)) is not None:
            future.set_result(found)
        else:
            future.set_result(NO_SIZES)

    def _told_sizes(self, question: tuple[int, str, int], sizes: RecordSizes) -> None:
        for future in self._asked.pop(question, ()):
            future.set_result(sizes)

    # ---- streaming ------------------------------------------------------------------------------------------------

    def _go_to(self, epoch: int, origin: int, generation: int) -> None:
        agreement = self._agreement
        if agreement is None or self._stop or self._error is not None:
            return
        reorder = Reorder(
            plan=agreement.plan,
            rank=self._config.rank,
            owners=agreement.owners,
            streams=[
                *(f"daemon {daemon.machine.peer}" for daemon in self._sources),
                *([f"directory {self._local.holding.peer}"] if self._local is not None else []),
            ],
            epoch=epoch,
            origin=origin,
            in_order=self._config.in_order,
        )
        self._intake.begin(reorder, generation)
        if self._local is not None:
            self._local.open(agreement.plan, self._config.rank, epoch, origin)
        receive_buffer = receive_buffer_bytes()
        now_ns = self._clock.monotonic_ns()
        for daemon in self._sources:
            daemon.close_lanes()
            daemon.part()
            if not daemon.owned.any() or daemon.machine.welcome is None:
                continue
            round_trip = daemon.machine.round_trip_ns or 0
            welcome = daemon.machine.welcome
            lanes = lanes_for(round_trip, welcome.send_buffer_bytes, receive_buffer, most=welcome.max_lanes)
            owned = np.packbits(daemon.owned, bitorder="little").tobytes()
            order = daemon.machine.open(epoch=epoch, origin=origin, slot=0, owned=owned, lanes=lanes, now_ns=now_ns)
            self._carry_out(daemon, order)

    def _receive_data(self, daemon: Source, tap: Tap) -> None:
        for _ in range(_MESSAGES_A_TURN):
            message = daemon.read(tap)
            if message is None:
                return
            if not self._intake.admits(message):
                daemon.hold(tap, message)
                self._intake.held_back = True
                return
            self._accept(daemon, message)

    def _receive_local(self) -> None:
        local = self._local
        while local is not None and (message := local.first()) is not None:
            if not self._intake.admits(message):
                self._intake.held_back = True
                return
            local.taken()
            self._intake.accept(len(self._sources), message, here=True)

    def _accept(self, daemon: Source, message: Message) -> None:
        self._intake.accept(daemon.number, message)
        daemon.received_bytes += len(message.payload)
        daemon.part()

    def _take_held(self) -> None:
        """Take messages held back for which there is room now."""
        if not self._intake.held_back:
            return
        self._intake.held_back = False
        for daemon in self._sources:
            for tap in daemon.taps:
                if tap.held is None:
                    continue
                if self._intake.admits(tap.held):
                    self._accept(daemon, tap.held)
                    daemon.release(tap)
                else:
                    self._intake.held_back = True

    def _describe_wait(self) -> str:
        reorder = self._intake.reorder
        if reorder is None:
            return "no stream was opened"
        names = ", ".join(reorder.missing_from()) or "nothing"
        states = self._sources.describe(self._clock.monotonic_ns())
        wait = f"batch {reorder.next_step} of epoch {reorder.next_epoch} waits for records from {names}"
        return f"{wait} ({states})" if states else wait
