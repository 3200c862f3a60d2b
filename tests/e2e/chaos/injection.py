"""Faults carried out on the hosts and ranks of a run.

Covers: one method for each kind, what ends it, when it began and from when on service was possible again. Does not cover: when a
fault is due (tests.e2e.chaos.run), how long ranks then waited (tests.e2e.chaos.recovery).
"""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.e2e.chaos.agenda import Agenda
from tests.e2e.chaos.disk import SmallDisk
from tests.e2e.chaos.faults import Fault, Kind
from tests.e2e.chaos.host import Host
from tests.e2e.chaos.job import Job, Seat
from tests.e2e.chaos.known import Known
from tests.e2e.chaos.names import HostNames
from tests.e2e.chaos.wall_clock import WallClock

__all__ = ["Injected", "Injection"]

_WORLDS = (2, 3, 4)
_JUMPS_S = (-10 * 365 * 86400.0, -3600.0, -1.5, 1.5, 3600.0, 20 * 365 * 86400.0)
_BETWEEN_STARTS_S = 0.5
_BETWEEN_INTERRUPTS_S = 0.003
_SLOWEST = 50_000
_MOST_REFUSAL_S = 15.0
"""A process starts, asks, and ends with an error, on a machine whose cores are busy with other things."""

_MOST_START_NS = 3_500_000_000
"""From a loader's making to its first batch where one daemon is down: the loaders' heartbeat, a second, and two for a machine
whose cores are busy with other things. The daemon is away for longer."""


@dataclass(slots=True, kw_only=True)
class Injected:
    """A fault that was due.

    Attributes:
        fault: it.
        begun_ns: when it took place; None if it did not.
        from_ns: from when on service was possible as far as this fault goes; None while it is not.
        seats: the ranks that can feel it; None for all.
        felt_by_start: the wait is that of a process from its start on, however long.
    """

    fault: Fault
    begun_ns: int | None = None
    from_ns: int | None = None
    seats: list[Seat] | None = None
    felt_by_start: bool = False
    notes: list[str] = field(default_factory=list)


def _is_free(host: Host, place: str) -> bool:
    return host.process is not None and place not in host.taken


