"""Orders of a session that is over are not carried out."""

from types import SimpleNamespace
from typing import Any, cast

import msgspec

from emlio.daemon.access.client_quota import ClientQuota
from emlio.daemon.control.client import Client
from emlio.daemon.control.session_commands import SessionCommands
from emlio.session.instructions import StartStream
from emlio.session.states import DaemonState
from emlio.wire.tuning import StreamTuning
from emlio_testing.session_pair import example_offer, example_wanted
from emlio_testing.session_states import daemon_in


class _Streams:
    lane_bytes = 1

    def __init__(self) -> None:
        self.opened = 0

    def lanes_of(self, asked: int, world_size: int, tuned: int = 0) -> int:
        return 2

    def open(self, **_: Any) -> SimpleNamespace:
        self.opened += 1
        return SimpleNamespace()


def _client(streams: _Streams) -> tuple[SessionCommands, Client]:
    machine = daemon_in(DaemonState.JUDGING)
    machine.offer = msgspec.structs.replace(example_offer(7), first=example_wanted(7, 1))
    nothing, serving = cast("Any", SimpleNamespace()), cast("Any", SimpleNamespace(is_draining=False))
    orders = SessionCommands(
        nothing, nothing, cast("Any", streams), serving, lambda _: None, lambda _, __: None, lambda _, __: None
    )
    caller = cast("Any", SimpleNamespace(connection=b"c", owner=b"o", hello=machine.hello))
    served = cast("Any", SimpleNamespace(dataset=SimpleNamespace(name="x")))
    client = Client(caller=caller, machine=machine, served=served, protection="clear", agreed=nothing, group="g")
    return orders, client


def test_an_order_that_came_with_the_offer_begins_a_stream() -> None:
    orders, client = _client(streams := _Streams())
    (start,) = [one for one in client.machine.agree() if isinstance(one, StartStream)]
    orders.do(client, start)
    assert (streams.opened, client.lanes) == (1, 2)


def test_a_session_that_ends_while_it_is_told_of_the_plan_gets_no_stream() -> None:
    """The rank takes no answers: sending it the plan's ends the session before the order behind it is carried out."""
    orders, client = _client(streams := _Streams())
    (start,) = [one for one in client.machine.agree() if isinstance(one, StartStream)]
    client.machine.end("the rank does not read its answers")
    orders.do(client, start)
    assert (streams.opened, client.lanes, client.stream) == (0, 0, None)


class _Tunable(_Streams):
    def __init__(self) -> None:
        super().__init__()
        self.tuned: list[tuple[int, int]] = []

    def lanes_of(self, asked: int, world_size: int, tuned: int = 0) -> int:
        return tuned or asked

    def tune(self, _: object, group: str, tuning: StreamTuning, lanes: int) -> None:
        assert group == "g"
        self.tuned.append((tuning.number, lanes))


def test_the_tuning_with_the_highest_number_holds_and_lanes_count_in_the_clients_quota() -> None:
    orders, client = _client(streams := _Tunable())
    orders.tune(client, StreamTuning(number=9, lanes=3))
    assert streams.tuned == [], "there is no stream yet"
    (start,) = [one for one in client.machine.agree() if isinstance(one, StartStream)]
    orders.do(client, start)
    before = client.lanes
    for number, lanes in ((2, 6), (1, 9), (2, 9), (3, 1), (4, 0)):
        orders.tune(client, StreamTuning(number=number, lanes=lanes))
        assert orders._lanes.of(b"o") == client.lanes
    assert streams.tuned == [(2, 6), (3, 1), (4, 1)]
    assert before != 1
    orders._lanes = ClientQuota(most=4, most_each=4)
    orders._lanes.take(b"o", client.lanes)
    orders.tune(client, StreamTuning(number=5, lanes=6))
    assert client.lanes == 1, "lanes that the client may not have are left out"


def test_a_wish_for_more_lanes_than_a_client_may_have_does_not_keep_a_stream_from_being_opened() -> None:
    orders, client = _client(_Tunable())
    orders._lanes = ClientQuota(most=4, most_each=4)
    (start,) = [one for one in client.machine.agree() if isinstance(one, StartStream)]
    usual = start.order.lanes
    wished = msgspec.structs.replace(start.order, tuning=StreamTuning(number=3, lanes=9))
    orders.do(client, StartStream(order=wished))
    assert client.stream is not None
    assert client.lanes == usual
