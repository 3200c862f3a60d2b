"""The receive thread: it waits, passes events to the machine, and carries out its instructions.

Covers: the thread, its turns, the planes and their sockets, calls from other threads. Does not
cover: decisions (emlio.receiver.machine), reading disks (emlio.receiver.local.shard_reader).
"""

import logging
import os
import random
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from uuid import uuid4

from emlio import native
from emlio.allocator import keep_freed_memory
from emlio.clock import Clock
from emlio.errors import EmlioError, PeerLostError, TransportError
from emlio.formats.contents import TFRECORD, Contents
from emlio.open_limits import descriptor_limit
from emlio.planner.plan import Plan
from emlio.receiver.addresses.address import Address, Peer, Target
from emlio.receiver.addresses.host_names import NameWatch
from emlio.receiver.addresses.lane_count import lanes_for
from emlio.receiver.addresses.path_memory import cache_file, known_paths
from emlio.receiver.assignment.agreement import questions_of
from emlio.receiver.batches.prefetch import Prefetch
from emlio.receiver.connection.lane_plane import DataPlane, LanePlane
from emlio.receiver.connection.link_plane import LinkPlane
from emlio.receiver.connection.transport import Network
from emlio.receiver.engine.hello import greeting
from emlio.receiver.engine.questions import DaemonQuestions
from emlio.receiver.engine.tuning import LoaderTuning
from emlio.receiver.local.plane import LocalPlane
from emlio.receiver.local.shard_reader import LocalShards
from emlio.receiver.machine.events import (
    BatchesTaken,
    Begun,
    Event,
    PlaceChanged,
    ReportsWanted,
    Sought,
    TargetsChanged,
    TimePassed,
)
from emlio.receiver.machine.instructions import (
    Answered,
    Call,
    CloseLane,
    ConnectLane,
    Disconnect,
    Fail,
    HandOut,
    Instruction,
    LookAtLanes,
    LookUpNames,
    Note,
    ReadHere,
    Remember,
    Say,
    SayCredit,
)
from emlio.receiver.machine.intake import Room
from emlio.receiver.machine.rank import RankMachine, ReceivingFigures
from emlio.receiver.machine.surroundings import Surroundings
from emlio.receiver.setup.config import LoaderConfig
from emlio.receiver.threads.bell import Bell
from emlio.receiver.threads.calls import Calls
from emlio.receiver.threads.rank_gate import RankGate
from emlio.receiver.tuning.tuning import Tuning
from emlio.socket_buffers import receive_buffer_bytes, send_buffer_bytes
from emlio.waker import Waker
from emlio.wire.control import Hello, Made

__all__ = ["Engine"]

_LOG = logging.getLogger("emlio.receiver")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_QUIET_MS = 5
"""After this long without a message, daemons are told of all bytes read from their lanes."""

_TURN_NS = 50_000_000
"""A turn that reads for longer ends: what daemons say is read, and they are answered, in each turn."""

_ANSWER_S = 5.0

_BUSY = Room(1 << 62, 1 << 62)
"""During a turn."""

_REPORT_NS = 100_000_000
"""Between the reports that daemons are asked for while the user waits: what do their streams wait for?"""

_KEPT_BYTES = 128 << 20
"""Freed memory kept per thread (docs/internals/decisions/libzmq.md); one receives all messages."""


