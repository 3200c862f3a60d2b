"""Orders of a session that is over are not carried out."""

from types import SimpleNamespace
from typing import Any, cast

import msgspec

from emlio.daemon.control.client import Client
from emlio.daemon.control.session_commands import SessionCommands
from emlio.session.instructions import StartStream
from emlio.session.states import DaemonState
from emlio_testing.session_pair import example_offer, example_wanted
from emlio_testing.session_states import daemon_in


class _Streams:
    lane_bytes = 1

    def __init__(self) -> None:
        self.opened = 0

    def lanes_of(self, asked: int, world_size: int) -> int:
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
