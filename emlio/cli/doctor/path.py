"""The path between this host and a daemon: names, ports, round trip, packets, buffers."""

import errno
import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.cli.doctor.finding import Finding, Verdict
from emlio.receiver.addresses.address import Peer, Target
from emlio.socket_buffers import receive_buffer_bytes, send_buffer_bytes
from emlio.units import counted, format_duration, format_size

__all__ = ["PathTo", "buffer_finding", "check_path"]

_TRIES: Final = 5
_FAR_NS: Final = 1_000_000
_IP_MTU: Final = 14
_IPV6_MTU: Final = 24
_JITTER: Final = 3
_USUAL_MTU: Final = 1500
_INITIAL_WINDOW: Final = 10
"""Packets that TCP sends before the first acknowledgement, unless a route says otherwise."""

_ENOUGH_BYTES: Final = 4 << 20
_TCP: Final = Path("/proc/sys/net/ipv4")


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTo:
    """A path to a control port that accepts connections.

    Attributes:
        way: the address.
        trips_ns: the times of connections.
        mtu_bytes: the largest packet; 0 if the system does not tell.
    """

    way: Peer
    trips_ns: tuple[int, ...]
    mtu_bytes: int = 0

    @property
    def trip_ns(self) -> int:
        """The round trip."""
        return min(self.trips_ns)


def check_path(target: Target, timeout_ns: int) -> Iterator[Finding | PathTo]:
    """Yield findings on the path to a daemon, and the path if there is one."""
    about = str(target.peer)
    if not target.ways:
        host = target.peer.host
        mend = f"check the spelling, and the name server: getent hosts {host}"
        yield Finding(
            check="name",
            about=about,
            verdict=Verdict.FAIL,
            evidence=f"{host} cannot be resolved: {target.trouble}",
            mend=mend,
        )
        return
    found: list[PathTo] = []
    failed: list[tuple[Peer, OSError]] = []
    for way in target.ways:
        try:
            found.append(_connect(way, timeout_ns))
        except OSError as error:
            failed.append((way, error))
    names = ", ".join(f"{way.host} (IPv{6 if ':' in way.host else 4})" for way in target.ways)
    yield Finding(check="name", about=about, verdict=Verdict.OK, evidence=f"{target.peer.host} is {names}")
    best = min(found, key=lambda path: path.trip_ns, default=None)
    if failed and (best is None or target.peer.host != "localhost"):  # where a daemon listens at one of two addresses
        yield _no_port(about, failed, timeout_ns, others=best is not None)
    if best is None:
        return
    yield from _trip(about, best)
    yield best


def _no_port(about: str, failed: Sequence[tuple[Peer, OSError]], timeout_ns: int, *, others: bool) -> Finding:
    way, error = failed[0]
    ports = f"{way.port} and the data port, usually {way.port + 1}"
    if others:
        mend = "loaders use the daemon's other address, and lose time with this one: take it out of the name server"
    elif error.errno == errno.ECONNREFUSED:
        mend = (
            "start emlio-daemon there (systemctl status emlio-daemon); if it runs, let it listen for other hosts: "
            f"--bind tcp://0.0.0.0:{way.port}"
        )
    elif isinstance(error, TimeoutError):
        mend = f"check that the host runs, and let firewalls admit TCP {ports}"
    else:
        mend = f"check address and routes (ip route get {way.host}), and let firewalls admit TCP {ports}"
    told = ", ".join(f"{way.place} {_reason(error, timeout_ns)}" for way, error in failed)
    verdict = Verdict.WARN if others else Verdict.FAIL
    return Finding(check="control port", about=about, verdict=verdict, evidence=told, mend=mend)


def _reason(error: OSError, timeout_ns: int) -> str:
    if error.errno == errno.ECONNREFUSED:
        return "refuses connections: nothing listens there"
    if isinstance(error, TimeoutError):
        return f"does not answer within {format_duration(timeout_ns)}"
    return f"cannot be reached: {os.strerror(error.errno) if error.errno else error}"


