"""Names that stand for several daemons: what they mean, and that a change of it is told."""

import gc
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import CO_GENERATOR
from queue import Queue
from threading import Event, Thread
from types import FrameType
from typing import Any

import pytest

from emlio.receiver.addresses.address import Peer, Target
from emlio.receiver.addresses.host_names import NameWatch, addresses_of, daemons_at

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


def each_alone(*hosts: str, port: int = 5555) -> tuple[Target, ...]:
    return tuple(Target(peer=peer, ways=(peer,)) for peer in peers(*hosts, port=port))


def by(name: Peer, *hosts: str) -> Target:
    return Target(peer=name, ways=tuple(replace(name, host=host) for host in hosts))


def test_a_name_with_several_addresses_is_a_daemon_at_each() -> None:
    zone = Zone(store_example=("10.0.0.1", "10.0.0.2"), alone_example=("10.0.0.3",))
    found = daemons_at([STORE, ALONE, LITERAL], zone)
    assert found == (*each_alone("10.0.0.1", "10.0.0.2"), by(ALONE, "10.0.0.3"), *each_alone("10.0.0.9"))
    assert zone.asked == ["store.example", "alone.example"]  # what is an address already is not looked up


def test_a_name_nobody_knows_stays_a_name_with_nowhere_to_go() -> None:
    def fails(host: str) -> tuple[str, ...]:
        raise OSError(-2, "Name or service not known")

    assert daemons_at([STORE], Zone()) == (Target(peer=STORE, ways=(), trouble="it has no address"),)
    (unknown,) = daemons_at([STORE], fails)
    assert (unknown.peer, unknown.ways) == (STORE, ())
    assert "Name or service not known" in unknown.trouble


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "store..example"])
def test_what_cannot_be_a_name_at_all_is_as_one_that_nobody_knows(host: str) -> None:
    (unknown,) = daemons_at([Peer(host=host, port=1)])
    assert (unknown.ways, bool(unknown.trouble)) == ((), True)


def test_a_daemon_found_in_two_ways_is_one() -> None:
    zone = Zone(store_example=("10.0.0.9", "10.0.0.2"))
    assert daemons_at([STORE, LITERAL], zone) == each_alone("10.0.0.2", "10.0.0.9")


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        (("fd00::1", "10.0.0.1"), [("store.example", "10.0.0.1", "fd00::1")]),
        (("fd00::1",), [("store.example", "fd00::1")]),
        (("fd00::3", "10.0.0.1", "fd00::1"), [("store.example", "10.0.0.1", "fd00::1", "fd00::3")]),
        (("fd00::2", "fd00::1"), [("fd00::1", "fd00::1"), ("fd00::2", "fd00::2")]),
        (
            ("fd00::2", "10.0.0.1", "fd00::1", "10.0.0.2"),
            [("10.0.0.1", "10.0.0.1", "fd00::1"), ("10.0.0.2", "10.0.0.2", "fd00::2")],
        ),
        (("10.0.0.2", "fd00::1", "10.0.0.1"), [("10.0.0.1", "10.0.0.1"), ("10.0.0.2", "10.0.0.2")]),
    ],
)
def test_addresses_of_two_families_are_ways_to_one_daemon(
    known: tuple[str, ...], wanted: list[tuple[str, ...]]
) -> None:
    found = daemons_at([STORE], Zone(store_example=known))
    assert [(one.peer.host, *(way.host for way in one.ways)) for one in found] == wanted


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1%eth0"])
def test_addresses_are_not_looked_up(host: str) -> None:
    zone = Zone()
    assert daemons_at([Peer(host=host, port=1)], zone) == each_alone(host, port=1)
    assert zone.asked == []


def test_this_host_is_tried_at_both_its_addresses_and_not_looked_up() -> None:
    zone = Zone()
    here = Peer(host="localhost", port=1)
    assert daemons_at([here], zone) == (by(here, "127.0.0.1", "::1"),)
    assert zone.asked == []


def test_real_names_are_looked_up_in_both_families() -> None:
    assert "127.0.0.1" in addresses_of("localhost")
    with pytest.raises(OSError, match=r"(?i)name|address|resol"):
        addresses_of("no-such-host.invalid")


def test_a_change_is_told_once_with_the_daemons_there_are_now() -> None:
    zone = Zone(store_example=("10.0.0.1", "10.0.0.2"))
    told: Queue[tuple[Target, ...]] = Queue()
    watch = NameWatch(told.put, look_up=zone, every_s=0.001)
    try:
        watch.watch([STORE], watch.look([STORE]))
        zone.known["store.example"] = ("10.0.0.2", "10.0.0.3")
        assert told.get(timeout=10) == each_alone("10.0.0.2", "10.0.0.3")
        zone.known["store.example"] = ("10.0.0.2",)
        assert told.get(timeout=10) == (by(STORE, "10.0.0.2"),)
        zone.known["store.example"] = ("10.0.0.7",)
        assert told.get(timeout=10) == (by(STORE, "10.0.0.7"),)  # it moved
    finally:
        watch.close()
    assert told.empty()