class Injection:
    """See the module. All methods by the run's thread."""

    def __init__(
        self,
        *,
        hosts: Sequence[Host],
        job: Job,
        agenda: Agenda,
        known: Known,
        clocks: Sequence[WallClock],
        disks: Mapping[int, SmallDisk],
        names: HostNames,
    ) -> None:
        """See the class; `clocks` are those of the hosts and then that of the ranks, or none."""
        self.all: list[Injected] = []
        self.troubles: list[str] = []
        self._hosts = hosts
        self._job = job
        self._agenda = agenda
        self._known = known
        self._clocks = clocks
        self._disks = disks
        self._names = names

    def is_possible(self, fault: Fault) -> bool:
        """Whether it can be now, or must wait until its place is free of another fault.

        A shard is damaged when all else is over, both daemons are there and all ranks under way: with the copy at one daemon
        gone and the other daemon down nobody has it, and a job that starts is told of the damage instead of going round it.
        """
        host = self._hosts[fault.host]
        match fault.kind:
            case Kind.SHARD_CUT | Kind.SHARD_FLIP | Kind.SHARD_GONE:
                return self._is_quiet
            case Kind.DAEMON_ABSENT | Kind.RANK_OTHER_SEED:
                return self._is_quiet
            case Kind.DAEMON_KILL | Kind.DAEMON_DRAIN | Kind.DAEMON_STOP_SHORT | Kind.DAEMON_STOP_LONG | Kind.DISK_FULL:
                return _is_free(host, "daemon")
            case Kind.DAEMONS_BOTH:
                return all(_is_free(one, "daemon") for one in self._hosts)
            case Kind.NET_DROP_BOTH | Kind.NET_STALL_BOTH:
                return not any("network" in one.taken for one in self._hosts)
            case Kind.NET_RESET | Kind.NET_HALF_OPEN:
                return host.proxy.connections > 0
            case _ if fault.kind.of_network:
                return "network" not in host.taken
            case _:
                return True

    @property
    def _is_quiet(self) -> bool:
        """Whether nothing is under way, all daemons are there, and all ranks have begun."""
        started = all(seat.is_under_way for seat in self._job.seats)
        return (
            started and self._agenda.is_idle and all(one.process is not None and not one.taken for one in self._hosts)
        )

    def inject(self, fault: Fault) -> None:
        """Carry it out."""
        event = Injected(fault=fault)
        self.all.append(event)
        match fault.kind:
            case Kind.DAEMON_KILL | Kind.DAEMON_DRAIN | Kind.DISK_FULL:
                self._end_daemon(event)
            case Kind.DAEMONS_BOTH:
                self._end_both(event)
            case Kind.DAEMON_STOP_SHORT | Kind.DAEMON_STOP_LONG:
                self._stop_daemon(event)
            case Kind.RANK_KILL | Kind.NAME_FAMILIES:
                self._kill_rank(event)
            case Kind.RANK_STOP:
                self._stop_rank(event)
            case Kind.RANK_OTHER_SEED:
                self._try_other_seed(event)
            case Kind.RANK_CLOSE:
                self._close_loader(event)
            case Kind.RANK_INTERRUPT:
                self._interrupt(event)
            case Kind.JOB_RESTART | Kind.DAEMON_ABSENT:
                self._restart_job(event)
            case Kind.NET_RESET | Kind.NET_HALF_OPEN | Kind.NET_CUT | Kind.NET_FLIP_DATA | Kind.NET_FLIP_CONTROL:
                self._hit_network(event)
            case Kind.NET_DROP | Kind.NET_STALL | Kind.NET_SLOW | Kind.NET_DROP_BOTH | Kind.NET_STALL_BOTH:
                self._bend_network(event)
            case Kind.SHARD_CUT | Kind.SHARD_FLIP | Kind.SHARD_GONE:
                self._damage_shard(event)
            case Kind.CLOCK_JUMP:
                self._jump(event)

    # ---- daemons ------------------------------------------------------------------------------------------------------

    def _end_daemon(self, event: Injected) -> None:
        fault = event.fault
        host = self._hosts[fault.host]
        host.taken.add("daemon")
        host.expect_end()
        event.begun_ns = event.from_ns = time.monotonic_ns()
        match fault.kind:
            case Kind.DAEMON_DRAIN:
                self._agenda.aside(host.drain, lambda: self._agenda.after(fault.duration_s, lambda: self._start(host)))
            case Kind.DISK_FULL:
                disk = self._disks[host.number]
                disk.fill()
                host.kill()
                self._start_on_full_disk(event, host, disk)
            case _:
                host.kill()
                self._agenda.after(fault.duration_s, lambda: self._start(host))

    def _start(self, host: Host) -> None:
        self._agenda.aside(host.start, lambda: host.taken.discard("daemon"))

    def _start_on_full_disk(self, event: Injected, host: Host, disk: SmallDisk) -> None:
        """It may serve, or say why not; when there is room again it must serve."""

        def refused(error: Exception) -> None:
            if "Traceback" in str(error) or "emlio-daemon: error: " not in str(error):
                self.troubles.append(f"daemon {host.number} on a full disk: {error}")
            event.notes.append("did not start on the full disk")
            disk.empty()
            self._agenda.after(event.fault.duration_s, lambda: self._start(host))

        def served() -> None:
            event.notes.append("started on the full disk")
            disk.empty()
            host.taken.discard("daemon")

        self._agenda.aside(host.start, served, refused)

    def _end_both(self, event: Injected) -> None:
        for host in self._hosts:
            host.expect_end()
        event.begun_ns = event.from_ns = time.monotonic_ns()
        for number, host in enumerate(self._hosts):
            host.taken.add("daemon")
            host.kill()
            delay_s = event.fault.duration_s + number * _BETWEEN_STARTS_S
            self._agenda.after(delay_s, lambda host=host: self._start(host))  # type: ignore[misc]  # bound at once

    def _stop_daemon(self, event: Injected) -> None:
        host = self._hosts[event.fault.host]
        process = host.process
        if process is None:
            return
        host.taken.add("daemon")
        host.block("stopped")
        process.send_signal(signal.SIGSTOP)
        event.begun_ns = event.from_ns = time.monotonic_ns()

        def go_on() -> None:
            process.send_signal(signal.SIGCONT)
            host.unblock("stopped")
            host.taken.discard("daemon")

        self._agenda.after(event.fault.duration_s, go_on)

    # ---- ranks --------------------------------------------------------------------------------------------------------

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

    def _try_other_seed(self, event: Injected) -> None:
        """The ranks that go on are what it is compared with, so nothing else happens to daemons or the network meanwhile."""
        seat = self._running(event.fault)
        if seat is None or all(other is seat or other.process is None for other in self._job.seats):
            return
        event.begun_ns, event.seats, event.felt_by_start = time.monotonic_ns(), [seat], True
        for host in self._hosts:
            host.taken |= {"daemon", "network"}
        seat.kill()
        starts = len(seat.begun_ns)
        other = self._job.try_other_seed(seat)
        ends: list[int] = []

        def refused() -> None:
            try:
                ends.append(other.finish(_MOST_REFUSAL_S))
            except TimeoutError as error:
                raise OSError(f"{seat.label} with another seed must be refused: {error}") from error
            finally:
                other.kill()

        def go_on() -> None:
            told = other.log.strip().splitlines()[-1:] or ["it wrote nothing"]
            is_clear = ("ConfigError" in told[0] or "RefusedError" in told[0]) and "seed" in told[0]
            if ends != [1] or not is_clear:
                self.troubles.append(
                    f"{seat.label} with another seed must be refused and told so, ended with {ends}: {told[0]}"
                )
            for host in self._hosts:
                host.taken -= {"daemon", "network"}
            if seat in self._job.seats:
                self._job.start(seat)
                self._await_start(event, seat, starts)

        self._agenda.aside(refused, go_on)

    def _close_loader(self, event: Injected) -> None:
        seat = self._running(event.fault)
        if seat is None or seat.process is None or not seat.is_under_way:
            return
        closed = len(seat.closed_ns)
        seat.process.send_signal(signal.SIGUSR1)

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
        """Kill its daemon and start it so much later; nothing else happens to daemons or the network meanwhile.

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
            for one in self._hosts:
                one.taken -= {"daemon", "network"}

        self._agenda.after(seconds, lambda: self._agenda.aside(host.start, back))

    def _await_first_batch(self, event: Injected, seat: Seat) -> None:
        """It must come before the daemon is back. Where another fault hits this rank meanwhile nothing is said."""
        known = len(self.all)

        def came() -> None:
            took_ns = seat.taken[0].at_ns - seat.begun_ns[0]
            if took_ns > _MOST_START_NS and len(self.all) == known:
                self.troubles.append(
                    f"{seat.label} must have a batch {_MOST_START_NS / 1e9:.1f} s after its start without daemon "
                    f"{event.fault.host}, it took {took_ns / 1e9:.1f} s"
                )

        self._agenda.when(lambda: bool(seat.begun_ns and seat.taken), came)

    # ---- the network --------------------------------------------------------------------------------------------------

    def _hit_network(self, event: Injected) -> None:
        fault = event.fault
        host = self._hosts[fault.host]
        counted = {
            Kind.NET_RESET: "reset",
            Kind.NET_HALF_OPEN: "half_open",
            Kind.NET_CUT: "cut_after",
            Kind.NET_FLIP_DATA: "corrupt_after",
            Kind.NET_FLIP_CONTROL: "corrupt_after",
        }[fault.kind]
        before = host.proxy.faults[counted]

        host.taken.add("network")  # a network that is healed forgets what was still to happen to it

        def happened() -> None:
            event.begun_ns = event.from_ns = time.monotonic_ns()
            host.taken.discard("network")

        self._agenda.when(lambda: host.proxy.faults[counted] > before, happened)
        mask = 1 << fault.amount % 8
        match fault.kind:
            case Kind.NET_RESET:
                host.proxy.reset()
            case Kind.NET_HALF_OPEN:
                host.proxy.half_open()
            case Kind.NET_CUT:
                host.proxy.cut_after(fault.amount)
            case Kind.NET_FLIP_DATA:
                host.proxy.corrupt_after(fault.amount, mask=mask)
            case _:
                host.proxy.corrupt_after(fault.amount % 4096, control=True, mask=mask)

    def _bend_network(self, event: Injected) -> None:
        fault = event.fault
        both = fault.kind in (Kind.NET_DROP_BOTH, Kind.NET_STALL_BOTH)
        hosts = self._hosts if both else [self._hosts[fault.host]]
        for host in hosts:
            host.taken.add("network")
            match fault.kind:
                case Kind.NET_SLOW:
                    host.proxy.slow(_SLOWEST + fault.amount)
                case Kind.NET_DROP | Kind.NET_DROP_BOTH:
                    host.block("network")
                    host.proxy.drop()
                case _:
                    host.block("network")
                    host.proxy.stall()
        event.begun_ns = event.from_ns = time.monotonic_ns()

        def heal() -> None:
            for host in hosts:
                host.proxy.heal()
                host.unblock("network")
                host.taken.discard("network")

        self._agenda.after(fault.duration_s, heal)

    # ---- disks and clocks ---------------------------------------------------------------------------------------------

    def _damage_shard(self, event: Injected) -> None:
        fault, host = event.fault, self._hosts[event.fault.host]
        host.damaged = True
        path = host.data / self._known.shards[fault.amount % len(self._known.shards)]
        size = path.stat().st_size

        def cut() -> None:
            os.truncate(path, fault.amount % size)

        def flip() -> None:
            with path.open("r+b", buffering=0) as file:
                place = fault.amount % size
                file.seek(place)
                old = file.read(1)[0]
                file.seek(place)
                file.write(bytes([old ^ 1 << fault.amount % 8]))

        work: dict[Kind, Callable[[], None]] = {
            Kind.SHARD_CUT: cut,
            Kind.SHARD_FLIP: flip,
            Kind.SHARD_GONE: path.unlink,
        }
        event.begun_ns = event.from_ns = time.monotonic_ns()
        # A daemon that has a lease on the file is asked to give it back first.
        self._agenda.aside(work[fault.kind], lambda: event.notes.append("done"))

    def _jump(self, event: Injected) -> None:
        fault = event.fault
        who = fault.amount % (len(self._clocks) + 1)
        event.begun_ns = event.from_ns = time.monotonic_ns()
        for number, clock in enumerate(self._clocks):
            if who in (number, len(self._clocks)):
                clock.jump(_JUMPS_S[fault.amount // 7 % len(_JUMPS_S)])