class Engine:
    """Owns the receive thread. Public methods may be called from any thread.

    Attributes:
        questions: the questions of other threads to the daemons.
        gate: holds the user where daemons say so.
        tuning: the settings that can change while it runs.
    """

    def __init__(
        self,
        config: LoaderConfig,
        prefetch: Prefetch,
        clock: Clock,
        *,
        progress: bool = False,
        made: Callable[[str], list[Made]] = lambda _: [],
    ) -> None:
        """Prepare the thread.

        Args:
            config: the loader's configuration.
            prefetch: takes the batches.
            clock: tells the time.
            progress: whether a line is shown while shards of this host are indexed.
            made: returns what this process has made for a dataset, beside this loader.
        """
        self._made = made
        self.gate = RankGate(
            lambda: self._tell_soon(PlaceChanged()),
            compared=config.world_size > 1,
            name=f"rank {config.rank} of {config.world_size} (dataset {config.address.dataset!r})",
        )
        self._work = prefetch.receiving
        self._report_ns = 0
        self._heard_bytes = 0  # of the batches that were taken, those that the machine was told of
        self._room = _BUSY  # how much the user must free to wake the thread
        self._turns = 0
        self._woken = -1  # the turn after whose first look the thread was woken for room
        self._reads_on = False  # the last turn ended before everything was read
        self._config = config
        self._prefetch = prefetch
        self._clock = clock
        try:
            self._waker = Waker()
            self._network = Network(self._waker)
        except OSError as error:
            raise TransportError(
                f"no open files are left for a loader: {error.strerror}, and this process has a limit of "
                f"{descriptor_limit():,}. Raise the limit (ulimit -n), or use fewer lanes with the daemons' --lanes"
            ) from error
        self._local: list[LocalShards] = []
        mixed = bool(config.address.parts)
        try:
            for part, directory, options in config.address.directories:
                self._local.append(
                    LocalShards(
                        directory,
                        self._waker,
                        clock,
                        verify=config.recovery.verifies,
                        window_bytes=config.prefetch.most_bytes,
                        progress=progress,
                        options=options,
                        questions=questions_of(config.sampling),
                        part=part if mixed else None,
                    )
                )
            keep_freed_memory(_KEPT_BYTES)
            native.say_if_absent(_LOG)
            self._calls = Calls(self._waker.wake)
            self._beginning = Lock()  # decides whether the thread or the end comes first
            self._runs = self._closed = False
            self._is_ready = False
            self._ready = Bell()
            self._error: EmlioError | None = None
            self._stop = False
            self._events: deque[Event] = deque()  # caused by instructions
            self._names = NameWatch(self._change_soon)
            self._targets = self._names.look(config.address.peers)
            self._paths = known_paths(cache_file(os.environ))
            self._client = uuid4().hex
            here = [local.holding for local in self._local]
            self._machine = RankMachine(config, self._targets, here, self._surroundings())
            self.tuning = LoaderTuning(config, self._machine, prefetch)
            self._control = LinkPlane(self._network, config.trust)
            self._lanes: DataPlane = LanePlane(self._network, lambda: len(self._machine.pool.sources))
            local_by_number = dict(zip(self._machine.pool.local_numbers, self._local, strict=True))
            self._here: dict[int, DataPlane] = {number: LocalPlane(local) for number, local in local_by_number.items()}
            pool = self._machine.pool
            self.questions = DaemonQuestions(pool, local_by_number, clock, self._calls.call)
            self._thread = Thread(target=self._run, name="emlio-receive", daemon=True)
        except BaseException:
            self._free()
            raise

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            chances=random.Random(uuid4().int),
            receive_buffer_bytes=receive_buffer_bytes(),
            send_buffer_bytes=send_buffer_bytes(),
            hello=self._hello,
            path=self._paths.find,
            gate=self.gate,
            made=self._made,
            waits=self._prefetch.user_waits,
            came=self._prefetch.came,
        )

    def _hello(self, number: int, peer: Peer) -> Hello:
        # A client name for each: two connections that turn out to reach one daemon must not end
        # each other there.
        return greeting(self._config, f"{self._client}-{number}", peer)

    # ---- for other threads ----------------------------------------------------------------------------------------

    def start(self) -> Plan:
        """Connect, and return the plan that all daemons agree to."""
        self._names.watch(self._config.address.peers, self._targets)
        self._thread.start()
        # The sessions have their own deadlines; this one only catches a thread that died.
        while not self._ready.wait(2 * self._config.recovery.timeout_ns / 1e9 + _ANSWER_S):
            if self._thread.is_alive() and self._machine.pool.finds_matches:
                continue  # the daemon lives, and reads all its records once
            raise PeerLostError("the receive thread did not agree with the daemons within twice the timeout")
        if self._error is not None:
            raise self._error
        if self._machine.agreement is None:
            raise PeerLostError("the receive thread ended before a plan was agreed")
        return self._machine.agreement.plan

    @property
    def has_failed(self) -> bool:
        """True once an error has ended the receive thread, or is about to."""
        return self._error is not None

    @property
    def contents(self) -> tuple[Contents, ...]:
        """The contents of each dataset; TFRecord's until a plan is agreed."""
        agreement = self._machine.agreement
        return (TFRECORD,) if agreement is None else agreement.contents

    def go_to(self, epoch: int, origin: int, generation: int) -> None:
        """Drop everything and receive this epoch from `origin` on, as batches of `generation`."""
        self._tell_soon(Sought(epoch, origin, generation))

    def use_room(self) -> None:
        """Wake the receive thread, if the user has freed enough room."""
        turn = self._turns
        if self._woken != turn and self._gives_room():
            self._waker.wake()
            # Once: while the thread waits for a processor, the user may take hundreds of batches. And last: an
            # interrupt may come before.
            self._woken = turn

    def _gives_room(self) -> bool:
        freed_bytes = self._prefetch.delivered_bytes - self._heard_bytes
        return self._room.is_given_by(len(self._prefetch.delivered), freed_bytes)

    def use(self, address: Address) -> None:
        """Use the daemons of this address from now on."""
        meant = self._names.look(address.peers)
        self._names.watch(address.peers, meant)
        self._change_soon(meant)

    def _change_soon(self, targets: tuple[Target, ...]) -> None:
        self._tell_soon(TargetsChanged(targets))

    def _tell_soon(self, event: Event) -> None:
        self._calls.call(lambda: self._events.append(event))

    def tune(self, tuning: Tuning) -> None:
        """Work with these settings from now on."""
        self._calls.call(lambda: self._events.append(self.tuning.set(tuning)))

    def describe_wait(self) -> str:
        """Return the records and daemons that the next batch waits for, in words."""
        answer: SimpleQueue[str] = SimpleQueue()
        self._calls.call(lambda: answer.put(self._machine.describe_wait(self._clock.monotonic_ns())))
        try:
            return answer.get(timeout=_ANSWER_S)
        except Empty:
            return "the receive thread does not answer"

    def connections_wanted(self) -> int:
        """Return how many TCP connections fill the path to the daemons, see `lanes_for`."""
        round_trip_ns = self._machine.pool.sources.round_trip_ns() or 0
        return lanes_for(round_trip_ns, send_buffer_bytes(), receive_buffer_bytes())

    @property
    def worked_ns(self) -> int:
        """Time the receive thread did not spend waiting."""
        return self._work.total_ns

    def figures(self) -> ReceivingFigures:
        """Return totals since the engine was made."""
        return self._machine.figures(self.tuning.changes)

    def close(self) -> None:
        """Say goodbye, end the thread, free the sockets. A second call does nothing."""
        self._names.close()
        with self._beginning:
            self._closed = True
            if not self._runs:
                self._free()
                return
        self._calls.call(self._end)
        self._thread.join()

    def _end(self) -> None:
        self._stop = True

    def _free(self) -> None:
        if hasattr(self, "tuning"):  # it may be what could not be made
            self.tuning.close()
        for local in self._local:
            local.close()
        self._network.close()
        self._waker.close()

    def _run(self) -> None:
        with self._beginning:
            if self._closed:
                return  # an interrupt came while this thread was being started, and everything is freed already
            self._runs = True
        try:
            self._handle(Begun())
            while not self._stop:
                if not self._is_ready and self._machine.pool.all_agreed:
                    self._is_ready = True
                    self._ready.ring()
                self._turn()
        except EmlioError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  # the user's thread waits for an answer in any case
            _LOG.exception("the receive thread failed")
            self._fail(EmlioError(f"internal error while receiving: {error!r}"))
        finally:
            self._work.end()
            self._leave()
            self._ready.ring()
            self._calls.end()
            self.questions.asker.end(self._error)
            self._free()

    def _fail(self, error: EmlioError) -> None:
        self._error = self._error or error
        self._prefetch.fail(error)
        self.gate.fail(error)

    def _leave(self) -> None:
        try:
            self._carry_out(self._machine.leave(self._clock.monotonic_ns()))
        except Exception:  # noqa: BLE001  # a failure here must not keep the sockets open, or freeing them would never end
            _LOG.exception("sending goodbye failed")
        finally:
            self._lanes.close()
            self._control.close()

    def _turn(self) -> None:
        """Wait, pass all events to the machine, and then tell it that time has passed."""
        ready = set(self._network.wait(self._timeout_ms(), [*self._control.things(), *self._lanes.things()]))
        begun_ns = time.monotonic_ns()
        self._work.begin()
        self._calls.hear()
        if self._stop:
            return
        self._turns += 1
        self._room = _BUSY  # no need to wake it before it looks for room again, see `_timeout_ms`
        delivered, taken = self._prefetch.delivered, dict[int, list[int]]()
        while delivered:
            generation, size_bytes = delivered.popleft()
            self._heard_bytes += size_bytes
            taken.setdefault(generation, []).append(size_bytes)
        self._events += [BatchesTaken(generation, len(sizes), sum(sizes)) for generation, sizes in taken.items()]
        self._hear()  # before reading: what would be read may not be wanted any more
        for said in self._control.events(ready):
            self._handle(said)
        self._reads_on = False
        for plane in (self._lanes, *self._here.values()):
            for event in plane.events(ready):
                self._handle(event)
                if time.monotonic_ns() - begun_ns > _TURN_NS:
                    self._reads_on = True
                    break
        hungry = self._prefetch.hungry
        if hungry and begun_ns >= self._report_ns:
            self._report_ns = begun_ns + max(_REPORT_NS, self._machine.pool.sources.round_trip_ns() or 0)
            self.tuning.asked(begun_ns)
            self._handle(ReportsWanted())
        for tuned in self.tuning.events(begun_ns, hungry=hungry):
            self._handle(tuned)
        self._handle(TimePassed(hungry=hungry, quiet=not ready))
        self.questions.asker.tick()
        self._carry_out(self._machine.take())
        self._room = self._machine.intake.room()
        self._work.end()

    def _handle(self, event: Event) -> None:
        """Pass an event to the machine, carry out its instructions, and pass on the results."""
        self._events.append(event)
        self._hear()

    def _hear(self) -> None:
        while self._events:
            self._carry_out(self._machine.handle(self._events.popleft(), self._clock.monotonic_ns()))

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case SayCredit() | ConnectLane() | CloseLane() | LookAtLanes() | ReadHere():
                    plane = self._here.get(instruction.source, self._lanes)
                    self._events.extend(plane.carry_out(instruction))
                case HandOut(generation=generation, batches=batches):
                    self._prefetch.put(generation, *batches)
                case Say() | Call() | Disconnect():
                    self._events.extend(self._control.carry_out(instruction))
                case Note(level=level, text=text):
                    _LOG.log(_LEVELS[level], "%s", text)
                case Answered(source=source, came=came):
                    self.questions.asker.hear(source, came)
                case Remember(way=way, path=path):
                    if not self._config.tuning.lanes:  # else the number says nothing of the path
                        self._paths.learn(way, path)
                case LookUpNames():
                    self._names.hurry()
                case Fail(error=error):
                    raise error

    def _timeout_ms(self) -> int | None:
        if self._events or self._reads_on or self._gives_room():
            return 0  # the user took batches after the last check, and could not know that it matters
        parts = (self.questions.asker.deadline_ns(), self.tuning.deadline_ns())
        found = (self._machine.deadline_ns(hungry=self._prefetch.hungry), *parts)
        deadline_ns = min((at for at in found if at is not None), default=None)
        quiet_ms = _QUIET_MS if self._machine.owes else None
        if deadline_ns is None:
            return quiet_ms
        due_ms: int = max(0, (deadline_ns - self._clock.monotonic_ns()) // 1_000_000 + 1)
        return due_ms if quiet_ms is None else min(due_ms, quiet_ms)