def test_a_loss_is_a_reason_to_look_before_it_is_time() -> None:
    zone = Zone(store_example=("10.0.0.1",))
    told: Queue[tuple[Target, ...]] = Queue()
    watch = NameWatch(told.put, look_up=zone, every_s=3600)
    try:
        watch.watch([STORE], watch.look([STORE]))
        zone.known["store.example"] = ("10.0.0.2",)
        watch.hurry()
        assert told.get(timeout=10) == (by(STORE, "10.0.0.2"),)
    finally:
        watch.close()


def test_a_name_that_becomes_known_is_told_soon_whatever_became_of_the_others() -> None:
    zone = Zone(store_example=("10.0.0.1",))
    told: Queue[tuple[Target, ...]] = Queue()
    watch = NameWatch(told.put, look_up=zone, every_s=3600)
    try:
        watch.watch([STORE, ALONE], watch.look([STORE, ALONE]))
        zone.known = {"alone.example": ("10.0.0.3",)}
        known = told.get(timeout=10)
        assert known[1] == by(ALONE, "10.0.0.3")
    finally:
        watch.close()


def test_a_name_that_is_not_known_for_a_while_sends_nobody_away() -> None:
    zone = Zone(store_example=("10.0.0.1", "10.0.0.2"))
    told: Queue[tuple[Target, ...]] = Queue()
    looks = Event()

    def look_up(host: str) -> tuple[str, ...]:
        if len(zone.asked) > 20:
            looks.set()
        return zone(host)

    watch = NameWatch(told.put, look_up=look_up, every_s=0.001)
    try:
        watch.watch([STORE], watch.look([STORE]))
        zone.known.clear()
        assert looks.wait(10)
        zone.known["store.example"] = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
        assert told.get(timeout=10) == each_alone("10.0.0.1", "10.0.0.2", "10.0.0.3")
    finally:
        watch.close()


def test_without_names_there_is_no_thread() -> None:
    zone = Zone()
    watch = NameWatch(lambda _: None, look_up=zone, every_s=0.001)
    watch.watch([LITERAL], watch.look([LITERAL]))
    watch.close()
    assert zone.asked == []


class InterruptError(Exception):
    """As a signal's handler raises one in the user's thread."""


def strike(action: Callable[[], object], place: int) -> bool:
    """Do it, and raise where the n-th Python function below it begins or ends; whether there were so many.

    The garbage collector is off meanwhile. It would call finalizers of what other tests left, at any allocation, and an
    error raised in a finalizer does not reach the action.
    """
    passed, before, collects = 0, sys.gettrace(), gc.isenabled()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal passed
        if event in ("call", "return") and not frame.f_code.co_flags & CO_GENERATOR:
            passed += 1
            if passed == place:
                raise InterruptError("ring")
        return trace

    gc.disable()
    sys.settrace(trace)
    try:
        action()
    except InterruptError:
        return True
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return False


class Finalized:
    """Garbage that only the collector finds, with a finalizer in Python."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        str(self)


def test_a_strike_hits_the_action_and_no_finalizer_of_something_else() -> None:
    def allocates() -> None:
        kept: list[list[int]] = []
        for number in range(2 * gc.get_threshold()[0]):  # the collector runs amid this, if it is on
            kept.append([number])  # noqa: PERF401 - a comprehension is a function of its own in some versions of Python

    Finalized()
    places = 0
    while strike(allocates, places + 1):
        Finalized()
        places += 1
    assert places == 2, "the function's begin and its end"


@pytest.mark.parametrize("what", ["look", "watch", "hurry", "close"])
def test_an_interrupt_in_what_a_user_does_with_names_leaves_them_usable(what: str) -> None:
    place, struck = 0, True
    while struck:
        place += 1
        watch = NameWatch(lambda _: None, look_up=lambda _: ("10.0.0.1",), every_s=3600)
        watch.watch([STORE], watch.look([STORE]))
        actions: dict[str, Callable[[], object]] = {
            "look": partial(watch.look, [STORE]),
            "watch": partial(watch.watch, [STORE], ()),
            "hurry": watch.hurry,
            "close": watch.close,
        }
        struck = strike(actions[what], place)

        def go_on(watch: NameWatch = watch) -> None:
            watch.hurry()
            watch.look([STORE])
            watch.close()

        others = Thread(target=go_on, daemon=True)
        others.start()
        others.join(20)
        assert not others.is_alive(), f"struck at place {place}"
    assert place > 2
