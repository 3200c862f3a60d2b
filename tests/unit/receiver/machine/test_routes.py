"""Which address of a daemon is tried, and when the next one is."""

from emlio.receiver.addresses.address import Peer
from emlio.receiver.machine.routes import Routes

A, B, C = (Peer(host=host, port=5555) for host in ("10.0.0.1", "fd00::1", "fd00::2"))
_MS = 1_000_000


def begun(*ways: Peer) -> Routes:
    routes = Routes(ways)
    routes.begin(0, same=False)
    return routes


def turns(routes: Routes, until_ms: int, *, refusing: tuple[Peer, ...] = ()) -> list[tuple[int, str]]:
    """When it goes on to which address, where those that refuse do so at once and the others are silent."""
    found: list[tuple[int, str]] = []
    for now_ms in range(0, until_ms, 10):
        while (way := routes.turn(now_ms * _MS, refused=routes.way in refusing)) is not None:
            found.append((now_ms, way.host))
            assert len(found) < 1000
    return found


def test_one_that_is_silent_gets_a_quarter_of_a_second_and_twice_as_long_in_each_round() -> None:
    assert turns(begun(A, B), 2000) == [(250, B.host), (500, A.host), (1000, B.host), (1500, A.host)]


def test_one_that_refuses_is_followed_at_once_until_all_have_and_then_all_get_a_moment() -> None:
    routes = begun(A, B, C)
    assert turns(routes, 600, refusing=(A, B, C)) == [
        (0, B.host), (0, C.host), (250, A.host), (250, B.host), (250, C.host), (500, A.host), (500, B.host), (500, C.host),
    ]  # fmt: skip


def test_one_that_refuses_does_not_shorten_the_time_of_one_that_is_silent() -> None:
    assert turns(begun(A, B), 1300, refusing=(A,)) == [
        (0, B.host), (250, A.host), (250, B.host), (750, A.host), (750, B.host),
    ]  # fmt: skip


def test_a_single_address_is_left_to_the_network() -> None:
    routes = begun(A)
    assert turns(routes, 2000, refusing=(A,)) == []
    assert routes.deadline_ns(refused=True) is None


def test_the_next_call_begins_at_the_address_that_answered_and_else_at_the_next_one() -> None:
    routes = begun(A, B)
    assert routes.begin(0, same=True) == A
    assert routes.begin(0, same=False) == B
    assert routes.begin(0, same=True) == B
    assert routes.begin(0, same=False) == A


def test_an_address_it_does_not_have_any_more_is_left_at_once() -> None:
    routes = begun(A)
    routes.know([B])
    assert turns(routes, 100) == [(0, B.host)]
    assert routes.way == B


def test_where_none_is_known_nobody_is_called_until_there_is_one() -> None:
    routes = begun()
    assert (routes.way, turns(routes, 1000)) == (None, [])
    routes.know([A])
    assert turns(routes, 100) == [(0, A.host)]


def test_an_address_of_another_daemon_is_not_tried_again_before_all_are() -> None:
    routes = begun(A, B)
    assert routes.leads_elsewhere()
    assert routes.begin(0, same=True) == B
    assert turns(routes, 2000) == []
    assert not routes.leads_elsewhere()
    assert routes.ways == (A, B)


def test_the_deadline_is_when_the_next_turn_is() -> None:
    routes = begun(A, B)
    for refused in (False, True):
        due_ns = routes.deadline_ns(refused=refused)
        assert due_ns is not None
        other = begun(A, B)
        other.turn(0, refused=True)  # all were tried
        assert other.turn(due_ns - 1, refused=refused) is None
        assert other.turn(due_ns, refused=refused) == A


def test_an_address_that_is_none_any_more_is_left_though_all_others_were_tried() -> None:
    first, second, third = (Peer(host=f"10.0.0.{number}", port=5555) for number in (1, 2, 3))
    routes = Routes([first, second, third])
    now_ns = 0
    routes.begin(now_ns, same=False)
    for _ in range(2):
        now_ns += 10**10
        routes.turn(now_ns, refused=False)
    assert routes.way == third
    routes.know([first, second])
    assert routes.turn(now_ns + 10**10, refused=False) == first
