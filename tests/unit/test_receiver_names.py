"""Names that stand for several daemons: what they mean, and that a change of it is told."""

from queue import Queue
from threading import Event

import pytest

from emlio.receiver.address import Peer
from emlio.receiver.names import NameWatch, addresses_of, daemons_at

STORE = Peer(host="store.example", port=5555)
ALONE = Peer(host="alone.example", port=6000)
LITERAL = Peer(host="10.0.0.9", port=5555)


class Zone:
    """A name server that can be changed."""

    def __init__(self, **known: tuple[str, ...]) -> None:
        self.known = {name.replace("_", "."): addresses for name, addresses in known.items()}
        self.asked: list[str] = []

    def __call__(self, host: str) -> tuple[str, ...]:
        self.asked.append(host)
        return self.known.get(host, ())


def peers(*hosts: str, port: int = 5555) -> tuple[Peer, ...]:
    return tuple(Peer(host=host, port=port) for host in hosts)


def test_a_name_with_several_addresses_is_a_daemon_at_each() -> None:
    zone = Zone(store_example=("10.0.0.1", "10.0.0.2"), alone_example=("10.0.0.3",))
    assert daemons_at([STORE, ALONE, LITERAL], zone) == (*peers("10.0.0.1", "10.0.0.2"), ALONE, LITERAL)
    assert zone.asked == ["store.example", "alone.example"]  # what is an address already is not looked up


def test_a_name_nobody_knows_stays_a_name() -> None:
    assert daemons_at([STORE], Zone()) == (STORE,)


def test_a_daemon_found_in_two_ways_is_one() -> None:
    zone = Zone(store_example=("10.0.0.9", "10.0.0.2"))
    assert daemons_at([STORE, LITERAL], zone) == peers("10.0.0.9", "10.0.0.2")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "fe80::1%eth0"])
def test_this_host_and_addresses_are_not_looked_up(host: str) -> None:
    zone = Zone()
    assert daemons_at([Peer(host=host, port=1)], zone) == (Peer(host=host, port=1),)
    assert zone.asked == []


def test_real_names_are_looked_up_in_one_family() -> None:
    assert addresses_of("localhost") == ("127.0.0.1",)
    assert addresses_of("no-such-host.invalid") == ()


def test_a_change_is_told_once_with_the_daemons_there_are_now() -> None:
    zone = Zone(store_example=("10.0.0.1", "10.0.0.2"))
    told: Queue[tuple[Peer, ...]] = Queue()
    watch = NameWatch(told.put, look_up=zone, every_s=0.001)
    try:
        watch.watch([STORE], daemons_at([STORE], zone))
        zone.known["store.example"] = ("10.0.0.2", "10.0.0.3")
        assert told.get(timeout=10) == peers("10.0.0.2", "10.0.0.3")
        zone.known["store.example"] = ("10.0.0.2",)
        assert told.get(timeout=10) == (STORE,)
    finally:
        watch.close()
    assert told.empty()


def test_a_name_that_is_not_known_for_a_while_sends_nobody_away() -> None:
    zone = Zone(store_example=("10.0.0.1", "10.0.0.2"))
    told: Queue[tuple[Peer, ...]] = Queue()
    looks = Event()

    def look_up(host: str) -> tuple[str, ...]:
        if len(zone.asked) > 20:
            looks.set()
        return zone(host)

    watch = NameWatch(told.put, look_up=look_up, every_s=0.001)
    try:
        watch.watch([STORE], daemons_at([STORE], zone))
        zone.known.clear()
        assert looks.wait(10)
        zone.known["store.example"] = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
        assert told.get(timeout=10) == peers("10.0.0.1", "10.0.0.2", "10.0.0.3")
    finally:
        watch.close()


def test_without_names_there_is_no_thread() -> None:
    zone = Zone()
    watch = NameWatch(lambda _: None, look_up=zone, every_s=0.001)
    watch.watch([LITERAL], [LITERAL])
    watch.close()
    assert zone.asked == []
