"""Faults carried out on the hosts and ranks of a run.

Covers: when a fault is possible; faults of daemons, disks and clocks: what ends each, when it began and from when on service was
possible again. Does not cover: faults of ranks (tests.e2e.chaos.rank_faults) and of networks (tests.e2e.chaos.network_faults),
when a fault is due (tests.e2e.chaos.run), how long ranks then waited (tests.e2e.chaos.recovery).
"""

import errno
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence

from emlio.native.disk import direct_alignment
from emlio_testing.disk_faults import DENY_AIO, DENY_URING, DiskFaults
from tests.e2e.chaos.agenda import Agenda
from tests.e2e.chaos.disk import SmallDisk
from tests.e2e.chaos.faults import Fault, Kind
from tests.e2e.chaos.host import Host
from tests.e2e.chaos.injected import Injected
from tests.e2e.chaos.job import Job
from tests.e2e.chaos.known import Known
from tests.e2e.chaos.names import HostNames
from tests.e2e.chaos.network_faults import NetworkFaults
from tests.e2e.chaos.rank_faults import RankFaults
from tests.e2e.chaos.wall_clock import WallClock

__all__ = ["Injection"]

_JUMPS_S = (-10 * 365 * 86400.0, -3600.0, -1.5, 1.5, 3600.0, 20 * 365 * 86400.0)
_BETWEEN_STARTS_S = 0.5
_REACHED_S = 1.0
"""Twice a heartbeat's timeout."""

_EVERY = (1, 2, 3, 10, 50)
"""One of so many transfers is spoilt."""

_ERRORS = (errno.EIO, errno.EAGAIN, errno.ENOMEM)
_LITTLE_BYTES = (4 << 10, 64 << 10)
_TOLD = ("transfers", "failed", "shortened")


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
        reads: Sequence[DiskFaults],
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
        self._reads = reads
        self._quiet_s: float | None = None
        self._networks = NetworkFaults(hosts=hosts, agenda=agenda)
        self._ranks = RankFaults(
            hosts=hosts, job=job, agenda=agenda, names=names, events=self.all, troubles=self.troubles
        )

    def is_possible(self, fault: Fault) -> bool:
        """Whether it can be now, or must wait until its place is free of another fault.

        A shard is damaged when all else has been over for a while, both daemons are there and all ranks under way: with the copy
        at one daemon gone and the other daemon down nobody has it, and a job that starts is told of the damage instead of going
        round it.
        While ranks are held for another that must be refused, nothing else happens.
        """
        if self._ranks.are_held:
            return False
        host = self._hosts[fault.host]
        match fault.kind:
            case Kind.SHARD_CUT | Kind.SHARD_FLIP | Kind.SHARD_GONE:
                return self._has_been_quiet()
            case Kind.DAEMON_ABSENT | Kind.RANK_UNLIKE:
                return self._is_quiet
            case Kind.DAEMON_KILL | Kind.DAEMON_DRAIN | Kind.DAEMON_STOP_SHORT | Kind.DAEMON_STOP_LONG | Kind.DISK_FULL:
                return _is_free(host, "daemon")
            case Kind.RING_DENIED | Kind.MEMLOCK_SMALL:
                return _is_free(host, "daemon")
            case Kind.DISK_ERROR | Kind.DISK_SHORT:
                return _is_free(host, "reads")
            case Kind.DAEMONS_BOTH:
                return all(_is_free(one, "daemon") for one in self._hosts)
            case _ if fault.kind.of_both:
                return not any("network" in one.taken for one in self._hosts)
            case Kind.LANE_RESET | Kind.LANES_RESET | Kind.LANE_AWAY | Kind.LANE_SILENT:
                return host.proxy.lanes > 0 and "network" not in host.taken
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

    def _has_been_quiet(self) -> bool:
        """Return whether ranks had time to reconnect to a daemon that was stopped."""
        if not self._is_quiet:
            self._quiet_s = None
            return False
        self._quiet_s = self._quiet_s or time.monotonic()
        return time.monotonic() - self._quiet_s >= _REACHED_S

    def inject(self, fault: Fault) -> None:
        """Carry it out."""
        event = Injected(fault=fault)
        self.all.append(event)
        match fault.kind:
            case Kind.DAEMON_KILL | Kind.DAEMON_DRAIN | Kind.DISK_FULL | Kind.RING_DENIED | Kind.MEMLOCK_SMALL:
                self._end_daemon(event)
            case Kind.DAEMONS_BOTH:
                self._end_both(event)
            case Kind.DAEMON_STOP_SHORT | Kind.DAEMON_STOP_LONG:
                self._stop_daemon(event)
            case Kind.SHARD_CUT | Kind.SHARD_FLIP | Kind.SHARD_GONE:
                self._damage_shard(event)
            case Kind.DISK_ERROR | Kind.DISK_SHORT:
                self._spoil_reads(event)
            case Kind.CLOCK_JUMP:
                self._jump(event)
            case _ if fault.kind.of_network:
                self._networks.inject(event)
            case _:
                self._ranks.inject(event)

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
            case Kind.RING_DENIED | Kind.MEMLOCK_SMALL:
                host.kill()
                self._agenda.after(fault.duration_s, lambda: self._start_with_less(event, host))
            case _:
                host.kill()
                self._agenda.after(fault.duration_s, lambda: self._start(host))

    def _start(self, host: Host) -> None:
        self._agenda.aside(host.start, lambda: host.taken.discard("daemon"))

    def _start_with_less(self, event: Injected, host: Host) -> None:
        """It must serve, and read another way."""
        fault, reads = event.fault, self._reads[host.number]
        if fault.kind is Kind.MEMLOCK_SMALL:
            reads.set(locked_bytes=_LITTLE_BYTES[fault.amount % len(_LITTLE_BYTES)])
        else:
            reads.set(denied=DENY_URING | DENY_AIO * (fault.amount % 2))
        before = reads["refused"]

        def served() -> None:
            reads.set(denied=0, locked_bytes=0)
            event.notes.append(f"{reads['refused'] - before} queues refused")
            host.taken.discard("daemon")

        self._agenda.aside(host.start, served)

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

    def _spoil_reads(self, event: Injected) -> None:
        fault, host = event.fault, self._hosts[event.fault.host]
        reads, every = self._reads[host.number], _EVERY[fault.amount % len(_EVERY)]
        host.taken.add("reads")
        before = [reads[name] for name in _TOLD]
        event.begun_ns = event.from_ns = time.monotonic_ns()
        if fault.kind is Kind.DISK_ERROR:
            reads.set(error=_ERRORS[fault.amount // 7 % len(_ERRORS)], error_every=every)
        else:
            with (self._known.folder / self._known.shards[0]).open("rb") as file:
                reads.set(unit=direct_alignment(file.fileno()), short_every=every)

        def mend() -> None:
            reads.set(error_every=0, short_every=0)
            counts = [f"{reads[name] - then} {name}" for name, then in zip(_TOLD, before, strict=True)]
            event.notes.append(", ".join(counts))
            host.taken.discard("reads")

        self._agenda.after(fault.duration_s, mend)

    def _jump(self, event: Injected) -> None:
        fault = event.fault
        who = fault.amount % (len(self._clocks) + 1)
        event.begun_ns = event.from_ns = time.monotonic_ns()
        for number, clock in enumerate(self._clocks):
            if who in (number, len(self._clocks)):
                clock.jump(_JUMPS_S[fault.amount // 7 % len(_JUMPS_S)])
