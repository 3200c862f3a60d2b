"""The receive thread: all sockets of one loader, and what is read from this host's disks.

Covers: waiting, reading lanes as long as there is room, taking what the local reader has, answering other threads. Does not
cover: the daemons and who sends what (emlio.receiver.crew), reading disks (emlio.receiver.local), what becomes of a message
(emlio.receiver.intake).
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread

from emlio.allocator import keep_freed_memory
from emlio.clock import Clock
from emlio.energy.clocks import ClockFit
from emlio.errors import EmlioError, PeerLostError
from emlio.planner.plan import Plan
from emlio.reading.course import StreamPosition
from emlio.receiver.address import Address
from emlio.receiver.bell import Bell
from emlio.receiver.config import LoaderConfig
from emlio.receiver.crew import Crew
from emlio.receiver.daemon_energy import DaemonEnergy
from emlio.receiver.energy_asker import EnergyAsker
from emlio.receiver.energy_questions import EnergyQuestions
from emlio.receiver.intake import Intake, IntakeTotals, Message
from emlio.receiver.local import LocalShards
from emlio.receiver.loss_words import waiting_for
from emlio.receiver.names import NameWatch, Target
from emlio.receiver.prefetch import Prefetch
from emlio.receiver.promise import Promise
from emlio.receiver.questions import Questions
from emlio.receiver.reorder import Reorder
from emlio.receiver.source import Source, Tap
from emlio.receiver.transport import Network
from emlio.session.instructions import EnergyCame, SizesCame
from emlio.waker import Waker

__all__ = ["Engine"]

_LOG = logging.getLogger("emlio.receiver")
_MESSAGES_A_TURN = 8
"""Messages read from one lane before the others get their turn; asking which lanes can be read costs about as much as one."""

_ANSWER_S = 5.0

_KEPT_BYTES = 128 << 20
"""Of freed memory, for each thread that frees some (docs/adr/0007-freed-memory.md); one receives all messages."""


class Engine:
    """Owns the receive thread. Public methods may be called from any thread, `run`'s parts only from its own."""

    def __init__(self, config: LoaderConfig, prefetch: Prefetch, clock: Clock, *, progress: bool = False) -> None:
        """See the class; with `progress`, a line is shown while shards of this host are indexed."""
        self.worked_ns = 0  # what the receive thread did besides waiting
        self._config = config
        self._intake = Intake(config, prefetch, self._move_shard)
        self._prefetch = prefetch
        self._clock = clock
        self._waker = Waker()
        self._network = Network(self._waker)
        self._local: LocalShards | None = None
        directory = config.address.directory
        try:
            if directory is not None:
                self._local = LocalShards(
                    directory,
                    self._waker,
                    clock,
                    verify=config.verify == "all",
                    window_bytes=config.prefetch_bytes,
                    progress=progress,
                )
            keep_freed_memory(_KEPT_BYTES)
            self._calls: deque[Callable[[], None]] = deque()
            self._beginning = Lock()  # of the thread and of the end, which of them is first
            self._runs = self._closed = False
            self._is_ready = False
            self._ready = Bell()
            self._error: EmlioError | None = None
            self._stop = False
            self._over = False  # nobody but those who call hears calls any more
            here = self._local.holding if self._local is not None else None
            self._names = NameWatch(self._change_soon)
            self._targets = self._names.look(config.address.peers)
            hear = self._hear_answer, self._names.hurry, self._intake.forget
            self._crew = Crew(config, self._targets, self._network, clock, here, *hear)
            self._questions = Questions(self._crew, self._local)
            self._energy = EnergyQuestions(self._crew, clock)
            self._energy_asker = EnergyAsker(self._crew, self._energy, self._call)
            self._thread = Thread(target=self._run, name="emlio-receive", daemon=True)
        except BaseException:
            self._free()
            raise

    # ---- for other threads ----------------------------------------------------------------------------------------

    def start(self) -> Plan:
        """Connect, and return the plan all daemons agree to."""
        self._names.watch(self._config.address.peers, self._targets)
        self._thread.start()
        # The machines have their own deadlines; this one only catches a thread that died.
        if not self._ready.wait(2 * self._config.timeout_ns / 1e9 + _ANSWER_S):
            raise PeerLostError("the receive thread must end its greeting within twice the timeout; it did not")
        if self._error is not None:
            raise self._error
        if self._crew.flow.agreement is None:
            raise PeerLostError("the receive thread ended before there was a plan")
        return self._crew.flow.agreement.plan

    def go_to(self, epoch: int, origin: int, generation: int) -> None:
        """Drop everything and receive from the start of this epoch's rest on, as batches of `generation`."""
        if self._intake.supply is not None:
            self._intake.supply.begin()
        self._call(lambda: self._go_to(epoch, origin, generation))

    def delivered(self, size_bytes: int) -> None:
        """The user took a batch from the queue."""
        supply = self._intake.supply
        if supply is not None:
            supply.took(size_bytes, self._clock.monotonic_ns(), self._prefetch.hungers, self.round_trip_ns)
        self.use_room()

    def use_room(self) -> None:
        """Have the receive thread go on, if it waits for room and the user gave some."""
        if self._intake.gives_room():
            self._waker.wake()

    def use(self, address: Address) -> None:
        """From now on its daemons are those to ask."""
        meant = self._names.look(address.peers)
        self._names.watch(address.peers, meant)
        self._change_soon(meant)

    def _change_soon(self, targets: tuple[Target, ...]) -> None:
        self._call(lambda: self._change(targets))

    def _change(self, targets: tuple[Target, ...]) -> None:
        if not self._stop and self._error is None:
            self._crew.change(targets)

    @property
    def recoveries(self) -> tuple[int, int, int]:
        """How often a daemon was lost, a stream opened where it had broken off, and how many shards were moved to others."""
        return self._crew.losses, self._crew.flow.reopened, self._crew.flow.moved

    def describe_wait(self) -> str:
        """What the next batch waits for, in words."""
        answer: SimpleQueue[str] = SimpleQueue()
        self._call(
            lambda: answer.put(
                waiting_for(self._intake.reorder, self._crew.flow, self._crew.sources, self._clock.monotonic_ns())
            )
        )
        try:
            return answer.get(timeout=_ANSWER_S)
        except Empty:
            return "the receive thread does not answer"

    def sizes(self, shard: int, first: int, count: int) -> Promise:
        """Where record `first` of a shard begins in its file, and the sizes of it and of others after it, at most `count`."""
        promise = Promise()
        self._call(lambda: self._questions.ask(shard, first, count, promise))
        return promise

    def clocks(self) -> dict[str, ClockFit]:
        """The daemons' clocks against this process's CLOCK_MONOTONIC, by address; without those that were never compared.

        Raises:
            PeerLostError: the receive thread does not answer.
        """
        return self._energy_asker.clocks()

    def energy_of_daemons(self, from_ns: int, to_ns: int, timeout_ns: int) -> tuple[DaemonEnergy, ...]:
        """What the daemons' nodes used, each by its own clock; of those that do not say, why. Waits for their answers.

        Args:
            from_ns: by this process's CLOCK_MONOTONIC.
            to_ns: not before that. Where it is just now, recorders take a second or two to have written it.
            timeout_ns: who has not answered by then is left out.

        Raises:
            PeerLostError: the receive thread does not answer.
        """
        return self._energy_asker.ask(from_ns, to_ns, timeout_ns)

    @property
    def lanes(self) -> int:
        """Connections for data, over all daemons."""
        return self._crew.sources.lanes

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
        return self._crew.sources.reports()

    @property
    def protection(self) -> str:
        """What keeps records from being read on their way."""
        return self._crew.sources.protection()

    def round_trip_ns(self) -> int | None:
        """The longest of the shortest round trips to each daemon."""
        return self._crew.sources.round_trip_ns()

    def close(self) -> None:
        """Say goodbye, end the thread, free the sockets. Closing again does nothing."""
        self._names.close()
        with self._beginning:
            self._closed = True
            if not self._runs:
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
        if self._over:
            self._hear_calls()
        else:
            self._waker.wake()

    def _hear_calls(self) -> None:
        # The last ones may be heard by two threads; each is taken by one.
        while self._calls:
            try:
                action = self._calls.popleft()
            except IndexError:
                return
            action()

    # ---- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with self._beginning:
            if self._closed:
                return  # an interrupt came while this thread was started, and all is free already
            self._runs = True
        try:
            self._crew.greet()
            while not self._stop:
                if not self._is_ready and self._crew.all_agreed:
                    self._is_ready = True
                    self._ready.ring()
                self._turn()
        except EmlioError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  # the user's thread waits for an answer, whatever went wrong here
            _LOG.exception("the receive thread failed")
            self._fail(EmlioError(f"internal error while receiving: {error!r}"))
        finally:
            self._crew.leave()
            self._ready.ring()
            self._over = True
            self._hear_calls()  # whoever asked something must not wait for ever
            self._questions.end()
            self._energy.end()
            self._free()

    def _fail(self, error: EmlioError) -> None:
        self._error = self._error or error
        self._prefetch.fail(error)

    def _turn(self) -> None:
        ready = set(self._network.wait(self._timeout_ms(), self._crew.sources.readable()))
        begun_ns = time.monotonic_ns()
        self._hear_calls()
        if self._stop:
            return
        self._intake.settle()
        self._take_held()
        self._receive_local()
        for daemon in list(self._crew.sources):
            if daemon.link in ready:
                self._crew.guard(daemon, partial(self._crew.receive, daemon))
            for tap in list(daemon.taps):
                if tap.lane in ready and tap in daemon.taps:
                    self._crew.guard_data(daemon, partial(self._receive_data, daemon, tap))
        self._crew.tick(hungry=self._prefetch.hungry)
        self._questions.renew()
        self._energy.tick()
        self.worked_ns += time.monotonic_ns() - begun_ns

    def _timeout_ms(self) -> int | None:
        if self._intake.held_back and self._intake.has_news():
            return 0  # handed out after the last look and before it was said that a message waits: nobody wakes for it
        found = (self._crew.deadline_ns(hungry=self._prefetch.hungry), self._energy.deadline_ns())
        deadline_ns = min((at for at in found if at is not None), default=None)
        if deadline_ns is None:
            return None
        return max(0, (deadline_ns - self._clock.monotonic_ns()) // 1_000_000 + 1)

    def _hear_answer(self, number: int, came: SizesCame | EnergyCame) -> None:
        if isinstance(came, SizesCame):
            self._questions.hear(number, came)
        else:
            self._energy.hear(number, came)

    # ---- streaming ------------------------------------------------------------------------------------------------

    def _go_to(self, epoch: int, origin: int, generation: int) -> None:
        agreement = self._crew.flow.agreement
        if agreement is None or self._stop or self._error is not None:
            return
        reorder = Reorder(
            plan=agreement.plan,
            rank=self._config.rank,
            owners=self._crew.flow.owners,
            streams=self._crew.stream_names(),
            epoch=epoch,
            origin=origin,
            in_order=self._config.in_order,
        )
        self._intake.begin(reorder, generation)
        if self._local is not None:
            self._local.owned = self._crew.flow.owners == self._crew.local_number
            position = StreamPosition(epoch=epoch, origin=origin, slot=0, end=self._config.epochs)
            self._local.open(agreement.plan, self._config.rank, position)
        self._crew.go_to(reorder, epoch, origin)

    def _receive_data(self, daemon: Source, tap: Tap) -> None:
        for _ in range(_MESSAGES_A_TURN):
            message = tap.read() if tap in daemon.taps else None  # its stream may have been opened anew
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
            self._intake.accept(self._crew.local_number, message, here=True)

    def _accept(self, daemon: Source, message: Message) -> None:
        header = message.header
        # Before it is looked at: that may end in the stream being opened anew, which counts from nothing.
        daemon.received_bytes += len(message.payload)
        daemon.moved_ns = self._clock.monotonic_ns()
        daemon.furthest = max(daemon.furthest, (header.epoch, header.slot))
        if self._intake.accept(daemon.number, message):
            self._crew.brought(daemon)
        daemon.part()

    def _take_held(self) -> None:
        """Take messages held back for which there is room now."""
        if not self._intake.held_back:
            return
        self._intake.held_back = False
        for daemon in list(self._crew.sources):
            for tap in list(daemon.taps):
                if tap.held is None or tap not in daemon.taps:
                    continue
                if self._intake.admits(tap.held):
                    self._crew.guard_data(daemon, partial(self._accept_held, daemon, tap, tap.held))
                else:
                    self._intake.held_back = True

    def _move_shard(self, stream: int, shard: int) -> bool:
        source = self._crew.sources.number(stream)
        return source is not None and self._crew.flow.forbid(source, shard)

    def _accept_held(self, daemon: Source, tap: Tap, message: Message) -> None:
        daemon.release(tap)
        self._accept(daemon, message)
