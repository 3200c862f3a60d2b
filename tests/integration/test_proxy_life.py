"""The fault-injecting proxy's beginning and end: what it takes it gives back."""

import os
import socket
import struct
from collections.abc import Callable
from contextlib import closing

import pytest

from emlio.errors import ClosedError
from emlio_testing.processes import settles
from emlio_testing.proxy import FaultProxy, free_ports
from emlio_testing.traffic import Course

_HERE, _FACE = "127.0.0.1", "127.0.0.2"
_LIMIT_S = 20.0


def _send_reset(side: socket.socket) -> None:
    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    side.close()


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_what_came_each_way_is_kept_if_it_is_to_be_and_a_fault_changes_nothing_of_it() -> None:
    ports = free_ports(2, _HERE, _FACE)
    for keeps in (True, False):
        with (
            socket.create_server((_HERE, ports[1])) as server,
            FaultProxy(target=_HERE, ports=ports, host=_FACE, keeps=keeps) as proxy,
            closing(socket.create_connection((_FACE, ports[1]))) as rank,
            closing(server.accept()[0]) as daemon,
        ):
            proxy.corrupt_after(2)
            rank.sendall(b"please")
            assert daemon.recv(6, socket.MSG_WAITALL) == b"please"
            daemon.sendall(b"here")
            assert rank.recv(4, socket.MSG_WAITALL) == b"hese"
            assert list(proxy.heard) == ([(Course.CREDIT, b"please"), (Course.DATA, b"here")] if keeps else [])


def test_thousands_of_connections_leave_no_descriptor() -> None:
    before = _descriptors()
    with socket.create_server((_HERE, free_ports(1, _HERE, _FACE)[0])) as server:
        port = server.getsockname()[1]
        server.settimeout(_LIMIT_S)
        with FaultProxy(target=_HERE, ports=[port], host=_FACE) as proxy:
            for number in range(3000):
                with (
                    closing(socket.create_connection((_FACE, port))) as rank,
                    closing(server.accept()[0]) as daemon,
                ):
                    daemon.sendall(b"hello")
                    if number % 7 == 0:
                        proxy.half_open()
                    elif number % 7 == 1:
                        proxy.reset()
                    elif number % 7 == 2:
                        _send_reset(rank)
            proxy.heal()  # heard after the last connection was taken in hand
            assert settles(lambda: not proxy.connections, _LIMIT_S)
            proxy.drop()
            for _ in range(300):
                socket.create_connection((_FACE, port)).close()
            assert settles(lambda: proxy.faults["drop"] == 300, _LIMIT_S)
            proxy.heal()
            assert not proxy.connections
            held = _descriptors()
        assert held - before <= 10
        assert _descriptors() == before + 1


def test_a_closed_proxy_resets_what_was_open_frees_its_ports_and_takes_no_orders() -> None:
    ports = free_ports(2, _HERE, _FACE)
    with (
        socket.create_server((_HERE, ports[1])) as server,
        FaultProxy(target=_HERE, ports=ports, host=_FACE) as proxy,
        closing(socket.create_connection((_FACE, ports[1]))) as rank,
        closing(server.accept()[0]) as daemon,
    ):
        proxy.close()
        proxy.close()
        for side in (rank, daemon):
            with pytest.raises(ConnectionResetError):
                side.recv(1)
        with pytest.raises(ClosedError, match="the proxy is closed"):
            proxy.heal()
        with FaultProxy(target=_HERE, ports=ports, host=_FACE) as again:
            assert again.connections == 0


def test_other_ports_may_be_offered_than_those_of_the_daemon_and_fewer() -> None:
    ports, offered = free_ports(2, _HERE), free_ports(2, _FACE)
    for count in (2, 1):
        with (
            socket.create_server((_HERE, ports[1])) as server,
            FaultProxy(target=_HERE, ports=ports, host=_FACE, offered=offered[:count]) as proxy,
        ):
            assert proxy.ports == tuple(offered[:count])
            if count == 1:
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection((_FACE, offered[1]))
                continue
            with (
                closing(socket.create_connection((_FACE, offered[1]))) as rank,
                closing(server.accept()[0]) as daemon,
            ):
                daemon.sendall(b"here")
                assert rank.recv(4, socket.MSG_WAITALL) == b"here"


def test_a_stalled_proxy_can_be_closed() -> None:
    with FaultProxy(target=_HERE, ports=free_ports(1, _FACE), host=_FACE) as proxy:
        proxy.stall()


def test_ports_that_are_taken_are_an_error_and_leave_nothing_open() -> None:
    ports = free_ports(2, _FACE)
    with socket.create_server((_FACE, ports[1])), pytest.raises(OSError, match="in use"):
        FaultProxy(target=_HERE, ports=ports, host=_FACE)


def test_ports_of_an_address_that_is_not_this_machines_are_never_free() -> None:
    with pytest.raises(OSError, match=r"2 neighbouring ports must be free at 192\.0\.2\.1"):
        free_ports(2, "192.0.2.1")


@pytest.mark.parametrize(
    "order",
    [lambda proxy: proxy.slow(0), lambda proxy: proxy.cut_after(0), lambda proxy: proxy.corrupt_after(1, mask=0)],
    ids=["a rate of nothing", "a cut before all", "no bit"],
)
def test_orders_that_cannot_be_are_refused(order: Callable[[FaultProxy], None]) -> None:
    with FaultProxy(target=_HERE, ports=free_ports(1, _FACE), host=_FACE) as proxy:
        with pytest.raises(ValueError, match="must"):
            order(proxy)
        assert not proxy.faults