def _trip(about: str, path: PathTo) -> Iterator[Finding]:
    port = f"{path.way.place} accepts connections"
    yield Finding(check="control port", about=about, verdict=Verdict.OK, evidence=port)
    longest = max(path.trips_ns)
    told = f"{format_duration(path.trip_ns)}, at most {format_duration(longest)} ({counted(len(path.trips_ns), 'connection')})"
    uneven = longest > _JITTER * path.trip_ns and longest > 5 * _FAR_NS
    mend = "something on the way is busy, or drops packets: ping, mtr" if uneven else ""
    verdict = Verdict.WARN if uneven else Verdict.OK
    yield Finding(check="round trip", about=about, verdict=verdict, evidence=told, mend=mend)
    if path.mtu_bytes:
        small = path.mtu_bytes < _USUAL_MTU
        yield Finding(
            check="packets",
            about=about,
            verdict=Verdict.NOTE if small else Verdict.OK,
            evidence=f"of {path.mtu_bytes:,} bytes at most",
            mend="a tunnel takes room; that is usual, and costs a little processor time" if small else "",
        )
    if path.trip_ns >= _FAR_NS:
        yield _slow_start(about, path)


def _slow_start(about: str, path: PathTo) -> Finding:
    """Return what TCP's beginning costs on this path: how many round trips one connection takes for 16 MiB."""
    segment_bytes = (path.mtu_bytes or _USUAL_MTU) - 52

    def trips(packets: int) -> int:
        count, sent_bytes = 0, 0
        while sent_bytes < 16 << 20:
            sent_bytes += packets * segment_bytes
            packets, count = 2 * packets, count + 1
        return count

    usual, larger = trips(_INITIAL_WINDOW), trips(4 * _INITIAL_WINDOW)
    saved = format_duration((usual - larger) * path.trip_ns)
    return Finding(
        check="slow start",
        about=about,
        verdict=Verdict.NOTE,
        evidence=f"a new connection that begins with 10 packets, as is usual, takes {usual} round trips for its first 16 MiB, "
        f"and {larger} with 40; what the daemon's host is set to cannot be seen from here",
        mend=f"to have the first batch about {saved} earlier, as root on the daemon's host: ip route change ROUTE initcwnd 40 "
        "(docs/guide/performance.md, A faster first batch)",
    )


def buffer_finding(trip_ns: int) -> Finding:
    """Return what the kernel's limits allow one connection of this round trip; 0 where there is no path to consider."""
    receive, send = receive_buffer_bytes(), send_buffer_bytes()
    control = _control()
    told = f"TCP may hold {format_size(receive)} of what comes and {format_size(send)} of what goes{control}"
    if trip_ns >= _FAR_NS:
        told += f": over {format_duration(trip_ns)} one connection brings {format_size(receive / 2 * 1e9 / trip_ns)}/s at most"
    small = min(receive, send) < _ENOUGH_BYTES
    mend = "sysctl -w net.ipv4.tcp_rmem='4096 131072 67108864' net.ipv4.tcp_wmem='4096 131072 67108864', on both hosts"
    return Finding(
        check="buffers",
        about="this host",
        verdict=Verdict.WARN if small else Verdict.OK,
        evidence=told,
        mend=mend if small else "",
    )


def _control() -> str:
    try:
        return f", and fills paths by {(_TCP / 'tcp_congestion_control').read_text(encoding='ascii').strip()}"
    except OSError:
        return ""


def _connect(way: Peer, timeout_ns: int) -> PathTo:
    """Connect a few times."""
    trips: list[int] = []
    mtu = 0
    for _ in range(_TRIES):
        began_ns = time.perf_counter_ns()
        with socket.create_connection((way.host, way.port), timeout_ns / 1e9) as connection:
            trips.append(time.perf_counter_ns() - began_ns)
            mtu = _mtu(connection)
    return PathTo(way=way, trips_ns=tuple(trips), mtu_bytes=mtu)


def _mtu(connection: socket.socket) -> int:
    wide = connection.family == socket.AF_INET6
    level, option = (socket.IPPROTO_IPV6, _IPV6_MTU) if wide else (socket.IPPROTO_IP, _IP_MTU)
    try:
        return connection.getsockopt(level, option)
    except OSError:
        return 0
