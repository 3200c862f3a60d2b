"""Faults carried out on the ranks of a run.

Covers: one method for each kind, what ends it, when it began and from when on service was possible again. Does not cover: other
faults and when one is possible (tests.e2e.chaos.injection), the processes of ranks (tests.e2e.chaos.job).
"""

import signal
import time
from collections.abc import Callable, Sequence

from tests.e2e.chaos.agenda import Agenda
from tests.e2e.chaos.faults import Fault, Kind
from tests.e2e.chaos.host import Host
from tests.e2e.chaos.injected import Injected
from tests.e2e.chaos.job import Job, Seat
from tests.e2e.chaos.names import HostNames

__all__ = ["RankFaults"]

_WORLDS = (2, 3, 4)
_DIFFERENCES = ("seed", "batch_size")
"""In which a rank may differ."""

_BETWEEN_INTERRUPTS_S = 0.003
_MOST_BACK_S = 2.0
"""A rank calls a daemon that was away again within a second, and another for a machine whose cores are busy with other things."""

_MOST_REFUSAL_S = 15.0
"""A process starts, asks, and ends with an error, on a machine whose cores are busy with other things."""

_MOST_START_NS = 3_500_000_000
"""From a loader's making to its first batch where one daemon is down: the loaders' heartbeat, a second, and two for a machine
whose cores are busy with other things. The daemon is away for longer."""

_CALLED_WITHIN_S = 3.0
"""A daemon that was not there from the start is called every second, and nobody knows what it holds before it was."""


class RankFaults:
    """See the module. All methods by the run's thread.

    Attributes:
        are_held: whether ranks wait with open loaders, and nothing else may happen to anyone.
    """

    def __init__(
        self,
        *,
        hosts: Sequence[Host],
        job: Job,
        agenda: Agenda,
        names: HostNames,
        events: Sequence[Injected],
        troubles: list[str],
    ) -> None:
        """See the class; `events` are all faults of the run so far, and to `troubles` is added what was not as it must be."""
        self._hosts = hosts
        self._job = job
        self._agenda = agenda
        self._names = names
        self._events = events
        self.are_held = False
        self._troubles = troubles

    def inject(self, event: Injected) -> None:
        """Carry it out."""
        match event.fault.kind:
            case Kind.RANK_KILL | Kind.RANK_REMAKE | Kind.NAME_FAMILIES:
                self._kill_rank(event)
            case Kind.RANK_STOP:
                self._stop_rank(event)
            case Kind.RANK_UNLIKE:
                self._try_unlike(event)
            case Kind.RANK_CLOSE:
                self._close_loader(event)
            case Kind.RANK_INTERRUPT:
                self._interrupt(event)
            case Kind.JOB_RESTART | Kind.DAEMON_ABSENT:
                self._restart_job(event)
            case other:
                raise ValueError(f"{other.label} is no fault of ranks")

    def _running(self, fault: Fault) -> Seat | None:
        seats = [seat for seat in self._job.seats if seat.process is not None]
        return seats[fault.rank % len(seats)] if seats else None

    def _kill_rank(self, event: Injected) -> None:
        seat = self._running(event.fault)
        if seat is None:
            return
        event.begun_ns, event.seats, event.felt_by_start = time.monotonic_ns(), [seat], True
        seat.kill()
        starts = len(seat.begun_ns)

        def restart() -> None:
            if seat in self._job.seats:
                if event.fault.kind is Kind.NAME_FAMILIES:
                    self._job.start_with_names(seat, self._names)
                else:
                    self._job.start(seat)
                self._await_start(event, seat, starts)
                if event.fault.kind is Kind.RANK_REMAKE:
                    self._agenda.when(lambda: len(seat.begun_ns) > starts and seat.is_under_way, seat.ask_to_close)

        self._agenda.after(event.fault.duration_s, restart)

    def _await_start(self, event: Injected, seat: Seat, starts: int) -> None:
        def started() -> None:
            event.from_ns = max(event.from_ns or 0, seat.begun_ns[starts])

        self._agenda.when(lambda: len(seat.begun_ns) > starts, started)

    def _stop_rank(self, event: Injected) -> None:
        seat = self._running(event.fault)
        if seat is None or seat.process is None:
            return
        process = seat.process
        event.begun_ns, event.seats = time.monotonic_ns(), [seat]
        process.send_signal(signal.SIGSTOP)

        def go_on() -> None:
            if seat.process is process:
                process.send_signal(signal.SIGCONT)
                event.from_ns = time.monotonic_ns()

        self._agenda.after(event.fault.duration_s, go_on)

    def _try_unlike(self, event: Injected) -> None:
        """Ranks are compared with those that have a session: the others wait, with open loaders, until it is over."""
        self.are_held = True
        asked = [(seat, seat.process) for seat in self._job.seats if seat.process is not None]
        for _, process in asked:
            process.send_signal(signal.SIGUSR2)

        def let_go() -> None:
            for seat, process in asked:
                if seat.process is process:
                    process.send_signal(signal.SIGUSR2)
            self.are_held = False

        def compare() -> None:
            seats = [seat for seat, process in asked if seat.process is process]
            seat = seats[event.fault.rank % len(seats)] if seats else None
            if seat is not None and len(seats) > 1 and seat.taken:
                self._await_refusal(event, seat, let_go)
            else:
                let_go()

        self._agenda.when(
            lambda: all(seat.holds or seat.process is not process for seat, process in asked),
            lambda: self._agenda.after(_MOST_BACK_S, compare),
        )

    def _await_refusal(self, event: Injected, seat: Seat, let_go: Callable[[], None]) -> None:
        event.begun_ns, event.seats, event.felt_by_start = time.monotonic_ns(), [seat], True
        seat.kill()
        starts = len(seat.begun_ns)
        differs = _DIFFERENCES[event.fault.amount % len(_DIFFERENCES)]
        event.notes.append(differs)
        other = self._job.try_unlike(seat, differs)
        ends: list[int] = []

        def end() -> None:
            try:
                ends.append(other.finish(_MOST_REFUSAL_S))
            except TimeoutError as error:
                raise OSError(f"{seat.label} with another {differs} must be refused: {error}") from error
            finally:
                other.kill()

        def go_on() -> None:
            told = other.log.strip().splitlines()[-1:] or ["it wrote nothing"]
            is_clear = ("ConfigError" in told[0] or "RefusedError" in told[0]) and differs in told[0]
            if ends != [1] or not is_clear:
                self._troubles.append(
                    f"{seat.label} with another {differs} must be refused and told so, ended with {ends}: {told[0]}"
                )
            let_go()
            self._job.start(seat)
            self._await_start(event, seat, starts)

        self._agenda.aside(end, go_on)

    def _close_loader(self, event: Injected) -> None:
        seat = self._running(event.fault)
        if seat is None or not seat.is_under_way:
            return
        closed = len(seat.closed_ns)
        seat.ask_to_close()

        def happened() -> None:
            event.begun_ns = event.from_ns = seat.closed_ns[closed]
            event.seats = [seat]

        self._agenda.when(lambda: len(seat.closed_ns) > closed, happened)

    def _interrupt(self, event: Injected) -> None:
        seat = self._running(event.fault)
        if seat is None or seat.process is None or not seat.is_under_way:
            return
        process, before = seat.process, seat.interrupts
        event.seats = [seat]

        def strike() -> None:
            if seat.process is process:
                process.send_signal(signal.SIGINT)

        def happened() -> None:
            event.begun_ns = event.from_ns = seat.taken[-1].at_ns
            event.notes.append(f"{seat.interrupts - before} interrupts")

        for number in range(1 + int(event.fault.duration_s / _BETWEEN_INTERRUPTS_S)):
            self._agenda.after(number * _BETWEEN_INTERRUPTS_S, strike)
        self._agenda.when(lambda: seat.process is process and seat.interrupts > before, happened)

    def _restart_job(self, event: Injected) -> None:
        if not self._job.seats or self._job.done:
            return
        fault, absent = event.fault, event.fault.kind is Kind.DAEMON_ABSENT
        event.begun_ns, event.felt_by_start = time.monotonic_ns(), True
        others = [world for world in _WORLDS if world != len(self._job.seats)]
        state = self._job.end_life()
        if absent:
            self._take_away(self._hosts[fault.host], fault.duration_s, silent=bool(fault.amount % 2))

        def restart() -> None:
            self._job.begin(others[fault.amount % len(others)], state)
            event.seats = list(self._job.seats)
            for seat in self._job.seats:
                self._await_start(event, seat, 0)
                if absent:
                    self._await_first_batch(event, seat)

        self._agenda.after(0.0 if absent else fault.duration_s, restart)

    def _take_away(self, host: Host, seconds: float, *, silent: bool) -> None:
        """Kill its daemon and start it so much later; nothing else happens to daemons or the network until ranks have called it.

        Who calls is hung up on; with `silent` there is no answer at all, as where the whole host is down.
        """
        for one in self._hosts:
            one.taken |= {"daemon", "network"}
        host.expect_end()
        host.kill()
        if silent:
            host.proxy.drop()

        def back() -> None:
            host.proxy.heal()
            self._agenda.after(_CALLED_WITHIN_S, joined)

        def joined() -> None:
            for one in self._hosts:
                one.taken -= {"daemon", "network"}

        self._agenda.after(seconds, lambda: self._agenda.aside(host.start, back))

    def _await_first_batch(self, event: Injected, seat: Seat) -> None:
        """It must come before the daemon is back. Where another fault hits this rank meanwhile nothing is said."""
        known = len(self._events)

        def came() -> None:
            took_ns = seat.taken[0].at_ns - seat.begun_ns[0]
            if took_ns > _MOST_START_NS and len(self._events) == known:
                self._troubles.append(
                    f"{seat.label} must have a batch {_MOST_START_NS / 1e9:.1f} s after its start without daemon "
                    f"{event.fault.host}, it took {took_ns / 1e9:.1f} s"
                )

        self._agenda.when(lambda: bool(seat.begun_ns and seat.taken), came)
